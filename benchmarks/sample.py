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


def inverse_cdf(spline, points, rng):
    """What one writes with numpy: rows in floating point, cumulated, compared with PCG64 floats."""
    drawn = np.empty(len(points), dtype=np.intp)
    step = max(1, 2**21 // spline.n_outputs)
    for start in range(0, len(points), step):
        part = slice(start, start + step)
        ladder = spline.probabilities(points[part]).cumsum(axis=1)
        drawn[part] = (ladder < rng.random((len(points[part]), 1))).sum(axis=1)
    return drawn


def opendp_selection(spline, points):
    """OpenDP's exact selection with Gumbel noise, one call per draw; scores are logarithms of the row, so the law is it."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    select = dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=1.0)
    for row in spline.probabilities(points):
        select(np.log(row).tolist())


def rate(count, work):
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    answers = []
    for n_outputs in (20, 1000):
        spline = mechanism(n_outputs, rng)
        points = rng.uniform(0, SIDE, (arguments.points, 2))
        started = time.perf_counter()
        spline.sample(points[:1])
        tables = time.perf_counter() - started
        exact = max(rate(len(points), lambda: spline.sample(points)) for _ in range(3))
        some = points[: max(1000, 10_000_000 // n_outputs)]
        numpy_rate = rate(len(some), lambda: inverse_cdf(spline, some, rng))
        few = points[:2000]
        opendp_rate = rate(len(few), lambda: opendp_selection(spline, few))
        answer = {
            "outputs": n_outputs,
            "exact_per_second": exact,
            "numpy_inverse_cdf_per_second": numpy_rate,
            "opendp_per_second": opendp_rate,
            "seconds_for_tables": tables,
        }
        answers.append(answer)
        if not arguments.json:
            print(
                f"K = {n_outputs}: {exact / 1e6:.1f} million exact samples/s (tables once, {tables:.2f} s), "
                f"{exact / numpy_rate:.1f} times numpy's inverse CDF, {exact / opendp_rate:.0f} times OpenDP per draw"
            )
    if arguments.json:
        print(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
