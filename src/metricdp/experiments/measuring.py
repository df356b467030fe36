"""What a comparison computes: one method at one ε, or the lower bound at one ε."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from metricdp.attacking.adversary import attack
from metricdp.auditing.pairs import audit
from metricdp.bounds.choosing import lower_bound
from metricdp.certificates.proving import certify
from metricdp.errors import InvalidInputError, ProblemTooLargeError, SolverError
from metricdp.experiments.engine.job import Job, Result
from metricdp.experiments.own_methods import OwnMethod
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.fitting import fit
from metricdp.problem import Problem

__all__ = ["ComparisonJob", "identity", "measure"]


def identity(problem: Problem) -> dict[str, Any]:
    """Return what tells problems apart; with a projection ε is per true kilometre, which changes the design."""
    return {
        "fingerprint": problem.fingerprint,
        "projection": None if problem.projection is None else problem.projection.to_dict(),
    }


@dataclass(frozen=True, kw_only=True, eq=False)  # options may be arrays, which have no single truth when compared
class ComparisonJob(Job):
    """One cell of a comparison.

    problem : the `identity` of the problem; the problem itself is sent to each worker once.
    kind : "fit" or "bound".
    method : of the fit, or the kind of the bound; the name of an own method.
    own : an own method, None for those of the library.
    p : of the problem's norm, for guesses of seconds.
    options : of the method or the bound.
    pairs : pairs that the audit of a fit compares.
    """

    problem: Mapping[str, Any]
    kind: str
    method: str
    epsilon: float
    p: float
    options: Mapping[str, Any] = field(default_factory=dict)
    pairs: int = 0
    own: OwnMethod | None = None

    def content(self) -> dict[str, Any]:
        """Return everything that the result depends on besides the code."""
        return {
            "problem": dict(self.problem),
            "kind": self.kind,
            "method": self.method,
            "epsilon": self.epsilon,
            "options": _as_json(self.options),
            "pairs": self.pairs,
            "own": None if self.own is None else self.own.content_hash,
        }

    @property
    def lasting(self) -> bool:
        """Whether the result may be kept: what a function of a user does may change without its name."""
        return self.own is None or self.own.content_hash is not None

    def option(self, name: str, default: Any = None) -> Any:
        """Return one option of the method."""
        return self.options.get(name, default)

    @property
    def words(self) -> str:
        """A few words for progress."""
        return f"{'lower bound' if self.kind == 'bound' else self.method} at ε = {self.epsilon:g}"


def _as_json(value: Any) -> Any:
    """Return an option as JSON has it; arrays become lists, since their `repr` leaves out the middle of long ones."""
    if isinstance(value, Mapping):
        return {str(name): _as_json(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(inner) for inner in value]
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def measure(problem: Problem, job: ComparisonJob) -> Result:
    """Compute one cell; the reason under "error" where its method does not apply, or an own method fails."""
    if job.kind == "bound":
        return {"lower_bound": lower_bound(problem, job.epsilon, kind=job.method, progress=False, **job.options)}
    if job.own is not None:
        return _own_row(problem, job, job.own)
    started = time.perf_counter()
    try:
        mechanism = fit(problem, job.epsilon, job.method, certify=False, progress=False, **job.options)
    except (InvalidInputError, SolverError) as error:
        return {"error": str(error)}
    seconds = time.perf_counter() - started
    return _judgement(problem, mechanism, job.pairs) | {"seconds": seconds}


def _own_row(problem: Problem, job: ComparisonJob, own: OwnMethod) -> Result:
    started = time.perf_counter()
    try:
        mechanism = own.judged(problem, job.epsilon)
        # A mechanism that came fitted took its seconds elsewhere.
        seconds = {} if isinstance(own.method, Mechanism) else {"seconds": time.perf_counter() - started}
        return _judgement(problem, mechanism, job.pairs) | seconds
    except InvalidInputError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything, which costs its row and no other
        return {"error": f"{type(error).__name__}: {error}"}


def _inference_error(problem: Problem, mechanism: Mechanism) -> float:
    """Return how far off an adversary is after one report; NaN for a problem that is too large for it."""
    try:
        return attack(mechanism, problem, within=(), progress=False).error
    except ProblemTooLargeError:
        return math.nan


def _judgement(problem: Problem, mechanism: Mechanism, pairs: int) -> Result:
    """Return what is said of any mechanism, whoever made it."""
    audited = audit(mechanism, pairs=pairs)
    certificate = certify(mechanism)
    return {
        "loss": mechanism.expected_loss(problem),
        "inference_error": _inference_error(problem, mechanism),
        "certified": certificate.holds,
        "violation_ratio": audited.violation_ratio,
        "max_ratio": audited.max_ratio,
        "ppr": asdict(audited.ppr),
        "certificate": certificate.to_dict(),
    }
