"""Mechanisms that see only the cell of a point: the discretised mechanisms of the field, lp and copt (ConstOPT)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricdp._validation import FloatArray, finite_array, reject
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.base import Mechanism

__all__ = ["Cellwise"]

# The proof looks at 3^N neighbours of each cell.
_MOST_AXES = 8

# Rows read from a file may miss 1 by the rounding of their own sum, and by no more.
_SUM_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Cellwise(Mechanism):
    """Every point of a cell uses the cell's row of one table.

    Guarantee
    ---------
    Privacy between the rows is privacy between cell *centres* only. Two points on the two sides of a cell border can be
    arbitrarily close and use different rows, so unless all rows are equal the mechanism is NOT (ε, d_p)-mDP on the
    continuum, for any ε; `metricdp.certify` shows the pair that breaks it most.
    """

    grid: Grid
    table: FloatArray

    # Fixed by the file format. The methods that design this kind are "lp" and "copt".
    kind: ClassVar[str] = "cellwise"

    def _rows(self, points: FloatArray) -> FloatArray:
        return np.asarray(self.table[self.grid.cell_numbers(points)])

    def grid_summary(self) -> dict[str, Any]:
        """Return the cells along each axis."""
        return {"cells": list(self.grid.cells)}

    def settings(self) -> dict[str, Any]:
        """Return the table of rows and the breakpoints."""
        return {"table": self.table, **self.grid.to_arrays()}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Cellwise:
        """Rebuild from a file's fields."""
        n_axes = common["bounds"].shape[1]
        if n_axes > _MOST_AXES:
            raise reject("bounds", f"of at most {_MOST_AXES} axes", n_axes)
        grid = Grid.from_arrays(settings, common["bounds"])
        rows = finite_array("table", settings["table"])
        shape = (math.prod(grid.cells), len(common["outputs"]))
        if rows.shape != shape:
            raise reject("table", f"of shape (cells, outputs) = {shape}", rows.shape)
        if not (rows.min() >= 0 and np.abs(rows.sum(axis=1) - 1).max() <= _SUM_TOLERANCE):
            raise reject("table", "non-negative with rows that sum to 1", "rows that are not")
        return cls(**common, grid=grid, table=rows)
