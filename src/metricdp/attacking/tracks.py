"""What an adversary learns along a trace: from one report, from all reports so far, and from the whole trace."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_EVEN
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._lengths import length_text
from metricdp._progress import Tell, told
from metricdp._validation import FloatArray, integer, positive, reject
from metricdp.attacking.guesses import best_guesses
from metricdp.attacking.likelihoods import Likelihood, likelihood_of
from metricdp.drawing.randomness import InsecureSeed
from metricdp.errors import InvalidInputError
from metricdp.geometry.ground import Ground
from metricdp.mechanisms.base import Mechanism
from metricdp.traces.learning import RegularTraces, read_traces, resampled
from metricdp.traces.movement import Movement

__all__ = ["Followed", "TraceAttack", "attack_traces"]

# What an adversary may use for a position: its own report, all reports so far, all reports of the trace.
KNOWN = ("report", "reports so far", "whole trace")

_RADII_KM = (0.1, 0.5)

# Traces whose beliefs are held at once.
_AT_ONCE = 8

# Fixes this many seconds apart are joined by a straight line.
_LONGEST_GAP_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Followed:
    """How well positions along traces are guessed.

    known : what the adversary may use: the report of that moment, all reports so far (filter), or the whole trace
        (smoother).
    error : mean distance between the truth and the guess, over traces and times.
    standard_error : of the error, from how traces differ.
    believed : the error that the adversary expects, going by the movement model.
    bound : the Bayes bound for people who walk just these traces: an adversary who knows all of them, and only not
        which one it is, is so far off. Nobody does better.
    within : (radius, chance) pairs: how often the guess lies so near to the truth.
    """

    known: str
    error: float
    standard_error: float
    believed: float
    bound: float
    within: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class TraceAttack:
    """What an adversary with a model of movement learns along traces.

    table : one row for each of what they may use.
    traces, reports : how many traces, and reports of each, every `every_s` seconds.
    """

    table: tuple[Followed, ...]
    traces: int
    reports: int
    every_s: float
    distance_unit: str
    method: str
    seconds: float

    @property
    def error(self) -> float:
        """How far off an adversary is who has the whole trace."""
        return self.table[-1].error

    @property
    def words(self) -> str:
        """The figures in a sentence."""
        one, past, whole = (self._length(row.error) for row in self.table)
        return (
            f"From a single report they are {one} off on average, with all reports so far {past}, and looking back on "
            f"the whole trace of {self.reports} reports {whole}."
        )

    @property
    def shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Heads and rows of the table, for people."""
        radii = [self._length(radius) for radius, _ in self.table[0].within]
        rows = [
            (
                row.known,
                f"{self._length(row.error)} ± {self._length(row.standard_error, 2)}",
                self._length(row.believed),
                self._length(row.bound),
                *(f"{100 * chance:.1f} %" for _, chance in row.within),
            )
            for row in self.table
        ]
        return ("known", "off by", "believed", "Bayes bound", *(f"≤ {one}" for one in radii)), rows

    def _length(self, value: float, digits: int = 3) -> str:
        return length_text(value, self.distance_unit, ROUND_HALF_EVEN, digits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`; the keys are documented in docs/json.md."""
        plain = asdict(self)
        for row in plain["table"]:
            row["within"] = [{"radius": radius, "chance": chance} for radius, chance in row["within"]]
        return plain | {"table": list(plain["table"]), "words": self.words}


def attack_traces(
    mechanism: Mechanism,
    movement: Movement,
    table: Any,
    *,
    every_s: float | None = None,
    reports: int = 24,
    traces: int = 60,
    within: Sequence[float] | None = None,
    id_column: str = "id",
    time_column: str = "unix_s",
    seed: int = 0,
    progress: Tell | bool | None = None,
) -> TraceAttack:
    """Return how well an adversary with a public model of movement follows people who report again and again.

    Reports are drawn by the mechanism from true positions, one every `every_s` seconds, each independently. The
    adversary knows the mechanism and the model. From the report of one moment they have the posterior under the model's
    prior, from all reports so far that of the filter, from the whole trace that of the smoother (`Movement.filter` and
    `Movement.smooth`). The guess is the geometric median of the posterior, as in `attack`.

    Parameters
    ----------
    mechanism : Mechanism
        With outputs, or `metricdp.noise`.
    movement : Movement
        The adversary's model, from other people's traces or from roads.
    table : table of pandas, polars or Arrow, or dictionary of columns
        True traces, as `Movement.fit` takes them.
    every_s : float, optional
        Seconds between reports; the model's shortest lag by default.
    reports, traces : int
        Reports in a row of one trace, and how many such pieces are taken at most, spread evenly over all.
    within : sequence of float, optional
        Radii whose chances are given; 0.1 and 0.5 km by default.
    id_column, time_column : str
        As for `Movement.fit`.
    seed : int
        Of the reports.
    progress : callable, bool or None
        Told the share done, see `fit`.

    Guarantee
    ---------
    `error` is that of guesses that were made. `bound` is a Bayes bound under the prior that gives every one of the
    taken traces the same chance, estimated from the same draws: under it no adversary does better on average.
    """
    started = time.perf_counter()
    _require(mechanism, movement)
    step = movement.seconds if every_s is None else positive("every_s", every_s)
    radii = tuple(sorted({positive("within", one) for one in (_RADII_KM if within is None else within)}))
    fixes = read_traces(table, id_column, time_column)
    gap = max(_LONGEST_GAP_S, step)
    pieces = _pieces(resampled(fixes, movement.raster, step, gap), movement, integer("reports", reports, 1))
    pieces = pieces[
        np.unique(np.linspace(0, len(pieces) - 1, min(len(pieces), integer("traces", traces, 2))).astype(int))
    ]
    scene = _Scene(mechanism, movement, pieces, step)
    said = scene.drawn(InsecureSeed(integer("seed", seed, 0)))
    with told(progress, "following") as tell:
        errors, believed = _followed(scene, said, tell)
        bounds = _bounds(scene, said)
    rows = [_row(scene, known, errors[known], believed[known], bounds[known], radii) for known in KNOWN]
    return TraceAttack(
        table=tuple(rows),
        traces=len(pieces),
        reports=reports,
        every_s=step,
        distance_unit=scene.ground.unit,
        method=mechanism.method,
        seconds=time.perf_counter() - started,
    )


def _require(mechanism: object, movement: object) -> None:
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a metricdp.Mechanism", type(mechanism).__name__)
    if not isinstance(movement, Movement):
        raise reject("movement", "a metricdp.traces.Movement", type(movement).__name__)
    if (mechanism.projection is None) != (movement.raster.projection is None):
        raise InvalidInputError("The mechanism and the movement must both be in longitude and latitude, or neither.")


def _pieces(positions: RegularTraces, movement: Movement, reports: int) -> FloatArray:
    """Return (M, reports, 2) positions of traces that stay in the cells for so many reports in a row."""
    inside = movement.raster.cells_of(positions.xy_km) >= 0
    trace, tick, xy = positions.trace[inside], positions.tick[inside], positions.xy_km[inside]
    broken = (np.diff(trace) != 0) | (np.diff(tick) != 1)
    run = np.concatenate([[0], np.cumsum(broken)])
    starts = np.flatnonzero(np.concatenate([[True], broken]))
    place = np.arange(len(run)) - starts[run]
    length = np.diff(np.append(starts, len(run)))
    first = np.flatnonzero((place % reports == 0) & (place + reports <= length[run])) if len(tick) else np.empty(0, int)
    if len(first) < 2:
        msg = (
            f"Fewer than two traces stay in the cells for {reports} reports in a row; take fewer `reports`, a shorter "
            "`every_s`, or a movement model of a larger box."
        )
        raise InvalidInputError(msg)
    return xy[first[:, None] + np.arange(reports)]


@dataclass(frozen=True, eq=False)
class _Scene:
    """Who walks where. pieces : (M, T, 2) true positions in the plane of the movement model."""

    mechanism: Mechanism
    movement: Movement
    pieces: FloatArray
    step: float

    @property
    def ground(self) -> Ground:
        return Ground.over(self.movement.raster.projection, self.movement.raster.bounds)

    def for_mechanism(self, points: FloatArray) -> FloatArray:
        """Return points of the model's plane in the mechanism's coordinates."""
        projection = self.movement.raster.projection
        if projection is None or projection == self.mechanism.projection:
            return points
        return np.asarray(self.mechanism.projection.to_xy_km(*projection.to_lonlat(points).T))

    def likelihood(self, points: FloatArray) -> Likelihood:
        """Return what reports say of points of the model's plane."""
        even = np.full(len(points), 1 / len(points))
        return likelihood_of(self.mechanism, self.for_mechanism(points), even, 0.0)

    def drawn(self, seed: InsecureSeed) -> NDArray[Any]:
        """Return one report for every position, (M, T) or (M, T, N)."""
        flat = self.for_mechanism(self.pieces.reshape(-1, 2))
        said = np.asarray(self.mechanism.sample(flat, rng=seed))
        return said.reshape(*self.pieces.shape[:2], *said.shape[1:])


def _followed(scene: _Scene, said: NDArray[Any], tell: Tell) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return the error of every guess, (M, T), and what the adversary believes it is, by what is known."""
    movement, (count, length) = scene.movement, said.shape[:2]
    centres = scene.ground.plane(movement.raster.centres)
    truth = scene.ground.plane(scene.pieces)
    likelihood = scene.likelihood(movement.raster.centres)
    errors, believed = ({known: np.empty((count, length)) for known in KNOWN} for _ in range(2))
    times = np.arange(length, dtype=np.float64) * scene.step
    for start in range(0, count, _AT_ONCE):
        part = slice(start, min(start + _AT_ONCE, count))
        tell(start / count, f"trace {start + 1} of {count}")
        seen = said[part]
        logs = likelihood.log_each(seen.reshape(-1, *seen.shape[2:])).reshape(*seen.shape[:2], -1)
        for known, beliefs in _beliefs(movement, logs, times).items():
            guess = best_guesses(centres, beliefs.reshape(-1, len(centres)))
            gap = guess.points - truth[part].reshape(-1, 2)
            errors[known][part] = np.sqrt(np.square(gap).sum(axis=1)).reshape(seen.shape[:2])
            believed[known][part] = guess.cost.reshape(seen.shape[:2])
    return errors, believed


def _beliefs(movement: Movement, logs: FloatArray, times: FloatArray) -> dict[str, FloatArray]:
    alone = np.exp(logs - logs.max(axis=-1, keepdims=True)) * movement.prior
    alone /= alone.sum(axis=-1, keepdims=True)
    if len(times) == 1:
        return dict.fromkeys(KNOWN, alone)
    return dict(zip(KNOWN, (alone, movement.filter(logs, times), movement.smooth(logs, times)), strict=True))


def _bounds(scene: _Scene, said: NDArray[Any]) -> dict[str, float]:
    """Return how far off somebody is who knows all traces, and only not which of them it is; by what is known."""
    count, length = said.shape[:2]
    places = scene.ground.plane(scene.pieces)
    logs = np.empty((count, length, count))  # report of trace m at time t, if it were trace c
    for t in range(length):
        logs[:, t] = scene.likelihood(scene.pieces[:, t]).log_each(said[:, t])
    sums = {
        KNOWN[0]: logs,
        KNOWN[1]: logs.cumsum(axis=1),
        KNOWN[2]: np.broadcast_to(logs.sum(axis=1)[:, None], logs.shape),
    }
    found = {}
    for known, total in sums.items():
        weights = np.exp(total - total.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        found[known] = float(np.mean([best_guesses(places[:, t], weights[:, t]).least.mean() for t in range(length)]))
    return found


def _row(
    scene: _Scene, known: str, errors: FloatArray, believed: FloatArray, bound: float, radii: tuple[float, ...]
) -> Followed:
    ground = scene.ground
    by_trace = errors.mean(axis=1)
    return Followed(
        known=known,
        error=float(by_trace.mean()) * ground.longest,
        standard_error=float(by_trace.std(ddof=1)) / math.sqrt(len(by_trace)) * ground.longest,
        believed=float(believed.mean()) * ground.longest,
        bound=bound * ground.shortest,
        within=tuple((radius, float((errors * ground.longest <= radius).mean())) for radius in radii),
    )
