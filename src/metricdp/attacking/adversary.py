"""What a Bayesian adversary learns from reports of one place: how far off the best guess is, and how often near."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_HALF_EVEN
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._cards import Card, html_table
from metricdp._chunks import chunks
from metricdp._lengths import length_text
from metricdp._progress import Tell, told
from metricdp._validation import FloatArray, finite_array, integer, positive, reject
from metricdp.attacking.guesses import best_chances, best_guesses
from metricdp.attacking.likelihoods import Likelihood, Sampler, learnt, likelihood_of
from metricdp.errors import InvalidInputError
from metricdp.geometry.ground import Ground
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem

__all__ = ["Attack", "Learned", "attack", "everywhere", "posterior"]

# Radii for problems on the Earth, in km.
_RADII_KM = (0.1, 0.5)

# Places that stand for all of a box.
_SPREAD = 2500


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What is learned from some number of reports of one place.

    reports : how many.
    error : expected distance between the truth and the best guess that was found, which an adversary reaches.
    error_least : no guess does better, with these places, this prior and these reports: the Bayes bound. NaN for
        samplers that are functions, of which an adversary knows only what was learnt from draws.
    standard_error : of `error`, where reports were drawn; 0 where all of them were summed up.
    within : (radius, chance) pairs: how often a guess lies so near to the truth, if that is what is wanted of it.
    named : how often the likeliest place is the true one.
    """

    reports: int
    error: float
    error_least: float
    standard_error: float
    within: tuple[tuple[float, float], ...]
    named: float


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What an adversary learns who knows the mechanism, the places and how likely each is.

    table : what is learned from each number of reports; the first one is from none, the prior alone.
    exact : whether every figure is a sum over all reports; otherwise they are means over `draws` people.
    distance_unit : "km", on the ground (WGS 84), or empty for straight distances in the problem's coordinates.
    away : chance with which a report came from elsewhere.
    """

    table: tuple[Learned, ...]
    exact: bool
    draws: int
    distance_unit: str
    away: float
    method: str
    records: int
    seconds: float

    @property
    def last(self) -> Learned:
        """What is learned from the largest number of reports."""
        return self.table[-1]

    @property
    def error(self) -> float:
        """How far off the adversary is after all reports, on average."""
        return self.last.error

    @property
    def error_least(self) -> float:
        """The Bayes bound after all reports."""
        return self.last.error_least

    @property
    def standard_error(self) -> float:
        """The standard error of `error`; 0 if it is exact."""
        return self.last.standard_error

    @property
    def error_without_reports(self) -> float:
        """How far off somebody is who has seen no report."""
        return self.table[0].error

    @property
    def within(self) -> dict[float, float]:
        """By radius, how often a guess lies so near to the truth, after all reports."""
        return dict(self.last.within)

    @property
    def words(self) -> str:
        """The figures in a sentence."""
        parts = [f"after {_count(one.reports)} {self._length(one.error)}" for one in self.table[1:]]
        without = self._length(self.error_without_reports)
        return f"Without any report they are {without} off on average, {', '.join(parts)}."

    @property
    def shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Heads and rows of the table, for people."""
        radii = [radius for radius, _ in self.last.within]
        heads = ("reports", "off by", "Bayes bound", *(f"≤ {self._length(one)}" for one in radii), "named")
        return heads, [self._row(one) for one in self.table]

    def _row(self, one: Learned) -> tuple[str, ...]:
        error = f" ± {self._length(one.standard_error, 2)}" if one.standard_error else ""
        bound = "–" if math.isnan(one.error_least) else self._length(one.error_least)
        chances = [f"{100 * chance:.1f} %" for _, chance in (*one.within, ("", one.named))]
        return (f"{one.reports}", self._length(one.error) + error, bound, *chances)

    def radius_words(self, radius: float) -> str:
        """Return a radius with its unit."""
        return self._length(radius)

    def _length(self, value: float, digits: int = 3) -> str:
        return length_text(value, self.distance_unit, ROUND_HALF_EVEN, digits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`; the keys are documented in docs/json.md."""
        plain = asdict(self)
        for row in plain["table"]:
            row["within"] = [{"radius": radius, "chance": chance} for radius, chance in row["within"]]
        return plain | {"table": list(plain["table"]), "words": self.words}

    def _repr_html_(self) -> str:
        card = Card(f"What {self.method} gives away", (("in words", self.words), ("places", f"{self.records:,}")))
        return card.html() + html_table("The adversary's guess", *self.shown)


def attack(
    mechanism: Mechanism | Sampler,
    problem: Problem,
    reports: int | Sequence[int] = 1,
    *,
    within: Sequence[float] | None = None,
    away: float = 0.0,
    draws: int = 1000,
    learn: int = 1_000_000,
    cell: float | None = None,
    seed: int = 0,
    progress: Tell | bool | None = None,
) -> Attack:
    """Return how well an adversary guesses a place from reports of it.

    The adversary knows the mechanism, the problem's records and their prior π, and sees n independent reports from one
    record. The posterior is π(x) Π_j Pr[y_j | x] over its sum, and the guess is the point of the map with the least
    expected distance to the truth, its geometric median. The mean of that distance,

        Σ_y min_x̂ Σ_x π(x) Pr[y | x] |x − x̂|,

    is the expected inference error by which Shokri et al. (Quantifying Location Privacy, IEEE S&P 2011) and Yu, Liu and
    Pu (PIVE, NDSS 2017) measure location privacy. Distances are straight ones: on the ground (WGS 84) where there is a
    projection, in the problem's coordinates otherwise.

    Parameters
    ----------
    mechanism : Mechanism or callable
        A mechanism, with outputs or `metricdp.noise`; or any sampler, a function from points (m, N) in the problem's
        coordinates to m whole numbers or (m, N) coordinates. The adversary learns what a sampler does by asking it, and
        is then judged by fresh reports; what a cleverer one would do is not known.
    problem : Problem
        Places and prior. Its outputs and loss do not matter.
    reports : int or sequence of int
        How many reports from the same place are seen; with several numbers the table has a row for each.
    within : sequence of float, optional
        Radii whose chances are given; 0.1 and 0.5 km by default on the Earth, none otherwise.
    away : float
        Chance that a report is not from the place in question but from another, drawn from the prior; as when a home is
        inferred from reports of nights, of which some are spent elsewhere.
    draws : int
        How many people are simulated where sequences of reports are too many to be summed up, and for noise.
    learn : int
        How many reports are asked of a sampler that is a function.
    cell : float, optional
        Side of the squares by which coordinates that a sampler reports are told apart. By default they are told apart
        as they are if few different ones come; otherwise about a thousand squares cover them.
    seed : int
        Of the simulation.
    progress : callable, bool or None
        Told the share done and what is going on, see `fit`.

    Guarantee
    ---------
    `error` is the cost of guesses that were made, `error_least` a bound on what any guess costs: the two enclose the
    Bayes error. Where all sequences of reports are summed up (`exact`), that holds up to the rounding of sums; where
    they are drawn, both are means over `draws` people, with the standard error. Factors for the shape of the Earth are
    a part of the enclosure.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="em")
    >>> found = mdp.attack(mechanism, problem, [1, 10])
    >>> found.exact, round(found.error_without_reports, 3), round(found.error, 3)
    (True, 0.667, 0.298)
    """
    started = time.perf_counter()
    _require_problem(problem)
    counts = _counts(reports)
    ground = Ground.over(problem.projection, problem.bounds)
    chance_away = _share("away", away)
    radii = _radii(within, ground)
    people, base = integer("draws", draws, 2), integer("seed", seed, 0)
    with told(progress, "attacking") as tell:
        tell(0.0, "what reports say of places")
        likelihood = _likelihood(mechanism, problem, chance_away, integer("learn", learn, 1), cell)
        scene = _Scene(ground.plane(problem.records), ground, radii)
        rows = [scene.enclosed(0, [problem.prior[None, :]])]
        weights = {n: likelihood.weights(n) for n in counts}
        for done, (n, summed) in enumerate(weights.items()):
            tell(0.1 + 0.9 * done / len(counts), f"{n} reports")
            if summed is not None:
                rows.append(scene.enclosed(n, summed))
        drawn = [n for n, summed in weights.items() if summed is None]
        if drawn:
            rows += _simulated(likelihood, scene, drawn, people, base, tell)
    return Attack(
        table=tuple(sorted(rows, key=lambda one: one.reports)),
        exact=not drawn,
        draws=people if drawn else 0,
        distance_unit=ground.unit,
        away=chance_away,
        method=mechanism.method if isinstance(mechanism, Mechanism) else _name(mechanism),
        records=problem.n_records,
        seconds=time.perf_counter() - started,
    )


def posterior(mechanism: Mechanism, problem: Problem, reports: ArrayLike, *, away: float = 0.0) -> FloatArray:
    """Return how likely each record is for somebody who has seen some reports from one of them.

    That is π(x) Π_j Pr[y_j | x], over its sum. Reports are numbers of outputs (m,), or for `metricdp.noise` points
    (m, N) in the mechanism's coordinates.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="em")
    >>> mdp.posterior(mechanism, problem, [0, 0]).round(2).tolist()
    [0.62, 0.29, 0.08]
    """
    _require_problem(problem)
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a metricdp.Mechanism", type(mechanism).__name__)
    likelihood = likelihood_of(mechanism, places_for(mechanism, problem), problem.prior, _share("away", away))
    with np.errstate(divide="ignore"):
        logs = np.log(problem.prior) + likelihood.log_of(reports)
    if not np.isfinite(logs.max()):
        raise InvalidInputError("No record can have given these reports.")
    return _posterior(logs[None, :])[0]


def everywhere(mechanism: Mechanism) -> Problem:
    """Return a problem of places spread evenly over the box of a mechanism, for an adversary who knows nothing more."""
    n_axes = mechanism.bounds.shape[1]
    each = max(2, round(_SPREAD ** (1 / n_axes)))
    low, high = mechanism.bounds
    axes = [a + (b - a) * (np.arange(each) + 0.5) / each for a, b in zip(low, high, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, n_axes)
    loss = np.zeros((len(places), 1))
    return Problem(places, places[:1], loss, p=mechanism.p, bounds=mechanism.bounds, projection=mechanism.projection)


def _require_problem(problem: object) -> None:
    if not isinstance(problem, Problem):
        raise reject("problem", "a metricdp.Problem", type(problem).__name__)


def _likelihood(
    mechanism: Mechanism | Sampler, problem: Problem, away: float, learn: int, cell: float | None
) -> Likelihood:
    if isinstance(mechanism, Mechanism):
        if cell is not None:
            raise InvalidInputError("`cell` is about samplers that are functions; leave it out.")
        return likelihood_of(mechanism, places_for(mechanism, problem), problem.prior, away)
    if not callable(mechanism):
        raise reject("mechanism", "a metricdp.Mechanism or a function", type(mechanism).__name__)
    side = None if cell is None else positive("cell", cell)
    return learnt(mechanism, problem.records, problem.prior, away, learn, side)


def places_for(mechanism: Mechanism, problem: Problem) -> FloatArray:
    """Return the problem's records in the mechanism's coordinates."""
    if (mechanism.projection is None) != (problem.projection is None):
        with_, without = ("mechanism", "problem") if problem.projection is None else ("problem", "mechanism")
        msg = f"The {with_} is in longitude and latitude and the {without} is not; give a problem of the same kind."
        raise InvalidInputError(msg)
    if problem.n_axes != mechanism.bounds.shape[1]:
        raise reject("problem", f"of {mechanism.bounds.shape[1]} axes", f"{problem.n_axes}")
    if problem.projection is None or problem.projection == mechanism.projection:
        return problem.records
    degrees = problem.projection.to_lonlat(problem.records)
    return mechanism.projection.to_xy_km(degrees[:, 0], degrees[:, 1])


@dataclass(frozen=True)
class _Scene:
    """Where guesses are made.

    places : (n, N) array, on the plane of the ground.
    """

    places: FloatArray
    ground: Ground
    radii: tuple[float, ...]

    def costs(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Return what the best guess costs for each row of weights, its bound, and chances."""
        guess = best_guesses(self.places, weights)
        # A radius on the ground is at least this long on the plane.
        near = {radius: radius / self.ground.longest for radius in self.radii}
        chances = {f"{one}": best_chances(self.places, weights, guess.points, near[one]) for one in self.radii}
        return {"cost": guess.cost, "least": guess.least, "named": weights.max(axis=1), **chances}

    def enclosed(self, reports: int, weights: Any) -> Learned:
        """Return the sums over all rows of weights."""
        sums: dict[str, float] = {}
        for some in weights:
            for name, values in self.costs(some).items():
                sums[name] = sums.get(name, 0.0) + float(values.sum())
        return self.learned(reports, sums, 0.0)

    def learned(self, reports: int, means: dict[str, float], standard_error: float) -> Learned:
        """Return means in words; distances become true ones, on the side that each of them stands for."""
        return Learned(
            reports=reports,
            error=means["cost"] * self.ground.longest,
            error_least=means["least"] * self.ground.shortest,
            standard_error=standard_error * self.ground.longest,
            within=tuple((radius, min(means[f"{radius}"], 1.0)) for radius in self.radii),
            named=min(means["named"], 1.0),
        )


def _simulated(
    likelihood: Likelihood, scene: _Scene, counts: list[int], people: int, seed: int, tell: Tell
) -> list[Learned]:
    """Return means over people who are drawn from the prior, each with all numbers of reports."""
    generator = np.random.default_rng(seed)
    truth = np.sort(generator.choice(len(scene.places), people, p=likelihood.prior))
    found: dict[int, list[dict[str, FloatArray]]] = {n: [] for n in counts}
    with np.errstate(divide="ignore"):
        log_prior = np.log(likelihood.prior)
    for part in chunks(people, len(scene.places)):
        logs, before = np.tile(log_prior, (len(truth[part]), 1)), 0
        for n in counts:
            tell(0.1 + 0.9 * part.start / people, f"{n} reports")
            logs += likelihood.drawn(truth[part], n - before, generator)
            before = n
            found[n].append(_judged(likelihood, scene, _posterior(logs), truth[part]))
    return [_mean(scene, n, parts) for n, parts in found.items()]


def _posterior(logs: FloatArray) -> FloatArray:
    chance = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(chance / chance.sum(axis=1, keepdims=True))


def _judged(
    likelihood: Likelihood, scene: _Scene, posterior: FloatArray, truth: NDArray[np.intp]
) -> dict[str, FloatArray]:
    """Return what each person's guess costs: on average over its posterior or, if that was learnt, in truth."""
    if not likelihood.learnt:
        return scene.costs(posterior)
    guess = best_guesses(scene.places, posterior).points
    distance = np.sqrt(np.square(guess - scene.places[truth]).sum(axis=1))
    # The adversary aims at the least distance here; for chances alone they might aim elsewhere and do better.
    near = {f"{radius}": (distance * scene.ground.longest <= radius).astype(float) for radius in scene.radii}
    named = (posterior.argmax(axis=1) == truth).astype(float)
    return {"cost": distance, "least": np.full(len(truth), math.nan), "named": named, **near}


def _mean(scene: _Scene, reports: int, parts: list[dict[str, FloatArray]]) -> Learned:
    whole = {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
    error = float(whole["cost"].std(ddof=1)) / math.sqrt(len(whole["cost"]))
    return scene.learned(reports, {name: float(values.mean()) for name, values in whole.items()}, error)


def _counts(reports: int | Sequence[int]) -> list[int]:
    given = list(reports) if isinstance(reports, Sequence | np.ndarray) else [reports]
    counts = sorted({integer("reports", one, 1) for one in given})
    if not counts:
        raise reject("reports", "a number of reports, or several", "none")
    return counts


def _radii(within: Sequence[float] | None, ground: Ground) -> tuple[float, ...]:
    given = (_RADII_KM if ground.unit else ()) if within is None else within
    return tuple(sorted({positive("within", one) for one in given}))


def _share(name: str, value: Any) -> float:
    number = finite_array(name, value)
    if number.ndim or not 0 <= number < 1:
        raise reject(name, "at least 0 and below 1", repr(value))
    return float(number)


def _count(reports: int) -> str:
    return "one report" if reports == 1 else f"{reports:,} reports"


def _name(sampler: Any) -> str:
    return str(getattr(sampler, "__name__", type(sampler).__name__))
