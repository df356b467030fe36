"""Step 3 of the paper: distributions between anchors by log-convex interpolation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._validation import FloatArray, finite_array, reject
from metricdp.drawing.exact_draws import draw_in_proportion
from metricdp.drawing.randomness import RandomSource
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import lattice_step, snap_inside
from metricdp.mechanisms.base import Mechanism

__all__ = ["LogConvex", "interpolate", "rounding_cost"]

# The interpolation of a point takes 2^N anchors.
_MOST_AXES = 8

# Larger logarithms are refused: their differences within a row would have too few correct digits.
_LARGEST_LOG = 1e6

# Logarithms of one row may differ by so much before exp underflows.
_WIDEST_ROW = 700.0


def interpolate(weights: sparse.csr_array, log_table: FloatArray) -> FloatArray:
    """Definition 5 and Definition 6: ln f_k(x) = Σ_γ w_γ(x) ln Z_γk, then normalised over k (in log space)."""
    rows = _relative_weights(weights, log_table)
    rows /= rows.sum(axis=1, keepdims=True)
    return rows


def _relative_weights(weights: sparse.csr_array, log_table: FloatArray) -> FloatArray:
    """Return f_k(x) / max_j f_j(x)."""
    logs = np.asarray(weights @ log_table)
    logs -= logs.max(axis=1, keepdims=True)
    return np.exp(logs, out=logs)


def rounding_cost(n_axes: int, n_outputs: int, largest_log: float, step: float) -> float:
    """Return the ε per unit of distance that rounding errors of computed rows may add, 2u / d_min.

    A computed probability is off by a factor of at most e^{±u}. With 2^-53 as the unit: place and 1 − place of a
    point in its cell are off by 3 and 4 (absolutely), so the 2^N weights by 8N in total; their sum with logarithms
    of at most `largest_log` by (8N + 2^N) largest_log; subtracting the maximum adds 2 largest_log; exp, taken to be
    within 4 units in the last place, adds 8. All that enters twice, for f_k and for the normaliser, which adds K for
    its sum and the division; the rest pays for products of errors. Two points of the lattice are at least one step
    apart in every norm, so d_min = step.
    """
    roundings = 2 * (9 * n_axes + 2**n_axes + 3) * largest_log + n_outputs + 20
    return 2 * roundings * 2.0**-53 / step


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogConvex(Mechanism):
    """The paper's mechanism (AIPO): an anchor table and the normalised geometric mean in between.

    Points are rounded to a lattice (`step`) before anything else.

    Guarantee
    ---------
    With s_ℓ the steepest |ln Z_ik − ln Z_jk| / Δ_ℓ over ℓ-neighbours, the unnormalised interpolant is
    ‖s‖_q-Lipschitz in d_p (Theorem 2), and the normalised one 2‖s‖_q (Proposition 3). So it is (ε, d_p)-mDP
    on the whole box wherever 2‖s‖_q ≤ ε. Most tables are much less steep than that; where it matters
    `metricdp.certify` bounds the slopes of the normalised interpolant itself, cell by cell, from the table alone.
    Either way `rounding_cost` is charged for computing in floating point, so that the guarantee is about the
    probabilities as computed, between any two points of the lattice. `sample` follows f_k as computed, exactly.
    With a map of ε, 2‖∇ ln f_k‖_q is at most the cell's own ε at every corner of every cell, where it is steepest.
    Variant "aipo-r" does not satisfy any of this, and does violate mDP between anchors.
    """

    grid: Grid
    log_table: FloatArray

    # Fixed by the file format. The methods that design this kind are "aipo", "aipo-e" and "aipo-r", and "em" for a map
    # of ε.
    kind: ClassVar[str] = "log-convex"
    takes_maps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        lattice_step(self.bounds)  # refuses a box that has no lattice before the first point comes

    @cached_property
    def step(self) -> float:
        """The spacing of the lattice to which points are rounded."""
        return lattice_step(self.bounds)

    @cached_property
    def rounding_cost(self) -> float:
        """The part of ε that pays for floating point; infinite where probabilities could underflow to zero."""
        if float(np.ptp(self.log_table, axis=1).max()) > _WIDEST_ROW:
            return math.inf
        return rounding_cost(self.grid.n_axes, self.n_outputs, float(np.abs(self.log_table).max()), self.step)

    @property
    def _moved_by(self) -> float:
        return self.step  # half of it inside, up to a whole one at edges that are not on the lattice

    def snap(self, points: FloatArray) -> FloatArray:
        """Return the lattice points that stand for points of the box."""
        return snap_inside(points, self.bounds, self.step)

    def _weights(self, points: FloatArray) -> sparse.csr_array:
        return self.grid.weights(self.snap(points))

    def _rows(self, points: FloatArray) -> FloatArray:
        return interpolate(self._weights(points), self.log_table)

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[np.intp]:
        return draw_in_proportion(_relative_weights(self._weights(points), self.log_table), source)

    def grid_summary(self) -> dict[str, Any]:
        """Return the cells along each axis."""
        return {"cells": list(self.grid.cells)}

    def settings(self) -> dict[str, Any]:
        """Return the anchor table and the breakpoints."""
        return {"log_table": self.log_table, **self.grid.to_arrays()}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> LogConvex:
        """Rebuild from a file's fields."""
        n_axes = common["bounds"].shape[1]
        if n_axes > _MOST_AXES:
            raise reject("bounds", f"of at most {_MOST_AXES} axes", n_axes)
        grid = Grid.from_arrays(settings, common["bounds"])
        log_table = finite_array("log_table", settings["log_table"])
        shape = (grid.n_anchors, len(common["outputs"]))
        if log_table.shape != shape:
            raise reject("log_table", f"of shape (anchors, outputs) = {shape}", log_table.shape)
        if np.abs(log_table).max() > _LARGEST_LOG:
            raise reject("log_table", f"between -{_LARGEST_LOG:g} and {_LARGEST_LOG:g}", f"{np.abs(log_table).max():g}")
        return cls(**common, grid=grid, log_table=log_table)
