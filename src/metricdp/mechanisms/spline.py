"""The spline mechanism: probabilities are piecewise polynomials with private control rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metricdp._validation import FloatArray, integer, reject
from metricdp.grid import Grid
from metricdp.mechanisms.base import Mechanism
from metricdp.splines import TensorSpline

__all__ = ["Spline"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Spline(Mechanism):
    """z_k(x) is a tensor-product polynomial of degree m per axis on each cell, given by Bézier control rows.

    grid : breakpoints of the cells.
    degree : m, 1 to 3.
    table : control rows (sites, outputs), each a distribution; (m·n + 1) sites per axis of n cells.

    Guarantee
    ---------
    Bernstein weights are non-negative and sum to 1, so z(x) is a distribution for every x, with nothing to normalise.
    If at every site of every cell the control values of the gradient satisfy ‖g‖_q ≤ ε b, then so does the gradient
    everywhere (a convex cone contains convex combinations), and the mechanism is (ε, d_p)-mDP on the whole box.
    """

    grid: Grid
    degree: int
    table: FloatArray

    kind: ClassVar[str] = "spline"

    @cached_property
    def spline(self) -> TensorSpline:
        """The spline space of the control rows."""
        return TensorSpline(self.grid, self.degree)

    def _rows(self, points: FloatArray) -> FloatArray:
        return np.asarray(self.spline.weights(points) @ self.table)

    def settings(self) -> dict[str, Any]:
        """Return the control rows, the degree and the breakpoints."""
        return {"table": self.table, "degree": self.degree, **self.grid.to_arrays()}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Spline:
        """Rebuild from a file's fields."""
        grid = Grid.from_arrays(settings, common["bounds"])
        degree = integer("degree", settings["degree"], 1)
        if degree > 3:
            raise reject("degree", "1, 2 or 3", degree)
        table = settings["table"]
        shape = (TensorSpline(grid, degree).n_rows, len(common["outputs"]))
        if table.shape != shape or not np.isfinite(table).all():
            raise reject("table", f"finite and of shape (sites, outputs) = {shape}", table.shape)
        return cls(**common, grid=grid, degree=degree, table=table)
