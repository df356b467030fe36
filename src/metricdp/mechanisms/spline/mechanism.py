"""The spline mechanism: probabilities are piecewise polynomials with private control rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metricdp._chunks import DRAWS_AT_ONCE
from metricdp._validation import FloatArray, integer, positive, reject
from metricdp.drawing.exact_draws import AliasTables
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import LARGEST_MULTIPLE, coarsest_step, lattice_step, snap, to_integers
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.spline.integer_rows import fineness, integer_rows, rounding_mix
from metricdp.mechanisms.spline.sampler import BernsteinSampler
from metricdp.mechanisms.spline.sparse_table import SparseTable
from metricdp.mechanisms.spline.thinning import is_sparse, thinned

__all__ = ["Spline"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Spline(Mechanism):
    """z_k(x) is a tensor-product polynomial of degree m per axis on each cell, given by Bézier control rows.

    step : spacing of the lattice to which points are rounded, a power of two.
    grid : breakpoints of the cells, on the lattice.
    degree : m, 1 to 3.
    table : control rows (sites, outputs) as integer weights ≥ 1 with the same sum in every row; (m·n + 1) sites
        per axis of n cells. An array, whose rows sum to K·2^b, or where that would be large a `SparseTable`.

    Guarantee
    ---------
    Points are first rounded to the lattice, which adds at most `rounding` to the distance of two points. Bernstein
    weights are non-negative and sum to 1, so z(x) is a distribution for every x, with nothing to normalise. If at every
    site of every cell the control values of the gradient satisfy ‖g‖_q ≤ ε b, then so does the gradient everywhere (a
    convex cone contains convex combinations), and the mechanism is (ε, d_p)-mDP between lattice points of the whole
    box. `metricdp.certify` compares the integers exactly, and `sample` draws from the same integers exactly; only
    `probabilities`, which nothing private rests on, are rounded to floating point.
    """

    step: float
    grid: Grid
    degree: int
    table: NDArray[np.int64] | SparseTable

    kind: ClassVar[str] = "spline"
    takes_maps: ClassVar[bool] = True

    @classmethod
    def from_probabilities(
        cls, common: dict[str, Any], step: float, grid: Grid, degree: int, rows: FloatArray
    ) -> Spline:
        """Round control rows to integers, mixed with as much uniform as keeps them inside the cones.

        common : fields of every mechanism; the box becomes that of the grid, which must be on the lattice.
        """
        least = float(_cell_epsilons(common, grid).min())
        mix = rounding_mix(grid, degree, rows.shape[1], least, common["p"])
        table = integer_rows((1 - mix) * rows + mix / rows.shape[1])
        report = {**common.get("report", {}), "integer_mix": mix, "lattice_step": step}
        fields = {**common, "bounds": grid.bounds, "report": report}
        return cls(**fields, step=step, grid=grid, degree=degree, table=table)

    @classmethod
    def from_coefficients(
        cls, common: dict[str, Any], step: float, spline: TensorSpline, coefficients: FloatArray
    ) -> Spline:
        """Round the control rows of B-spline coefficients to integers that are inside the cones.

        A large table is thinned (see `thinning.py`); its coefficients must leave `SPARSE_SHARE` of ε unspent.
        """
        if not is_sparse(spline.n_rows, coefficients.shape[1]):
            rows = np.asarray(spline.extraction @ coefficients)
            # Convex combinations of distributions; dividing takes away the rounding of the sums.
            rows /= rows.sum(axis=1, keepdims=True)
            return cls.from_probabilities(common, step, spline.grid, spline.degree, rows)
        edges = [to_integers(points, step) for points in spline.grid.breakpoints]
        limits = _cell_epsilons(common, spline.grid) * step
        table = thinned(spline.extraction, coefficients, edges, spline.degree, limits, common["p"])
        mix = table.n_outputs * table.floor / table.total
        report = {**common.get("report", {}), "integer_mix": mix, "lattice_step": step}
        fields = {**common, "bounds": spline.grid.bounds, "report": report}
        return cls(**fields, step=step, grid=spline.grid, degree=spline.degree, table=table)

    @cached_property
    def spline(self) -> TensorSpline:
        """The spline space of the control rows."""
        return TensorSpline(self.grid, self.degree)

    @property
    def breakpoint_steps(self) -> list[NDArray[np.int64]]:
        """The breakpoints as multiples of the lattice's step."""
        return [to_integers(points, self.step) for points in self.grid.breakpoints]

    @cached_property
    def _control_rows(self) -> FloatArray:
        assert isinstance(self.table, np.ndarray)
        return self.table / self.table[0].sum()

    @cached_property
    def _sampler(self) -> BernsteinSampler:
        table = self.table
        tables = table.alias_tables() if isinstance(table, SparseTable) else AliasTables(table)
        return BernsteinSampler(self.breakpoint_steps, self.degree, tables)

    @property
    def _drawn_at_once(self) -> int:
        return DRAWS_AT_ONCE

    @property
    def _moved_by(self) -> float:
        return self.step / 2  # the edges of the box are on the lattice

    def own_map(self, given: EpsilonMap) -> EpsilonMap:
        """Return the part of a map that lies over the box, its borders on the lattice."""
        return given.over(self.bounds, self.step)

    def snap(self, points: FloatArray) -> FloatArray:
        """Return the lattice points that stand for points of the box."""
        return snap(points, self.step)

    def _rows(self, points: FloatArray) -> FloatArray:
        weights = self.spline.weights(self.snap(points))
        if isinstance(self.table, SparseTable):
            return self.table.probabilities(weights)
        return np.asarray(weights @ self._control_rows)

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[np.intp]:
        return self._sampler.draw(to_integers(points, self.step), source)

    def grid_summary(self) -> dict[str, Any]:
        """Return the cells along each axis and the degree."""
        return {"cells": list(self.grid.cells), "degree": self.degree}

    def settings(self) -> dict[str, Any]:
        """Return the control rows, the degree, the breakpoints and the lattice."""
        table = self.table.to_settings() if isinstance(self.table, SparseTable) else {"table": self.table}
        return {**table, "degree": self.degree, "step": self.step, **self.grid.to_arrays()}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Spline:
        """Rebuild from a file's fields; rows in floating point, from before there were integers, are rounded."""
        grid = Grid.from_arrays(settings, common["bounds"])
        _check_map_borders(common["epsilon_map"], grid)
        degree = integer("degree", settings["degree"], 1)
        if degree > 3:
            raise reject("degree", "1, 2 or 3", degree)
        shape = (TensorSpline(grid, degree).n_rows, len(common["outputs"]))
        if "table" not in settings:
            step = _checked_step(settings["step"], grid)
            return cls(**common, step=step, grid=grid, degree=degree, table=_sparse_table(settings, shape))
        table = settings["table"]
        if not isinstance(table, np.ndarray):
            raise reject("table", "an array", type(table).__name__)
        if table.shape != shape:
            raise reject("table", f"of shape (sites, outputs) = {shape}", table.shape)
        if table.dtype == np.float64:
            if not (np.isfinite(table).all() and (table > 0).all()):
                raise reject("table", "positive and finite", "entries that are not")
            step = lattice_step(grid.bounds)
            rows = table / table.sum(axis=1, keepdims=True)
            return cls.from_probabilities(common, step, grid.on_lattice(step), degree, rows)
        step = _checked_step(settings["step"], grid)
        _check_weights(table)
        return cls(**common, step=step, grid=grid, degree=degree, table=table)


def _cell_epsilons(common: dict[str, Any], grid: Grid) -> FloatArray:
    """Return the ε of each cell in the plane, before the mechanism is restated on the ground."""
    local = common.get("epsilon_map") or EpsilonMap.constant(grid.bounds, common["epsilon"])
    return local.least_over(grid.breakpoints)


def _check_map_borders(local: EpsilonMap | None, grid: Grid) -> None:
    """Refuse a map whose borders are not among a grid's."""
    if local is None:
        return
    for axis, (points, edges) in enumerate(zip(local.breakpoints, grid.breakpoints, strict=True)):
        if not np.isin(points, edges).all():
            raise reject(f"epsilon_breakpoints_{axis}", f"among breakpoints_{axis}", "others")


def _checked_step(value: Any, grid: Grid) -> float:
    step = positive("step", value)
    if math.frexp(step)[0] != 0.5 or np.abs(grid.bounds).max() >= LARGEST_MULTIPLE * step:
        raise reject("step", "a power of two that is not too small for the box", step)
    if step > coarsest_step(grid.bounds):
        raise reject("step", f"at most {coarsest_step(grid.bounds):.3g} for this box", step)
    if any((np.rint(points / step) * step != points).any() for points in grid.breakpoints):
        raise reject("breakpoints", f"multiples of the lattice's step {step}", "numbers in between")
    return step


def _sparse_table(settings: dict[str, Any], shape: tuple[int, int]) -> SparseTable:
    for name in ("counts", "columns", "extras"):
        if not isinstance(settings[name], np.ndarray):
            raise reject(name, "an array", type(settings[name]).__name__)
    arrays = {name: settings[name] for name in ("counts", "columns", "extras")}
    table = SparseTable(shape[1], settings["floor"], **arrays)
    fault = table.fault()
    if fault:
        raise InvalidInputError(f"the table is damaged: {fault}")
    if table.shape != shape:
        raise reject("counts", f"as many as there are sites, {shape[0]}", len(table.counts))
    return table


def _check_weights(table: NDArray[np.int64]) -> None:
    total = table.shape[1] << fineness(table.shape[1])
    # Entries are bounded first, so that sums cannot overflow.
    whole = table.dtype == np.int64 and bool((table >= 1).all() and (table <= total).all())
    if not whole or (table.sum(axis=1) != total).any():
        raise reject("table", f"whole weights, at least 1, that sum to {total} in every row", "weights that do not")
