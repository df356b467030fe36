"""A rigorous bound of the steepest slope of log-convex interpolants, by branch and bound.

On a cell ln f_k is multilinear in x. With g_k = ∇ ln f_k, λ = ln Σ_j f_j and all moments taken under z(x),

    ∇ ln z_k = g_k − E[g],    ∂_m² λ = Var(g_m),    ∂_m² ∂_ℓ ln z_k = −∂_ℓ Var(g_m),

because pure second derivatives of ln f_k and of its slopes are zero. Multilinear interpolation of any function from the
corners of a box of half-widths r is off by at most Σ_m r_m²/2 · sup |∂_m²|, and norms are convex, so on the box

    ‖∇ ln z_k‖_q ≤ max over its corners + ‖e‖_q,    e_ℓ = Σ_m r_m²/2 · sup |∂_ℓ Var(g_m)|.

The excess e is of second order and the same for all outputs: a few halvings of the boxes near the top close the gap.
With b = ∂_ℓ g_m, ∂_ℓ Var(g_m) = E[(g_ℓ − E g_ℓ)(g_m − E g_m)²] + 2 Cov(g_m, b), which ranges and variances bound.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from metricdp._chunks import NUMBERS_AT_ONCE, chunks
from metricdp._validation import FloatArray
from metricdp.certificates.claims import ROUNDOFF
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import dual_exponent, norm

__all__ = ["Steepest", "steepest_slope"]

# A box whose bound is within this share of the steepest slope seen is not divided further.
_TOLERANCE = 1e-3

# Each round halves every open box once, so corners are multiples of 2^-48 of a cell and exact as floats.
_ROUNDS = 48

# Slopes evaluated before the search gives up, about half a minute, and boxes held at once. Usual tables in two
# dimensions take less than a million of the former and a few thousand of the latter.
_WORK = 2**28
_MOST_BOXES = 2**18

# Relative rounding error of `norm`: quotients, powers (the root divides what they lose by the exponent) and a sum of N.
_NORM_ERROR = 64 * ROUNDOFF

# Above this the argument of `_relative_error`, which leaves out products of errors, is not to be trusted.
_LARGEST_ERROR = 1e-3

# Beyond this exponent a bound of a probability is taken as 1; below, the rounding of the exponent and of exp adds less
# than this to the bound, relatively.
_LARGEST_EXPONENT = 32.0
_EXPONENTIAL_ERROR = 1024 * ROUNDOFF


@dataclass(frozen=True)
class Steepest:
    """What is known of sup ‖∇ ln z_k(x)‖_q over the box and all outputs.

    lower : a slope that is reached, next to `point` inside `cell`, by `output`.
    upper : no slope is larger; infinite if numbers are too large to tell.
    cell : (2, N), corners of the cell.
    compared : slopes evaluated.
    """

    lower: float
    upper: float
    point: FloatArray
    cell: FloatArray
    output: int
    compared: int


def steepest_slope(
    grid: Grid, log_table: FloatArray, p: float, *, target: float = math.inf, tolerance: float = _TOLERANCE
) -> Steepest:
    """Bound the steepest slope of the normalised interpolant of `log_table`, in the norm dual to d_p.

    The search ends when `upper` is within `tolerance` of `lower` and at most `target`, when some slope exceeds
    `target`, or when it gives up.
    """
    # Numbers too large for floats prove nothing, and need no warning.
    with np.errstate(over="ignore", invalid="ignore"):
        cells = _Cells.of(grid, log_table)
        return _search(grid, cells, dual_exponent(p), target, tolerance)


def _search(grid: Grid, cells: _Cells, q: float, target: float, tolerance: float) -> Steepest:
    boxes = _Boxes.whole(*cells.sides.shape)
    best = _Best()
    settled, compared = 0.0, 0
    trusted = cells.error <= _LARGEST_ERROR
    for _ in range(_ROUNDS if trusted else 1):
        found = _bounds(cells, boxes, q)
        compared += len(boxes.cell) * cells.numbers_per_box
        best.see(boxes, found)
        open_ = found.upper > min(target, best.lower * (1 + tolerance))
        settled = max(settled, float(found.upper[~open_].max(initial=0.0)))
        spent = compared > _WORK or 2 * int(open_.sum()) > _MOST_BOXES
        if not open_.any() or best.lower > target or spent:
            break
        boxes = boxes.halved(open_, found.axis)
    upper = max(settled, float(found.upper[open_].max(initial=0.0)))
    return best.report(grid, upper if trusted else math.inf, compared)


@dataclass(frozen=True)
class _Cells:
    """The interpolant cell by cell; arrays are indexed (cell, corner, output), corners with the last axis fastest.

    logs : ln f at every corner.
    slopes : ∂ ln f along each axis, with the axis after the cell.
    mixed : ∂∂ ln f for each of the `pairs` of axes, with the pair after the cell.
    steepness : (cells, N), max |slopes|.
    error : relative rounding error of all that `_bounds` computes, see `_relative_error`.
    """

    sides: FloatArray
    logs: FloatArray
    slopes: FloatArray
    mixed: FloatArray
    steepness: FloatArray
    corners: NDArray[np.intp]
    pairs: list[tuple[int, int]]
    error: float

    @classmethod
    def of(cls, grid: Grid, log_table: FloatArray) -> _Cells:
        n_axes = grid.n_axes
        corners = np.array(list(itertools.product((0, 1), repeat=n_axes)))
        place = np.stack(np.unravel_index(np.arange(int(np.prod(grid.cells))), grid.cells), axis=-1)
        anchor = np.ravel_multi_index(tuple((place[:, None, :] + corners).transpose(2, 0, 1)), grid.anchor_shape)
        sides = np.stack([np.diff(points)[place[:, axis]] for axis, points in enumerate(grid.breakpoints)], axis=1)
        logs = log_table[anchor]
        slopes = np.stack([_differences(logs, sides, axis) for axis in range(n_axes)], axis=1)
        pairs = list(itertools.combinations(range(n_axes), 2))
        mixed = np.empty((len(logs), len(pairs), *logs.shape[1:]))
        for number, (first, second) in enumerate(pairs):
            mixed[:, number] = _differences(slopes[:, first], sides, second)
        steepness = np.abs(slopes).max(axis=(2, 3))
        error = _relative_error(n_axes, logs.shape[2], float(np.abs(log_table).max()))
        return cls(sides, logs, slopes, mixed, steepness, corners, pairs, error)

    @property
    def numbers_per_box(self) -> int:
        """Slopes at the corners of one box."""
        return self.slopes[0].size


def _differences(values: FloatArray, sides: FloatArray, axis: int) -> FloatArray:
    """Return the slopes of (cell, corner, output) values along an axis; both ends of an edge get the edge's slope."""
    n_axes = sides.shape[1]
    cube = values.reshape((len(values), *[2] * n_axes, -1))
    slope = np.diff(cube, axis=axis + 1) / sides[:, axis].reshape([-1] + [1] * (n_axes + 1))
    return np.broadcast_to(slope, cube.shape).reshape(values.shape)


def _relative_error(n_axes: int, n_outputs: int, largest: float) -> float:
    """Return κ such that a computed slope is off by at most κ · (steepest slope of the cell).

    Let u = 2^-53 and C = 2^N. Weights at dyadic corners are products of N exact numbers. (1) A slope of an edge has
    three roundings, its interpolation C + N more: (C + N + 3) u. (2) ln f_k is off by (C + N) u · largest, and by 2u ·
    largest more when the maximum is subtracted; exp is taken to be within 4 units in the last place, 8u; so z_k, with
    the sum over K outputs and a division, is off by a factor of at most 1 ± 2 (C + N + 2) u · largest ± (16 + K) u.
    (3) E[g] inherits (1) and (2) and sums K products; the difference g_k − E[g] doubles (1) and rounds once. In all
    below 4 (C + N + K + 8)(1 + largest) u, with more than enough left for products of such errors while κ is small.
    What underflows in exp is smaller than all of these.
    """
    return 4 * (2**n_axes + n_axes + n_outputs + 8) * (1 + largest) * ROUNDOFF


@dataclass(frozen=True)
class _Boxes:
    """Boxes inside cells: the cell's number, and lower corner and width in units of the cell."""

    cell: NDArray[np.intp]
    low: FloatArray
    width: FloatArray

    @classmethod
    def whole(cls, n_cells: int, n_axes: int) -> _Boxes:
        return cls(np.arange(n_cells), np.zeros((n_cells, n_axes)), np.ones((n_cells, n_axes)))

    def part(self, chosen: slice | NDArray[np.bool_]) -> _Boxes:
        return _Boxes(self.cell[chosen], self.low[chosen], self.width[chosen])

    def halved(self, chosen: NDArray[np.bool_], axis: NDArray[np.intp]) -> _Boxes:
        """Return both halves of the chosen boxes, each cut across its axis."""
        parent = self.part(chosen)
        cut = np.arange(parent.low.shape[1]) == axis[chosen][:, None]
        width = np.where(cut, parent.width / 2, parent.width)
        upper = parent.low + np.where(cut, width, 0.0)
        return _Boxes(np.tile(parent.cell, 2), np.concatenate([parent.low, upper]), np.tile(width, (2, 1)))


@dataclass(frozen=True)
class _Found:
    """Per box: slopes between `lower`, reached at a corner by an output, and `upper`; the axis to cut next."""

    lower: FloatArray
    upper: FloatArray
    corner: NDArray[np.intp]
    output: NDArray[np.intp]
    axis: NDArray[np.intp]


def _bounds(cells: _Cells, boxes: _Boxes, q: float) -> _Found:
    few = chunks(len(boxes.cell), cells.numbers_per_box, NUMBERS_AT_ONCE // 4)
    parts = [_bounds_of_few(cells, boxes.part(part), q) for part in few]
    names = ("lower", "upper", "corner", "output", "axis")
    return _Found(*[np.concatenate([getattr(part, name) for part in parts]) for name in names])


def _bounds_of_few(cells: _Cells, boxes: _Boxes, q: float) -> _Found:
    weights = _weights(cells, boxes)
    slopes = weights[:, None] @ cells.slopes[boxes.cell]
    rows = _softmax(weights @ cells.logs[boxes.cell])
    mean = np.einsum("bck,bnck->bnc", rows, slopes)
    size = norm(slopes - mean[..., None], q, axis=1)
    corner, output = np.divmod(size.reshape(len(size), -1).argmax(axis=1), size.shape[2])
    largest = size.max(axis=(1, 2))
    rounding = norm(cells.error * cells.steepness[boxes.cell], q)
    excess = _excess(cells, boxes, weights, slopes, rows, mean)
    if math.isinf(q) or len(cells.sides[0]) == 1:
        # λ is convex along each axis, so ∂_ℓ ln z_k falls along axis ℓ: its extremes lie on faces across ℓ.
        excess[:, np.arange(excess.shape[1]), np.arange(excess.shape[1])] = 0.0
    upper = (largest + rounding + norm(excess.sum(axis=1), q)) * (1 + 4 * _NORM_ERROR)
    lower = np.maximum((largest - rounding) * (1 - 4 * _NORM_ERROR), 0.0)
    lower, upper = np.where(np.isfinite(lower), lower, 0.0), np.where(np.isnan(upper), np.inf, upper)
    return _Found(lower, upper, corner, output, norm(excess, q, axis=2).argmax(axis=1))


def _weights(cells: _Cells, boxes: _Boxes) -> FloatArray:
    """Return the multilinear weights of a cell's corners at each corner of the boxes, (boxes, corners, corners)."""
    place = boxes.low[:, None, :] + boxes.width[:, None, :] * cells.corners
    weights = np.ones((*place.shape[:2], len(cells.corners)))
    for axis in range(place.shape[2]):
        upper = place[:, :, axis, None]
        weights *= np.where(cells.corners[:, axis], upper, 1 - upper)
    return weights


def _softmax(logs: FloatArray) -> FloatArray:
    rows = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(rows / rows.sum(axis=2, keepdims=True))


def _excess(
    cells: _Cells, boxes: _Boxes, weights: FloatArray, slopes: FloatArray, rows: FloatArray, mean: FloatArray
) -> FloatArray:
    """Return an upper bound of r_m²/2 · sup |∂_ℓ Var(g_m)| as (boxes, m, ℓ)."""
    steepness, sides = cells.steepness[boxes.cell], cells.sides[boxes.cell]
    half = boxes.width * sides / 2
    spread, deviation = _ranges(slopes, mean.mean(axis=2), cells.error * steepness)
    likely = _most_likely(rows, half * spread, cells.error)
    variance = _variance(likely, spread, deviation)
    mixed = np.zeros((*variance.shape, variance.shape[1]))
    if cells.pairs:
        first, second = np.array(cells.pairs).T
        bends = weights[:, None] @ cells.mixed[boxes.cell]
        # A mixed difference of slopes has their errors, and its own three roundings.
        rounding = 2 * cells.error * steepness[:, first] / sides[:, second]
        middle = np.einsum("bk,bpck->bp", likely, bends) / (bends.shape[2] * likely.sum(axis=1))[:, None]
        mixed[:, first, second] = _variance(likely, *_ranges(bends, middle, rounding))
        mixed[:, second, first] = mixed[:, first, second]
    # |E[(X − EX)(Y − EY)²]| ≤ range(X) Var(Y), and ≤ sd(X) range(Y) sd(Y) by Cauchy and Schwarz.
    deviations = np.sqrt(variance)
    third = np.minimum(
        spread[:, None, :] * variance[:, :, None], deviations[:, None, :] * (spread * deviations)[:, :, None]
    )
    growth = third + 2 * deviations[:, :, None] * np.sqrt(mixed)
    # Sums and products of positive numbers: a few dozen roundings, and K of them in the variances.
    return np.asarray(growth * (half**2 / 2)[:, :, None] * (1 + 8 * cells.error))


def _ranges(values: FloatArray, centre: FloatArray, rounding: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the range of (box, axis, corner, output) values, and per output the largest distance from `centre`.

    The values are multilinear on the box, so their extremes are at its corners; `centre` may be any number.
    """
    low, high = values.min(axis=2), values.max(axis=2)
    spread = high.max(axis=2) - low.min(axis=2) + 4 * rounding
    deviation = np.maximum(high - centre[..., None], centre[..., None] - low) + 4 * rounding[..., None]
    return spread, deviation


def _most_likely(rows: FloatArray, rise: FloatArray, error: float) -> FloatArray:
    """Return an upper bound of z_k over each box.

    ∂_m² ln z_k = −Var(g_m) ≥ −range²/4: ln z_k exceeds its values at the corners by at most Σ_m (r_m · range_m)²/8.
    """
    exponent = np.square(rise).sum(axis=1) / 8
    factor = np.exp(np.minimum(exponent, _LARGEST_EXPONENT)) * (1 + 4 * error + _EXPONENTIAL_ERROR)
    bound = np.minimum(rows.max(axis=1) * factor[:, None], 1.0)
    return np.where((exponent < _LARGEST_EXPONENT)[:, None], bound, 1.0)


def _variance(likely: FloatArray, spread: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return a bound of Var ≤ E[(· − centre)²] and of Var ≤ range²/4, whichever is less."""
    return np.minimum(spread**2 / 4, np.einsum("bk,bnk->bn", likely, deviation**2))


@dataclass
class _Best:
    """The steepest slope seen so far and its place."""

    lower: float = -1.0
    cell: int = 0
    place: FloatArray | None = None
    output: int = 0

    def see(self, boxes: _Boxes, found: _Found) -> None:
        top = int(found.lower.argmax())
        if found.lower[top] > self.lower:
            self.lower, self.output = float(found.lower[top]), int(found.output[top])
            self.cell = int(boxes.cell[top])
            n_axes = boxes.low.shape[1]
            corner = np.array(np.unravel_index(found.corner[top], [2] * n_axes))
            self.place = boxes.low[top] + boxes.width[top] * corner

    def report(self, grid: Grid, upper: float, compared: int) -> Steepest:
        cell = np.unravel_index(self.cell, grid.cells)
        ends = [points[number : number + 2] for points, number in zip(grid.breakpoints, cell, strict=True)]
        corners = np.array(ends).T
        assert self.place is not None
        point = corners[0] + self.place * (corners[1] - corners[0])
        return Steepest(self.lower, upper, point, corners, self.output, compared)
