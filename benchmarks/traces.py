"""Tracking taxis of San Francisco by their reports: error of raw reports, static remap, filter and smoother; speed.

Needs `san-francisco-taxis/traces.csv.xz` where METRICDP_DATA points. Movement is learned from 20 taxis; the other ten
report. Results go to a JSON file as they come, and a second run goes on where the first ended.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd

import metricdp as mdp
from metricdp import traces
from metricdp.traces.learning import read_traces, resampled

CENTRE, HALF_KM = (-122.42, 37.77), 8.0
TRAINING_TAXIS, REPORTS, TRIPS, CELL_KM = 20, 24, 400, 0.2
STEPS_S, EPSILONS = (60, 300), (1.0, 2.0, 4.0)
# Static remap at these ε says which ε it would need for the error of the filter and the smoother.
LADDER = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0)
RESAMPLES = 2000
MODELS = [("", a, 0.01) for a in (0.0, 0.3, 0.5, 0.7, 0.9)] + [("", 0.5, r) for r in (1e-4, 1e-3, 0.05)]
MODELS += [("rows not normalised, ", a, 0.01) for a in (0.3, 0.5)]


def taxis():
    path = Path(os.environ.get("METRICDP_DATA", ""), "san-francisco-taxis", "traces.csv.xz")
    frame = pd.read_csv(path).rename(columns={"taxi": "id"})
    return frame[frame["id"] < TRAINING_TAXIS], frame[frame["id"] >= TRAINING_TAXIS]


def box():
    half = HALF_KM / mdp.cities.Equirectangular(*CENTRE).km_per_degree
    return np.array([CENTRE - half, CENTRE + half])


def trips(table, raster, step_s, count=TRIPS, seed=0):
    """Return (trips, reports, 2) degrees: stretches of taxis' traces that do not leave the box."""
    path = resampled(read_traces(table), raster, step_s, longest_gap_s=180)
    inside = raster.cells_of(path.xy_km) >= 0
    apart = (np.diff(path.trace) != 0) | (np.diff(path.tick) != 1) | ~inside[1:] | ~inside[:-1]
    runs = np.split(np.arange(len(inside)), np.flatnonzero(apart) + 1)
    starts = [run[first] for run in runs for first in range(0, len(run) - REPORTS + 1, REPORTS)]
    chosen = np.random.default_rng(seed).permutation(starts)[:count]
    points = path.xy_km[chosen[:, None] + np.arange(REPORTS)]
    return raster.from_plane(points.reshape(-1, 2)).reshape(points.shape)


def distances_km(estimates, points, raster):
    """Return how far estimates are from the truth, (trips, reports)."""
    there, here = (raster.to_plane(one.reshape(-1, 2)) for one in (estimates, points))
    return np.hypot(*(there - here).T).reshape(points.shape[:2])


def drawn(points, epsilon, seed):
    noise = mdp.noise(epsilon, lonlat_bounds=box())
    return noise, np.asarray(noise.sample_lonlat(points.reshape(-1, 2), mdp.InsecureSeed(seed)))


def errors(movement, points, epsilon, step_s, *, only_static=False):
    """Return the error of each way to read the same reports, each (trips, reports)."""
    noise, reports = drawn(points, epsilon, seed=1)
    n_trips = len(points)
    unix_s = np.tile(step_s * np.arange(REPORTS), n_trips)
    trip = np.repeat(np.arange(n_trips), REPORTS)
    read = {"raw": reports}
    # A person with one report has no history: the tracker is then the usual Bayes remap under the prior.
    read["static"] = traces.track(noise, movement, reports, unix_s, ids=np.arange(len(reports)))
    if not only_static:
        read["filtered"] = traces.track(noise, movement, reports, unix_s, ids=trip)
        read["smoothed"] = traces.smooth(noise, movement, reports, unix_s, ids=trip)
    return {name: distances_km(one, points, movement.raster) for name, one in read.items()}


def summary(found, seed=0):
    """Return means with 95 % intervals, and gains over static remap, by resampling whole trips."""
    by_trip = {name: one.mean(axis=1) for name, one in found.items()}
    n_trips = len(by_trip["raw"])
    drawn_again = np.random.default_rng(seed).integers(0, n_trips, (RESAMPLES, n_trips))
    means = {name: one[drawn_again].mean(axis=1) for name, one in by_trip.items()}
    answer = {"trips": n_trips}
    for name, one in by_trip.items():
        answer[name] = [float(one.mean()), *np.quantile(means[name], [0.025, 0.975]).tolist()]
        if name in ("filtered", "smoothed"):
            gain = 1 - means[name] / means["static"]
            exact = 1 - one.mean() / by_trip["static"].mean()
            answer[f"{name}_gain"] = [float(exact), *np.quantile(gain, [0.025, 0.975]).tolist()]
    return answer


def same_error(ladder, error):
    """Return the ε at which static remap has this error, between the ε of the ladder; errors fall as ε grows."""
    tried, found = zip(*sorted((float(epsilon), one) for epsilon, one in ladder.items()), strict=True)
    return float(np.exp(np.interp(-np.log(error), -np.log(found), np.log(tried))))


def places(movement, training, points, epsilon, step_s, n_places=50):
    """Return the mean distance to the reported place: static Laplace remap, and remap by history."""
    rng = np.random.default_rng(2)
    inside = movement.raster.cells_of(movement.raster.to_plane(training[["lon", "lat"]].to_numpy())) >= 0
    known = training[["lon", "lat"]].to_numpy()[inside]
    problem = mdp.Problem.from_lonlat(rng.choice(known, 4000), rng.choice(known, n_places), bounds=box())
    static = mdp.fit(problem, epsilon, "laplace-remap")
    spots = static.places[["lon", "lat"]].to_numpy()
    chosen = static.sample_lonlat(points.reshape(-1, 2), mdp.InsecureSeed(3))
    noise, seed = mdp.noise(epsilon, lonlat_bounds=box()), mdp.InsecureSeed(4)
    reporter = traces.HistoryRemap(noise, movement, problem)
    by_history = []
    for trip in points:
        reporter.tracker.reset()
        by_history += [reporter.sample_lonlat(point, step_s * i, seed) for i, point in enumerate(trip)]
    found = {"static": spots[chosen], "history": spots[by_history], "raw": drawn(points, epsilon, 5)[1]}
    return {name: distances_km(one, points, movement.raster).mean(axis=1).mean() for name, one in found.items()}


class Unnormalised(traces.Movement):
    """Weights k(y − x) π(y)^a without Z: no Markov chain, but a filter all the same."""

    def _normaliser(self, shares):  # noqa: ARG002
        return np.ones(self.raster.n_cells)


def by_exponent(training, points, step_s, epsilon=1.0):
    """Return the filter's error for several exponents of the prior and chances to restart."""
    found = {}
    for kind, exponent, restart in MODELS:
        model = {"": traces.Movement, "rows not normalised, ": Unnormalised}[kind]
        movement = model.fit(
            training, step_s, CELL_KM, bounds=box(), exponent=exponent, restart=restart, longest_s=step_s
        )
        noise, reports = drawn(points, epsilon, seed=6)
        unix_s, trip = np.tile(step_s * np.arange(REPORTS), len(points)), np.repeat(np.arange(len(points)), REPORTS)
        filtered = traces.track(noise, movement, reports, unix_s, ids=trip)
        found[f"{kind}a = {exponent:g}, r = {restart:g}"] = distances_km(filtered, points, movement.raster).mean()
    return found


def speed(seconds=3.0):
    """Return updates a second on 100 × 100 cells, kernels of 81 × 81, one core."""
    rng = np.random.default_rng(0)
    raster = traces.Raster([0, 0], 0.2, (100, 100))
    movement = traces.Movement(raster, rng.uniform(0.1, 1, 10_000), [rng.uniform(0.1, 1, (81, 81))], [60])
    noise = mdp.noise(1.0, bounds=[[0, 0], [20, 20]])
    answers = {}
    for loss in ("euclidean", "squared"):
        tracker = traces.Tracker(noise, movement, loss=loss)
        tracker.update([10, 10], 0)
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            count += 1
            tracker.update(rng.uniform(0, 20, 2), 60 * count)
        answers[loss] = count / (time.perf_counter() - started)
    return answers | {f"predictions, {size} traces at once": predictions(movement, size) for size in (1, 32)}


def predictions(movement, size, seconds=1.0):
    """Return predictions a second, for so many traces in one Fourier transform."""
    beliefs = np.tile(movement.prior, (size, 1))
    movement.predict(beliefs, 60)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        count += size
        movement.predict(beliefs, 60)
    return count / (time.perf_counter() - started)


class Store:
    """Results by name in a JSON file; what is there is not computed again."""

    def __init__(self, path):
        self.path = path
        self.known = json.loads(path.read_text()) if path.exists() else {}

    def get(self, name, compute):
        if name not in self.known:
            started = time.perf_counter()
            self.known[name] = compute()
            self.path.write_text(json.dumps(self.known, indent=1))
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
        return self.known[name]


def draw(rows, path):
    from matplotlib import pyplot as plt

    styles = {
        "raw": ("the report itself", "#999999", "s"),
        "static": ("static remap", "#d55e00", "D"),
        "filtered": ("filtered", "#0072b2", "o"),
        "smoothed": ("smoothed", "#009e73", "^"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
    for axis, step_s in zip(axes, STEPS_S, strict=True):
        for name, (label, colour, marker) in styles.items():
            mean, low, high = np.array([rows[f"{step_s} s, ε = {epsilon:g}"][name] for epsilon in EPSILONS]).T
            axis.errorbar(
                EPSILONS, mean, (mean - low, high - mean), color=colour, marker=marker, label=label, capsize=3
            )
        axis.set(xscale="log", yscale="log", xlabel="ε per km", title=f"a report every {step_s} s")
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.set_yticks([0.3, 0.5, 1, 2], ["0.3", "0.5", "1", "2"])
        axis.minorticks_off()
        axis.grid(color="0.9")
    axes[0].set_ylabel("mean error, km")
    axes[1].legend()
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("traces.json"), help="results, kept between runs")
    parser.add_argument("--picture", type=Path, help="where to draw the errors")
    chosen = parser.parse_args()
    store = Store(chosen.out)
    training, testing = taxis()
    for step_s in STEPS_S:
        movement = traces.Movement.fit(training, seconds=step_s, cell_km=CELL_KM, bounds=box())
        points = trips(testing, movement.raster, step_s)
        for epsilon in EPSILONS:
            store.get(
                f"{step_s} s, ε = {epsilon:g}",
                lambda e=epsilon, s=step_s, m=movement, x=points: summary(errors(m, x, e, s)),
            )
        ladder = store.get(
            f"{step_s} s, static remap by ε",
            lambda s=step_s, m=movement, x=points: {
                e: float(errors(m, x, e, s, only_static=True)["static"].mean()) for e in LADDER
            },
        )
        for epsilon in EPSILONS:
            row = store.known[f"{step_s} s, ε = {epsilon:g}"]
            print(f"every {step_s} s, ε = {epsilon:g}, {row['trips']} trips")
            for name in ("raw", "static", "filtered", "smoothed"):
                mean, low, high = row[name]
                print(f"  {name:9} {mean:.3f} km ({low:.3f} to {high:.3f})", end="")
                if f"{name}_gain" in row:
                    gain, least, most = row[f"{name}_gain"]
                    equal = same_error(ladder, mean)
                    print(f"  {gain:.1%} below static ({least:.1%} to {most:.1%}), which needs ε = {equal:.2f}", end="")
                print()
        found = store.get(
            f"{step_s} s, 50 places, ε = 1",
            lambda s=step_s, m=movement, x=points: places(m, training, x[:150], 1.0, s),
        )
        print(f"  to one of 50 places: static {found['static']:.3f} km, by history {found['history']:.3f} km")
        varied = store.get(f"{step_s} s, exponents", lambda s=step_s, x=points: by_exponent(training, x[:150], s))
        print("  filtered, ε = 1:", ", ".join(f"{name}: {one:.3f} km" for name, one in varied.items()))
    finer = traces.Movement.fit(training, seconds=60, cell_km=CELL_KM, bounds=box())
    found = store.get("300 s, ε = 1, lags of 60 s and doubling", lambda: summary(errors(finer, points, 1.0, 300)))
    print(f"every 300 s with lags of 60, 120, 240, 480 … s: {found['filtered'][0]:.3f} km")
    print("a second on 100 x 100 cells:", {name: round(one) for name, one in speed().items()})
    if chosen.picture:
        draw(store.known, chosen.picture)


if __name__ == "__main__":
    main()
