"""Proof of a mechanism's claim, from its numbers alone: in its own coordinates, and in metres on the Earth."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._cards import Card
from metricdp._log import LOG
from metricdp._validation import FloatArray, norm_order, positive, reject
from metricdp.certificates.claims import Finding, at_least, is_uniform, path_claim, refused
from metricdp.errors import ADVICE, InvalidInputError, NotCertified
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.families import families
from metricdp.mechanisms.promise import Promise

__all__ = ["Certificate", "Metres", "PathClaim", "certify", "comparisons", "require_proof"]

# A claim per kilometre of the map passes for one on the ground only if distances differ by less than this factor.
_LARGEST_UNCOUNTED = 1.01


@dataclass(frozen=True)
class Metres:
    """The claim on the ground: at most e^{E (d + r)} between two points as given, d in true km.

    epsilon_per_km : E. For p other than 2 it includes the factor from ℓ_p to straight distances.
    rounding_mm : r, what rounding and floating point add to a distance.
    kappa : distances on the map are at most this times true ones; recomputed from the box, and counted in E.
    margin_km : how far outside the box the claim reaches.
    statement : all of it in words.
    """

    epsilon_per_km: float
    rounding_mm: float
    kappa: float
    margin_km: float
    statement: str


@dataclass(frozen=True)
class PathClaim:
    """The claim of a mechanism whose ε varies over the box: at most e^{∫ε ds} along every path inside it.

    least, most : the range of ε, per true km where the claim is on the ground.
    radius_least, radius_most : how far apart two places are at most that are told apart by a factor of at most e,
        rounding apart: 1/`most` anywhere, 1/`least` where the straight line between them stays where ε is least.
    cells : cells of the map along each axis.
    statement : all of it in words.
    """

    least: float
    most: float
    radius_least: float
    radius_most: float
    cells: list[int]
    statement: str


@dataclass(frozen=True)
class Certificate:
    """What was proved, or the worst counterexample found.

    holds : whether the claim was proved.
    claim : the statement, with its domain and its assumptions, in words.
    worst_ratio : for a proof, a bound on |ln z_k(x) − ln z_k(x')| / (ε (d_p(x, x') + r)) over the whole domain;
        otherwise the worst value found.
    worst_where : where that is: `points`, and the `output` or, where noise decays too fast, the `noisy_point` that is
        likelier from one of them. Empty where the bound is the same everywhere, and where a mechanism was refused for
        its form, so that no pair shows it.
    checked : how many comparisons the proof or the search made.
    metres : the claim in metres on the Earth, for mechanisms with a projection whose claim was proved.
    paths : the claim along paths, for mechanisms whose ε varies over the box and whose claim was proved. `epsilon` is
        the largest ε then, `worst_ratio` the largest share of each place's own.
    """

    holds: bool
    epsilon: float
    p: float
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int
    seconds: float
    metres: Metres | None = None
    paths: PathClaim | None = None
    promise: Promise | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(replace(self, promise=None), dict_factory=_without_promise)

    def between(self, a: ArrayLike, b: ArrayLike) -> Any:
        """Return L such that no report is more than e^L times likelier from `a` than from `b`, or the other way round.

        Parameters
        ----------
        a, b : (N,) or (n, N) arrays
            Two points, or as many pairs of them, in the coordinates of the mechanism. Points outside the box count as
            its nearest point, which is how they are treated.

        Returns
        -------
        float or (n,) array
            ε (d_p + r); where ε varies, an upper bound of the integral of ε along the best path inside the box, and
            what rounding adds with the ε around the two points. Rounded up.

        Raises
        ------
        InvalidInputError
            If nothing was proved.
        """
        return _as_given(a, self._proved_promise().between(a, b))

    def between_lonlat(self, a: ArrayLike, b: ArrayLike) -> Any:
        """Return the same for points in degrees, longitude first."""
        return _as_given(a, self._proved_promise().between_lonlat(a, b))

    def radius(self, x: ArrayLike, ratio: float = math.e) -> Any:
        """Return how far around a place, or each of several, no report is more than `ratio` times likelier.

        In true km where the mechanism has a projection, otherwise in d_p of its coordinates. Where ε varies the radius
        does, and is a lower bound: 1/ε deep inside a region of one ε. Rounded down; 0 if rounding alone may cost that
        much.
        """
        return _as_given(x, self._proved_promise().radii(x, _exponent(ratio)))

    def radius_lonlat(self, x: ArrayLike, ratio: float = math.e) -> Any:
        """Return the same for places in degrees, longitude first."""
        promise = self._proved_promise()
        return _as_given(x, promise.radii(promise.from_lonlat(x), _exponent(ratio)))

    def _proved_promise(self) -> Promise:
        if not self.holds or self.promise is None:
            msg = "Nothing was proved, so no pair of places has a bound."
            raise InvalidInputError(msg)
        return self.promise

    def _repr_html_(self) -> str:
        """Return the card that notebooks show."""
        rows = [
            ("claim", self.claim),
            ("worst ratio", f"{self.worst_ratio:.6g} of ε"),
            *((name.replace("_", " "), str(value)) for name, value in self.worst_where.items()),
            ("checked", comparisons(self)),
        ]
        if self.metres is not None:
            rows.insert(1, ("in metres", self.metres.statement))
        if self.paths is not None:
            rows.insert(1, ("along paths", self.paths.statement))
        return Card(f"Certificate: {'proved' if self.holds else 'not proved'}", tuple(rows)).html()


def comparisons(certificate: Certificate) -> str:
    """Return how many comparisons were made, and how long they took, in words."""
    checked = certificate.checked
    return f"{checked:,} comparison{'' if checked == 1 else 's'} in {certificate.seconds:.2f} s"


def certify(mechanism: Mechanism) -> Certificate:
    """Prove the mechanism's privacy, or say that it could not be proved and show the worst pair found."""
    started = time.perf_counter()
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a metricdp.Mechanism", type(mechanism).__name__)
    found = _finding(mechanism)
    certificate = Certificate(
        holds=found.holds,
        epsilon=mechanism.epsilon,
        p=mechanism.p,
        claim=found.claim,
        worst_ratio=found.worst_ratio,
        worst_where=found.worst_where,
        checked=found.checked,
        seconds=time.perf_counter() - started,
    )
    verdict = "proved" if found.holds else "not proved"
    LOG.info("%s %r: %d comparisons in %.2f s", verdict, mechanism, certificate.checked, certificate.seconds)
    if not found.holds:
        return certificate
    return replace(certificate, metres=_metres(mechanism), paths=_paths(mechanism), promise=mechanism.promise)


def _without_promise(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out what serves `Certificate.between`: it follows from the mechanism."""
    return {name: value for name, value in items if name != "promise"}


def _as_given(points: ArrayLike, answers: FloatArray) -> Any:
    """Return a number for one point and an array for several."""
    return float(answers[0]) if np.ndim(points) <= 1 else answers


def _exponent(ratio: float) -> float:
    """Return ln ratio, rounded down."""
    if not positive("ratio", ratio) > 1:
        raise reject("ratio", "above 1", repr(ratio))
    return math.log(ratio) * (1 - 1e-15)


def _finding(mechanism: Mechanism) -> Finding:
    prove, fault = _proof_of(mechanism), _form_fault(mechanism) or _ground_fault(mechanism)
    if prove is None:
        reason = f"no proof is known for the class {type(mechanism).__name__}, since no family of mechanisms has it."
        fault = refused(mechanism, reason)
    if prove is None or fault is not None:
        return Finding(holds=False, claim=str(fault), worst_ratio=math.inf, worst_where={}, checked=0)
    found = prove(mechanism)
    if found.holds and not 0 <= found.worst_ratio <= 1:
        claim = refused(mechanism, f"its numbers are {found.worst_ratio:g} of epsilon, which is no proof.")
        return replace(found, holds=False, claim=claim)
    return found


def _form_fault(mechanism: Mechanism) -> str | None:
    """Say what of the claim makes no sense: what is compared with such numbers may pass for smaller."""
    box = mechanism.bounds
    try:
        positive("epsilon", mechanism.epsilon)
        norm_order(mechanism.p)
    except InvalidInputError as error:
        return f"Not proved: {error}"
    if not (_is_number(mechanism.epsilon) and _is_number(mechanism.p)):
        return "Not proved: `epsilon` and `p` must be numbers."
    if mechanism.epsilon_map is not None:
        local = mechanism.epsilon_map
        if not mechanism.takes_maps:
            return refused(mechanism, "no proof of its class is for a map of epsilon.")
        if local.max != mechanism.epsilon or not np.array_equal(local.bounds, box):
            return refused(mechanism, "its map of epsilon is not one of its box with its epsilon as the largest value.")
    if not (np.isfinite(box).all() and (box[0] < box[1]).all() and np.isfinite(mechanism.outputs).all()):
        return refused(mechanism, "its box is none, or its outputs are no points.")
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _proof_of(mechanism: Mechanism) -> Callable[[Mechanism], Finding] | None:
    """Return the proof for mechanisms of exactly this class: what a subclass draws may be something else."""
    for family in families():
        if family.kind == mechanism.kind and family.mechanism is type(mechanism):
            return family.prove
    return None


def require_proof(mechanism: Mechanism, subject: str, advice: str = ADVICE) -> Certificate:
    """Return the certificate of a mechanism, or raise `NotCertified`; every demand for a proof comes here.

    subject : what the error is about, a method or a file.
    advice : what to do about it.
    """
    certificate = certify(mechanism)
    if not certificate.holds:
        raise NotCertified(f"{subject}: {certificate.claim} {advice}".rstrip(), certificate)
    return certificate


def _ground_fault(mechanism: Mechanism) -> str | None:
    """Say why "per km" does not hold on the ground, if it does not."""
    if mechanism.distortion is None:
        return None
    kappa = mechanism.distortion.kappa
    if not math.isfinite(kappa):
        return refused(mechanism, "its box reaches a pole or half around the Earth, where no map keeps distances.")
    if mechanism.distance == "plane" and kappa > _LARGEST_UNCOUNTED:
        reason = (
            f"distances on its map are up to {kappa:.6g} times those on the ground, which its epsilon does not count. "
            "Fit it again, or take a box of fewer degrees."
        )
        return refused(mechanism, reason)
    return None


def _paths(mechanism: Mechanism) -> PathClaim | None:
    """State a proved claim along paths, where ε varies."""
    local = mechanism.epsilon_map
    if local is None or is_uniform(mechanism):
        return None
    straight = mechanism.straight_epsilon / mechanism.epsilon
    near, far = (1 / (value * straight) for value in (local.max, local.min))
    return PathClaim(local.min, local.max, near, far, list(local.shape), path_claim(mechanism))


def _metres(mechanism: Mechanism) -> Metres | None:
    """Restate a proved claim on the ground: d_plane,p ≤ c κ d_true, c the largest ratio of d_p to straight distance."""
    if mechanism.distortion is None:
        return None
    kappa, margin = mechanism.distortion.kappa, mechanism.distortion.margin_km
    epsilon = mechanism.straight_epsilon
    rounding_mm = mechanism.straight_rounding * 1e6 * (1 + 1e-12)
    statement = (
        f"On the ground (WGS 84): between any two points of the box or within {margin:g} km of it, as given in "
        f"longitude and latitude, no report is more than exp({at_least(epsilon, 10)} (d + r)) times likelier from one "
        f"than from the other, d their distance in km and r = {at_least(rounding_mm)} mm. Distances on the map are at "
        f"most {at_least(kappa, 7)} times true ones, which is counted. Farther outside, d is the distance on the map."
    )
    return Metres(epsilon, rounding_mm, kappa, margin, statement)
