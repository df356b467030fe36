"""Control values of a spline's gradient, in integers, and the part of the grid in which a sparse table can have any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.spline.sparse_table import SparseTable

__all__ = ["LARGEST_PART", "Cells", "Integers", "Slopes", "Window", "windows"]

Integers = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)
Value = TypeVar("Value", np.intp, np.float64)

# Weights whose slopes are computed at once: a file of any size is checked in a memory of some 100 MB more.
LARGEST_PART = 2**16

# A window larger than the first of these has at most so many rows for each extra. Otherwise a small file, with two
# extras of each output in opposite corners of the box, would take days to check.
_SMALL_WINDOW, _ROWS_PER_EXTRA = 2**10, 32


@dataclass(frozen=True)
class Slopes:
    """Control values at the sites of cells: value b, and along each axis the slope G/H with integers G and H.

    values : (sites, outputs). rises : G per axis (sites, outputs). sides : H per axis (sites,), in lattice steps.
    """

    values: Integers
    rises: list[Integers]
    sides: list[Integers]

    @classmethod
    def of(cls, breakpoints: Sequence[Integers], degree: int, table: Integers) -> Slopes:
        """Return the slopes of control rows (rows, outputs) on cells whose borders are in lattice steps."""
        m = degree
        rows_shape = tuple(m * (len(points) - 1) + 1 for points in breakpoints)
        # The row of site a of cell i is m·i + a; neighbours beyond the cell are multiplied by zero.
        rows = [(m * np.arange(len(points) - 1)[:, None] + np.arange(m + 1)).ravel() for points in breakpoints]
        places = [np.tile(np.arange(m + 1), len(points) - 1) for points in breakpoints]
        site_axes = np.meshgrid(*rows, indexing="ij")
        place_axes = np.meshgrid(*places, indexing="ij")
        here = np.ravel_multi_index(site_axes, rows_shape).ravel()
        values = table[here]
        rises, sides = [], []
        for axis, points in enumerate(breakpoints):
            stride = math.prod(rows_shape[axis + 1 :])
            a = place_axes[axis].ravel()
            ahead = table[np.where(a < m, here + stride, here)] - values
            behind = values - table[np.where(a > 0, here - stride, here)]
            rises.append((m - a)[:, None] * ahead + a[:, None] * behind)
            cell = site_axes[axis].ravel() // m - (a == m)
            sides.append(np.diff(points)[cell])
        return cls(values, rises, sides)

    def sizes(self, p: float) -> FloatArray:
        """Return ‖G/H‖_q in floating point, q dual to p, as (sites, outputs)."""
        slopes = np.stack([rise / side[:, None] for rise, side in zip(self.rises, self.sides, strict=True)], axis=-1)
        return norm(slopes, dual_exponent(p))


@dataclass(frozen=True)
class Cells:
    """A box of cells of a spline.

    first, last : the first and the last cell along each axis.
    degree : m; a side of n cells has m·n + 1 rows of control sites.
    """

    first: tuple[int, ...]
    last: tuple[int, ...]
    degree: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows of control sites along each axis."""
        return tuple(self.degree * (last - first + 1) + 1 for first, last in zip(self.first, self.last, strict=True))

    @property
    def n_rows(self) -> int:
        """Control sites in all."""
        return math.prod(self.shape)

    @property
    def is_one_cell(self) -> bool:
        """Whether it cannot be halved."""
        return self.first == self.last

    def rows(self) -> tuple[slice, ...]:
        """Return the rows of control sites along each axis, borders included."""
        return tuple(
            slice(self.degree * first, self.degree * (last + 1) + 1)
            for first, last in zip(self.first, self.last, strict=True)
        )

    def edges(self, breakpoints: Sequence[NDArray[Number]]) -> list[NDArray[Number]]:
        """Return the borders of the cells along each axis."""
        return [
            points[first : last + 2] for points, first, last in zip(breakpoints, self.first, self.last, strict=True)
        ]

    def of_sites(self, cell_values: NDArray[Value]) -> NDArray[Value]:
        """Return the value of the cell of each site, in the order of `Slopes`, from values of all cells of the grid."""
        found = cell_values[tuple(slice(first, last + 1) for first, last in zip(self.first, self.last, strict=True))]
        for axis in range(found.ndim):
            found = found.repeat(self.degree + 1, axis=axis)
        return found.ravel()

    def halves(self) -> tuple[Cells, Cells]:
        """Cut the longest axis in the middle."""
        sides = [last - first for first, last in zip(self.first, self.last, strict=True)]
        axis = sides.index(max(sides))
        middle = self.first[axis] + sides[axis] // 2
        last = (*self.last[:axis], middle, *self.last[axis + 1 :])
        first = (*self.first[:axis], middle + 1, *self.first[axis + 1 :])
        return Cells(self.first, last, self.degree), Cells(first, self.last, self.degree)

    def parts(self, most_rows: int) -> Iterator[Cells]:
        """Yield boxes of at most so many control sites, or of one cell, that hold each cell once."""
        if self.n_rows <= most_rows or self.is_one_cell:
            yield self
            return
        for half in self.halves():
            yield from half.parts(most_rows)

    def holds(self, places: Integers) -> NDArray[np.bool_]:
        """Return which control sites (axes, n) belong to one of the cells, on a border too."""
        low, high = np.array(self.first)[:, None], np.array(self.last)[:, None] + 1
        return np.asarray(((places >= self.degree * low) & (places <= self.degree * high)).all(axis=0))

    def around(self, places: Integers) -> Cells:
        """Return the smallest box among these cells that holds all of them to which some control site belongs."""
        # Row r belongs to cell r // m, and on a border to the cell before it as well.
        low, high = (places.min(axis=1) - 1) // self.degree, places.max(axis=1) // self.degree
        first, last = np.maximum(low, self.first), np.minimum(high, self.last)
        return Cells(tuple(first.tolist()), tuple(last.tolist()), self.degree)


@dataclass(frozen=True)
class Window:
    """Cells in which an output of a sparse table has a weight other than the floor.

    output : its number.
    cells : which cells.
    breakpoints : the borders of the window's cells along each axis, in lattice steps.
    extras : (rows of the window, 1), 0 where the weight is the floor.
    """

    output: int
    cells: Cells
    breakpoints: list[Integers]
    extras: Integers


def windows(table: SparseTable, breakpoints: Sequence[Integers], degree: int) -> Iterator[Window]:
    """Yield windows that hold, for each output, every cell in which it has an extra, once.

    In the cells outside an output's windows all control values are the floor, so its slopes are 0 there.
    """
    shape = tuple(degree * (len(points) - 1) + 1 for points in breakpoints)
    cells = Cells((0,) * len(shape), tuple(len(points) - 2 for points in breakpoints), degree)
    for output, sites, extras in table.columns_of_sites():
        for part, places, values in _cut(cells, np.stack(np.unravel_index(sites, shape)), extras):
            dense = np.zeros((part.n_rows, 1), dtype=np.int64)
            local = places - degree * np.array(part.first)[:, None]
            dense[np.ravel_multi_index(tuple(local), part.shape), 0] = values
            yield Window(output, part, part.edges(breakpoints), dense)


def _cut(cells: Cells, places: Integers, extras: Integers) -> Iterator[tuple[Cells, Integers, Integers]]:
    """Yield parts of the cells that hold each cell with an extra once, with the places (axes, n) and extras in them."""
    part = cells.around(places)
    if part.n_rows <= min(LARGEST_PART, max(_SMALL_WINDOW, _ROWS_PER_EXTRA * len(extras))) or part.is_one_cell:
        yield part, places, extras
        return
    for half in part.halves():
        inside = half.holds(places)
        if inside.any():
            yield from _cut(half, places[:, inside], extras[inside])
