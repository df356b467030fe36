"""Four axes: trips, start and end, by splines on few cells and by Laplace noise with remap.

python benchmarks/four_axes.py                trips between random road nodes of Helsinki
python benchmarks/four_axes.py --pruning 60   `auto` in so many seconds, with and without pruned coefficients, on these
                                              trips and, with METRICDP_DATA, on those of taxis
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy.cluster.vq import kmeans2

import metricdp as mdp
from metricdp._validation import FloatArray


def trips(records: int, outputs: int) -> mdp.Problem:
    """Return trips between random road nodes."""
    rng = np.random.default_rng(0)
    nodes = mdp.cities.load("helsinki").xy
    return problem_of(np.column_stack([nodes[rng.integers(len(nodes), size=records)] for _ in range(2)]), outputs)


def taxi_trips(data: Path, records: int, outputs: int) -> mdp.Problem:
    """Return trips with a passenger, within about 6 km of the centre of San Francisco, in km on a plane."""
    fixes = pd.read_csv(data / "san-francisco-taxis" / "traces.csv.xz").sort_values(["taxi", "unix_s"])
    changed = fixes.groupby("taxi")["occupied"].diff()
    where = np.column_stack([(fixes["lon"] + 122.42) * 88.0, (fixes["lat"] - 37.77) * 111.2])
    starts, ends = np.flatnonzero(changed == 1), np.flatnonzero(changed == -1)
    after = np.searchsorted(ends, starts)
    starts, ends = starts[after < len(ends)], ends[after[after < len(ends)]]
    same = fixes["taxi"].to_numpy()[starts] == fixes["taxi"].to_numpy()[ends]
    both = np.column_stack([where[starts[same]], where[ends[same]]])
    both = both[(np.abs(both) < 6).all(axis=1)]
    return problem_of(np.random.default_rng(0).permutation(both)[:records], outputs)


def problem_of(ends: FloatArray, outputs: int) -> mdp.Problem:
    """Return the problem of trips whose loss is the mean distance of both ends from the reported ones."""
    reported, _ = kmeans2(ends, outputs, seed=0, minit="++")

    def loss(given, answers):
        apart = (given[:, None] - answers).reshape(len(given), len(answers), 2, 2)
        return np.linalg.norm(apart, axis=3).mean(axis=2)

    return mdp.Problem(ends, reported, loss)


def pruning(seconds: float) -> None:
    """Print what `auto` reaches with and without pruned coefficients, in the same time."""
    cases = [("Helsinki", trips(1500, 20), epsilon) for epsilon in (2.0, 4.0, 8.0)]
    if data := os.environ.get("METRICDP_DATA"):
        cases += [("taxis", taxi_trips(Path(data), 4000, 20), epsilon) for epsilon in (0.5, 1.0, 2.0)]
    for name, problem, epsilon in cases:
        for pruned in (False, True):
            all_of_them = mock.patch("metricdp.mechanisms.spline.fit.worthwhile_coefficients", return_value=None)
            started = time.process_time()
            if pruned:
                mechanism = mdp.fit(problem, epsilon, time_limit=seconds)
            else:
                with all_of_them:
                    mechanism = mdp.fit(problem, epsilon, time_limit=seconds)
            spent = time.process_time() - started
            tried = [one for one in mechanism.report["tried"] if one["method"] in {"spline", "laplace-remap"}]
            words = ", ".join(f"{one.get('cells', one['method'])} {one['loss']:.4f}" for one in tried)
            print(
                f"{name}, ε = {epsilon:g}, {'pruned' if pruned else 'all'}: {words}; processor {spent:.0f} s",
                flush=True,
            )


def main() -> None:
    """Print one line per ε and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1, 2, 4, 8])
    parser.add_argument("--degrees", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cells", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--breakpoints", nargs="+", default=["adaptive"])
    parser.add_argument("--clusters", type=int, default=0, help="of the lower bound; 0 leaves it out")
    parser.add_argument("--pruning", type=float, metavar="SECONDS", help="compare designs by auto instead")
    options = parser.parse_args()
    if options.pruning is not None:
        pruning(options.pruning)
        return
    problem = trips(1500, 20)
    print(f"floor {problem.floor:.4f}, best constant report {(problem.prior @ problem.loss).min():.4f}", flush=True)
    splines = [
        ("spline", {"degree": degree, "cells": cells, "breakpoints": breakpoints, "gap": 1e-4})
        for breakpoints in options.breakpoints
        for degree in options.degrees
        for cells in options.cells
    ]
    for epsilon in options.epsilons:
        for method, given in [("em", {}), ("laplace-remap", {}), *splines]:
            started = time.process_time()
            loss = mdp.fit(problem, epsilon, method, **given).expected_loss(problem)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            spent = time.process_time() - started
            print(
                f"{epsilon:g} {method} {given}: {loss:.4f}, processor {spent:.1f} s, {peak:.2f} GB so far", flush=True
            )
        if options.clusters:
            print(f"{epsilon:g} bound: {mdp.lower_bound(problem, epsilon, clusters=options.clusters):.4f}", flush=True)


if __name__ == "__main__":
    main()
