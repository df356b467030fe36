"""The spline program: structured solver against Clarabel's plain formulation, K = 100, and how time grows.

Everything is measured in one run. Uses Rome where METRICDP_DATA holds it, else random records with Euclidean loss.
`--plot FILE` draws the growth of time; `--quick` leaves out the largest cases.
"""

import argparse
import os
import resource
import time
from pathlib import Path

import numpy as np

import metricdp as mdp
from metricdp.geometry.bsplines import TensorSpline
from metricdp.mechanisms.spline.program import spline_program
from metricdp.optimise.engines import solve_shared


def design_problem(n_outputs):
    if (Path(os.environ.get("METRICDP_DATA", "")) / "rome").is_dir():
        return mdp.cities.load("rome").problem(outputs=n_outputs, tasks=50, seed=0)
    rng = np.random.default_rng(0)
    records, outputs = rng.random((20_000, 2)) * 50, rng.random((n_outputs, 2)) * 50
    return mdp.Problem(records, outputs, "euclidean", bounds=[[0, 0], [50, 50]])


def program_for(problem, cells, epsilon):
    grid = mdp.Grid.adaptive(problem.bounds, cells, problem.records, problem.prior)
    return spline_program(problem, TensorSpline(grid, 2), epsilon)


def measure(program, solver, gap):
    started = time.perf_counter()
    solution = solve_shared(program, solver=solver, gap=gap)
    seconds = time.perf_counter() - started
    loss, bound = program.objective(solution.table), program.dual_value(solution.multipliers)
    rows, columns = program.cost.shape
    print(
        f"{solver:10s} {rows:5d} rows x {columns:3d} outputs: {seconds:7.1f} s, {solution.iterations} iterations, "
        f"loss {loss:.5f}, own gap {(loss - bound) / loss:.1e}, {solution.status}",
        flush=True,
    )
    return seconds, loss


def against_clarabel(cells, epsilon):
    """The structured solver beside Clarabel on the same program; Clarabel's loss is exact to 1e-8."""
    program = program_for(design_problem(20), cells, epsilon)
    ours, our_loss = measure(program, "structured", 1e-5)
    theirs, their_loss = measure(program, "clarabel", 1e-8)
    return {"ours_s": ours, "peer_s": theirs, "ratio": theirs / ours, "losses_differ_by": our_loss / their_loss - 1}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    for cells in (16,) if arguments.quick else (16, 24):
        for epsilon in (0.4, 1.6):
            print(f"{cells} x {cells} cells, epsilon {epsilon}")
            row = against_clarabel(cells, epsilon)
            print(f"Clarabel / structured = {row['ratio']:.1f}x; losses differ by {row['losses_differ_by']:.1e}")
    growth = {}
    for n_outputs in (20,) if arguments.quick else (20, 40):
        for cells in (8, 12, 16) if arguments.quick else (8, 12, 16, 24, 32):
            program = program_for(design_problem(n_outputs), cells, 0.4)
            growth[n_outputs, program.cost.shape[0]] = measure(program, "structured", 1e-4)[0]
    if not arguments.quick:
        measure(program_for(design_problem(100), 32, 0.4), "structured", 0.02)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    if arguments.plot is not None:
        draw(growth, arguments.plot)


def draw(growth, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for n_outputs in sorted({key[0] for key in growth}):
        rows = sorted(key[1] for key in growth if key[0] == n_outputs)
        axes.loglog(rows, [growth[n_outputs, row] for row in rows], marker="o", label=f"{n_outputs} outputs")
    axes.set_xlabel("rows (coefficients)")
    axes.set_ylabel("seconds to a gap of 1e-4")
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
