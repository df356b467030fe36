"""Piecewise polynomials on a grid: Bézier control rows, their slopes, and the B-splines that join them smoothly.

On a cell a polynomial of degree m per axis is Σ_a B_a(u) b(a), a ∈ {0..m}^N, with Bernstein weights B_a ≥ 0 that
sum to 1. The control rows b(a) sit at the sites of a finer grid, (m·n + 1) per axis; neighbouring cells share
those on their common face. Everything here is linear in the rows, so operators are sparse matrices.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from scipy import sparse
from scipy.interpolate import BSpline

from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid

__all__ = ["AxisSpline", "TensorSpline"]


@dataclass(frozen=True)
class AxisSpline:
    """Splines of one degree on the breakpoints of one axis."""

    breakpoints: FloatArray
    degree: int

    @property
    def n_cells(self) -> int:
        """Cells of the axis."""
        return len(self.breakpoints) - 1

    @property
    def n_rows(self) -> int:
        """Control sites of the axis: m·n + 1."""
        return self.degree * self.n_cells + 1

    @property
    def n_coefficients(self) -> int:
        """Coefficients of the smooth splines (C^{m−1} across breakpoints): n + m."""
        return self.degree + self.n_cells

    @cached_property
    def extraction(self) -> sparse.csr_array:
        """The operator from B-spline coefficients to control rows, by de Boor's recursion on the blossom.

        Row a of cell i is the polar form at (x_i, …, x_i, x_{i+1}, …, x_{i+1}), the right end a times.
        """
        m, n, x = self.degree, self.n_cells, self.breakpoints
        knots = self._knots()
        cell = np.arange(n)
        operator = np.zeros((self.n_rows, self.n_coefficients))
        for a in range(m + 1):
            weights = np.broadcast_to(np.eye(m + 1), (n, m + 1, m + 1)).copy()
            for step in range(1, m + 1):
                at = x[cell + (1 if step > m - a else 0)]
                for j in range(m, step - 1, -1):
                    left, right = knots[cell + j], knots[cell + j + m + 1 - step]
                    share = ((at - left) / (right - left))[:, None]
                    weights[:, j] = (1 - share) * weights[:, j - 1] + share * weights[:, j]
            operator[(m * cell + a)[:, None], cell[:, None] + np.arange(m + 1)] = weights[:, m]
        return sparse.csr_array(operator)

    def from_coarser(self, coarse: AxisSpline) -> sparse.csr_array:
        """Return the operator from a coarser spline's coefficients to those of the same function here.

        Every breakpoint of the coarser spline must be one of this one's. Both interpolate at this spline's Greville
        points, which determine a spline of the space.
        """
        m = self.degree
        here = BSpline.design_matrix(self.greville, self._knots(), m).toarray()
        there = BSpline.design_matrix(self.greville, coarse._knots(), m).toarray()
        operator = np.linalg.solve(here, there)
        # Inserting a knot forms convex combinations of neighbours; entries this small are rounding errors.
        operator[np.abs(operator) < 1e-13] = 0.0
        return sparse.csr_array(operator)

    def _knots(self) -> FloatArray:
        x = self.breakpoints
        return np.concatenate([np.full(self.degree, x[0]), x, np.full(self.degree, x[-1])])

    @cached_property
    def largest_coefficient(self) -> float:
        """The largest size of a coefficient whose control rows lie in [0, 1]; from degree 3 on it may exceed 1.

        A coefficient is a combination of the rows of any cell that it reaches; the cell with the smallest bound counts.
        """
        m = self.degree
        extraction = self.extraction.toarray()
        size = np.full(self.n_coefficients, np.inf)
        for cell in range(self.n_cells):
            block = extraction[m * cell : m * cell + m + 1, cell : cell + m + 1]
            here = np.abs(np.linalg.inv(block)).sum(axis=1)
            size[cell : cell + m + 1] = np.minimum(size[cell : cell + m + 1], here)
        return float(size.max())

    @cached_property
    def site_rows(self) -> sparse.csr_array:
        """The operator from rows to the (m + 1)·n sites of cells, each shared breakpoint counted from both sides."""
        m, n = self.degree, self.n_cells
        row = (m * np.arange(n)[:, None] + np.arange(m + 1)).ravel()
        return sparse.csr_array((np.ones(len(row)), (np.arange(len(row)), row)), shape=(len(row), self.n_rows))

    @cached_property
    def site_slopes(self) -> sparse.csr_array:
        """The operator from rows to the derivative's control values at the sites of cells, raised to degree m.

        g(a) = [(m − a)(b(a+1) − b(a)) + a (b(a) − b(a−1))] / h.
        """
        m = self.degree
        local = np.zeros((m + 1, m + 1))
        for a in range(m + 1):
            if a < m:
                local[a, a + 1] += m - a
                local[a, a] -= m - a
            if a > 0:
                local[a, a] += a
                local[a, a - 1] -= a
        sides = np.diff(self.breakpoints)
        blocks = sparse.kron(sparse.diags_array(1 / sides), local)
        return sparse.csr_array(blocks @ self.site_rows)

    @cached_property
    def distinct_sites(self) -> np.ndarray:
        """Which sites are enough for smooth splines: from degree 2 on, both sides of a breakpoint agree."""
        m, n = self.degree, self.n_cells
        keep = np.ones((n, m + 1), dtype=bool)
        if m >= 2:
            keep[:-1, m] = False
        return np.flatnonzero(keep.ravel())

    def least_at_sites(self, values: FloatArray, axis: int) -> FloatArray:
        """Return the least value of the cells that each distinct site belongs to, from values per cell along `axis`.

        From degree 2 on a site at a breakpoint stands for both sides of it.
        """
        cell, place = np.divmod(self.distinct_sites, self.degree + 1)
        before = np.maximum(cell - 1, 0) if self.degree >= 2 else cell
        other = np.where(place == 0, before, cell)
        return np.minimum(values.take(cell, axis=axis), values.take(other, axis=axis))

    def cone_operators(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return the operators from coefficients to values and slopes at the sites that need a check."""
        return self.values_and_slopes(self.extraction, self.distinct_sites)

    def values_and_slopes(
        self, source: sparse.csr_array, sites: np.ndarray | slice
    ) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Return the operators to values and slopes at sites of cells, from whatever `source` makes control rows of."""
        values, slopes = (sparse.csr_array(operator @ source)[sites] for operator in (self.site_rows, self.site_slopes))
        return values, slopes

    @cached_property
    def greville(self) -> FloatArray:
        """The Greville points: a coefficient's row is about the spline's value there."""
        knots = self._knots()
        points = np.stack([knots[1 + shift : 1 + shift + self.n_coefficients] for shift in range(self.degree)])
        return np.clip(points.mean(axis=0), knots[0], knots[-1])

    def bernstein(self, place: FloatArray) -> FloatArray:
        """Return the Bernstein weights of places u in [0, 1] of a cell, as (points, m + 1)."""
        m = self.degree
        u = place[:, None]
        power = np.arange(m + 1)
        binomial = np.array([math.comb(m, a) for a in power], dtype=np.float64)
        return np.asarray(binomial * u**power * (1 - u) ** (m - power))


@dataclass(frozen=True)
class TensorSpline:
    """Tensor products of axis splines over a grid; rows and coefficients are numbered with the last axis fastest."""

    grid: Grid
    degree: int

    @cached_property
    def axes(self) -> tuple[AxisSpline, ...]:
        """One spline space per axis."""
        return tuple(AxisSpline(points, self.degree) for points in self.grid.breakpoints)

    @property
    def n_rows(self) -> int:
        """Control rows in all."""
        return math.prod(axis.n_rows for axis in self.axes)

    @property
    def n_coefficients(self) -> int:
        """Coefficients of the smooth splines in all."""
        return math.prod(axis.n_coefficients for axis in self.axes)

    @cached_property
    def extraction(self) -> sparse.csr_array:
        """The operator from B-spline coefficients to control rows."""
        return _kron([axis.extraction for axis in self.axes])

    def from_coarser(self, coarse: TensorSpline) -> sparse.csr_array:
        """Return the operator from a coarser spline's coefficients to those of the same function here."""
        return _kron([axis.from_coarser(other) for axis, other in zip(self.axes, coarse.axes, strict=True)])

    def cone_operators(self) -> list[sparse.csr_array]:
        """Return the operators from coefficients to (b, g_1, …, g_N) at the sites that need a check."""
        return self._sites([axis.extraction for axis in self.axes], distinct=True)

    def least_at_sites(self, cell_values: FloatArray) -> FloatArray:
        """Return the least value of the cells that each site of `cone_operators` belongs to, (S_1, …, S_N)."""
        for number, axis in enumerate(self.axes):
            cell_values = axis.least_at_sites(cell_values, number)
        return cell_values

    def site_operators(self) -> list[sparse.csr_array]:
        """Return the operators from control rows to (b, g_1, …, g_N) at every site of every cell."""
        return self._sites([sparse.eye_array(axis.n_rows, format="csr") for axis in self.axes], distinct=False)

    def _sites(self, source: list[sparse.csr_array], *, distinct: bool) -> list[sparse.csr_array]:
        values, slopes = [], []
        for axis, start in zip(self.axes, source, strict=True):
            value, slope = axis.values_and_slopes(start, axis.distinct_sites if distinct else slice(None))
            values.append(value)
            slopes.append(slope)
        operators = [_kron(values)]
        for number, slope in enumerate(slopes):
            operators.append(_kron([slope if other == number else value for other, value in enumerate(values)]))
        return operators

    def weights(self, points: FloatArray) -> sparse.csr_array:
        """Return the Bernstein weights of points of the box as a sparse (points, rows) matrix."""
        cell, place = self.grid.locate(points)
        local = [axis.bernstein(place[:, number]) for number, axis in enumerate(self.axes)]
        strides = [math.prod(axis.n_rows for axis in self.axes[number + 1 :]) for number in range(len(self.axes))]
        first = (self.degree * cell) @ np.array(strides)
        corners = list(itertools.product(range(self.degree + 1), repeat=len(self.axes)))
        row = first[:, None] + np.array(corners) @ np.array(strides)
        weight = np.ones(row.shape)
        for number, values in enumerate(local):
            weight *= values[:, [corner[number] for corner in corners]]
        ends = np.arange(len(points) + 1) * len(corners)
        return sparse.csr_array((weight.ravel(), row.ravel(), ends), shape=(len(points), self.n_rows))


def _kron(factors: list[sparse.csr_array]) -> sparse.csr_array:
    return sparse.csr_array(reduce(lambda left, right: sparse.kron(left, right, format="csr"), factors))
