"""Exact samples per second, against what does without exactness and against an exact peer, in one run."""

import argparse
import json
import time

import numpy as np

from metricdp.grid import Grid
from metricdp.mechanisms.spline import Spline

STEP, SIDE, CELLS, DEGREE = 2.0**-20, 40.0, 24, 2


def mechanism(n_outputs, rng):
    """A table as `fit` makes them; privacy does not matter for speed, so the rows are random."""
    grid = Grid.uniform(np.array([[0.0, 0.0], [SIDE, SIDE]]), CELLS).on_lattice(STEP)
    rows = rng.dirichlet(np.full(n_outputs, 0.3), size=(DEGREE * CELLS + 1) ** 2)
    fields = {"outputs": rng.uniform(0, SIDE, (n_outputs, 2)), "bounds": grid.bounds, "epsilon": 1.0, "p": 2.0}
    return Spline.from_probabilities({**fields, "method": "spline"}, STEP, grid, DEGREE, rows)


def inverse_cdf(points, spline, rng):
    """What one writes with numpy: rows in floating point, cumulated, compared with PCG64 floats."""
    drawn = np.empty(len(points), dtype=np.intp)
    step = max(1, 2**21 // spline.n_outputs)
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        ladder = spline.probabilities(points[part]).cumsum(axis=1)
        drawn[part] = (ladder < rng.random((len(points[part]), 1))).sum(axis=1)
    return drawn


def opendp_selection(points, spline):
    """OpenDP's exact selection with Gumbel noise, one call per draw; with logarithms as scores its law is the row."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    select = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=1.0)
    for row in spline.probabilities(points):
        select(np.log(row).tolist())


def rate(work, points, *arguments):
    started = time.perf_counter()
    work(points, *arguments)
    return len(points) / (time.perf_counter() - started)


def measure(n_outputs, n_points, rng):
    spline = mechanism(n_outputs, rng)
    points = rng.uniform(0, SIDE, (n_points, 2))
    started = time.perf_counter()
    spline.sample(points[:1])
    tables = time.perf_counter() - started
    return {
        "outputs": n_outputs,
        "exact_per_second": max(rate(spline.sample, points) for _ in range(3)),
        "numpy_inverse_cdf_per_second": rate(inverse_cdf, points[: max(1000, 10_000_000 // n_outputs)], spline, rng),
        "opendp_per_second": rate(opendp_selection, points[:2000], spline),
        "seconds_for_tables": tables,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    answers = [measure(n_outputs, arguments.points, rng) for n_outputs in (20, 1000)]
    if arguments.json:
        print(json.dumps(answers, indent=1))
        return
    for answer in answers:
        exact = answer["exact_per_second"]
        print(
            f"K = {answer['outputs']}: {exact / 1e6:.1f} million exact samples/s "
            f"(tables once, {answer['seconds_for_tables']:.2f} s), "
            f"{exact / answer['numpy_inverse_cdf_per_second']:.1f} times numpy's inverse CDF, "
            f"{exact / answer['opendp_per_second']:.0f} times OpenDP per draw"
        )


if __name__ == "__main__":
    main()
