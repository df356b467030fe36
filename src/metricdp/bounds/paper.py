"""Proposition 5 of the paper, the universal lower bound: a linear program over the cells of a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.bounds.base import BoundOptions, Budget, rounded_down
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.mechanisms.options import require_memory
from metricdp.optimise.lazy_constraints import solve_lazily
from metricdp.optimise.pair_constraints import START_NEIGHBOURS, nearest_pairs
from metricdp.problem import Problem

__all__ = ["farthest_distances", "least_loss_per_cell", "paper_bound"]

Indices = NDArray[np.intp]


def paper_bound(problem: Problem, budget: Budget, options: BoundOptions) -> float:
    """Return the bound of Proposition 5 as it stands; it can fall below the loss without privacy.

    It knows one ε: of a map it takes the largest, which only loosens it.
    """
    grid = options.grid(problem)
    cost, numbers = least_loss_per_cell(problem, grid)
    needed = 64e-9 * len(numbers) ** 2
    require_memory(needed, f"`cells` with {len(numbers)} cells", "take fewer `cells`")
    # `norm` errs by a few roundings; a longer distance only loosens a constraint.
    farthest = farthest_distances(grid, numbers, problem.p) * (1 + 1e-14)
    places = np.stack(np.unravel_index(numbers, grid.cells), axis=1)
    # Along a chain of cells d̂ adds the size of a cell at every link, so chains of near pairs do not imply the
    # constraints of far ones: all pairs count, and those that bind are found lazily.
    found = solve_lazily(
        cost,
        farthest,
        budget.epsilon,
        nearest_pairs(places.astype(np.float64), np.inf, START_NEIGHBOURS),
        solver=options.solver,
        clock=Clock(options.time_limit),
        progress=options.progress,
    )
    return rounded_down(found.bound, problem)


def least_loss_per_cell(problem: Problem, grid: Grid) -> tuple[FloatArray, Indices]:
    """Return π(C_m) · min_{x ∈ C_m} L(x, y_k) for the cells that hold prior mass, and their numbers.

    Proposition 5 for a prior on finitely many records. Let z̄_k(C_m) be the prior-weighted mean of z_k over
    the records of a cell; it is a distribution over k, the loss is at least Σ_m π(C_m) Σ_k z̄_k(C_m) min_{x
    ∈ C_m} L(x, y_k), and means over two cells are within e^{ε d̂} of each other, d̂ the largest distance
    between points of the two. (The paper takes the mean by volume and min p·L; with a uniform prior the two
    agree.)
    """
    lived = problem.prior > 0
    cell = grid.cell_numbers(problem.records[lived])
    numbers, label = np.unique(cell, return_inverse=True)
    least = np.full((len(numbers), problem.n_outputs), np.inf)
    np.minimum.at(least, label, problem.loss[lived])
    mass = np.bincount(label, problem.prior[lived])
    return mass[:, None] * least, numbers


def farthest_distances(grid: Grid, numbers: Indices, p: float) -> FloatArray:
    """Return d̂_p of Section "Optimal gap analysis": the largest distance between points of two cells."""
    place = np.unravel_index(numbers, grid.cells)
    reach = np.empty((len(numbers), len(numbers), grid.n_axes))
    for axis, (edges, at) in enumerate(zip(grid.breakpoints, place, strict=True)):
        low, high = edges[at], edges[at + 1]
        reach[:, :, axis] = np.maximum(high[:, None] - low[None, :], high[None, :] - low[:, None])
    return norm(reach, p)
