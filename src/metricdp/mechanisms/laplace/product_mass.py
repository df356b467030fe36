"""Exact probabilities of product Laplace noise: what falls into the squares of each label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.remap import merge_columns

__all__ = ["ProductMass", "Runs"]

# Numbers held at once: arrays of 1 MB stay in the processor's cache, which is worth a factor of two.
_NUMBERS_IN_CACHE = 2**17


@dataclass(frozen=True, eq=False)
class Runs:
    """Squares in a row along the last axis that share a label, in the order of their numbers.

    starts : number of the first square of each run.
    shape : squares along each axis.
    labels : of each run.
    """

    starts: NDArray[np.intp]
    shape: tuple[int, ...]
    labels: NDArray[np.intp]

    @classmethod
    def of(cls, labels: NDArray[np.intp]) -> Runs:
        """Gather the squares of a table of labels: a run starts with a line or where the label changes."""
        fresh = np.ones(labels.shape, dtype=bool)
        fresh[..., 1:] = labels[..., 1:] != labels[..., :-1]
        starts = np.flatnonzero(fresh)
        return cls(starts, labels.shape, labels.ravel()[starts])

    @property
    def count(self) -> int:
        """How many runs there are."""
        return len(self.starts)

    @cached_property
    def ends(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each axis, the numbers of the edges between which each run lies."""
        at = np.unravel_index(self.starts, self.shape)
        length = np.diff(np.append(self.starts, int(np.prod(self.shape))))
        widths = [np.ones_like(length)] * (len(at) - 1) + [length]
        return [(first, first + width) for first, width in zip(at, widths, strict=True)]


@dataclass(frozen=True, eq=False)
class ProductMass:
    """Label probabilities for noise of density (rate/2)^N e^{−rate ‖·‖_1}.

    The squares are gathered into *runs*: squares in a row along the last axis that share a label. The mass of
    a run is a product of interval masses, one per axis, each in closed form with full relative accuracy; a
    label's mass is a sum of such products, all positive, so it keeps that accuracy however small it is.
    """

    squares: Squares
    labels: NDArray[np.intp]
    rate: float
    n_outputs: int

    def rows(self, points: FloatArray) -> FloatArray:
        """Return the label probabilities of each point."""
        rows = np.empty((len(points), self.n_outputs))
        for part in chunks(len(points), self._runs.count, _NUMBERS_IN_CACHE):
            rows[part] = self._run_masses(points[part]) @ self._merge
        return rows

    def _run_masses(self, points: FloatArray) -> FloatArray:
        mass = np.ones((1, 1))
        for axis, (first, last) in enumerate(self._runs.ends):
            mass = mass * self._interval_masses(axis, points[:, axis], first, last)
        return mass

    def _interval_masses(
        self, axis: int, centre: FloatArray, first: NDArray[np.intp], last: NDArray[np.intp]
    ) -> FloatArray:
        """Return Pr[centre + noise lies between the edges `first` and `last`] as (points, intervals).

        On one side of the centre this is ½ e^{−s·near}(1 − e^{−s·width}); across the centre it is
        ½(1 − e^{−s·left}) + ½(1 − e^{−s·right}). Nothing of like size is ever subtracted.
        """
        edges = self.squares.unbounded_edges[axis]
        reach = -self.rate * np.abs(edges - centre[:, None])
        decay, rise = np.exp(reach), -np.expm1(reach)
        span = -np.expm1(-self.rate * (edges[last] - edges[first]))
        above, below = edges[first] >= centre[:, None], edges[last] <= centre[:, None]
        across = rise[:, first] + rise[:, last]
        one_side = np.where(above, decay[:, first], decay[:, last]) * span
        return 0.5 * np.where(above | below, one_side, across)

    @cached_property
    def _runs(self) -> Runs:
        return Runs.of(self.labels)

    @cached_property
    def _merge(self) -> sparse.csr_array:
        return merge_columns(self._runs.labels, self.n_outputs)
