"""The public functions `fit`, from a problem and ε to a certified mechanism, and `noise`, which needs no problem."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._clock import Clock
from metricdp._log import LOG
from metricdp._progress import Tell, told
from metricdp._validation import FloatArray, checked_box, choice, norm_order, positive, reject, table
from metricdp._version import __version__
from metricdp.bounds.choosing import lower_bound
from metricdp.certificates.proving import certify as prove
from metricdp.certificates.proving import require_proof
from metricdp.errors import InvalidInputError
from metricdp.geometry.earth import Projection, distortion
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.costs import costs, noise_distance
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.losses import Loss, loss_within
from metricdp.mechanisms.noise.mechanism import Noise
from metricdp.problem import Problem

__all__ = ["fit", "noise"]

# Moving a box to a lattice of a millimetre changes κ by much less than this.
_MOVED_BOX = 2.0**-26

# Seconds that the loss of a closed form, which is designed without it, may take; beyond that it is estimated.
_LOSS_SECONDS = 0.5

# Share of a time limit that is kept for the lower bound, where one is asked for.
_BOUND_SHARE = 1 / 3

# By whether a proof was asked for: there is one then, or an error.
_PROVED = {True: "proved private", False: "without a proof"}


def fit(
    problem: Problem,
    epsilon: float | EpsilonMap,
    method: str = "auto",
    *,
    certify: bool = True,
    bound_clusters: int | None = None,
    progress: Tell | bool | None = None,
    **options: Any,
) -> Mechanism:
    """Design a mechanism for `problem` that is (ε, d_p)-mDP on the whole box.

    Parameters
    ----------
    problem : Problem
        Records, outputs, loss, prior, norm and box.
    epsilon : float or EpsilonMap
        Privacy budget per unit of distance: no report is more than e^{ε d(x, x')} times likelier from x than from x'.
        Smaller is more private. For problems with a projection (cities) the unit is the true kilometre on the Earth:
        the mechanism is designed with ε/κ on the map, κ being how much longer distances are there at most.
        With an `EpsilonMap`, which must cover the box, ε varies from place to place: "auto", "spline" and "em" make
        use of every cell's own ε. Methods that know one ε only take the least, which keeps the map's promise; their
        report says so in `epsilon_map`.
    method : str
        One of `metricdp.METHODS`.
    certify : bool
        Prove the guarantee before returning. Turn it off only to study methods that are not private.
    bound_clusters : int, optional
        Also compute `metricdp.lower_bound` with this many clusters and put it into the report: how far from the best
        that any private mechanism with these outputs can do.
    progress : callable, bool or None
        Called with the fraction done and a few words. By default a terminal or a notebook shows a bar after two
        seconds; True shows it at once, False never.
    **options
        See the options of the method. With a `time_limit` of T seconds, proof and lower bound included, the answer
        comes by 1.2 T + 2 seconds, and it is certified whatever T is. The lower bound has a third of T and is looser if
        that is too little.

    Notes
    -----
    The report of every method has `loss`, `loss_error` and `loss_exact`. A loss is exact, but for rounding, if it is
    the sum over all records; the error is 0 then. Where that sum would take noticeable time (Laplace noise at many
    records), the loss is estimated from a sample of the records, and the error is the estimate's standard error.
    `mechanism.expected_loss(problem)` is always exact.

    Raises
    ------
    NotCertified
        If the guarantee could not be proved.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="aipo", cells=4)
    >>> bool(problem.floor <= mechanism.expected_loss(problem) <= problem.uniform_loss)
    True
    """
    if not isinstance(problem, Problem):
        msg = f"`problem` must be a metricdp.Problem, got {type(problem).__name__}."
        raise InvalidInputError(msg)
    chosen = METHODS[choice("method", method, tuple(METHODS))]
    budget = _checked_budget(problem, epsilon)
    if isinstance(budget, EpsilonMap) and not chosen.takes_maps:
        budget = budget.min
    clock = Clock(options.get("time_limit"))
    plane_budget = budget
    if problem.projection is not None:
        scale = _on_the_map(problem.projection, problem.bounds)
        plane_budget = budget.times(scale) if isinstance(budget, EpsilonMap) else budget * scale
    LOG.info("fitting %s at ε = %s: %r", method, budget, problem)
    with told(progress, f"fitting {method}") as tell:
        settings = _options(method, chosen.options, options | _if_taken(chosen.options, progress=tell))
        if bound_clusters is not None and clock.limit is not None:
            settings = replace(settings, time_limit=(1 - _BOUND_SHARE) * clock.limit)
        designed = chosen.design(problem, plane_budget, options=settings)
    candidates = designed if isinstance(designed, tuple) else (designed,)
    candidates = tuple(_restated(one, problem, epsilon, budget) for one in candidates)
    mechanism = _first_proved(candidates) if certify else candidates[0]
    mechanism = mechanism.with_report(
        library=__version__, **_loss_facts(mechanism, problem), **costs(mechanism, problem)
    )
    LOG.info("fitted %s in %.2f s, %s", mechanism.method, clock.spent, _PROVED[certify])
    return mechanism if bound_clusters is None else _with_bound(mechanism, problem, epsilon, bound_clusters, clock)


def _checked_budget(problem: Problem, epsilon: float | EpsilonMap) -> float | EpsilonMap:
    if not isinstance(epsilon, EpsilonMap):
        return positive("epsilon", epsilon)
    if not epsilon.covers(problem.bounds):
        rule = f"a map that covers the box of the problem, {problem.bounds.tolist()}"
        raise reject("epsilon", rule, f"one of {epsilon.bounds.tolist()}")
    return epsilon


def _restated(
    mechanism: Mechanism, problem: Problem, given: float | EpsilonMap, budget: float | EpsilonMap
) -> Mechanism:
    """Return a designed mechanism with ε as it was asked for, per true km on the ground, and the problem's names."""
    facts: dict[str, Any] = {"output_ids": problem.output_ids, "output_names": problem.output_names}
    if problem.projection is not None:
        facts["distance"] = "ground"
    if isinstance(budget, EpsilonMap) and mechanism.epsilon_map is not None:
        local = mechanism.own_map(budget)
        facts |= {"epsilon": local.max, "epsilon_map": local}
    else:
        facts["epsilon"] = budget.min if isinstance(budget, EpsilonMap) else budget
    restated = replace(mechanism, **facts)
    if isinstance(given, EpsilonMap) and restated.epsilon_map is None:
        words = f"{mechanism.method} has one epsilon for the whole box: the map's least, {restated.epsilon:g}"
        return restated.with_report(epsilon_map=words)
    return restated


def _loss_facts(mechanism: Mechanism, problem: Problem) -> dict[str, Any]:
    """Return loss, its error and whether it is exact: what the design found out, or what little time allows."""
    if "loss_exact" in mechanism.report:
        return {}
    if "loss" in mechanism.report:
        return Loss.exactly(mechanism.report["loss"]).facts()
    return loss_within(mechanism, problem, _LOSS_SECONDS).facts()


def _first_proved(candidates: tuple[Mechanism, ...]) -> Mechanism:
    """Return the first mechanism that is proved private, with its certificate; raise if none is."""
    for one in candidates[:-1]:
        certificate = prove(one)
        if certificate.holds:
            return one.with_report(certificate=certificate.to_dict())
    return _with_certificate(candidates[-1])


def noise(
    epsilon: float,
    p: float = 2,
    *,
    bounds: ArrayLike | None = None,
    projection: Projection | None = None,
    lonlat_bounds: ArrayLike | None = None,
) -> Noise:
    """Return exact lattice noise without outputs: coordinates in, coordinates out.

    Parameters
    ----------
    epsilon : float
        Privacy budget per unit of distance; per true km with a projection.
    p : float
        Order of the norm that measures distance, in [1, inf].
    bounds : (2, N) array
        The box that points are taken to if they lie outside, lower corner first. With a projection in its kilometres.
    projection : Projection, optional
        How kilometres map to longitude and latitude; `city.projection`, for instance.
    lonlat_bounds : (2, 2) array
        The box in degrees, west and south first, instead of `bounds` and `projection`.

    Examples
    --------
    >>> import metricdp as mdp
    >>> rome = mdp.noise(epsilon=2, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]])
    >>> rome.sample_lonlat([[12.4924, 41.8902]]).shape
    (1, 2)
    """
    budget, order = positive("epsilon", epsilon), norm_order(p)
    if (bounds is None) == (lonlat_bounds is None):
        msg = "Give the box either as `bounds` or, in degrees, as `lonlat_bounds`."
        raise InvalidInputError(msg)
    if lonlat_bounds is not None:
        if projection is not None:
            msg = "`lonlat_bounds` brings its own projection; give `projection` with `bounds` only."
            raise InvalidInputError(msg)
        degrees = table("lonlat_bounds", lonlat_bounds, columns=2)
        plane = Equirectangular.for_box(degrees[:, 0], degrees[:, 1])
        projection, bounds = plane, plane.to_xy_km(degrees[:, 0], degrees[:, 1])
    box = checked_box(bounds)
    rate = budget if projection is None else budget * _on_the_map(projection, box)
    mechanism = Noise(
        outputs=np.empty((0, box.shape[1])),
        bounds=box,
        epsilon=budget,
        p=order,
        method="noise",
        projection=projection,
        distance="plane" if projection is None else "ground",
        rate=rate,
        report={"library": __version__, "rate": rate, "mean_distance": box.shape[1] / rate},
    )
    proved: Noise = _with_certificate(mechanism)
    return proved.with_report(**noise_distance(proved))


def _with_certificate(mechanism: Any) -> Any:
    certificate = require_proof(mechanism, f"method {mechanism.method!r}")
    return mechanism.with_report(certificate=certificate.to_dict())


def _on_the_map(projection: Projection, bounds: FloatArray) -> float:
    """Return 1/κ, what turns ε into a budget per kilometre of the map; slightly less, for the box may yet move."""
    kappa = distortion(projection, bounds).kappa
    if not math.isfinite(kappa):
        msg = "The box reaches a pole or half around the Earth, where no map keeps distances; take a smaller one."
        raise InvalidInputError(msg)
    return 1 / kappa * (1 - _MOVED_BOX)


def _with_bound(
    mechanism: Mechanism, problem: Problem, epsilon: float | EpsilonMap, clusters: int, clock: Clock
) -> Mechanism:
    """Add to the report how far the mechanism is from the best possible."""
    bound = lower_bound(problem, epsilon, clusters=clusters, time_limit=clock.left, progress=False)
    loss = mechanism.report["loss"]
    excess = loss / bound - 1 if bound > 0 else float("inf")
    private = f"({mechanism.epsilon:g}, d_{mechanism.p:g})-private mechanism"
    if isinstance(epsilon, EpsilonMap) and not epsilon.is_constant:
        private = "mechanism that keeps this map's promise"
    words = f"within {100 * excess:.2g} % of the best any {private} with these outputs can do"
    return mechanism.with_report(lower_bound=bound, optimality=words)


def _if_taken(kind: type, **option: Any) -> dict[str, Any]:
    """Return an option if the method has it."""
    known = {one.name for one in fields(kind)}
    return {name: value for name, value in option.items() if name in known}


def _options(method: str, kind: type, given: dict[str, Any]) -> Any:
    """Return the options of a method from keywords, old names of options included."""
    known = tuple(option.name for option in fields(kind))
    renamed: Mapping[str, str] = getattr(kind, "renamed", {})
    settings: dict[str, Any] = {}
    for word, value in given.items():
        name = renamed.get(word, word)
        if name != word:
            warnings.warn(f"The option `{word}` is now called `{name}`.", DeprecationWarning, stacklevel=3)
        if name not in known:
            raise InvalidInputError(f"Method {method!r} has no option {word!r}; its options are {', '.join(known)}.")
        if name in settings:
            raise InvalidInputError(f"`{name}` was given twice, once by its old name; leave out the old one.")
        settings[name] = value
    return kind(**settings)
