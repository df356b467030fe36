"""Methods that optimise over grid cells: LP (Bordenabe et al. 2014) and ConstOPT (Imola et al. 2022).

Both are private between cell centres only. They are the field's baselines, not to be used where the
guarantee must hold on the continuum: `metricdp.fit` hands them out with `certify=False` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._clock import Clock
from metricdp._validation import FloatArray, choice, fraction, integer
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import pairwise_distances
from metricdp.mechanisms.aipo.budget_split import spendable
from metricdp.mechanisms.gridded.copt_program import least_worst_loss
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.mechanisms.options import GridOptions, common_fields, require_memory
from metricdp.optimise.lazy_constraints import Optimum, private_between, solve_lazily
from metricdp.optimise.pair_constraints import START_NEIGHBOURS, nearest_pairs
from metricdp.problem import Problem

__all__ = ["ConstOptOptions", "GridLpOptions", "fit_constopt", "fit_grid_lp"]

# Constraints of the last program per cell and output, and bytes per constraint at the peak of its solve;
# measured on 15x16 cells of Rome, rounded up.
_CONSTRAINTS_PER_ENTRY = 16
_BYTES_PER_CONSTRAINT = 4000


@dataclass(frozen=True, kw_only=True)
class GridLpOptions(GridOptions):
    """Options of "lp": those of every method that lays a grid."""


@dataclass(frozen=True, kw_only=True)
class ConstOptOptions(GridOptions):
    """Options of "copt" beside the grid's; its program is solved by HiGHS.

    nearest : r, how many cells nearest to each output have free weights; all others follow e^{−s d}.
    share : s / ε, what the weights may spend. Normalising the rows may double it, so one half keeps the rows
        (ε, d_p)-mDP between cell centres before any repair, as for the exponential mechanism.
    """

    nearest: int = 24
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("solver", self.solver, ("auto", "highs"))
        integer("nearest", self.nearest, 1)
        if self.share != 1:
            fraction("share", self.share)


def fit_grid_lp(problem: Problem, epsilon: float, options: GridLpOptions) -> Cellwise:
    """Minimise Σ_x π(x) Σ_k L(x, k) Z_{cell(x) k} with Z_ik ≤ e^{ε d_p(c_i, c_j)} Z_jk for all centres c."""
    clock = Clock(options.time_limit)
    cells = _Cells.lay(problem, options)
    found = solve_lazily(
        cells.cost,
        cells.apart,
        spendable(epsilon),
        cells.starting_pairs(problem.p),
        solver=options.solver,
        clock=clock,
        progress=options.progress,
    )
    facts = {**_lp_facts(found), "seconds": clock.spent}
    return _cellwise(problem, epsilon, "lp", cells, found.table, facts)


def fit_constopt(problem: Problem, epsilon: float, options: ConstOptOptions) -> Cellwise:
    """Design ConstOPT's weights (`metricdp.programs.constopt`), normalise their rows, mend them."""
    clock = Clock(options.time_limit)
    cells = _Cells.lay(problem, options)
    budget = spendable(epsilon)
    mean_loss = cells.cost / np.where(cells.mass > 0, cells.mass, 1.0)[:, None]
    away = pairwise_distances(cells.centres, problem.outputs, problem.p)
    weights = least_worst_loss(
        mean_loss, cells.mass, cells.apart, away, options.share * budget, options.nearest, clock.left
    )
    table, mix = private_between(weights.table, np.exp(-budget * cells.apart))
    if options.progress is not None:
        options.progress(1.0, f"worst row {weights.worst}")
    facts = {
        "solver": "highs",
        "status": weights.status,
        "iterations": weights.iterations,
        "repair_mix": mix,
        "worst_row_loss": weights.worst,
        "nearest": options.nearest,
        "share": options.share,
        "seconds": clock.spent,
    }
    return _cellwise(problem, epsilon, "copt", cells, table, facts)


@dataclass(frozen=True)
class _Cells:
    """The problem seen from cell centres."""

    grid: Grid
    centres: FloatArray
    apart: FloatArray
    mass: FloatArray
    cost: FloatArray

    @classmethod
    def lay(cls, problem: Problem, options: GridOptions) -> _Cells:
        """Cut the box into cells and sum prior and prior-weighted loss in each."""
        count = int(np.prod([float(number) for number in options.cells_per_axis(problem.n_axes)]))
        entries = count * problem.n_outputs
        # Beside the program, a few arrays of all pairs of cells.
        needed = entries * _CONSTRAINTS_PER_ENTRY * _BYTES_PER_CONSTRAINT / 1e9 + 64e-9 * float(count) ** 2
        what = f"`cells` with {count} cells and {problem.n_outputs} outputs"
        require_memory(needed, what, "take fewer `cells`")
        grid = options.grid(problem)
        cell = grid.cell_numbers(problem.records)
        gather = sparse.csr_array(
            (problem.prior, (cell, np.arange(problem.n_records))), shape=(count, problem.n_records)
        )
        centres = grid.cell_centres
        apart = pairwise_distances(centres, centres, problem.p)
        return cls(grid, centres, apart, np.asarray(gather.sum(axis=1)), np.asarray(gather @ problem.loss))

    def starting_pairs(self, p: float) -> NDArray[np.intp]:
        """Return pairs to start from; for p = 1 axis neighbours, whose chains are as long as d_1 itself."""
        return self._axis_pairs() if p == 1 else nearest_pairs(self.centres, p, START_NEIGHBOURS)

    def _axis_pairs(self) -> NDArray[np.intp]:
        numbers = np.arange(len(self.centres)).reshape([count - 1 for count in self.grid.shape])
        steps = []
        for axis in range(self.grid.n_axes):
            ahead = np.moveaxis(numbers, axis, 0)
            steps.append(np.column_stack([ahead[:-1].ravel(), ahead[1:].ravel()]))
        pairs = np.concatenate(steps)
        return np.concatenate([pairs, pairs[:, ::-1]])


def _lp_facts(found: Optimum) -> dict[str, Any]:
    return {
        "solver": found.solution.engine,
        "status": str(found.solution.status) if found.complete else "not converged",
        "solver_seconds": found.solution.seconds,
        "iterations": found.solution.iterations,
        "repair_mix": found.mix,
        "bound": found.bound,
        "rounds": found.rounds,
        "constraints": found.constraints,
    }


def _cellwise(
    problem: Problem, epsilon: float, method: str, cells: _Cells, table: FloatArray, facts: dict[str, Any]
) -> Cellwise:
    return Cellwise(
        **common_fields(problem, epsilon, method),
        report={
            **facts,
            "loss": float(np.vdot(cells.cost, table)),
            "cells": list(cells.grid.cells),
        },
        grid=cells.grid,
        table=table,
    )
