"""Approx-APO (17 x 16 anchors, 20 outputs) against scipy's linprog, and rows for a million points.

Both sides solve the same linear program in one run, so the ratio means something on a noisy machine.
Uses Rome where METRICDP_DATA holds it, else 5,000 random records with Euclidean loss.
"""

import os
import resource
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

import metricdp as mdp
from metricdp.mechanisms.aipo.program import approx_apo, surrogate_cost
from metricdp.mechanisms.aipo.split import budgets_from_shares, equal_shares
from metricdp.optimise.engines import engines_for, solve
from metricdp.optimise.programs import Program


def design_problem():
    if (Path(os.environ.get("METRICDP_DATA", "")) / "rome").is_dir():
        return "rome", mdp.cities.load("rome").problem(outputs=20, tasks=50, seed=0)
    rng = np.random.default_rng(0)
    records, outputs = rng.random((5000, 2)) * 50, rng.random((20, 2)) * 50
    return "random", mdp.Problem(records, outputs, "euclidean", bounds=[[0, 0], [50, 50]])


def timed(action):
    started = time.perf_counter()
    answer = action()
    return time.perf_counter() - started, answer


def program_for(problem, epsilon):
    """Approx-APO with equal budgets on 17 x 16 anchors."""
    grid = mdp.Grid.uniform(problem.bounds, (15, 16))
    cost = surrogate_cost(problem, grid)
    return approx_apo(cost, grid, budgets_from_shares(equal_shares(2), epsilon / 2, 2))


def by_scipy(program):
    """Return seconds and the loss."""
    seconds, reference = timed(
        lambda: linprog(
            program.cost.ravel(),
            A_ub=program.inequality,
            b_ub=np.zeros(program.inequality.shape[0]),
            A_eq=program.row_sums(),
            b_eq=np.ones(program.n_rows),
            method="highs",
        )
    )
    return seconds, float(reference.fun)


def by_engine(program, engine):
    """Return seconds and the loss."""
    seconds, solution = timed(lambda: solve(program, solver=engine))
    return seconds, float(program.objective(solution.table))


def against_scipy(epsilon):
    """The default engine beside scipy's linprog on the same program."""
    program = program_for(design_problem()[1], epsilon)
    (theirs, their_loss), (ours, our_loss) = by_scipy(program), by_engine(program, "auto")
    return {"ours_s": ours, "peer_s": theirs, "ratio": theirs / ours, "losses_differ_by": our_loss / their_loss - 1}


def main():
    name, problem = design_problem()
    print(f"{name}: 17 x 16 anchors x {problem.n_outputs} outputs")
    totals = dict.fromkeys([*engines_for(Program), "scipy"], 0.0)
    for epsilon in (0.2, 0.4, 0.8, 1.6):
        program = program_for(problem, epsilon)
        seconds, loss = by_scipy(program)
        totals["scipy"] += seconds
        line = [f"epsilon {epsilon}", f"scipy {seconds:6.2f} s (loss {loss:.6f})"]
        for engine in engines_for(Program):
            spent, loss = by_engine(program, engine)
            totals[engine] += spent
            line.append(f"{engine} {spent:6.2f} s, {seconds / spent:4.1f}x (loss {loss:.6f})")
        print("; ".join(line))
    for engine in engines_for(Program):
        print(f"all four: scipy / {engine} = {totals['scipy'] / totals[engine]:.1f}x")

    mechanism = mdp.fit(problem, 0.4, "aipo-e", cells=(15, 16))
    points = np.random.default_rng(1).uniform(*problem.bounds, size=(10**6, 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    seconds, _ = timed(lambda: mechanism.probabilities(points))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"probabilities of 10^6 points, K = 20: {seconds:.2f} s, peak memory {before:.2f} -> {after:.2f} GB")


if __name__ == "__main__":
    main()
