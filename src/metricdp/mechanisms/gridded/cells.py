"""A problem seen from the centres of grid cells, which is all that lp and copt look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import pairwise_distances
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.mechanisms.options import GridOptions, common_fields, require_memory
from metricdp.optimise.pair_constraints import START_NEIGHBOURS, nearest_pairs
from metricdp.problem import Problem

__all__ = ["Cells", "cellwise_mechanism"]

# Constraints of the last program per cell and output, and bytes per constraint at the peak of its solve;
# measured on 15x16 cells of Rome, rounded up.
_CONSTRAINTS_PER_ENTRY = 16
_BYTES_PER_CONSTRAINT = 4000


@dataclass(frozen=True)
class Cells:
    """The problem seen from cell centres."""

    grid: Grid
    centres: FloatArray
    apart: FloatArray
    mass: FloatArray
    cost: FloatArray

    @classmethod
    def lay(cls, problem: Problem, options: GridOptions) -> Cells:
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
        numbers = np.arange(len(self.centres)).reshape(self.grid.cells)
        steps = []
        for axis in range(self.grid.n_axes):
            ahead = np.moveaxis(numbers, axis, 0)
            steps.append(np.column_stack([ahead[:-1].ravel(), ahead[1:].ravel()]))
        pairs = np.concatenate(steps)
        return np.concatenate([pairs, pairs[:, ::-1]])


def cellwise_mechanism(
    problem: Problem, epsilon: float, method: str, cells: Cells, table: FloatArray, facts: dict[str, Any]
) -> Cellwise:
    """Return the mechanism of a table with one row for each cell."""
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
