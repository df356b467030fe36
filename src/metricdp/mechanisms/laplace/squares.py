"""A finite lattice of squares over a window; squares on its border reach out to infinity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray

__all__ = ["Lattice"]


@dataclass(frozen=True)
class Lattice:
    """Equal boxes ("squares") over a window, numbered with the last axis fastest.

    A point outside the window belongs to the nearest square, so the lattice covers the whole space.
    """

    window: FloatArray
    shape: tuple[int, ...]

    @property
    def n_axes(self) -> int:
        """N, the dimension of the space."""
        return len(self.shape)

    @property
    def n_squares(self) -> int:
        """Squares in all."""
        return int(np.prod(self.shape))

    @property
    def pitch(self) -> FloatArray:
        """Side of a square along each axis."""
        return np.asarray((self.window[1] - self.window[0]) / np.array(self.shape))

    @cached_property
    def edges(self) -> tuple[FloatArray, ...]:
        """Lattice lines across each axis, the window's border included."""
        axes = zip(*self.window, self.shape, strict=True)
        return tuple(np.linspace(low, high, count + 1) for low, high, count in axes)

    @cached_property
    def centres_by_axis(self) -> tuple[FloatArray, ...]:
        """Middle of the squares along each axis."""
        return tuple((edges[1:] + edges[:-1]) / 2 for edges in self.edges)

    @property
    def centres(self) -> FloatArray:
        """The middle of every square, (squares, N)."""
        axes = np.meshgrid(*self.centres_by_axis, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, self.n_axes)

    def snap(self, points: FloatArray) -> NDArray[np.intp]:
        """Return the number of each point's square; a point on a lattice line belongs to the upper side."""
        number = np.zeros(len(points), dtype=np.intp)
        for axis, edges in enumerate(self.edges):
            number *= self.shape[axis]
            number += np.searchsorted(edges[1:-1], points[:, axis], side="right")
        return number
