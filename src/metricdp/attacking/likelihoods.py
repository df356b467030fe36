"""What reports say of places: Pr[report | place] of outputs, of noisy points, and of samplers that are learnt first."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from metricdp._chunks import NUMBERS_AT_ONCE, items_at_once, slices
from metricdp._validation import FloatArray, reject, table
from metricdp.drawing.randomness import InsecureSeed
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.norms import pairwise_distances
from metricdp.mechanisms.base import Mechanism

__all__ = ["Likelihood", "NoisyPoints", "Outputs", "Sampler", "learnt", "likelihood_of"]

# From points (m, N) to the numbers of outputs (m,), or to reported coordinates (m, N).
Sampler = Callable[[FloatArray], Any]

# Numbers of the largest table of places and outputs: 800 MB.
_LARGEST_TABLE = 100_000_000

# Sums over all sequences of reports are taken up to so many numbers.
_LARGEST_SUM = 2**21

# Different reports of a sampler that are told apart one by one; of more, squares are made.
_MOST_REPORTS = 4096


class Likelihood(ABC):
    """Pr[report | place] for n places with a prior.

    learnt : whether it was estimated from draws, so that nothing is known of better adversaries.
    """

    prior: FloatArray
    learnt = False

    @abstractmethod
    def drawn(self, truth: NDArray[np.intp], count: int, generator: np.random.Generator) -> FloatArray:
        """Draw `count` reports from each of the true places (m,) and return log Pr[reports | place] as (m, n).

        The logarithms are up to a constant in each row.
        """

    @abstractmethod
    def log_each(self, reports: ArrayLike) -> FloatArray:
        """Return log Pr[report | place] as (m, n), each row up to a constant, for reports that somebody saw."""

    def log_of(self, reports: ArrayLike) -> FloatArray:
        """Return log Pr[all of these reports | place] as (n,), up to a constant."""
        return np.asarray(self.log_each(reports).sum(axis=0))

    def weights(self, reports: int) -> Iterator[FloatArray] | None:
        """Yield π(x) Pr[reports | x] for all sequences of reports, (rows, n) at a time; None if they are too many."""
        del reports
        return None


@dataclass(frozen=True, eq=False)
class Outputs(Likelihood):
    """Reports that are one of K outputs.

    rows : (n, K) array of Pr[y_k | x_i].
    prior : (n,) array.
    sampled : draws of true reports, where they are not those of `rows`.
    """

    rows: FloatArray
    prior: FloatArray
    sampled: Callable[[NDArray[np.intp], np.random.Generator], NDArray[np.intp]] | None = None

    @property
    def learnt(self) -> bool:  # type: ignore[override]
        """Whether the reports come from somewhere else than the rows."""
        return self.sampled is not None

    def drawn(self, truth: NDArray[np.intp], count: int, generator: np.random.Generator) -> FloatArray:
        """Draw how often each output is reported, and add up logarithms."""
        if self.sampled is None:
            counts = generator.multinomial(count, self.rows[truth])
        else:
            n_outputs = self.rows.shape[1]
            said = self.sampled(np.repeat(truth, count), generator).reshape(len(truth), count)
            place = np.arange(len(truth))[:, None] * n_outputs + said
            counts = np.bincount(place.ravel(), minlength=len(truth) * n_outputs).reshape(len(truth), n_outputs)
        return self._logs(counts.astype(np.float64))

    def log_each(self, reports: ArrayLike) -> FloatArray:
        """Return the logarithms of the columns of numbers of outputs."""
        said, n_outputs = np.atleast_1d(np.asarray(reports)), self.rows.shape[1]
        if said.ndim != 1 or not said.size or said.dtype.kind not in "iu" or said.min() < 0 or said.max() >= n_outputs:
            raise reject("reports", f"numbers of outputs, 0 to {n_outputs - 1}", f"shape {said.shape}, {said.dtype}")
        with np.errstate(divide="ignore"):
            return np.log(self.rows[:, said].T)

    def _logs(self, counts: FloatArray) -> FloatArray:
        never = self.rows == 0
        logs = counts @ np.log(np.where(never, 1.0, self.rows)).T
        if never.any():
            logs[counts @ never.T.astype(np.float64) > 0] = -np.inf
        return logs

    def weights(self, reports: int) -> Iterator[FloatArray] | None:
        """Yield the weights of all multisets of reports, each as often as it can come."""
        n_places, n_outputs = self.rows.shape
        if self.learnt or (math.comb(reports + n_outputs - 1, reports) > _LARGEST_SUM // n_places and reports > 1):
            return None
        return self._all_weights(reports)

    def _all_weights(self, reports: int) -> Iterator[FloatArray]:
        n_places, n_outputs = self.rows.shape
        if reports == 1:
            for part in slices(n_outputs, items_at_once(n_places)):
                yield np.ascontiguousarray(self.rows[:, part].T) * self.prior
            return
        for counts in _multisets(reports, n_outputs, items_at_once(n_places + n_outputs)):
            ways = gammaln(reports + 1) - gammaln(counts + 1).sum(axis=1)
            yield np.exp(self._logs(counts) + ways[:, None]) * self.prior


def _multisets(reports: int, n_outputs: int, at_once: int) -> Iterator[FloatArray]:
    """Yield how often each output comes, for all multisets of reports, (some, outputs) at a time.

    A multiset is a way to put n_outputs − 1 bars among the reports; what lies between two bars is one output's.
    """
    slots = reports + n_outputs - 1
    bars = itertools.combinations(range(slots), n_outputs - 1)
    while some := list(itertools.islice(bars, at_once)):
        places = np.array(some, dtype=np.float64).reshape(len(some), n_outputs - 1)
        edges = np.column_stack([np.full(len(some), -1.0), places, np.full(len(some), float(slots))])
        yield np.diff(edges, axis=1) - 1


@dataclass(frozen=True, eq=False)
class NoisyPoints(Likelihood):
    """Reports that are the point plus noise of density ∝ e^{−rate ‖·‖_p}.

    mechanism : draws them.
    places : (n, N) array, where the noise of each place is centred.
    away : chance that a report is not from the place but from another, drawn from the prior.
    """

    mechanism: Any
    places: FloatArray
    prior: FloatArray
    away: float

    def drawn(self, truth: NDArray[np.intp], count: int, generator: np.random.Generator) -> FloatArray:
        """Draw noisy points, and add up −rate ‖report − place‖_p."""
        logs = np.zeros((len(truth), len(self.places)))
        for _ in range(count):
            where = truth
            if self.away:
                elsewhere = generator.choice(len(self.places), len(truth), p=self.prior)
                where = np.where(generator.random(len(truth)) < self.away, elsewhere, truth)
            seed = InsecureSeed(int(generator.integers(2**63)))
            said = np.asarray(self.mechanism.sample(self.places[where], rng=seed))
            logs += self._logs(said)
        return logs

    def log_each(self, reports: ArrayLike) -> FloatArray:
        """Return −rate ‖report − place‖_p for reported points, in the mechanism's coordinates."""
        said = table("reports", np.atleast_2d(np.asarray(reports, dtype=np.float64)), columns=self.places.shape[1])
        return self._logs(said)

    def _logs(self, said: FloatArray) -> FloatArray:
        logs = -self.mechanism.rate * pairwise_distances(said, self.places, self.mechanism.p)
        if not self.away:
            return logs
        logs -= logs.max(axis=1, keepdims=True)
        chance = np.exp(logs)
        return np.log((1 - self.away) * chance + self.away * (chance @ self.prior)[:, None])


def likelihood_of(mechanism: Mechanism, places: FloatArray, prior: FloatArray, away: float) -> Likelihood:
    """Return what a mechanism's reports say of places, in the mechanism's coordinates."""
    if not mechanism.has_outputs:
        return NoisyPoints(mechanism, mechanism.snap(mechanism.clamp(places)), prior, away)
    _require_small(len(places), mechanism.n_outputs)
    return Outputs(_mixed(mechanism.probabilities(places), prior, away), prior)


def _mixed(rows: FloatArray, prior: FloatArray, away: float) -> FloatArray:
    """Return the rows of reports that come from another place, drawn from the prior, with a chance of `away`."""
    return (1 - away) * rows + away * (prior @ rows) if away else rows


def _require_small(places: int, outputs: int) -> None:
    if places * outputs > _LARGEST_TABLE:
        msg = (
            f"{places:,} records and {outputs:,} outputs make a table of {places * outputs:,} probabilities, more than "
            f"the {_LARGEST_TABLE:,} that an attack holds; give a problem with fewer records."
        )
        raise ProblemTooLargeError(msg)


def learnt(
    sampler: Sampler, places: FloatArray, prior: FloatArray, away: float, draws: int, cell: float | None
) -> Outputs:
    """Return what an adversary learns of a sampler by asking it about every place.

    Coordinates that it reports are told apart by squares of side `cell`, unless only few different ones ever come. Each
    row is smoothed by half a report in proportion to what all rows together say, so that nothing is impossible.
    """
    each = max(1, draws // len(places))
    labels = _Labels(sampler, places, cell)
    owner = np.repeat(np.arange(len(places)), each)
    said = np.concatenate([labels.of(places[owner[part]]) for part in slices(len(owner), NUMBERS_AT_ONCE // 8)])
    names = labels.settled(said)
    _require_small(len(places), len(names) + 1)
    column = labels.columns(said)
    n_columns = len(names) + 1  # the last is for reports that were never seen
    counts = np.bincount(owner * n_columns + column, minlength=len(places) * n_columns).reshape(-1, n_columns)
    # Never seen does not mean never: such a report tells nothing.
    common = (prior @ counts + 1 / each) / (prior @ counts + 1 / each).sum()
    rows = (counts + 0.5 * common) / (each + 0.5)

    def sampled(truth: NDArray[np.intp], generator: np.random.Generator) -> NDArray[np.intp]:
        elsewhere = generator.choice(len(places), len(truth), p=prior)
        where = np.where(generator.random(len(truth)) < away, elsewhere, truth)
        return labels.columns(labels.of(places[where]))

    return Outputs(_mixed(rows, prior, away), prior, sampled)


class _Labels:
    """Turns what a sampler returns into whole numbers: of outputs, of different points, or of squares."""

    def __init__(self, sampler: Sampler, places: FloatArray, cell: float | None) -> None:
        self._sampler, self._n_axes = sampler, places.shape[1]
        self._cell = cell
        self._names: NDArray[Any] = np.empty(0)

    def of(self, points: FloatArray) -> NDArray[Any]:
        """Ask the sampler, and return numbers of outputs (m,) or coordinates (m, N)."""
        said = np.asarray(self._sampler(points.copy()))
        if said.shape == (len(points),) and said.dtype.kind in "iu":
            return said
        if said.shape == points.shape and said.dtype.kind in "iuf" and np.isfinite(said).all():
            return said.astype(np.float64)
        msg = (
            f"The sampler returned shape {said.shape} of type {said.dtype} for {len(points)} points; it must return "
            f"one whole number per point, or {self._n_axes} finite coordinates."
        )
        raise InvalidInputError(msg)

    def settled(self, said: NDArray[Any]) -> NDArray[Any]:
        """Decide, from the reports that were seen, how they are told apart; return the different ones."""
        if said.ndim == 2 and self._cell is None and len(np.unique(said, axis=0)) > _MOST_REPORTS:
            spread = np.quantile(said, [0.001, 0.999], axis=0)
            self._cell = float((np.prod(spread[1] - spread[0]) / (_MOST_REPORTS / 4)) ** (1 / said.shape[1]))
        self._names = np.unique(self._keys(said))
        return self._names

    def columns(self, said: NDArray[Any]) -> NDArray[np.intp]:
        """Return the column of each report; the last one for those that were never seen."""
        keys = self._keys(said)
        place = np.minimum(np.searchsorted(self._names, keys), len(self._names) - 1)
        return np.where(self._names[place] == keys, place, len(self._names))

    def _keys(self, said: NDArray[Any]) -> NDArray[Any]:
        if said.ndim == 1:
            return said
        rows = said if self._cell is None else np.floor(said / self._cell)
        rows = np.ascontiguousarray(rows + 0.0)
        return rows.view([("", rows.dtype)] * rows.shape[1])[:, 0]
