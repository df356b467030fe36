"""Methods that are not the library's: fitted mechanisms and functions of a user, judged beside its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError
from metricdp.files.writing import mechanism_hash
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.families import METHODS, families
from metricdp.mechanisms.options import common_fields
from metricdp.problem import Problem

__all__ = ["Compared", "Design", "OwnMethod", "listed"]

# From points (m, N) of the box to their probabilities (m, K).
Rows = Callable[[FloatArray], ArrayLike]
# From a problem and ε to a mechanism, or to its probabilities alone.
Design = Callable[[Problem, float], Mechanism | Rows]
# What `compare` takes as a method.
Compared = str | Mechanism | Design | tuple[str, Mechanism | Design]

# By how much the probabilities of an own function may miss the sum 1.
_SUM_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class OwnMethod:
    """A mechanism, or a function that designs one, with the name of its rows.

    method : a `Mechanism`, or a function of (problem, epsilon) that returns one, or a function from points to
        probabilities.
    """

    label: str
    method: Mechanism | Design

    def judged(self, problem: Problem, epsilon: float) -> Mechanism:
        """Return the mechanism, with the claim that it is private at `epsilon`, whatever it claims itself."""
        found = self.method if isinstance(self.method, Mechanism) else self.method(problem, epsilon)
        distance = "plane" if problem.projection is None else "ground"
        if not isinstance(found, Mechanism):
            if not callable(found):
                rule = "a Mechanism or a function from points to probabilities"
                raise InvalidInputError(f"{self.label!r} must return {rule}, got {type(found).__name__}.")
            return OwnRows(**common_fields(problem, epsilon, self.label), distance=distance, rows=found)
        _require_same_space(found, problem)
        if (found.epsilon, found.distance) == (epsilon, distance):
            return found
        return replace(found, epsilon=epsilon, distance=distance)

    @property
    def content_hash(self) -> str | None:
        """The hash of a mechanism of a registered class; None for what has no name that lasts, such as a function."""
        if isinstance(self.method, Mechanism) and type(self.method) in {family.mechanism for family in families()}:
            return mechanism_hash(self.method)
        return None

    @property
    def sendable(self) -> bool:
        """Whether another process can be given the method: a notebook's functions exist in the notebook only."""
        try:
            return b"__main__" not in pickle.dumps(self.method)
        except (pickle.PicklingError, AttributeError, TypeError):
            return False


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OwnRows(Mechanism):
    """A user's function from points to probabilities. Nothing is known that could prove it private."""

    rows: Rows

    kind: ClassVar[str] = "own function"

    def _rows(self, points: FloatArray) -> FloatArray:
        rows = np.asarray(self.rows(points.copy()), dtype=np.float64)
        shape = (len(points), self.n_outputs)
        if rows.shape != shape:
            raise _faulty(self.method, f"of shape (points, outputs) = {shape}", f"shape {rows.shape}")
        if not (rows >= 0).all():  # NaN too
            raise _faulty(self.method, "numbers of at least 0", "others")
        worst = float(np.abs(rows.sum(axis=1) - 1).max(initial=0.0))
        if not worst <= _SUM_ERROR:
            raise _faulty(self.method, f"rows that sum to 1 within {_SUM_ERROR:g}", f"a row that is off by {worst:.3g}")
        return rows

    def settings(self) -> dict[str, Any]:
        """Refuse: a function cannot be written to a file."""
        _no_file(self.method)

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Mechanism:
        """Refuse: no file holds one."""
        del settings
        _no_file(common["method"])


def listed(methods: Sequence[Compared] | None) -> dict[str, OwnMethod | None]:
    """Return all methods by the name of their rows: the library's as None, and own ones."""
    found: dict[str, OwnMethod | None] = {}
    for one in tuple(METHODS) if methods is None else methods:
        own = _own(one)
        label = str(one) if own is None else own.label
        if label in found or (own is not None and label in METHODS):
            taken = "is a method of the library" if label in METHODS else "is in `methods` twice"
            msg = f"{label!r} {taken}; give yours another name: ('another name', method)."
            raise InvalidInputError(msg)
        found[label] = own
    return found


def _own(one: Compared) -> OwnMethod | None:
    """Return an own method with its name, None for a method of the library."""
    match one:
        case str():
            if one not in METHODS:
                raise reject("methods", "one of " + ", ".join(map(repr, METHODS)) + ", or a method of yours", repr(one))
            return None
        case (str() as label, method) if label and (isinstance(method, Mechanism) or callable(method)):
            return OwnMethod(label, method)
        case Mechanism():
            return OwnMethod(f"{one.method} fitted at {one.epsilon:g}", one)
        case _ if callable(one):
            return OwnMethod(str(getattr(one, "__name__", type(one).__name__)), one)
    rule = "names, mechanisms, functions of (problem, epsilon), or pairs of a name and one of the latter two"
    raise reject("methods", rule, type(one).__name__)


def _require_same_space(mechanism: Mechanism, problem: Problem) -> None:
    """Refuse a mechanism with other outputs than the problem's, or whose ε is per another distance."""
    if mechanism.p != problem.p:
        msg = f"The mechanism is for p = {mechanism.p:g} and the problem for p = {problem.p:g}."
        raise InvalidInputError(msg)
    maps = [None if one is None else one.to_dict() for one in (mechanism.projection, problem.projection)]
    if maps[0] != maps[1]:
        raise InvalidInputError("The mechanism and the problem have different projections.")
    same = mechanism.outputs.shape == problem.outputs.shape and np.allclose(mechanism.outputs, problem.outputs)
    if not same:
        # Loss is by the number of an output, and would be that of another place.
        raise InvalidInputError("The mechanism has other outputs than the problem, whose losses do not apply to it.")


def _faulty(label: str, rule: str, got: str) -> InvalidInputError:
    return InvalidInputError(f"The probabilities of {label!r} must be {rule}, got {got}.")


def _no_file(label: str) -> NoReturn:
    raise InvalidInputError(f"{label!r} is a function, which no file can hold.")
