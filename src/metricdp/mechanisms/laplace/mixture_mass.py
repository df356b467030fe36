"""Label probabilities of noise of density ∝ e^{−rate ‖·‖_p} that has no closed form: a mixture of boxes' masses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from metricdp._chunks import NUMBERS_AT_ONCE, items_at_once, slices
from metricdp._validation import FloatArray, norm_order, positive, reject
from metricdp.errors import ProblemTooLargeError
from metricdp.geometry.norms import norm
from metricdp.mechanisms.laplace.product_mass import Runs
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.remap import merge_columns

__all__ = ["MOST_SQUARES", "MixtureMass"]

# Every square may be a run of its own, and a run costs some ten bytes per point and up to 100 ns per node.
MOST_SQUARES = 2**24

# Numbers held at once for a group of points, the most points of a group, and numbers in the buffers of the innermost
# loop, which stay in the processor's cache.
_GROUP_NUMBERS, _MOST_POINTS, _BLOCK_NUMBERS = NUMBERS_AT_ONCE // 4, 32, 2**15

# Probabilities below e^-700 are not told apart (`raise_tails`), so the noise's density must be right up to the
# distance 700 / rate, or as far as the window goes; and 60 / rate more, since a square's mass lies beyond its
# nearest corner.
_REACH, _SPARE = 760.0, 60.0

# The steps of the quadrature are refined until a probability is this accurate, absolutely and relatively; p is
# refused if the most nodes do not make it at least `_WORST`.
_AIM, _RELATIVE_AIM, _WORST = 1e-9, 1e-8, 1e-6
_REFINEMENTS, _MOST_NODES = (1.0, 0.8, 0.6, 0.45), 1024
# Nearer to 1 the stable law is so narrow that its density takes seconds to compute.
_LEAST_P = 1.005

# Steps of the quadrature: on the side of wide products `_STEP` / √p, a little below their spread; on the side of
# narrow ones `_STRETCH` steps to the unit of ln y, and fewer and fewer from `_TURN` on, where little mass is left.
_STEP, _STRETCH, _TURN = 0.4, 5.0, -5.0
# How far beyond the widest product that matters the nodes go, over √p: ten times their spread.
_BEYOND = 5.0
# The share of a square's mass that the products left out, narrower than all nodes, may hold.
_LEFT_OUT = 1e-12

# ln 2^52: a product is left out where it is that much smaller than the mixture.
_NEGLIGIBLE = 36.0

# What rounding adds to the error of a probability, whatever the mixture.
_ROUNDING = 1e-12

# Interpolation of the incomplete gamma function: cells per unit of ln t, degree, the greatest t (e^-t is a
# normal number) and the least t^{1/p}, where the function is 1 but for rounding.
_CELLS, _DEGREE, _GREATEST, _LEAST = 64, 4, 690.0, 1e-16
# Terms of the series below t = 1.
_TERMS = 22

# Taken as an infinite radius: e^-800 is zero in floating point.
_ENDLESS = 800.0


@dataclass(frozen=True, eq=False)
class MixtureMass:
    """Label probabilities for noise of density ∝ e^{−rate ‖·‖_p}, p in (1, ∞], in 2, 3 or 4 axes.

    For finite p, t ↦ e^{−t^{1/p}} is the Laplace transform of the positive stable law f of index 1/p, so

        e^{−‖v‖_p} = ∫ Π_i e^{−τ|v_i|^p} f(τ) dτ,

    a mixture of products. It is replaced by a sum over 50 to 150 values of τ (more for p above 3). For p = ∞ it is
    a mixture of uniform laws on cubes, e^{−‖v‖_∞} = ∫_0^∞ 1[max |v_i| ≤ ρ] e^{−ρ} dρ, and is integrated exactly.
    The squares are gathered into runs along the last axis (`Runs`); the mass of a run in a product, or in a cube,
    is a product of interval masses. All terms are positive, so far labels keep their relative accuracy.

    Rows are scaled to sum to 1; their sum before is within `error` of it.

    Parameters
    ----------
    squares : those on the border reach out to infinity.
    labels : the index of the output of each square; its shape is that of the squares.
    rate : of the noise, per unit of distance.
    n_outputs : how many outputs there are.
    p : order of the norm, above 1.

    Guarantee
    ---------
    `error` bounds the absolute error of every probability, and `relative_error` the relative error of those
    that are at least e^-700, for points in the window. Both are measured when the object is made: the
    sum over τ is compared with e^{−r} at some 2,000 radii r, and the difference is integrated. The noise is
    (rate, d_p)-mDP, so |ln z(x) − ln z(x')| ≤ rate · d_p(x, x') + 2 · `relative_error` for the rows z. The errors
    do not count the rounding of coordinates, about 2^-52 · rate · (greatest coordinate).
    """

    squares: Squares
    labels: NDArray[np.intp]
    rate: float
    n_outputs: int
    p: float

    def __post_init__(self) -> None:
        p, n_axes = norm_order(self.p), self.squares.n_axes
        positive("rate", self.rate)
        if p == 1:
            raise reject("p", "above 1 for a mixture (1 is a product)", f"{p:g}")
        if not 2 <= n_axes <= 4:
            raise reject("squares", "of 2, 3 or 4 axes", n_axes)
        if self.labels.shape != self.squares.shape:
            raise reject("labels", f"of the squares' shape {self.squares.shape}", self.labels.shape)
        if self.labels.size > MOST_SQUARES:
            rule = f"`labels` must be of at most {MOST_SQUARES:,} squares for p = {p:g} with {n_axes} axes"
            raise ProblemTooLargeError(f"{rule}, got {self.labels.size:,}.")
        _ = self._noise  # so that a p that cannot be served is refused here, not at the first row

    @property
    def error(self) -> float:
        """Bound of the absolute error of a probability."""
        return self._noise.error

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of a probability of at least e^-700, for points in the window."""
        return self._noise.relative_error

    def rows(self, points: FloatArray) -> FloatArray:
        """Return the label probabilities of each point, scaled to sum to 1."""
        masses = self._masses(points)
        return np.asarray(masses / masses.sum(axis=1, keepdims=True))

    def _masses(self, points: FloatArray) -> FloatArray:
        """Return the label probabilities of each point as they are summed."""
        masses = np.empty((len(points), self.n_outputs))
        lines = self.squares.unbounded_edges
        held = max(self._runs.count, sum(map(len, lines)))
        for part in _groups(points, min(_MOST_POINTS, items_at_once(held, _GROUP_NUMBERS))):
            offsets = [self.rate * (at[:, None] - centre) for at, centre in zip(lines, points[part].T, strict=True)]
            masses[part] = (self._merge @ self._noise.run_masses(offsets)).T
        return masses

    @cached_property
    def _noise(self) -> _Products | _Cubes:
        finest = min(1.0, self.rate * float(self.squares.pitch.min()))
        if math.isinf(self.p):
            return _Cubes(self._runs, finest)
        extent = self.rate * float(norm(np.ptp(self.squares.window, axis=0), self.p))
        mixture = _mixture(self.p, self.squares.n_axes, min(_REACH, extent + _SPARE), finest)
        return _Products(self._runs, mixture, _ScaledTails.of(self.p))

    @cached_property
    def _runs(self) -> Runs:
        return Runs.of(self.labels)

    @cached_property
    def _merge(self) -> sparse.csr_array:
        return merge_columns(self._runs.labels, self.n_outputs).T.tocsr()


def _groups(points: FloatArray, size: int) -> Iterator[NDArray[np.intp]]:
    """Yield the numbers of at most `size` points at a time, most of them close together."""
    if not len(points):
        return
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    cells = math.ceil((len(points) / size) ** (1 / points.shape[1]))
    cell = np.floor(cells * (points - low) / np.where(extent > 0, extent, 1.0))
    order = np.lexsort(cell.T)
    for part in slices(len(order), size):
        yield order[part]


def _blocks(runs: int, points: int) -> Iterator[slice]:
    """Return ranges of runs such that a (runs, points) array of a range stays in the cache."""
    return slices(runs, items_at_once(points, _BLOCK_NUMBERS))


# --- p = ∞: cubes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cubes:
    """Masses of runs for noise of density e^{−max |v_i|} / (2^N N!).

    The mass of a box is ∫ e^{−ρ} Π_i o_i(ρ) dρ / (2^N N!), with o_i(ρ) the length that the box and [−ρ, ρ] have
    in common along axis i. Each o_i is linear between the distances of the box's ends from 0, and does not
    decrease; so between those distances the integrand is e^{−ρ} times a polynomial with coefficients ≥ 0 in
    ρ − start, and its integral a sum of positive terms.
    """

    runs: Runs
    finest: float

    @property
    def error(self) -> float:
        """Only rounding."""
        return _ROUNDING

    @property
    def relative_error(self) -> float:
        """Only rounding: of distances up to `_REACH` next to the side of a square."""
        return len(self.runs.shape) * (_ROUNDING + 2**-51 * _REACH / self.finest)

    def run_masses(self, offsets: list[FloatArray]) -> FloatArray:
        """Return the mass of each run for each point as (runs, points), given its lines as seen from the point."""
        points = offsets[0].shape[1]
        masses = np.empty((self.runs.count, points))
        for block in _blocks(self.runs.count, points):
            ends = [
                (offset[first[block]], offset[last[block]])
                for offset, (first, last) in zip(offsets, self.runs.ends, strict=True)
            ]
            masses[block] = _box_masses(ends)
        return masses


def _box_masses(ends: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the mass of boxes, each given by its lower and upper end along every axis."""
    start = np.maximum.reduce([np.maximum(np.maximum(low, -high), 0.0) for low, high in ends])
    # Beyond `_ENDLESS` nothing is left, and a finite end keeps ∞ − ∞ away.
    cuts = [np.clip(np.abs(end), start, start + _ENDLESS) for axis in ends for end in axis]
    total, decay = np.zeros_like(start), np.exp(-start)
    for stop in [*_sorted(cuts), None]:
        width = np.full_like(start, _ENDLESS) if stop is None else stop - start
        if not width.any():
            continue
        shrink = np.exp(-width)
        moments = _moments(width, shrink, len(ends))
        terms = zip(_overlap_coefficients(ends, start), moments, strict=True)
        total += decay * sum(coefficient * moment for coefficient, moment in terms)
        decay *= shrink
        if stop is not None:
            start = stop
    return total / (2 ** len(ends) * math.factorial(len(ends)))


def _sorted(arrays: list[FloatArray]) -> list[FloatArray]:
    """Sort a few arrays element by element, by exchanges of neighbours; ten times faster than `numpy.sort`."""
    arrays = list(arrays)
    for turn in range(len(arrays)):
        for i in range(turn % 2, len(arrays) - 1, 2):
            arrays[i : i + 2] = np.minimum(*arrays[i : i + 2]), np.maximum(*arrays[i : i + 2])
    return arrays


def _overlap_coefficients(ends: list[tuple[FloatArray, FloatArray]], start: FloatArray) -> list[FloatArray]:
    """Return the coefficients of Π_i o_i(start + s) as a polynomial in s, lowest first, right of `start`."""
    product: list[FloatArray] = []
    for low, high in ends:
        length = np.minimum(high, start) - np.maximum(low, -start)
        slope = (high > start).astype(np.float64)
        slope += low < -start
        if not product:
            product = [length, slope]
            continue
        longer = [c * length for c in product]
        higher = [c * slope for c in product]
        product = [longer[0], *(a + b for a, b in zip(longer[1:], higher[:-1], strict=True)), higher[-1]]
    return product


def _moments(width: FloatArray, shrink: FloatArray, degree: int) -> list[FloatArray]:
    """Return ∫_0^width e^{−s} s^k ds for k = 0 … degree, given `shrink` = e^{−width}.

    Integration by parts gives M_{k−1} = (M_k + width^k e^{−width}) / k: from the highest down nothing cancels.
    The highest is a series of positive terms for short widths, and k! less a remainder for long ones.
    """
    powers = [np.ones_like(width)]
    for _ in range(degree):
        powers.append(powers[-1] * width)
    short = np.minimum(width, 1.0)
    # Σ_j width^j / ((degree + 1) … (degree + 1 + j)), by Horner's rule.
    factors = np.cumprod(1 / np.arange(degree + 1.0, degree + _TERMS))
    series = np.full_like(width, factors[-1])
    for factor in factors[-2::-1]:
        series *= short
        series += factor
    series *= shrink * powers[degree] * width
    remainder = sum(power / math.factorial(k) for k, power in enumerate(powers)) * shrink
    moments = [np.where(width < 1, series, math.factorial(degree) * (1 - remainder))]
    for k in range(degree, 0, -1):
        moments.insert(0, (moments[0] + powers[k] * shrink) / k)
    return moments


# --- finite p: products ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Products:
    """Masses of runs for noise of density ∝ e^{−‖v‖_p}, as a mixture of products of interval masses.

    Under the density ∝ e^{−τ|v|^p} the tail beyond a distance d from 0 is ½ Q(1/p, τ d^p), with Q the
    regularised upper incomplete gamma function. Intervals on one side of 0 are differences of two tails, those
    across it 1 less two tails, so that far intervals keep their relative accuracy.
    """

    runs: Runs
    mixture: _Mixture
    tails: _ScaledTails

    @property
    def error(self) -> float:
        """Of the mixture, and of rounding."""
        return self.mixture.error + _ROUNDING

    @property
    def relative_error(self) -> float:
        """Of the mixture, and of the differences of tails."""
        return self.mixture.relative_error + len(self.runs.shape) * self.tails.error * self.mixture.coarsest

    def run_masses(self, offsets: list[FloatArray]) -> FloatArray:
        """Return the mass of each run for each point as (runs, points), given its lines as seen from the point."""
        axes = [_Axis.of(offset, self.tails, self.mixture.spans) for offset in offsets]
        first, last, interval = self._intervals
        across = axes[-1].above[last] - axes[-1].above[first]
        masses = np.zeros((self.runs.count, offsets[0].shape[1]))
        for node, (log_tau, weight) in enumerate(zip(self.mixture.log_taus, self.mixture.weights, strict=True)):
            *slabs, tail = (axis.signed_tails(node, log_tau) for axis in axes)
            slabs = [_differences(t[:-1], t[1:], axis.across) for t, axis in zip(slabs, axes, strict=False)]
            along = _differences(tail.take(first, axis=0), tail.take(last, axis=0), across)
            near = axes[0].slabs(node)
            rows = _outer([weight * slabs[0][near], *slabs[1:]])
            runs = slice(*self._bounds[[near.start, near.stop]])
            _add_products(masses[runs], rows, self._row[runs] - near.start * self._depth, along, interval[runs])
        return masses

    @cached_property
    def _depth(self) -> int:
        """Rows of squares in a slab across the first axis."""
        return math.prod(self.runs.shape[1:-1])

    @cached_property
    def _bounds(self) -> NDArray[np.intp]:
        """The first run of each slab across the first axis, and the number of runs."""
        return np.searchsorted(self._row, np.arange(self.runs.shape[0] + 1) * self._depth)

    @cached_property
    def _row(self) -> NDArray[np.intp]:
        """The row of squares, numbered over all axes but the last, in which each run lies."""
        return self.runs.starts // self.runs.shape[-1]

    @cached_property
    def _intervals(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """The different intervals of runs along the last axis: first lines, last lines, and which a run has."""
        across = self.runs.shape[-1] + 1
        first, last = self.runs.ends[-1]
        codes, interval = np.unique(first * across + last, return_inverse=True)
        return *np.divmod(codes, across), interval.ravel()


def _add_products(
    masses: FloatArray, rows: FloatArray, row: NDArray[np.intp], along: FloatArray, interval: NDArray[np.intp]
) -> None:
    """Add (mass of its row of squares) × (mass of its interval along the row) to every run."""
    for block in _blocks(*masses.shape):
        # `clip` only spares numpy a second buffer: no index is out of range.
        part = rows.take(row[block], axis=0, mode="clip")
        part *= along.take(interval[block], axis=0, mode="clip")
        masses[block] += part


def _differences(first: FloatArray, last: FloatArray, across: FloatArray) -> FloatArray:
    """Return masses of intervals from the signed tails at their ends; never below 0 by rounding."""
    mass = first - last
    mass += across
    return np.maximum(mass, 0.0, out=mass)


def _outer(slabs: list[FloatArray]) -> FloatArray:
    """Return the products of slab masses for all rows of squares, the last axis of the slabs fastest."""
    product, *others = slabs
    for slab in others:
        product = (product[:, None] * slab).reshape(-1, slab.shape[1])
    return product


@dataclass(frozen=True, eq=False)
class _ScaledTails:
    """S(ln t) = e^t Q(1/p, t), interpolated: `scipy.special.gammaincc` takes 500 ns or more.

    coefficients : (degree + 1, cells) of a polynomial in each cell of ln t, highest first.
    lowest : the least ln t.
    error : the greatest relative error met half-way between the points of interpolation.
    """

    p: float
    coefficients: FloatArray
    lowest: float
    error: float

    @classmethod
    def of(cls, p: float) -> _ScaledTails:
        """Interpolate at Chebyshev points in each cell."""
        lowest = p * math.log(_LEAST)
        cells = math.ceil((math.log(_GREATEST) - lowest) * _CELLS)
        inside = (1 - np.cos((np.arange(_DEGREE + 1) + 0.5) * math.pi / (_DEGREE + 1))) / 2
        starts = lowest + np.arange(cells)[:, None] / _CELLS
        values = _scaled_tail(p, starts + inside / _CELLS)
        coefficients = np.asarray(np.linalg.solve(np.vander(inside), values.T), dtype=np.float64)
        between = (inside[1:] + inside[:-1]) / 2
        truth = _scaled_tail(p, starts + between / _CELLS).T
        error = np.abs(np.vander(between, _DEGREE + 1) @ coefficients / truth - 1).max()
        return cls(p, coefficients, lowest, float(error))

    def __call__(self, position: FloatArray) -> FloatArray:
        """Return S where ln t = lowest + position / cells per unit; outside the cells S of the nearest one."""
        position = np.clip(position, 0.0, self.coefficients.shape[1] - 2**-20)
        cell = position.astype(np.intp)
        position -= cell
        highest, *others = self.coefficients
        value = highest.take(cell)
        for coefficient in others:
            value *= position
            value += coefficient.take(cell)
        return value


def _scaled_tail(p: float, log_t: FloatArray) -> FloatArray:
    """Return e^t Q(1/p, t), by e^t − t^{1/p}/Γ(1 + 1/p) Σ_k t^k / ((1/p + 1) … (1/p + k)) below t = 1."""
    t = np.exp(log_t)
    small = np.minimum(t, 1.0)
    series = np.ones_like(t)
    for k in range(_TERMS, 0, -1):
        series = 1 + series * small / (1 / p + k)
    value = np.exp(small) - np.exp(np.minimum(log_t, 0.0) / p) / math.gamma(1 + 1 / p) * series
    large = t[t > 1]
    value[t > 1] = np.exp(large + np.log(special.gammaincc(1 / p, large)))
    return np.asarray(value)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The lines across one axis as seen from a few points: what the tails of every node have in common.

    position, power : of the distance d between a line and a point: ln d^p as `_ScaledTails` takes it, and −d^p.
    above : 1 for lines at or above a point, 0 for those below it.
    across : 1 for the slab between two lines in which a point lies.
    home : the first slab with a point in it, and one more than the last.
    lines : for each node, the first line that is near a point, and one more than the last (or equal, if none is).
    """

    position: FloatArray
    power: FloatArray
    above: FloatArray
    across: FloatArray
    home: tuple[int, int]
    lines: NDArray[np.intp]
    tails: _ScaledTails

    @classmethod
    def of(cls, offsets: FloatArray, tails: _ScaledTails, spans: FloatArray) -> _Axis:
        """Prepare offsets (lines, points), in units of 1/rate; lines closer than its span are near for a node."""
        distance = np.abs(offsets)
        # A point on a line has logarithm −∞, which the table reads as its least; far lines may overflow to ∞.
        with np.errstate(divide="ignore", over="ignore"):
            position = (tails.p * np.log(distance) - tails.lowest) * _CELLS
            power = -(distance**tails.p)
        above = (offsets >= 0).astype(np.float64)
        across = np.diff(above, axis=0)
        homes = np.flatnonzero(across.any(axis=1))
        near = distance.min(axis=1) < spans[:, None]
        first = np.where(near.any(axis=1), near.argmax(axis=1), len(offsets))
        last = np.maximum(first, len(offsets) - near[:, ::-1].argmax(axis=1))
        home = int(homes[0]), int(homes[-1]) + 1
        return cls(position, power, above, across, home, np.stack([first, last], axis=1), tails)

    def slabs(self, node: int) -> slice:
        """Return the slabs that hold mass of a node: those next to lines that are near, and those of points."""
        first, last = self.lines[node].tolist()
        if first == last:
            return slice(*self.home)
        return slice(min(max(first - 1, 0), self.home[0]), max(min(last, len(self.across)), self.home[1]))

    def signed_tails(self, node: int, log_tau: float) -> FloatArray:
        """Return ±½ Q(1/p, τ d^p), + for lines at or above a point and − below it; 0 for lines that are not near."""
        signed = np.zeros_like(self.power)
        lines = slice(*self.lines[node])
        if lines.start < lines.stop:
            tail = self.tails(self.position[lines] + log_tau * _CELLS)
            tail *= np.exp(math.exp(log_tau) * self.power[lines])
            np.multiply(tail, self.above[lines] - 0.5, out=signed[lines])
        return signed


@dataclass(frozen=True, eq=False)
class _Mixture:
    """e^{−‖v‖_p} as a sum Σ_j kernel_j Π_i e^{−τ_j |v_i|^p} = Σ_j weight_j Π_i (density ∝ e^{−τ_j |v_i|^p}) · constant.

    log_taus : ln τ_j.
    weights : of the products as probability densities.
    spans : distance beyond which a product is negligible next to the mixture.
    error, relative_error : as in `MixtureMass`, without rounding.
    coarsest : the width of the widest product over that of the finest square.
    """

    log_taus: FloatArray
    weights: FloatArray
    spans: FloatArray
    error: float
    relative_error: float
    coarsest: float


def _mixture(p: float, n_axes: int, reach: float, finest: float) -> _Mixture:
    """Return the coarsest of a few mixtures that is as accurate as we aim for; refuse if none is accurate enough.

    reach : greatest ‖v‖_p at which the mixture is to be right relatively.
    finest : the least side of a square, at most 1.
    """
    found = None
    for shrink in _REFINEMENTS:
        nodes = _nodes(p, n_axes, reach, finest, shrink)
        if nodes is None:
            break
        found = _checked(p, n_axes, reach, finest, *nodes)
        if found.error <= _AIM and found.relative_error <= _RELATIVE_AIM:
            break
    if found is None or not found.error <= _WORST:
        rule = f"inf or a number in [{_LEAST_P}, inf) for which {_MOST_NODES:,} nodes give an error of {_WORST:g}"
        raise reject("p", f"{rule} (about 30 at most)", f"{p:g}")
    return found


def _checked(p: float, n_axes: int, reach: float, finest: float, log_z: FloatArray, log_kernel: FloatArray) -> _Mixture:
    """Return the mixture with the errors that the radii at which it is compared with e^{−r} show.

    With δ(r) = Σ_j kernel_j e^{−τ_j r^p + r} − 1 and R ~ Gamma(N) the noise's radius, no set's mass is wrong by
    more than E|δ(R)|, and its total by |Σ_j weight_j − 1|. Relatively, a set out of which the nearest half-side of
    a square is cut is wrong by max |δ|; what is cut out, and what lies beyond `reach`, is compared with the least
    mass of a square there.
    """
    log_taus = (p - 1) * (_log_least_rate(p) - log_z)
    shape = n_axes / p
    log_constant = math.lgamma(1 + shape) - math.lgamma(1 + n_axes)
    weights = np.exp(log_kernel - shape * log_taus + log_constant)
    log_r = np.log(_radii(reach, finest))
    with np.errstate(over="ignore"):
        exponents = log_kernel - np.exp(log_taus + p * log_r[:, None]) + np.exp(log_r)[:, None]
    # Twice, because the greatest difference lies between the radii.
    off = 2 * np.abs(np.exp(exponents).sum(axis=1) - 1)
    lost = off * np.exp(n_axes * log_r - np.exp(log_r) - math.lgamma(n_axes))
    near = log_r < math.log(finest / 2)
    log_total = n_axes * (math.log(2) + math.lgamma(1 + 1 / p)) - log_constant  # ln ∫ e^{−‖v‖_p} dv
    least = math.exp(n_axes * math.log(finest) - finest * (n_axes ** (1 / p) + 0.5) - log_total)
    beyond = 2 * math.exp(
        (n_axes - 1) * math.log(reach) - math.lgamma(n_axes) - _SPARE
    )  # Pr[R > reach] e^{reach − spare}
    return _Mixture(
        log_taus,
        weights,
        _spans(p, log_taus, least),
        error=float(_trapezoid(lost, log_r) + abs(weights.sum() - 1)),
        relative_error=float(off[~near].max() + (_trapezoid(lost[near], log_r[near]) + beyond) / least),
        coarsest=max(1.0, math.exp(-float(log_taus.min()) / p) / finest),
    )


def _spans(p: float, log_taus: FloatArray, least: float) -> FloatArray:
    """Return the distances d from which on e^{−τ d^p} is below 2^-52 times a square's mass, `least` · e^{−d}."""
    t = np.arange(1.0, _ENDLESS)[:, None]
    distance = np.exp((np.log(t) - log_taus) / p)
    enough = t - distance >= _NEGLIGIBLE - math.log(least)
    # e^{−t} is zero at the last t, so that products without such a distance are cut there.
    first = np.where(enough.any(axis=0), enough.argmax(axis=0), len(t) - 1)
    return np.asarray(np.take_along_axis(distance, first[None], axis=0)[0])


def _radii(reach: float, finest: float) -> FloatArray:
    """Return radii at which a mixture is checked: dense in ln r near 0 and in √r beyond, as its errors oscillate."""
    inner = np.geomspace(1e-7 * finest, 1.0, 1000, endpoint=False)
    return np.concatenate([inner, np.linspace(1.0, math.sqrt(reach), 1000) ** 2])


def _trapezoid(values: FloatArray, at: FloatArray) -> float:
    return float(np.sum(np.diff(at) * (values[1:] + values[:-1])) / 2)


def _log_least_rate(p: float) -> float:
    """Return ln A(0), A(0) = (1 − 1/p) (1/p)^{1/(p−1)}, see `_log_stable_density`."""
    return math.log1p(-1 / p) - math.log(p) / (p - 1)


def _nodes(p: float, n_axes: int, reach: float, finest: float, shrink: float) -> tuple[FloatArray, FloatArray] | None:
    """Return ln z and ln kernel of the trapezoidal rule, with τ = (A(0) / z)^{p−1}; None if there are too many.

    In y = √z the integrand at radius r is a peak at √((1 − 1/p) r) of spread 1/(2√p), for every r above 1; for r
    below 1 it is spread out in ln y. So nodes y = c ln(1 + e^q) are spaced evenly in q, which is even in y above c
    and in ln y below it; q = s − 2 e^{(turn − s)/2} moreover makes the steps grow where little mass is left. The
    integrand is analytic in s, so the error falls geometrically with the step.
    """
    if not _LEAST_P <= p <= _MOST_NODES:
        return None
    scale = _STRETCH * max(1.0, p - 1) * _STEP / math.sqrt(p)
    step = shrink * _STEP / math.sqrt(p) / scale
    top = (math.sqrt((1 - 1 / p) * reach) + _BEYOND / math.sqrt(p)) / scale
    # Products narrower than w hold a share of about w^{N+1}, next to finest^N or more in a square.
    narrowest = (math.log(_LEFT_OUT) + n_axes * math.log(finest)) / (n_axes + 1)
    bottom = narrowest * p / (2 * (p - 1)) - math.log(scale)
    turn = _TURN * min(1.0, p - 1)
    # q < −2 e^{(turn − s)/2} for s < 0, so that s below this is below the bottom.
    last = min(0.0, turn - 2 * math.log(max(1.0, -bottom / 2)))
    s = np.arange(math.ceil(top / step), math.floor(last / step) - 1, -1) * step
    hurry = np.exp((turn - s) / 2)
    q, slope = s - 2 * hurry, 1 + hurry
    q, slope = q[q > bottom], slope[q > bottom]
    if len(q) > _MOST_NODES:
        return None
    log_soft = np.where(q < -30, q, np.log(np.logaddexp(0.0, np.maximum(q, -30.0))))
    # d ln y / dq = expit(q) / ln(1 + e^q), in logarithms because q may be −1000.
    log_slope = special.log_expit(q) - log_soft + np.log(slope)
    log_z = 2 * (math.log(scale) + log_soft)
    return log_z, math.log(2 * step) + log_slope + _log_stable_density(p, log_z)


def _log_stable_density(p: float, log_z: FloatArray) -> FloatArray:
    """Return the logarithm of the density of ln Z, Z = A(0) τ^{−1/(p−1)}, τ positive stable of index α = 1/p.

    By Zolotarev's integral (Kanter's representation) τ^{−1/(p−1)} is E / A(φ) with E exponential and φ uniform on
    (0, π), A(φ) = (sin(αφ)^α sin((1 − α)φ)^{1−α} / sin φ)^{1/(1−α)}. So with B = A / A(0) ≥ 1 the density is
    (1/π) ∫ B z e^{−B z} dφ, by the trapezoidal rule in ln(φ / (π − φ)).
    """
    alpha = 1 / p
    step = 0.1 * min(1.0, 2 * (p - 1))
    x = np.arange(-40.0, 52.0, step)
    phi, rest = math.pi * special.expit(x), math.pi * special.expit(-x)
    log_weight = np.log(step * phi * special.expit(-x) / math.pi)
    # sin φ = sin(π − φ), from whichever is small and therefore exact.
    sines = alpha * _log_sinc(alpha * phi) + (1 - alpha) * _log_sinc((1 - alpha) * phi)
    log_b = (sines - np.log(np.sin(np.minimum(phi, rest)) / phi)) / (1 - alpha)
    near_one, far = np.expm1(np.minimum(log_b, 1.0)), log_b >= 1
    density = np.empty_like(log_z)
    for node, at in enumerate(log_z):  # one at a time, for p near 1 has many angles
        z, grown = math.exp(at), np.minimum(log_b + at, 700.0)
        # (B − 1) z: near B = 1 without cancellation, beyond it without overflow.
        excess = np.where(far, np.exp(grown) - z, z * near_one)
        density[node] = special.logsumexp(log_weight + grown - excess) - z
    return density


def _log_sinc(x: FloatArray) -> FloatArray:
    """Return ln(sin(x) / x)."""
    return np.log(np.sinc(x / math.pi))
