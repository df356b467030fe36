"""Exact draws of splines, by integer arithmetic alone.

On its cell a spline is a mixture of control rows with Bernstein weights, and Bernstein weights are those of coin flips:
m flips of probability u_ℓ per axis, u_ℓ a ratio of lattice integers, land on control site a with exactly the weight
of a. The output is then drawn from that site's integer weights by an alias table. No probability is ever computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from metricdp.drawing.exact_draws import AliasTables, SparseAliasTables
from metricdp.drawing.randomness import RandomSource, coins_of_ratios

__all__ = ["BernsteinSampler"]

Integers = NDArray[np.int64]


class BernsteinSampler:
    """Draws outputs of a spline at lattice points.

    breakpoints : per axis, as multiples of the lattice's step.
    degree : m.
    tables : draws from the control rows, whose sites are numbered with the last axis fastest.
    """

    def __init__(self, breakpoints: Sequence[Integers], degree: int, tables: AliasTables | SparseAliasTables) -> None:
        self.breakpoints, self.degree = breakpoints, degree
        counts = [degree * (len(points) - 1) + 1 for points in breakpoints]
        self._strides = [math.prod(counts[axis + 1 :]) for axis in range(len(counts))]
        self._sides = [np.diff(points) for points in breakpoints]
        self.tables = tables

    def draw(self, points: Integers, source: RandomSource) -> NDArray[np.intp]:
        """Return one output for every lattice point (points, axes) of the box.

        Guarantee
        ---------
        An output has exactly the spline's probability at the point, provided that the source's words are uniform and
        independent. Every point takes the same words and the same operations, wherever it lies. Two things remain that
        could tell a point's cell by its time: the search for the cell, and whether the rows that it needs are in the
        processor's cache.
        """
        site = np.zeros(len(points), dtype=np.int64)
        for axis, edges in enumerate(self.breakpoints):
            cell = np.minimum(np.searchsorted(edges, points[:, axis], side="right") - 1, len(edges) - 2)
            steps, side = points[:, axis] - edges[cell], self._sides[axis][cell]
            flips = self.degree * cell
            for _ in range(self.degree):
                flips += coins_of_ratios(source, steps, side)
            site += self._strides[axis] * flips
        return self.tables.draw(site, source)
