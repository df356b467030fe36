"""ε in whole units, so that sums are exact; what a report costs, and where a person stands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from metricdp._validation import reject
from metricdp.ledger.times import seconds
from metricdp.mechanisms.base import Mechanism

__all__ = ["Budget", "Scale", "claimed"]

# ε is counted in units of the 18th digit of the limit: a float has at most 17, and sums fit in 64 bits.
_DIGITS = 18


@dataclass(frozen=True)
class Budget:
    """Where a person stands.

    spent, remaining : ε that was charged, and what is left of the limit, as the nearest floats.
    reports : how many reports were charged.
    affordable : how many more reports of a mechanism the rest pays for; None if no mechanism was named.
    frees_at : when the first of these charges stops counting, in unix seconds; None without a window or charges.

    In a ledger with a window all of them are about the window that ends now.
    """

    spent: float
    remaining: float
    reports: int
    affordable: int | None = None
    frees_at: float | None = None


@dataclass(frozen=True)
class Scale:
    """ε in whole units of 10^exponent; the limit is a whole number of them."""

    exponent: int
    limit: int

    @classmethod
    def of(cls, max_epsilon: float) -> Scale:
        """Return the scale of a ledger with this limit."""
        exponent = Decimal(repr(max_epsilon)).adjusted() + 1 - _DIGITS
        return cls(exponent, math.floor(Fraction(repr(max_epsilon)) / Fraction(10) ** exponent))

    def cost(self, epsilon: float) -> int:
        """Return ε in units, rounded up; at most one more than the limit, so that it fits in 64 bits."""
        return min(math.ceil(Fraction(repr(float(epsilon))) / Fraction(10) ** self.exponent), self.limit + 1)

    def epsilon(self, units: int) -> float:
        """Return units as ε, the nearest float."""
        return float(units * Fraction(10) ** self.exponent)

    def remaining(self, units: int) -> float:
        """Return what is left of the limit for somebody who has spent so many units."""
        return self.epsilon(max(self.limit - units, 0))

    def budget(
        self, units: int, reports: int, frees_at: int | None = None, mechanism: Mechanism | None = None
    ) -> Budget:
        """Return where somebody stands who has spent so many units on so many reports."""
        affordable = None if mechanism is None else max(self.limit - units, 0) // self.cost(claimed(mechanism))
        return Budget(self.epsilon(units), self.remaining(units), reports, affordable, seconds(frees_at))


def claimed(mechanism: Mechanism) -> float:
    """Return what a draw costs: ε per true km where there is a projection."""
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a mechanism", type(mechanism).__name__)
    if not mechanism.n_outputs:
        # Noise has no index of an output that could be stored and repeated, or -1 for a refusal.
        raise reject("mechanism", "one that chooses among outputs", f"{mechanism.kind!r}, which reports coordinates")
    epsilon = mechanism.claimed_epsilon
    if not 0 < epsilon < math.inf:
        rule = "private at a positive, finite ε per km (its box may reach too near to a pole)"
        raise reject("mechanism", rule, f"ε = {epsilon}")
    return epsilon
