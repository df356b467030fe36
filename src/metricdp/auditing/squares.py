"""Reported coordinates as events: which square of a grid a report lies in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.auditing.draws import Sampler
from metricdp.mechanisms.base import Mechanism

__all__ = ["Squares", "counted_by_squares"]

# Squares in all, roughly, and by which share of its sides the grid is wider than the box on each side.
_SQUARES, _MARGIN = 400, 0.25


@dataclass(frozen=True)
class Squares:
    """A sampler of coordinates as a sampler of squares; reports beyond the grid count for its outermost squares.

    Which square a report lies in is post-processing: it never gives away more than the report, so what an audit proves
    of squares it proves of the sampler.
    """

    sampler: Any
    box: FloatArray

    @property
    def each(self) -> int:
        """Squares along each axis."""
        return max(2, round(_SQUARES ** (1 / self.box.shape[1])))

    @property
    def n_outputs(self) -> int:
        """Squares in all."""
        return int(self.each ** self.box.shape[1])

    def __call__(self, points: FloatArray) -> NDArray[np.intp]:
        """Return the number of the square that each point's report lies in."""
        low, high = self.box
        share = (np.asarray(self.sampler(points), dtype=np.float64) - low) / (high - low)
        where = np.clip((share + _MARGIN) / (1 + 2 * _MARGIN) * self.each, 0, self.each - 1).astype(np.intp)
        return np.ravel_multi_index(tuple(where.T), (self.each,) * self.box.shape[1])


def counted_by_squares(sampler: Sampler, box: FloatArray) -> Squares | None:
    """Return the squares of a function that reports coordinates; None for one that returns numbers of outputs."""
    if isinstance(sampler, Mechanism) or not callable(sampler):
        return None
    said = np.asarray(sampler(box.copy()))
    if said.shape != box.shape or said.dtype.kind != "f" or not np.isfinite(said).all():
        return None
    return Squares(sampler, box)
