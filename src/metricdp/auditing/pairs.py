"""An empirical search for privacy violations. It can refute a claim and never prove it (see `certify`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._cards import Card
from metricdp._chunks import NUMBERS_AT_ONCE, chunks
from metricdp._log import LOG
from metricdp._validation import FloatArray, integer, reject, table
from metricdp.auditing.draws import mechanism_rounding, non_negative, refuse_noise
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.promise import Promise

__all__ = ["Audit", "Ratios", "audit"]

# Near pairs are this far apart, as shares of the box: closer pairs would measure rounding errors. Log-uniform lengths
# are 0.1 % of the box on average, so one pair in a thousand lies across a jump, even if the box has only one.
_NEAREST, _NEAR = 1e-6, 1e-2
_LEAST_SEPARATION = 1e-7

# PPR values kept for quantiles; pairs are drawn independently, so the first ones are a fair sample.
_KEPT_VALUES = 2**20
_LEVELS = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_BIN_EDGES = np.linspace(0.0, 2.0, 101)

# The published code adds this to both probabilities before it takes their ratio.
_SMOOTHING = 1e-3

_CLIMBERS, _CLIMBS, _MOVES = 32, 40, 12


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """Distribution of PPR(x, x', k) = |ln z_k(x) − ln z_k(x')| / (d_p(x, x') + r) over random pairs and outputs.

    quantiles : by level; from the first million values.
    edges, counts : histogram of all values; the last bin is open.

    Values are in the unit of the claimed ε. Where that is per kilometre on the ground, they are κ times those of the
    plane, as in `Audit.max_ratio`; r is the rounding of the claim.
    """

    quantiles: dict[str, float]
    edges: list[float]
    counts: list[int]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What a search for violations found.

    violation_ratio : share of the sampled (pair, output) that break mDP.
    max_ratio : largest |ln z_k(x) − ln z_k(x')| / (ε (d_p(x, x') + r)) seen, hill climbing included; above 1 is a
        violation. Where the claim is per kilometre on the ground, ε here is the `plane_epsilon` of the mechanism, ε/κ.
    ppr : how the ratios of random pairs are distributed.
    worst_pair : points, output, distance and ratio of the largest.
    compared : sampled (pair, output) comparisons, without those of hill climbing.
    by_kind : violation ratio, largest ratio and comparisons of "random", "near" and "border" pairs and of
        the "search".
    epsilon : what the mechanism claims.
    rounding : r, what rounding points to a lattice may add to their distance.
    """

    violation_ratio: float
    max_ratio: float
    ppr: Ratios
    worst_pair: dict[str, Any]
    compared: int
    by_kind: dict[str, dict[str, float]]
    epsilon: float
    p: float
    rounding: float
    tolerance: float
    slack: float | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return the card that notebooks show."""
        worst = self.worst_pair
        rows = (
            ("claimed", f"ε = {self.epsilon:g}, p = {self.p:g}"),
            ("violations", f"{self.violation_ratio:.4%} of {self.compared:,} comparisons"),
            ("worst ratio", f"{self.max_ratio:.6g} of ε"),
            ("worst pair", f"{worst['points']}, {worst['distance']:.6g} apart, output {worst['output']}"),
            ("seconds", f"{self.seconds:.2f}"),
        )
        return Card(f"Audit: {'a violation was found' if self.max_ratio > 1 else 'no violation found'}", rows).html()


def audit(
    mechanism: Mechanism,
    points: ArrayLike | None = None,
    pairs: int = 100_000,
    tolerance: float = 0.0,
    *,
    slack: float | None = None,
    seed: int = 0,
) -> Audit:
    """Look for pairs of points that break (ε, d_p)-mDP, from the mechanism's probabilities alone.

    A pair and an output break it when |ln z_k(x) − ln z_k(x')| > ε (d_p(x, x') + r) + tolerance, between the points as
    they are given. A report that is impossible from both points breaks nothing; one that is impossible from exactly one
    of them always does. Here r is what rounding points to a lattice may add to their distance: the mechanism's own
    `rounding`, but at most what an honest lattice over its box needs (a millimetre or two where the unit is a
    kilometre), so that a mechanism that jumps cannot call its jumps rounding. Where ε varies over the box, an upper
    bound of the path metric stands for ε d_p: what is above it breaks the promise.

    Parameters
    ----------
    mechanism : Mechanism
        Anything with `probabilities`.
    points : (m, N) array, optional
        Where pairs are drawn from, for instance the records. The whole box by default.
    pairs : int
        Pairs of each kind: random ones; near ones, 1e-6 to 1e-2 of the box apart (log-uniform) in random
        directions; and, if the mechanism has a grid, ones on the two sides of a cell border.
    tolerance : float
        Added to ε (d_p + r). Zero counts with no tolerance at all.
    slack : float, optional
        Count as the paper's public code does, with 0.01 there: a pair and an output break mDP only when
        z_k(x) > e^{ε (d_p + r) + tolerance} z_k(x') + slack, either way round, and the ratios reported
        (`max_ratio`, `ppr`) are those of z_k + 0.001.
    seed : int
        Makes the audit repeatable.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> found = audit(mdp.fit(problem, epsilon=1.0, method="aipo-e", cells=4), pairs=1000)
    >>> found.violation_ratio, found.max_ratio <= 1
    (0.0, True)
    """
    started = time.perf_counter()
    refuse_noise("mechanism", mechanism)
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a metricdp.Mechanism", type(mechanism).__name__)
    rule = _Rule(
        mechanism,
        promise=replace(mechanism.promise, rounding=mechanism_rounding(mechanism)),
        tolerance=non_negative("tolerance", tolerance),
        slack=None if slack is None else non_negative("slack", slack),
    )
    count = integer("pairs", pairs, 1)
    candidates = _CandidatePairs(mechanism, points, np.random.default_rng(integer("seed", seed, 0)))
    tallies = {kind: _Tally(rule) for kind in ("random", "near", "border", "search")}
    for kind in ("random", "near", "border"):
        for left, right in candidates.draw(kind, count):
            tallies[kind].add(left, right)
    seeds = [climber for kind in ("random", "near", "border") for climber in tallies[kind].worst]
    _climb(candidates, tallies["search"], sorted(seeds, key=lambda one: -one.ratio)[:_CLIMBERS])
    sampled = [tallies[kind] for kind in ("random", "near", "border")]
    worst = max((one for tally in tallies.values() for one in tally.worst), key=lambda one: one.ratio)
    compared = sum(tally.compared for tally in sampled)
    LOG.info("audited %r: %d comparisons in %.2f s", mechanism, compared, time.perf_counter() - started)
    return Audit(
        violation_ratio=sum(tally.violations for tally in sampled) / max(compared, 1),
        max_ratio=worst.ratio,
        ppr=tallies["random"].distribution(),
        worst_pair=worst.to_dict(mechanism.p),
        compared=compared,
        by_kind={kind: tally.summary() for kind, tally in tallies.items() if tally.compared},
        epsilon=mechanism.epsilon,
        p=mechanism.p,
        rounding=rule.promise.rounding,
        tolerance=rule.tolerance,
        slack=rule.slack,
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True)
class _Pair:
    """A pair of points and its worst output."""

    ratio: float
    points: FloatArray
    output: int

    def to_dict(self, p: float) -> dict[str, Any]:
        distance = float(norm(self.points[1] - self.points[0], p))
        where = {"points": self.points.tolist(), "output": self.output}
        return {**where, "distance": distance, "ratio": self.ratio}


@dataclass(frozen=True)
class _Rule:
    """What counts as a violation, and how ratios are taken; the promise is in the coordinates of the plane."""

    mechanism: Mechanism
    promise: Promise
    tolerance: float
    slack: float | None

    def judge(self, left: FloatArray, right: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return |Δ ln z_k| / (ε (d_p + r)) and whether mDP is broken, as (pairs, outputs)."""
        here, there = self.mechanism.probabilities(left), self.mechanism.probabilities(right)
        allowed = self.promise.exponents(left, right)[:, None]
        if self.slack is None:
            change = _log_change(here, there)
            return _share(change, allowed), change > allowed + self.tolerance
        factor = np.exp(allowed + self.tolerance)
        broken = np.maximum(here, there) > factor * np.minimum(here, there) + self.slack
        return _share(_log_change(here + _SMOOTHING, there + _SMOOTHING), allowed), broken


def _share(change: FloatArray, allowed: FloatArray) -> FloatArray:
    # Where ε is 0 (on a plane that has no κ) no change is allowed: the ratio is 0 without one and infinite with one.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(change == 0, 0.0, change / allowed)


def _log_change(here: FloatArray, there: FloatArray) -> FloatArray:
    # ln 0 − ln 0 is no change, ln 0 − ln z an infinite one.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(here == there, 0.0, np.abs(np.log(here) - np.log(there)))


class _Tally:
    """Counts over one kind of pairs, in bounded memory."""

    def __init__(self, rule: _Rule) -> None:
        self.rule = rule
        self.compared = self.violations = 0
        self.worst: list[_Pair] = []
        self.counts = np.zeros(len(_BIN_EDGES), dtype=np.int64)
        self.kept: list[FloatArray] = []
        self.n_kept = 0

    def add(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Judge pairs and return each one's largest ratio; pairs of equal points count as 0."""
        largest = np.zeros(len(left))
        apart = np.flatnonzero((left != right).any(axis=1))
        if not len(apart):
            return largest
        left, right = left[apart], right[apart]
        ratio, broken = self.rule.judge(left, right)
        self.compared += ratio.size
        self.violations += int(broken.sum())
        self._remember(ratio)
        output = ratio.argmax(axis=1)
        top = ratio[np.arange(len(ratio)), output]
        order = np.argsort(-top, kind="stable")[:_CLIMBERS]
        found = [_Pair(float(top[i]), np.array([left[i], right[i]]), int(output[i])) for i in order]
        self.worst = sorted(self.worst + found, key=lambda one: -one.ratio)[:_CLIMBERS]
        largest[apart] = top
        return largest

    def _remember(self, ratio: FloatArray) -> None:
        bins = np.searchsorted(_BIN_EDGES, ratio.ravel(), side="right") - 1
        self.counts += np.bincount(bins, minlength=len(_BIN_EDGES))
        room = _KEPT_VALUES - self.n_kept
        if room > 0:
            self.kept.append(ratio.ravel()[:room].copy())
            self.n_kept += len(self.kept[-1])

    def summary(self) -> dict[str, float]:
        return {
            "violation_ratio": self.violations / self.compared,
            "max_ratio": self.worst[0].ratio,
            "compared": self.compared,
        }

    def distribution(self) -> Ratios:
        epsilon = self.rule.mechanism.epsilon
        values = epsilon * np.concatenate(self.kept) if self.kept else np.zeros(1)
        # "lower" picks a value that was seen, so an infinite one cannot turn its neighbours into NaN.
        quantiles = np.quantile(values, _LEVELS, method="lower")
        return Ratios(
            quantiles={f"{level:g}": float(value) for level, value in zip(_LEVELS, quantiles, strict=True)},
            edges=(epsilon * _BIN_EDGES).tolist(),
            counts=self.counts.tolist(),
        )


class _CandidatePairs:
    """Draws pairs of points."""

    def __init__(self, mechanism: Mechanism, points: ArrayLike | None, generator: np.random.Generator) -> None:
        self.generator = generator
        self.low, self.high = mechanism.bounds
        self.sides = self.high - self.low
        grid = getattr(mechanism, "grid", None)
        self.grid = grid if isinstance(grid, Grid) else None
        self.n_outputs = mechanism.n_outputs
        self.points = None
        if points is not None:
            self.points = np.clip(table("points", points, columns=len(self.low)), self.low, self.high)

    def draw(self, kind: str, count: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield `count` pairs of a kind, chunk by chunk."""
        make = {"random": self._random, "near": self._near, "border": self._border}[kind]
        borders = 0 if self.grid is None else sum(len(edges) - 2 for edges in self.grid.breakpoints)
        if kind == "border" and not borders:
            return
        # Half as many numbers at once as elsewhere, because a dozen (pairs, outputs) arrays live at a time.
        for part in chunks(count, self.n_outputs, NUMBERS_AT_ONCE // 2):
            yield make(part.stop - part.start)

    def place(self, count: int) -> FloatArray:
        """Return points, from the given ones or uniform on the box."""
        if self.points is not None:
            return self.points[self.generator.integers(len(self.points), size=count)]
        return np.asarray(self.low + self.sides * self.generator.random((count, len(self.low))))

    def inside(self, points: FloatArray) -> FloatArray:
        return np.clip(points, self.low, self.high)

    def directions(self, count: int) -> FloatArray:
        """Return random vectors whose longest component is one side of the box."""
        vectors = self.generator.standard_normal((count, len(self.low)))
        return np.asarray(self.sides * vectors / np.abs(vectors).max(axis=1, keepdims=True))

    def lengths(self, count: int, least: float, most: float) -> FloatArray:
        """Return log-uniform shares of the box, as a column."""
        return np.exp(self.generator.uniform(np.log(least), np.log(most), (count, 1)))

    def _random(self, count: int) -> tuple[FloatArray, FloatArray]:
        return self.place(count), self.place(count)

    def _near(self, count: int) -> tuple[FloatArray, FloatArray]:
        here = self.place(count)
        return here, self.inside(here + self.lengths(count, _NEAREST, _NEAR) * self.directions(count))

    def _border(self, count: int) -> tuple[FloatArray, FloatArray]:
        assert self.grid is not None
        borders = [(axis, edge) for axis, edges in enumerate(self.grid.breakpoints) for edge in edges[1:-1]]
        axes = np.array([axis for axis, _ in borders])
        edges = np.array([edge for _, edge in borders])
        chosen = self.generator.integers(len(borders), size=count)
        rows, axis = np.arange(count), axes[chosen]
        left = self.place(count)
        right = left.copy()
        half = (self.lengths(count, _NEAREST, _NEAR)[:, 0] * self.sides[axis]) / 2
        left[rows, axis] = edges[chosen] - half
        right[rows, axis] = edges[chosen] + half
        return self.inside(left), self.inside(right)


def _climb(candidates: _CandidatePairs, tally: _Tally, seeds: list[_Pair]) -> None:
    """Climb from the worst pairs by random moves, keeping what is worse."""
    if not seeds:
        return
    best = np.array([one.points for one in seeds])
    height = np.array([one.ratio for one in seeds])
    firsts = np.arange(len(best)) * _MOVES
    for climb in range(_CLIMBS):
        left, right = _moved(candidates, np.repeat(best, _MOVES, axis=0), reach=0.1 * 0.7**climb)
        ratio = tally.add(left, right)
        pick = firsts + ratio.reshape(-1, _MOVES).argmax(axis=1)
        better = ratio[pick] > height
        best[better] = np.stack([left, right], axis=1)[pick[better]]
        height[better] = ratio[pick[better]]


def _moved(candidates: _CandidatePairs, pairs: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
    """Return each pair moved: both points shifted, one turned about the other, or the two drawn together."""
    generator = candidates.generator
    left, right = pairs[:, 0], pairs[:, 1]
    count, n_axes = left.shape
    shift = reach * candidates.sides * generator.standard_normal((count, n_axes))
    turn = 0.3 * norm(right - left, 2)[:, None] * generator.standard_normal((count, n_axes))
    # Drawn together about a random point between them, so that a border in between can stay in between.
    about = left + generator.random((count, 1)) * (right - left)
    kind = generator.integers(3, size=(count, 1))
    left = np.select([kind == 0, kind == 1], [left + shift, left], (left + about) / 2)
    right = np.select([kind == 0, kind == 1], [right + shift, right + turn], (right + about) / 2)
    left, right = candidates.inside(left), candidates.inside(right)
    close = (np.abs(right - left) / candidates.sides).max(axis=1) < _LEAST_SEPARATION
    right[close] = left[close]
    return left, right
