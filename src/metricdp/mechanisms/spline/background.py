"""A feasible spline about as good as Laplace noise with remap, from which tiles are improved.

Laplace noise with labels (each noisy point reported as the output of least posterior loss) has log-slopes of at most
its rate everywhere. A spline through its probabilities is a little steeper than they are, the more so the wider the
cells are against 1/ε. So the noise lives in warped coordinates, whose unit shrinks in wide cells: the rate is lowered
cell by cell and axis by axis, until the spline lies inside every cone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import distance_transform_edt, find_objects

from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.optimise.programs import TensorProgram
from metricdp.problem import Problem

__all__ = ["background"]

# Side of the squares that noisy points are labelled by, over 1/rate, and how many there may be along an axis.
_SIDE = {1: 0.1, 2: 0.35, 3: 0.8}
_FEWEST_SQUARES, _MOST_SQUARES = {1: 512, 2: 192, 3: 24}, {1: 8192, 2: 1024, 3: 64}

# Labels reach this far beyond the box, over 1/rate, and the Fourier transforms' padding that far beyond them.
_MARGIN, _PADDING = 5.0, 12.0

# Probabilities below this are not told apart: a trace of uniform, much larger, is mixed in.
_LEAST, _TRACE = 1e-10, 1e-6

# Beyond this distance from an output's labels, over 1/rate, its probability is below the least: (1 + t) e^{-t} = 1e-10.
_REACH = 26.5

# Squares with less mass than this share of the largest take the nearest label: rounding hides their posterior.
_RESOLVED = 1e-11

# Slopes over ε: what the rate of a cell is lowered to, and what is accepted.
_GOAL, _ACCEPTED = 0.985, 0.998
_MOST_TRIES = 30

# Outputs on which the warp is found before all are looked at.
_SOME = 24


@dataclass(frozen=True)
class _Warp:
    """Per axis a piecewise linear map of the coordinate, whose slope in each cell is the cell's rate over ε."""

    breakpoints: tuple[FloatArray, ...]
    rates: tuple[FloatArray, ...]

    def __call__(self, axis: int, coordinates: FloatArray) -> FloatArray:
        points = self.breakpoints[axis]
        image = np.concatenate([[0.0], np.cumsum(self.rates[axis] * np.diff(points))])
        return np.interp(coordinates, points, image)

    def lowered(self, steepest: Sequence[FloatArray]) -> _Warp:
        """Return the warp with rates lowered where slopes along the axis are above the goal."""
        rates = (rate * _GOAL / np.maximum(steep, _GOAL) for rate, steep in zip(self.rates, steepest, strict=True))
        return _Warp(self.breakpoints, tuple(rates))


def background(
    problem: Problem, spline: TensorSpline, program: TensorProgram, epsilon: float, clock: Clock
) -> FloatArray | None:
    """Return coefficients (n_1, …, n_N, K) strictly inside all cones of the program; None if time runs out before.

    epsilon : the least ε of the program's sites.
    """
    try:
        return _Search(problem, spline, program, epsilon, clock).run()
    except TimeoutError:
        return None


class _Search:
    """The search for a warp and a rate at which the spline through the noise's probabilities is feasible."""

    def __init__(
        self, problem: Problem, spline: TensorSpline, program: TensorProgram, epsilon: float, clock: Clock
    ) -> None:
        self.problem, self.spline, self.program, self.clock = problem, spline, program, clock
        points = spline.grid.breakpoints
        self.warp = _Warp(points, tuple(_first_rate(epsilon * np.diff(x), spline.degree) for x in points))
        self.rate = epsilon
        self.shape = _squares(problem.bounds, epsilon)

    def run(self) -> FloatArray | None:
        """Find the warp on some outputs first, then look at all of them."""
        some = np.random.default_rng(0).permutation(self.problem.n_outputs)[:_SOME]
        # The labels stay, in squares that move with the warp: any labels are private, and these nearly the best.
        labels = self._noise(self.shape).bayes_labels(self.problem, self.clock)
        if self._feasible(labels, some) is None:
            return None
        return self._feasible(labels, np.arange(self.problem.n_outputs))

    def _feasible(self, labels: NDArray[np.intp], outputs: NDArray[np.intp]) -> FloatArray | None:
        for _ in range(_MOST_TRIES):
            table = self._noise(self.shape).coefficients(labels, outputs, self.clock)
            if len(outputs) == self.problem.n_outputs:
                table /= table.sum(axis=-1, keepdims=True)
            table *= 1 - _TRACE
            table += _TRACE / self.problem.n_outputs
            worst, steepest = _steepness(self.program, table, self.spline.degree)
            if worst < _ACCEPTED:
                return table
            if max(float(values.max()) for values in steepest) >= _ACCEPTED:
                self.warp = self.warp.lowered(steepest)
            else:  # slopes along several axes are too steep together where none is alone
                self.rate *= _GOAL / worst
        return None

    def _noise(self, shape: tuple[int, ...]) -> _Noise:
        return _Noise.of(self.problem, self.spline, self.warp, self.rate, shape)


@dataclass(frozen=True)
class _Noise:
    """Laplace noise in warped coordinates, over squares whose centres are given per axis.

    records, greville : the problem's records and, per axis, the spline's Greville points, in warped coordinates.
    """

    records: FloatArray
    greville: tuple[FloatArray, ...]
    centres: tuple[FloatArray, ...]
    rate: float
    order: float

    @classmethod
    def of(cls, problem: Problem, spline: TensorSpline, warp: _Warp, rate: float, shape: tuple[int, ...]) -> _Noise:
        """Lay squares over the warped box and a margin around it."""
        records = np.column_stack([warp(axis, column) for axis, column in enumerate(problem.records.T)])
        greville = tuple(warp(axis, one.greville) for axis, one in enumerate(spline.axes))
        centres = []
        for points, count in zip(greville, shape, strict=True):
            edges = np.linspace(points[0] - _MARGIN / rate, points[-1] + _MARGIN / rate, count + 1)
            centres.append((edges[1:] + edges[:-1]) / 2)
        return cls(records, greville, tuple(centres), rate, problem.p)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(points) for points in self.centres)

    @property
    def pitch(self) -> FloatArray:
        return np.array([points[1] - points[0] for points in self.centres])

    def squares_within(self, distance: float) -> NDArray[np.intp]:
        """Return how many squares along each axis make up a distance, in units of 1/rate."""
        return np.ceil(distance / (self.rate * self.pitch)).astype(np.intp)

    def bayes_labels(self, problem: Problem, clock: Clock) -> NDArray[np.intp]:
        """Return for each square the output with the least posterior loss."""
        spread = Grid.from_breakpoints(self.centres).weights(self.records).T.tocsr()
        blur = _Blur(self, np.array(self.shape) + self.squares_within(_PADDING))
        least = problem.loss.min(axis=1)
        best = np.full(self.shape, np.inf)
        labels = np.zeros(self.shape, dtype=np.intp)
        for output in range(problem.n_outputs):
            _require_time(clock)
            # Subtract each record's minimum loss: the argmin does not change and cancellation is avoided.
            regret = problem.prior * (problem.loss[:, output] - least)
            cost = blur((spread @ regret).reshape(self.shape))
            better = cost < best
            best[better], labels[better] = cost[better], output
        mass = blur((spread @ problem.prior).reshape(self.shape))
        known = mass > _RESOLVED * mass.max()
        nearest = distance_transform_edt(~known, return_distances=False, return_indices=True)
        return np.asarray(labels[tuple(nearest)])

    def coefficients(self, labels: NDArray[np.intp], outputs: NDArray[np.intp], clock: Clock) -> FloatArray:
        """Return the probabilities of outputs at the Greville points, (n_1, …, n_N, outputs)."""
        # A record at the border of the box must not see the border of the labels.
        margin = self.squares_within(_MARGIN)
        labels = np.pad(labels, [(width, width) for width in margin], mode="edge")
        places = [
            (points - centres[0]) / pitch + width
            for points, centres, pitch, width in zip(self.greville, self.centres, self.pitch, margin, strict=True)
        ]
        reach = self.squares_within(_REACH)
        boxes = find_objects(labels + 1, max_label=int(outputs.max()) + 1)
        blurs: dict[tuple[int, ...], _Blur] = {}
        table = np.full((len(outputs), *map(len, places)), _LEAST)
        for number, output in enumerate(outputs):
            _require_time(clock)
            if boxes[output] is None:
                continue
            window = tuple(
                slice(max(0, part.start - width), min(size, part.stop + width))
                for part, width, size in zip(boxes[output], reach, labels.shape, strict=True)
            )
            spans = np.array([part.stop - part.start for part in boxes[output]])
            # Nothing within reach may meet on the torus. A few sizes serve all outputs: kernels are transformed once.
            least = np.minimum(spans + 2 * reach, np.array(labels.shape) + reach)
            sizes = tuple(int(size) for size in -(-least // 32) * 32)
            if sizes not in blurs:
                blurs[sizes] = _Blur(self, np.array(sizes))
            blur = blurs[sizes]
            probability = blur((labels[window] == output).astype(np.float64)) / blur.total
            _put(table[number], np.log(np.maximum(probability, _LEAST)), places, window)
        return np.ascontiguousarray(np.moveaxis(table, 0, -1))


def _put(table: FloatArray, logarithm: FloatArray, places: Sequence[FloatArray], window: tuple[slice, ...]) -> None:
    """Write e^{logarithm}, interpolated at the places that lie in the window, into the table."""
    chosen = []
    for axis, (place, part) in enumerate(zip(places, window, strict=True)):
        inside = np.flatnonzero((place >= part.start) & (place <= part.stop - 1))
        offset = place[inside] - part.start
        lower = np.minimum(offset.astype(np.intp), part.stop - part.start - 2)
        share = (offset - lower).reshape([-1 if other == axis else 1 for other in range(len(places))])
        logarithm = (1 - share) * logarithm.take(lower, axis=axis) + share * logarithm.take(lower + 1, axis=axis)
        chosen.append(inside)
    table[np.ix_(*chosen)] = np.exp(logarithm)


class _Blur:
    """Convolution with the density of the noise, up to a constant, on a torus of squares."""

    def __init__(self, noise: _Noise, sizes: NDArray[np.intp]) -> None:
        self.sizes = [fft.next_fast_len(int(size), real=True) for size in sizes]
        steps = [np.minimum(np.arange(size), size - np.arange(size)) for size in self.sizes]
        offsets = np.meshgrid(*(n * side for n, side in zip(steps, noise.pitch, strict=True)), indexing="ij")
        kernel = np.exp(-noise.rate * norm(np.stack(offsets, axis=-1), noise.order))
        self.transform = fft.rfftn(kernel, workers=-1)
        self.total = float(kernel.sum())

    def __call__(self, values: FloatArray) -> FloatArray:
        spectrum = fft.rfftn(values, self.sizes, workers=-1) * self.transform
        blurred = fft.irfftn(spectrum, self.sizes, workers=-1)
        return np.asarray(blurred[tuple(slice(0, size) for size in values.shape)])


def _squares(bounds: FloatArray, epsilon: float) -> tuple[int, ...]:
    """Return how many squares there are along each axis of the box and a margin around it."""
    sides = bounds[1] - bounds[0] + 2 * _MARGIN / epsilon
    n_axes = len(sides)
    longest = np.clip(epsilon * sides.max() / _SIDE[n_axes], _FEWEST_SQUARES[n_axes], _MOST_SQUARES[n_axes])
    return tuple(max(2, math.ceil(longest * share)) for share in sides / sides.max())


def _first_rate(side: FloatArray, degree: int) -> FloatArray:
    """Return the share of the steepest log-slope that a spline reaches on cells of side t/ε, about."""
    if degree == 1:
        return np.asarray(np.log1p(side) / side)
    wide = side if degree == 2 else side / 1.9
    return np.asarray(np.arcsinh(wide) / wide)


def _steepness(program: TensorProgram, table: FloatArray, degree: int) -> tuple[float, list[FloatArray]]:
    """Return the worst ‖g‖ / (ε b), and per axis the worst |g_axis| / (ε b) of each cell.

    Each output is looked at where it is likelier than twice the trace of uniform. Elsewhere slopes are at most half of
    the rate: most of the control value there is the trace, which has none.
    """
    n_axes = len(program.axes)
    likely = table > 2 * _TRACE / table.shape[-1]
    spans = [
        _spans(likely.any(axis=tuple(other for other in range(n_axes) if other != axis))) for axis in range(n_axes)
    ]
    worst, along = 0.0, [np.zeros(size) for size in program.site_shape]
    for output in range(table.shape[-1]):
        sites, slack = program.slack_near(table[..., output], [span[output] for span in spans])
        value = slack[0]
        worst = max(worst, float((program.size(slack[1:]) / value).max(initial=0.0)))
        for axis, part in enumerate(sites):
            others = tuple(other for other in range(n_axes) if other != axis)
            steepest = np.abs(slack[1 + axis] / value).max(axis=others, initial=0.0)
            np.maximum(along[axis][part], steepest, out=along[axis][part])
    return worst, [_per_cell(values, degree) for values in along]


def _spans(present: NDArray[np.bool_]) -> list[slice]:
    """Return for each column of `present` (n, outputs) the span of rows that it is true in; empty if it never is."""
    first, last = present.argmax(axis=0), len(present) - present[::-1].argmax(axis=0)
    last = np.where(present.any(axis=0), last, first)
    return [slice(int(start), int(stop)) for start, stop in zip(first, last, strict=True)]


def _per_cell(values: FloatArray, degree: int) -> FloatArray:
    """Return the largest of the values at each cell's sites; from degree 2 on neighbours share those between them."""
    apart = max(degree, 2)
    first = np.arange(0, len(values) - (degree >= 2), apart)
    return np.asarray(values[first[:, None] + np.arange(degree + 1)].max(axis=1))


def _require_time(clock: Clock) -> None:
    if clock.over:
        raise TimeoutError
