"""A lower confidence bound on the ε of a mechanism, from samples alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv

from metricdp._cards import Card
from metricdp._chunks import NUMBERS_AT_ONCE, chunks
from metricdp._progress import Tell, told
from metricdp._validation import FloatArray, checked_box, finite_array, fraction, integer, norm_order, positive, reject
from metricdp.auditing.draws import (
    Counts,
    Draws,
    Sampler,
    claim,
    inside,
    lattice_rounding,
    mechanism_rounding,
    non_negative,
    spread,
)
from metricdp.auditing.squares import counted_by_squares
from metricdp.drawing.randomness import RandomSource
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.norms import norm
from metricdp.geometry.path_metric import PathMetric
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.promise import Promise

__all__ = ["SampleAudit", "audit_samples"]

# Points of the search, round by round: each round costs the same number of draws, so that fewer points get more each.
_CLOUD = (128, 64, 32, 16, 8, 4)

# Level of each of the two limits by which pairs are compared. Together they are as cautious as four standard errors,
# which some of 10^4 pairs are off. With laxer limits the search would chase the noise of close pairs, where a small
# error in a logarithm is a large one per distance; stricter ones overlook small jumps.
_CAUTION = 5e-3

# Searched pairs are at least this share of the box apart; neighbours in the first round at most the second.
_NEAREST, _NEAR = 1e-4, 0.5

# A box without κ allows no change at all on the ground; a κ as large as this says so with finite numbers.
_NO_KAPPA = 1e100

# New points about each of the best pairs, and how far they stray from the line through it.
_CHILDREN, _STRAY = 4, 0.2


@dataclass(frozen=True, kw_only=True)
class SampleAudit:
    """What samples prove about ε.

    epsilon_lower : with probability `confidence` or more, the true ε per unit of distance is at least this. In the unit
        of the claim: where a mechanism's ε is per kilometre on the ground, this is κ times the bound of the plane,
        because such a mechanism must keep to ε/κ there.
    violates : whether that is above the claimed `epsilon`.
    worst_pair : the pair behind `epsilon_lower`: its points, the likelier one first, their distance, the event (a set
        of outputs), how often it was seen from each point in how many draws, and the bound.
    confirmed : all pairs that were tested with fresh draws, given ones in their order.
    hypotheses : how many those are; the confidence allows for every one of them.
    samples : draws made, those of the search included.
    rounding : r, which was added to every distance.
    """

    epsilon_lower: float
    violates: bool
    epsilon: float
    p: float
    confidence: float
    worst_pair: dict[str, Any]
    confirmed: list[dict[str, Any]]
    hypotheses: int
    samples: int
    rounding: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return the card that notebooks show."""
        worst = self.worst_pair
        seen = " and ".join(f"{count:,}" for count in worst["seen"])
        rows = (
            ("claimed", f"ε = {self.epsilon:g}, p = {self.p:g}"),
            ("shown by draws", f"ε ≥ {self.epsilon_lower:.6g} with confidence {100 * self.confidence:.6g}%"),
            ("worst pair", f"{worst['points']}, {worst['distance']:.6g} apart"),
            ("event", f"outputs {worst['event']}, seen {seen} times in {worst['draws']:,} draws each"),
            ("draws", f"{self.samples:,} in {self.seconds:.2f} s"),
        )
        return Card(f"Audit by samples: {'violated' if self.violates else 'consistent'}", rows).html()


def audit_samples(
    sampler: Sampler,
    *,
    epsilon: float | EpsilonMap | None = None,
    p: float | None = None,
    bounds: ArrayLike | None = None,
    n_outputs: int | None = None,
    rounding: float | None = None,
    pairs: ArrayLike | None = None,
    samples: int = 1_000_000,
    confidence: float = 0.999,
    rng: RandomSource | None = None,
    seed: int = 0,
    progress: Tell | bool | None = None,
) -> SampleAudit:
    """Bound ε from below by what a sampler does, knowing nothing of how it does it.

    Half of the draws look for a pair of points x, x' and an event E (a set of outputs) with a large
    ln(Pr[E | x] / Pr[E | x']) / (d_p(x, x') + r). The other half are fresh draws at what was found, and only they
    count. Points are judged as they are given; r is what rounding them to a lattice may add to their distance.

    Parameters
    ----------
    sampler : Mechanism or callable
        Of a mechanism only `sample` is used, and the claims that follow. A function takes points (m, N) and returns m
        outputs 0 … K − 1; its draws must be independent and depend on nothing but the point. A function that returns
        coordinates (m, N) is judged by which square of a grid over `bounds` they lie in; leave `n_outputs` out then.
    epsilon, p, bounds, n_outputs
        The claim: budget, order of the norm, box (2, N) and number of outputs. A mechanism's own by default; a
        function needs them, except for `bounds` if `pairs` are given. An `EpsilonMap` as `epsilon` claims its path
        metric: `epsilon_lower` is then in units of the map's largest ε, and above it where the map is broken.
    rounding : float, optional
        r of the claim, in the unit of the points; 0 allows for no rounding at all. By default what an honest lattice
        over the box needs, N^{1/p} times 2^-20 of the unit or of a shorter side (a millimetre or two where the unit is
        a kilometre), or a mechanism's own `rounding` if that is less.
    pairs : (m, 2, N) array, optional
        Pairs to test, every one of them. By default the pair is searched for.
    samples : int
        Draws at most, in all.
    confidence : float
        Probability with which `epsilon_lower` is right.
    rng : RandomSource, optional
        Where a mechanism's draws come from: `InsecureSeed` makes them repeatable.
    seed : int
        Decides which points the search visits.
    progress : callable, bool or None
        Told the share done and what is going on. By default a terminal or a notebook shows a bar after two seconds;
        True shows it at once, False never.

    Guarantee
    ---------
    Call a sampler (ε, d_p)-private up to r if Pr[k | x] ≤ e^{ε (d_p(x, x') + r)} Pr[k | x'] for all points x, x' and
    outputs k. For such a sampler `violates` is true with probability at most 1 − `confidence`, whatever its
    probabilities are:

    - Pairs and events are fixed before the draws that test them, and those are independent of the search. So the number
      of times that an event is seen is binomial, however the event was chosen.
    - The limits of Clopper and Pearson are exact: each fails with probability at most its level, for any n and
      Pr[E]. No normal approximation enters. An event that was never seen from x' in n draws counts like any other: its
      probability is at most 1 − level^{1/n}.
    - m pairs need 2m limits, one from below for Pr[E | x] and one from above for Pr[E | x'], at level
      (1 − confidence) / 2m each. By the union bound all hold at once with probability `confidence`, and then
      ln(lower / upper) / (d_p + r) is below the true ε for all pairs, hence for the largest. A search ends with one
      pair, so m = 1; of given pairs every one counts, whether it turns out to matter or not.

    Sets of outputs show no ratio that single outputs do not, but show it with far fewer draws. Those tried are
    {k : z_k(x) / z_k(x') ≥ t}, the most powerful ones for telling x from x' (Neyman and Pearson).

    Half of the searched points are on the box's own lattice, multiples of a power of two, and half are arbitrary: a
    sampler may treat the two differently. That nothing is found proves nothing.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="em")
    >>> found = audit_samples(mechanism, samples=20_000, rng=mdp.InsecureSeed(0))
    >>> 0 < found.epsilon_lower < 1, found.violates
    (True, False)
    >>> audit_samples(mechanism, epsilon=0.1, samples=20_000, rng=mdp.InsecureSeed(0)).violates
    True
    """
    started = time.perf_counter()
    local = _map_of(sampler, epsilon)
    budget = local.max if local is not None else positive("epsilon", claim(sampler, "epsilon", epsilon))
    order = norm_order(claim(sampler, "p", p))
    if n_outputs is None and bounds is not None and rng is None:
        squares = counted_by_squares(sampler, checked_box(bounds))
        if squares is not None:
            sampler, n_outputs = squares, squares.n_outputs
    draws = Draws(sampler, integer("n_outputs", claim(sampler, "n_outputs", n_outputs), 1), rng)
    level = 1 - fraction("confidence", confidence)
    given = None if pairs is None else _pairs(pairs, order)
    box = _box(sampler, local.bounds if local is not None and bounds is None else bounds, given)
    metric = _Metric(order, _rounding(sampler, rounding, box, order), _kappa(sampler))
    if local is not None:
        metric = replace(metric, promise=_promise(local, metric, box, given))
    least = 4 * len(_CLOUD) * _CLOUD[0] if given is None else 8 * len(given)
    half = integer("samples", samples, least) // 2
    with told(progress, "auditing") as tell:
        if given is None:
            chosen = _Search(draws, box, metric, np.random.default_rng(integer("seed", seed, 0))).run(half, tell)
        else:
            chosen = _choose(draws, given, metric, half)
        tell(0.5, "confirming")
        confirmed = _confirm(draws, chosen, metric, half, level)
    worst = max(confirmed, key=lambda one: one["epsilon_lower"])
    return SampleAudit(
        epsilon_lower=worst["epsilon_lower"],
        violates=worst["epsilon_lower"] > budget,
        epsilon=budget,
        p=order,
        confidence=float(confidence),
        worst_pair=worst,
        confirmed=confirmed,
        hypotheses=len(confirmed),
        samples=draws.made,
        rounding=metric.rounding,
        seconds=time.perf_counter() - started,
    )


def lower_limit(seen: Counts, draws: int | Counts, level: float) -> FloatArray:
    """Return the π at which `seen` or more of `draws` have probability `level`, 0 if none were seen.

    For every true π the limit is above it with probability at most `level` (Clopper and Pearson 1934).
    """
    return np.where(seen > 0, betaincinv(np.maximum(seen, 1), draws - seen + 1, level), 0.0)


def upper_limit(seen: Counts, draws: int | Counts, level: float) -> FloatArray:
    """Return the π at which `seen` or fewer of `draws` have probability `level`, 1 if all were seen."""
    return np.where(seen < draws, betainccinv(seen + 1, np.maximum(draws - seen, 1), level), 1.0)


@dataclass(frozen=True)
class _Metric:
    """Distances as the claim counts them: (d_p + rounding) / kappa, for points of the plane.

    promise : of a map of ε; distances are then such that the largest ε times them is the exponent of the promise.
    """

    p: float
    rounding: float
    kappa: float
    promise: Promise | None = None

    def between(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the distances by which ε is multiplied."""
        if self.promise is not None:
            return np.asarray(self.promise.exponents(left, right) / (self.promise.epsilon * self.kappa))
        return np.asarray((norm(left - right, self.p) + self.rounding) / self.kappa)


@dataclass(frozen=True)
class _Chosen:
    """Hypotheses fixed before they are tested: pairs (m, 2, N), the likelier point first, and events (m, K)."""

    pairs: FloatArray
    events: NDArray[np.bool_]


class _Search:
    """Looks for the pair with the largest bound: a cloud of points, all of whose pairs are compared.

    Every round draws at all points, ranks the pairs, and keeps the points of the best. New points are put on and about
    the lines through the best pairs, between them and beyond: so pairs close in on a jump, or widen where the slope
    goes on. Points that stay keep their counts.
    """

    def __init__(self, draws: Draws, box: FloatArray, metric: _Metric, generator: np.random.Generator) -> None:
        self.draws, self.box, self.metric, self.generator = draws, box, metric, generator
        self.nearest = _NEAREST * float((box[1] - box[0]).max())

    def run(self, samples: int, tell: Callable[[float, str], None]) -> _Chosen:
        """Spend at most `samples` draws and return the best pair with its event."""
        points = self._first()
        counts = np.zeros((len(points), 2, self.draws.n_outputs), dtype=np.int64)
        ranked = np.empty((0, 2), dtype=np.intp)
        for turn, size in enumerate(_CLOUD):
            tell(0.5 * turn / len(_CLOUD), "searching")
            if turn:
                points, counts = self._next(points, counts, ranked, size)
            counts += self.draws.halves(points, samples // len(_CLOUD) // size)
            ranked = self._rank(points, counts)
        here, there = ranked[:1].T
        gaps = self.metric.between(points[here], points[there])
        return _Chosen(points[ranked[:1]], _sharpest(counts[here], counts[there], gaps)[1])

    def _first(self) -> FloatArray:
        """Return points spread over the box, each with a neighbour at some distance.

        Every other point is on the lattice, and of the neighbours two in turn are and two are not, so that there are
        pairs of all four kinds.
        """
        first = spread(self.box, _CLOUD[0] // 2, self.generator)
        lengths = np.exp(self.generator.uniform(np.log(_NEAREST), np.log(_NEAR), (len(first), 1)))
        steps = (self.box[1] - self.box[0]) * lengths * self.generator.standard_normal(first.shape)
        return np.concatenate([first, inside(first + steps, self.box, np.arange(len(first)) % 4 < 2)])

    def _next(
        self, points: FloatArray, counts: Counts, ranked: NDArray[np.intp], size: int
    ) -> tuple[FloatArray, Counts]:
        """Return the points of the best pairs with their counts, and new ones about the lines through those pairs."""
        _, first = np.unique(ranked, return_index=True)
        kept = ranked.ravel()[np.sort(first)][: size // 2]
        parents = ranked[np.minimum(np.arange(size - len(kept)) // _CHILDREN, len(ranked) - 1)]
        here, there = points[parents[:, 0]], points[parents[:, 1]]
        along = self.generator.uniform(-0.5, 1.5, (len(here), 1)) * (there - here)
        astray = _STRAY * norm(there - here, 2)[:, None] * self.generator.standard_normal(here.shape)
        new = inside(here + along + astray, self.box, np.arange(len(here)) % 2 == 0)
        unseen = np.zeros((len(new), *counts.shape[1:]), dtype=np.int64)
        return np.concatenate([points[kept], new]), np.concatenate([counts[kept], unseen])

    def _rank(self, points: FloatArray, counts: Counts) -> NDArray[np.intp]:
        """Return ordered pairs of points as (pairs, 2) indices, the most suspicious first."""
        here, there = np.divmod(np.arange(len(points) ** 2), len(points))
        apart = norm(points[here] - points[there], self.metric.p) >= self.nearest
        here, there = here[apart], there[apart]
        gaps = self.metric.between(points[here], points[there])
        parts = chunks(len(gaps), self.draws.n_outputs, NUMBERS_AT_ONCE // 2)
        scores = [_sharpest(counts[here[part]], counts[there[part]], gaps[part])[0] for part in parts]
        best = np.argsort(-np.concatenate(scores), kind="stable")
        return np.column_stack([here, there])[best]


def _choose(draws: Draws, pairs: FloatArray, metric: _Metric, samples: int) -> _Chosen:
    """Choose the direction and the event of every given pair."""
    counts = draws.halves(pairs.reshape(-1, pairs.shape[-1]), samples // (2 * len(pairs)))
    here, there = counts[::2], counts[1::2]
    gaps = metric.between(pairs[:, 0], pairs[:, 1])
    score, event = _sharpest(here, there, gaps)
    back_score, back_event = _sharpest(there, here, gaps)
    turned = (back_score > score)[:, None]
    return _Chosen(np.where(turned[..., None], pairs[:, ::-1], pairs), np.where(turned, back_event, event))


def _sharpest(here: Counts, there: Counts, gaps: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the score and the event {k : ratio ≥ t} that suit each pair best, from counts (pairs, 2, outputs).

    The score is a cautious guess of the ε that the event will prove: the bound that these counts prove, at a level of
    their own. One half of the counts orders the outputs and the other half scores: where outputs are many and counts
    small, events that were made from noise would otherwise look best. Half a count is added to every number of a ratio,
    so that outputs that were never seen have one; limits are exact and need no such addition.
    """
    ratio = (here[:, 0] + 0.5) / (there[:, 0] + 0.5)
    order = np.argsort(-ratio, axis=1)
    ordered = np.take_along_axis(ratio, order, axis=1)
    lower = _log_limits(lower_limit, np.take_along_axis(here[:, 1], order, axis=1))
    upper = _log_limits(upper_limit, np.take_along_axis(there[:, 1], order, axis=1))
    scores = (lower - upper) / gaps[:, None]
    # An event holds all outputs of one ratio or none of them, so it can only end where the next ratio is smaller.
    scores[:, :-1][ordered[:, :-1] == ordered[:, 1:]] = -np.inf
    best = scores.argmax(axis=1)[:, None]
    return np.take_along_axis(scores, best, axis=1)[:, 0], ratio >= np.take_along_axis(ordered, best, axis=1)


def _log_limits(limit: Callable[[Counts, Counts, float], FloatArray], counts: Counts) -> FloatArray:
    """Return ln of the limit for the first output, the first two, and so on, from ordered counts (pairs, outputs).

    Sums of small counts repeat, and a limit takes a hundred times longer to compute than to look up. So each sum is
    computed once, unless there are more possible sums than numbers asked for.
    """
    seen = counts.cumsum(axis=1)
    totals, group = np.unique(seen[:, -1], return_inverse=True)
    base = int(totals[-1]) + 1
    with np.errstate(divide="ignore"):  # the lower limit of what was never seen is 0
        if seen.size <= base * len(totals):
            return np.log(limit(seen, seen[:, -1:], _CAUTION))
        place = seen + base * group[:, None]
        logs = np.zeros(base * len(totals))
        logs[place] = 1.0
        asked = np.flatnonzero(logs)
        logs[asked] = np.log(limit(asked % base, totals[asked // base], _CAUTION))
    return logs[place]


def _confirm(draws: Draws, chosen: _Chosen, metric: _Metric, samples: int, level: float) -> list[dict[str, Any]]:
    """Test the hypotheses with fresh draws; all bounds hold at once with probability 1 − `level`."""
    n_pairs, _, n_axes = chosen.pairs.shape
    each = samples // (2 * n_pairs)
    counts = draws.counts(chosen.pairs.reshape(-1, n_axes), each).reshape(n_pairs, 2, -1)
    seen = np.where(chosen.events[:, None], counts, 0).sum(axis=2)
    share = level / (2 * n_pairs)
    lower, upper = lower_limit(seen[:, 0], each, share), upper_limit(seen[:, 1], each, share)
    left, right = chosen.pairs[:, 0], chosen.pairs[:, 1]
    # No ε is negative, so a bound below 0 says no more than 0 does.
    bounds = np.log(np.maximum(lower / upper, 1.0)) / metric.between(left, right)
    gaps = norm(left - right, metric.p)
    return [
        {
            "points": chosen.pairs[i].tolist(),
            "distance": float(gaps[i]),
            "event": np.flatnonzero(chosen.events[i]).tolist(),
            "seen": seen[i].tolist(),
            "draws": each,
            "epsilon_lower": float(bounds[i]),
        }
        for i in range(n_pairs)
    ]


def _pairs(pairs: ArrayLike, p: float) -> FloatArray:
    """Return pairs of different points; errors name places in the array, never the points."""
    array = finite_array("pairs", pairs)
    if array.ndim != 3 or array.shape[1] != 2 or not array.size:
        raise reject("pairs", "of shape (pairs, 2, axes) and not empty", f"shape {array.shape}")
    equal = np.flatnonzero(norm(array[:, 0] - array[:, 1], p) == 0)
    if len(equal):
        raise reject("pairs", "made of two different points each", f"equal points at index {equal[0]}")
    return array


def _map_of(sampler: Sampler, epsilon: float | EpsilonMap | None) -> EpsilonMap | None:
    """Return the map that is claimed: the given one or, where nothing is given, the mechanism's own."""
    if isinstance(epsilon, EpsilonMap):
        return epsilon
    return sampler.epsilon_map if epsilon is None and isinstance(sampler, Mechanism) else None


def _promise(local: EpsilonMap, metric: _Metric, box: FloatArray, given: FloatArray | None) -> Promise:
    """Return what a map promises in the plane; it must cover the box, and the pairs if there are any."""
    points = box if given is None else np.concatenate([box, given.reshape(-1, given.shape[-1])])
    if local.n_axes != box.shape[1] or not local.covers([points.min(axis=0), points.max(axis=0)]):
        raise reject("epsilon", "a map that covers the box and all pairs", f"one of {local.bounds.tolist()}")
    plane = local.times(1 / metric.kappa * (1 + 1e-15))
    return Promise(plane.max, metric.p, metric.rounding, local.bounds, PathMetric(plane, metric.p))


def _box(sampler: Sampler, bounds: ArrayLike | None, given: FloatArray | None) -> FloatArray:
    """Return the box of the claim; given pairs of points need none, and then it is the unit's."""
    if given is None or bounds is not None or isinstance(sampler, Mechanism):
        return checked_box(claim(sampler, "bounds", bounds))
    n_axes = given.shape[-1]
    return np.array([np.zeros(n_axes), np.ones(n_axes)])


def _rounding(sampler: Sampler, given: float | None, box: FloatArray, p: float) -> float:
    if given is not None:
        return non_negative("rounding", given)
    honest = lattice_rounding(box, p)
    return min(mechanism_rounding(sampler), honest) if isinstance(sampler, Mechanism) else honest


def _kappa(sampler: Sampler) -> float:
    """Return how many units of the plane count as one of the claim."""
    if not isinstance(sampler, Mechanism) or sampler.distance == "plane" or sampler.distortion is None:
        return 1.0
    return min(sampler.distortion.kappa, _NO_KAPPA)
