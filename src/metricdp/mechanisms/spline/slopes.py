"""Control values of a spline's gradient, in integers, and the part of the grid in which a sparse table can have any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.spline.sparse_table import SparseTable

__all__ = ["Integers", "Slopes", "Window", "windows"]

Integers = NDArray[np.int64]


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
class Window:
    """The cells in which an output of a sparse table has a weight other than the floor.

    output : its number.
    first_cells : the first cell along each axis.
    breakpoints : the borders of the window's cells along each axis, in lattice steps.
    extras : (rows of the window, 1), 0 where the weight is the floor.
    """

    output: int
    first_cells: tuple[int, ...]
    breakpoints: list[Integers]
    extras: Integers


def windows(table: SparseTable, breakpoints: Sequence[Integers], degree: int) -> Iterator[Window]:
    """Yield a window for each output.

    In a cell outside an output's window all control values are the floor, so its slopes are 0 there.
    """
    shape = tuple(degree * (len(points) - 1) + 1 for points in breakpoints)
    for output, sites, extras in table.columns_of_sites():
        places = np.unravel_index(sites, shape)
        firsts, edges, local = [], [], []
        for points, place in zip(breakpoints, places, strict=True):
            # Row r belongs to cell r // m, and on a border to the cell before it as well.
            first = max((int(place.min()) - 1) // degree, 0)
            last = min(int(place.max()) // degree, len(points) - 2)
            firsts.append(first)
            edges.append(points[first : last + 2])
            local.append(place - degree * first)
        inside = tuple(degree * (len(points) - 1) + 1 for points in edges)
        dense = np.zeros((math.prod(inside), 1), dtype=np.int64)
        dense[np.ravel_multi_index(local, inside), 0] = extras
        yield Window(output, tuple(firsts), edges, dense)
