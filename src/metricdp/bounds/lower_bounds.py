"""How far from the best possible: losses that no (ε, d_p)-mDP mechanism can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from metricdp._clock import Clock
from metricdp._validation import FloatArray, choice, integer, positive, reject
from metricdp.bounds.program import cluster_cost, cluster_records, farthest_distances, least_loss_per_cell
from metricdp.geometry.earth import distortion
from metricdp.geometry.norms import norm
from metricdp.mechanisms.options import GridOptions, ProgressCallback, require_memory
from metricdp.optimise.engines import Solution, Status, solve, solve_shared
from metricdp.optimise.lazy_constraints import solve_lazily
from metricdp.optimise.pair_constraints import (
    LEAST_COEFFICIENT,
    START_NEIGHBOURS,
    Pairs,
    nearest_pairs,
    pair_inequalities,
    spanning_pairs,
)
from metricdp.optimise.programs import SharedProgram
from metricdp.problem import Problem

__all__ = ["lower_bound"]

# The dual value is a sum of at most a few million rounded terms; this covers their rounding many times over.
_ROUNDING = 1e-12

# Bytes per inequality at the peak of an interior-point solve, measured with 500 to 2,000 clusters and
# rounded up.
_BYTES_PER_INEQUALITY = 2000

# How much longer than a distance chains of pairs may be. Those of the 8 nearest alone are 4.6 % longer on average (for
# 1,000 centres in Rome), as if ε were that much larger; these, of 19 pairs per centre, 0.5 %.
_STRETCH = 0.02

# Pairs of centres this close, as ε times their distance, are left out.
_CLOSEST = 1e-9

# Relative gap between the bound and the value of its program; what is left of it loosens the bound.
_GAP = 1e-7


def lower_bound(
    problem: Problem,
    epsilon: float,
    clusters: int = 1000,
    kind: str = "tight",
    *,
    neighbours: int = 64,
    cells: int | Sequence[int] | None = None,
    seed: int = 0,
    solver: str = "auto",
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
) -> float:
    """Return a number that the expected loss of no (ε, d_p)-mDP mechanism on the box can fall below.

    With a projection ε is per true km: true distances are at most λ times those on the map, so a mechanism that is
    private on the ground is (ελ, d_p)-mDP on the map, and that is what the bound is for.

    Parameters
    ----------
    problem : Problem
        Records, outputs, loss, prior, norm and box.
    epsilon : float
        Privacy budget per unit of distance.
    clusters : int
        For "tight": groups of records. More is tighter and slower.
    kind : "tight", "paper" or "floor"
        "floor" is the loss without privacy, Σ π(x) min_k L(x, k). "paper" is Proposition 5 on grid cells,
        as it stands; it can fall below the floor. "tight" joins records to cluster centres by mDP itself
        (see `metricdp.programs.lower_bound.cluster_cost`), keeps the centres private from each other, and
        is at least the floor.
    neighbours : int
        For "tight": how many nearest centres each centre is kept private from, directly or by chains at most 2 % longer
        than their distance. Fewer is looser, still valid.
    cells : int or sequence, optional
        For "paper": cells along each axis, 16 in the plane by default.
    seed : int
        Where clustering starts.
    solver, time_limit, progress
        As in `metricdp.fit`. When time runs out the answer is a looser bound.

    Notes
    -----
    The answer is a dual value, computed from the solver's multipliers (`Program.dual_value`). Any
    multipliers give a bound, so it does not rest on the solver's accuracy; 1e-12 of the sizes involved is
    taken off for rounding.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> bool(problem.floor < lower_bound(problem, 1.0) < problem.uniform_loss)
    True
    """
    if not isinstance(problem, Problem):
        raise reject("problem", "a metricdp.Problem", type(problem).__name__)
    budget = positive("epsilon", epsilon)
    if problem.projection is not None:
        budget *= distortion(problem.projection, problem.bounds).stretch
    choice("kind", kind, ("tight", "paper", "floor"))
    options = GridOptions(cells=cells, solver=solver, time_limit=time_limit, progress=progress)
    floor = _rounded_down(problem.floor, problem)
    if kind == "floor":
        return floor
    if kind == "paper":
        return _by_cells(problem, budget, options)
    number = integer("clusters", clusters, 1)
    near = integer("neighbours", neighbours, 1)
    return max(floor, _by_clusters(problem, budget, number, near, integer("seed", seed, 0), options))


def _by_clusters(
    problem: Problem, epsilon: float, count: int, neighbours: int, seed: int, options: GridOptions
) -> float:
    clock = Clock(options.time_limit)
    count = min(count, problem.n_records)
    groups = cluster_records(problem, count, seed)
    cost, constant = cluster_cost(problem, epsilon, groups)
    pairs = spanning_pairs(groups.centres, problem.p, neighbours, _STRETCH if count > neighbours else 0.0)
    needed = len(pairs) * problem.n_outputs * _BYTES_PER_INEQUALITY / 1e9
    require_memory(needed, f"{count} `clusters` and {problem.n_outputs} outputs", "take fewer `clusters`")
    # `norm` errs by a few roundings; a longer distance only loosens a constraint.
    distances = norm(groups.centres[pairs[:, 0]] - groups.centres[pairs[:, 1]], problem.p) * (1 + 1e-14)
    shrink = np.exp(-epsilon * distances)
    # Pairs left out loosen the bound. Far ones hardly bind; of centres that all but coincide no table is inside.
    kept = (shrink >= LEAST_COEFFICIENT) & (shrink <= 1 - _CLOSEST)
    program = _program(cost, pairs[kept], shrink[kept])
    if options.progress is not None:
        options.progress(0.1, f"{len(groups.centres)} clusters, {kept.sum() * problem.n_outputs} inequalities")
    solution = _solve(program, options.solver, clock)
    if options.progress is not None:
        options.progress(1.0, f"{solution.engine}: {solution.status}")
    bound = problem.floor - constant if solution.multipliers is None else program.dual_value(solution.multipliers)
    return _rounded_down(bound + constant, problem)


def _program(cost: FloatArray, pairs: Pairs, shrink: FloatArray) -> SharedProgram:
    """Return min ⟨cost, Z⟩ with shrink · Z_ik ≤ Z_jk for ordered pairs (i, j) and every output k."""
    one_output = np.zeros(len(pairs), dtype=np.intp)
    return SharedProgram(cost, (-pair_inequalities(pairs, one_output, shrink, (len(cost), 1)),))


def _solve(program: SharedProgram, solver: str, clock: Clock) -> Solution:
    """Solve with the structured engine, or with a general one on the program written out in full."""
    if program.operators[0].shape[0] == 0:  # one cluster, or all far apart: every row is free
        return Solution(None, np.zeros((1, 0, program.cost.shape[1])), Status.OPTIMAL, "none", 0.0, 0)
    if solver == "auto":
        found = solve_shared(program, gap=_GAP, time_limit=clock.left)
        # Where ε is so small that all rows nearly agree, the structured engine can stall short of the optimum.
        if found.status is not Status.INACCURATE:
            return found
    found = solve(program.expand(), solver=solver, time_limit=clock.left)
    if found.multipliers is None:
        return found
    return replace(found, multipliers=found.multipliers.reshape(1, -1, program.cost.shape[1]))


def _by_cells(problem: Problem, epsilon: float, options: GridOptions) -> float:
    grid = options.grid(problem)
    cost, numbers = least_loss_per_cell(problem, grid)
    needed = 64e-9 * len(numbers) ** 2
    require_memory(needed, f"`cells` with {len(numbers)} cells", "take fewer `cells`")
    farthest = farthest_distances(grid, numbers, problem.p) * (1 + 1e-14)
    places = np.stack(np.unravel_index(numbers, [count - 1 for count in grid.shape]), axis=1)
    # d̂ of a chain adds cell sizes at every link, so far pairs bind too: all pairs, found lazily.
    found = solve_lazily(
        cost,
        farthest,
        epsilon,
        nearest_pairs(places.astype(np.float64), np.inf, START_NEIGHBOURS),
        solver=options.solver,
        clock=Clock(options.time_limit),
        progress=options.progress,
    )
    return _rounded_down(found.bound, problem)


def _rounded_down(value: float, problem: Problem) -> float:
    size = float(problem.prior @ np.abs(problem.loss).max(axis=1))
    return value - _ROUNDING * (abs(value) + size)
