"""The largest ε that keeps an adversary at a distance, found by attacking mechanisms that are fitted for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_FLOOR

from metricdp._lengths import length_text, rounded
from metricdp._progress import Tell
from metricdp.attacking.adversary import Attack, attack
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.fitting import fit
from metricdp.problem import Problem

__all__ = ["Against", "epsilon_against"]

# The search ends when two neighbouring ε differ by less than this factor, one of which keeps the distance.
_FINE = 1.02

# Doublings or halvings of the first guess; errors that need more are out of reach.
_MOST_DOUBLINGS = 24

# People who are simulated where sums would take too long.
_DRAWS = 400


class Against:
    """Attacks on mechanisms of one method, one for each ε.

    error : how far off the adversary should still be, after `reports` from one place.
    """

    def __init__(self, problem: Problem, method: str, error: float, reports: int) -> None:
        self.problem, self.method, self.error, self.reports = problem, method, error, reports
        self._found: dict[float, tuple[Mechanism, Attack]] = {}

    def at(self, epsilon: float) -> tuple[Mechanism, Attack]:
        """Return the mechanism for an ε, and what is learned from it."""
        if epsilon not in self._found:
            mechanism = fit(self.problem, epsilon, self.method, progress=False)
            found = attack(mechanism, self.problem, self.reports, within=(), draws=_DRAWS, progress=False)
            self._found[epsilon] = mechanism, found
        return self._found[epsilon]

    def holds(self, epsilon: float) -> bool:
        """Whether no adversary comes nearer: the Bayes bound, less two standard errors where reports were drawn."""
        found = self.at(epsilon)[1]
        return found.error_least - 2 * found.standard_error >= self.error


def epsilon_against(against: Against, tell: Tell) -> float:
    """Return the largest ε of three digits that was found to keep the adversary far enough off.

    The error need not fall with ε everywhere, so this is an ε at which the promise was checked, not a proof that no
    larger one keeps it.
    """
    problem, error = against.problem, against.error
    # With noise on a plane and many reports from one place, an adversary is about √π / (ε √n) off.
    low = _three_digits(math.sqrt(math.pi) / (error * math.sqrt(against.reports)))
    _require_reachable(against, low)
    tell(0.0, f"ε = {low:g}")
    step: Callable[[float], float] = (lambda e: 2 * e) if against.holds(low) else (lambda e: e / 2)
    outside = low
    for count in range(_MOST_DOUBLINGS):
        outside = step(outside)
        tell(min(0.5, 0.1 * (count + 1)), f"ε = {outside:g}")
        if against.holds(outside) != against.holds(low):
            break
        low = outside
    else:
        words = "at least" if against.holds(low) else "less than"
        msg = (
            f"With every ε that was tried, to {outside:g}, an adversary is {words} {_length(error, problem)} off; "
            "take another `error_km`."
        )
        raise InvalidInputError(msg)
    low, high = sorted((low, outside))
    while high > _FINE * low and (middle := _three_digits(math.sqrt(low * high))) > low:
        tell(0.5 + 0.4 / (high / low), f"ε = {middle:g}")
        low, high = (middle, high) if against.holds(middle) else (low, middle)
    return low


def _require_reachable(against: Against, epsilon: float) -> None:
    """Refuse an error that somebody without any report does not have."""
    without = against.at(epsilon)[1].table[0].error_least
    if against.error >= without:
        unit = against.problem
        msg = (
            f"`error_km` of {_length(against.error, unit)} is out of reach: who has seen no report at all is "
            f"{_length(without, unit)} off on average."
        )
        raise InvalidInputError(msg)


def _length(value: float, problem: Problem) -> str:
    return length_text(value, "" if problem.projection is None else "km", ROUND_FLOOR)


def _three_digits(value: float) -> float:
    return float(rounded(value, ROUND_FLOOR))
