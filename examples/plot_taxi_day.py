"""
A taxi's day
============

What the reports of a day say together, and what they cost.

A taxi drives along the streets of central Helsinki for ten hours, waits now and then, and reports once a minute with
exact noise of ε = 8 per km. Each report alone is 250 m off on average. How other taxis move is public, so whoever reads
the reports can do better at no cost in privacy: remap each by where taxis usually are, or take all earlier reports
into account (filter), or at the end of the day all reports (smoother). The picture shows half an hour, and the errors
of the day.

The other side of it: an adversary does the same sums. 600 reports cost 600 ε, and the guarantee of one report says
little about a day. The taxis are simulated; with real traces, `Movement.fit` takes a table of them.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection
from scipy.sparse.csgraph import dijkstra

import metricdp as mdp

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()

epsilon, hours, step_s, speed_km_s = 8, 10, 60, 15 / 3600
city = mdp.cities.load("helsinki").largest_component()
lengths, before = dijkstra(city.graph(), return_predecessors=True)


def drive(rng):
    """Return one taxi's day: its fixes every 20 s, from one random corner to the next, with waits of some minutes."""
    here, clock, times, nodes = rng.integers(city.n_nodes), 0.0, [], []
    while clock < 3600 * hours:
        there = rng.integers(city.n_nodes)
        way = [there]
        while way[-1] != here:
            way.append(before[here, way[-1]])
        times += (clock + lengths[here, way[::-1]] / speed_km_s).tolist()
        nodes += way[::-1]
        here, clock = there, times[-1] + rng.exponential(300)
        times.append(clock)
        nodes.append(here)
    seconds = np.arange(0, 3600 * hours, 20)
    return seconds, np.column_stack([np.interp(seconds, times, axis[nodes]) for axis in (city.lon, city.lat)])


# Public: what forty other taxis did.
days = [drive(np.random.default_rng(seed)) for seed in range(1, 41)]
table = pd.concat(
    pd.DataFrame({"id": taxi, "unix_s": seconds, "lon": where[:, 0], "lat": where[:, 1]})
    for taxi, (seconds, where) in enumerate(days)
)
movement = mdp.traces.Movement.fit(table, seconds=step_s, cell_km=0.05)
print(movement)

# Private: where our taxi is. Only its reports leave it.
seconds, where = drive(np.random.default_rng(0))
unix_s, truth = seconds[::3], where[::3]
noise = mdp.noise(epsilon, lonlat_bounds=[[city.lon.min(), city.lat.min()], [city.lon.max(), city.lat.max()]])
reports = noise.sample_lonlat(truth, mdp.InsecureSeed(0))  # a seed for the sake of the picture: not private

one_by_one = np.arange(len(reports))  # as if each report were another person's
read = {
    "report": reports,
    "static remap": mdp.traces.track(noise, movement, reports, unix_s, ids=one_by_one),
    "filtered": mdp.traces.track(noise, movement, reports, unix_s),
    "smoothed": mdp.traces.smooth(noise, movement, reports, unix_s),
}
plane = {name: 1000 * city.projection.to_xy_km(*np.asarray(one).T) for name, one in read.items()}
path = 1000 * city.projection.to_xy_km(*truth.T)
errors = {name: np.hypot(*(one - path).T) for name, one in plane.items()}
for name, one in errors.items():
    print(f"{name}: {one.mean():.0f} m off on average")
print(f"the day: {len(reports)} reports, together {len(reports) * epsilon} per km")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4.4), width_ratios=[1, 1.4], layout="constrained")
streets = 1000 * np.stack([city.xy[city.u], city.xy[city.v]], axis=1)
left.add_collection(LineCollection(streets, colors="0.88", linewidths=0.7))
colours = {"report": "#999999", "static remap": "#d55e00", "filtered": "#0072b2", "smoothed": "#009e73"}
half_hour = slice(120, 150)
left.plot(*path[half_hour].T, color="black", linewidth=2, label="where it was")
left.plot(*plane["report"][half_hour].T, ".", color=colours["report"], label="reports")
left.plot(*plane["smoothed"][half_hour].T, color=colours["smoothed"], linewidth=1.5, label="smoothed")
left.set(aspect="equal", xlabel="metres east", ylabel="metres north", title="half an hour")
left.set(xlim=(-650, 650), ylim=(-950, 950))
left.legend(loc="lower left", fontsize=8)
for name, one in errors.items():
    right.plot(np.sort(one), np.linspace(0, 100, len(one)), color=colours[name], label=f"{name}: {one.mean():.0f} m")
right.set(xlim=(0, 700), ylim=(0, 100), xlabel="error in metres", ylabel="% of the day", title="mean error of the day")
right.grid(color="0.9")
right.legend(loc="lower right")
figure.savefig(folder / "taxi_day.png", dpi=100)
