"""Pr[report | cell] for people anywhere in a cell: of outputs, and of noisy points that are counted by squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import fftconvolve

from metricdp._validation import FloatArray, reject, table
from metricdp.errors import ProblemTooLargeError
from metricdp.geometry.norms import norm
from metricdp.mechanisms.base import Mechanism

__all__ = ["CellGrid", "Counted", "counted", "parts_within"]

# Points along each axis of a cell, for each 1/ε of its side, over which Pr[output | point] is averaged.
_POINTS = 4

# A part of a cell wants so many outputs, to be told from others.
_OUTPUTS_PER_PART = 3

# Squares by which noisy points are counted: so many along each axis for each 1/ε, each of so many points of a lattice.
_SQUARES, _FINE = 3, 3

# How far beyond the cells noisy points are counted by squares, in units of 1/ε; those further away count together.
_REACH = 7.0

# Numbers of the largest table of cells and reports, 400 MB, and the most cells.
_LARGEST_TABLE, _MOST_CELLS = 50_000_000, 3000


@dataclass(frozen=True)
class CellGrid:
    """Equal cells that fill a box. shape : how many there are along each axis; the last axis counts fastest."""

    bounds: FloatArray
    shape: tuple[int, ...]

    @classmethod
    def over(cls, bounds: FloatArray, side: float) -> CellGrid:
        """Return as many cells as fit, with sides of at least `side`."""
        counts = np.floor(np.ptp(bounds, axis=0) / side * (1 + 1e-9))
        if math.prod(float(max(one, 1.0)) for one in counts) > _MOST_CELLS:
            msg = (
                f"{math.prod(int(one) for one in counts):,} cells are more than {_MOST_CELLS:,}; take a larger `cell`."
            )
            raise ProblemTooLargeError(msg)
        return cls(bounds, tuple(max(1, int(one)) for one in counts))

    def split(self, parts: int) -> CellGrid:
        """Return so many cells along each axis of every cell."""
        return CellGrid(self.bounds, tuple(parts * one for one in self.shape))

    def sums(self, parts: int, values: FloatArray) -> FloatArray:
        """Return sums over the parts of each cell, of values (…, cells of `split(parts)`)."""
        apart = [size for one in self.shape for size in (one, parts)]
        axes = tuple(range(-2 * len(self.shape) + 1, 0, 2))
        return np.asarray(values.reshape(*values.shape[:-1], *apart).sum(axis=axes).reshape(*values.shape[:-1], -1))

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return math.prod(self.shape)

    @property
    def sides(self) -> FloatArray:
        """The sides of a cell."""
        return np.asarray(np.ptp(self.bounds, axis=0) / self.shape)

    @property
    def lower(self) -> FloatArray:
        """The lower corner of each cell, (cells, N)."""
        corners = np.stack(np.meshgrid(*map(np.arange, self.shape), indexing="ij"), axis=-1)
        return np.asarray(self.bounds[0] + corners.reshape(-1, len(self.shape)) * self.sides)

    def of(self, points: FloatArray) -> NDArray[np.intp]:
        """Return the cell of each point, of the nearest point of the box for those outside."""
        share = (points - self.bounds[0]) / self.sides
        where = np.clip(np.floor(share), 0, np.array(self.shape) - 1).astype(np.intp)
        return np.ravel_multi_index(tuple(where.T), self.shape)


@dataclass(frozen=True, eq=False)
class Counted:
    """Reports in counts. rows : (cells, kinds) of Pr[kind of report | cell]; counts : (kinds,)."""

    rows: FloatArray
    counts: FloatArray


def parts_within(mechanism: Mechanism, grid: CellGrid, rate: float) -> int:
    """Return into how many parts along each axis cells are split, so that people need not be spread evenly in them.

    Parts are no smaller than 1/ε, where reports hardly tell them apart, and few enough for the outputs to tell.
    """
    most = _MOST_CELLS if not mechanism.has_outputs else mechanism.n_outputs / _OUTPUTS_PER_PART
    parts = max(1, math.floor(float(grid.sides.min()) * rate * (1 + 1e-6)))
    while parts > 1 and grid.n_cells * parts ** len(grid.shape) > most:
        parts -= 1
    return parts


def counted(mechanism: Mechanism, reports: ArrayLike, grid: CellGrid, rate: float) -> Counted:
    """Return how often each kind of report came, and how likely each is from each cell."""
    if mechanism.has_outputs:
        return _outputs(mechanism, reports, grid, rate)
    return _noisy_points(mechanism, reports, grid, rate)


def _outputs(mechanism: Mechanism, reports: ArrayLike, grid: CellGrid, rate: float) -> Counted:
    said, n_outputs = np.asarray(reports), mechanism.n_outputs
    if said.ndim != 1 or not said.size or said.dtype.kind not in "iu" or said.min() < 0 or said.max() >= n_outputs:
        raise reject("reports", f"numbers of outputs, 0 to {n_outputs - 1}", f"shape {said.shape} of {said.dtype}")
    _require_small(grid.n_cells, n_outputs)
    each = [max(2, math.ceil(_POINTS * min(rate * side, 8.0))) for side in grid.sides]
    inside = np.stack(np.meshgrid(*((np.arange(n) + 0.5) / n for n in each), indexing="ij"), axis=-1)
    rows = np.zeros((grid.n_cells, n_outputs))
    for share in inside.reshape(-1, len(each)):
        rows += mechanism.probabilities(grid.lower + share * grid.sides)
    rows /= rows.sum(axis=1, keepdims=True)
    return Counted(rows, np.bincount(said, minlength=n_outputs).astype(np.float64))


def _noisy_points(mechanism: Any, reports: ArrayLike, grid: CellGrid, rate: float) -> Counted:
    said = table("reports", reports, columns=len(grid.shape))
    # Squares of which a whole number fits into a cell, and a lattice of which a whole number fits into a square.
    per_cell = np.maximum(2, np.ceil(_SQUARES * rate * grid.sides)).astype(int)
    square = grid.sides / per_cell
    margin = np.ceil(_REACH / rate / square).astype(int)
    n_squares = np.array(grid.shape) * per_cell + 2 * margin
    _require_small(grid.n_cells, int(np.prod(n_squares)) + 1)
    shares = _from_one_cell(mechanism, per_cell, n_squares, square)
    where = np.stack(np.meshgrid(*map(np.arange, grid.shape), indexing="ij"), axis=-1).reshape(-1, len(grid.shape))
    rows = np.empty((grid.n_cells, int(np.prod(n_squares)) + 1))
    for cell, corner in enumerate(where):
        first = n_squares - margin - corner * per_cell
        window = tuple(slice(a, a + n) for a, n in zip(first, n_squares, strict=True))
        rows[cell, :-1] = shares[window].ravel()
    rows[:, -1] = np.maximum(1 - rows[:, :-1].sum(axis=1), 1e-12)
    place = np.floor((said - grid.bounds[0]) / square).astype(np.int64) + margin
    beyond = ((place < 0) | (place >= n_squares)).any(axis=1)
    kind = np.ravel_multi_index(tuple(np.clip(place, 0, n_squares - 1).T), tuple(n_squares))
    kind[beyond] = rows.shape[1] - 1
    return Counted(rows, np.bincount(kind, minlength=rows.shape[1]).astype(np.float64))


def _from_one_cell(mechanism: Any, per_cell: Any, n_squares: Any, square: FloatArray) -> FloatArray:
    """Return Pr[square | a cell], by the square's place relative to the cell's corner, which is at `n_squares`.

    Points of a lattice, `_FINE` along each axis of a square, stand for where people are and for where reports fall.
    """
    step = square / _FINE
    reach = n_squares * _FINE + per_cell * _FINE
    axes = [np.arange(-int(n), int(n) + 1) * one for n, one in zip(reach, step, strict=True)]
    kernel = np.exp(-mechanism.rate * norm(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), mechanism.p))
    kernel /= kernel.sum()
    people = np.ones(tuple(per_cell * _FINE)) / np.prod(per_cell * _FINE)
    spread = fftconvolve(kernel, people, mode="full")
    # Lattice points of the squares from `n_squares` before the cell's corner to `n_squares` behind it.
    first = reach - n_squares * _FINE
    kept = spread[tuple(slice(a, a + 2 * n * _FINE) for a, n in zip(first, n_squares, strict=True))]
    split = [size for n in n_squares for size in (2 * int(n), _FINE)]
    return np.maximum(kept.reshape(split).sum(axis=tuple(range(1, len(split), 2))), 0.0)


def _require_small(cells: int, kinds: int) -> None:
    if cells * kinds > _LARGEST_TABLE:
        msg = f"{cells:,} cells and {kinds:,} kinds of reports make too large a table; take a larger `cell`."
        raise ProblemTooLargeError(msg)
