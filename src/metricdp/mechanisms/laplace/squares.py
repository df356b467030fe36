"""Squares that cover the whole space: equal boxes over a window, of which those on its border reach out to infinity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray

__all__ = ["Squares"]


@dataclass(frozen=True)
class Squares:
    """Equal boxes ("squares", whatever their sides) over a window, numbered with the last axis fastest.

    A point outside the window belongs to the nearest square, so the squares cover the whole space. They have nothing to
    do with the lattice to which points are rounded, whose steps are far shorter.

    window : (2, N), the lower and the upper corner.
    shape : squares along each axis.
    """

    window: FloatArray
    shape: tuple[int, ...]

    @property
    def n_axes(self) -> int:
        """N, the dimension of the space."""
        return len(self.shape)

    @property
    def pitch(self) -> FloatArray:
        """Side of a square along each axis."""
        return np.asarray((self.window[1] - self.window[0]) / np.array(self.shape))

    @cached_property
    def edges(self) -> tuple[FloatArray, ...]:
        """Edges of the squares along each axis, the window's border included."""
        axes = zip(*self.window, self.shape, strict=True)
        return tuple(np.linspace(low, high, count + 1) for low, high, count in axes)

    @cached_property
    def unbounded_edges(self) -> tuple[FloatArray, ...]:
        """The same edges with the border at infinity, since squares on the border take all that lies outside."""
        return tuple(np.concatenate([[-np.inf], edges[1:-1], [np.inf]]) for edges in self.edges)

    @cached_property
    def centres_by_axis(self) -> tuple[FloatArray, ...]:
        """Middle of the squares along each axis."""
        return tuple((edges[1:] + edges[:-1]) / 2 for edges in self.edges)

    @property
    def centres(self) -> FloatArray:
        """The middle of every square, (squares, N)."""
        axes = np.meshgrid(*self.centres_by_axis, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, self.n_axes)

    def square_of(self, points: FloatArray) -> NDArray[np.intp]:
        """Return the number of each point's square; a point on an edge belongs to the upper side."""
        number = np.zeros(len(points), dtype=np.intp)
        for axis, edges in enumerate(self.edges):
            number *= self.shape[axis]
            number += np.searchsorted(edges[1:-1], points[:, axis], side="right")
        return number
