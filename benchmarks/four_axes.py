"""Four axes: trips in Helsinki, start and end, by splines on few cells and by Laplace noise with remap."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from scipy.cluster.vq import kmeans2

import metricdp as mdp


def trips(records: int, outputs: int) -> mdp.Problem:
    """Return trips between random road nodes; the loss is the mean distance of both ends from the reported ones."""
    rng = np.random.default_rng(0)
    nodes = mdp.cities.load("helsinki").xy
    ends = np.column_stack([nodes[rng.integers(len(nodes), size=records)] for _ in range(2)])
    reported, _ = kmeans2(ends, outputs, seed=0, minit="++")

    def loss(given, answers):
        apart = (given[:, None] - answers).reshape(len(given), len(answers), 2, 2)
        return np.linalg.norm(apart, axis=3).mean(axis=2)

    return mdp.Problem(ends, reported, loss)


def main() -> None:
    """Print one line per ε and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1, 2, 4, 8])
    parser.add_argument("--degrees", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--cells", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--breakpoints", nargs="+", default=["adaptive"])
    parser.add_argument("--clusters", type=int, default=0, help="of the lower bound; 0 leaves it out")
    options = parser.parse_args()
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
