"""What every proof answers, and the table that finds the proof for a kind of mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from metricdp.mechanisms.base import Mechanism

__all__ = ["ROUNDING_SHARE", "ROUNDOFF", "Finding", "examine"]

# Unit roundoff of float64.
ROUNDOFF = 2.0**-53

# Share of ε that pays for rounding errors of computed probabilities.
ROUNDING_SHARE = 2e-6


@dataclass(frozen=True)
class Finding:
    """What a proof or a search for counterexamples came to; see `metricdp.Certificate`."""

    holds: bool
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int


@singledispatch
def examine(mechanism: Mechanism) -> Finding:
    """Prove that a mechanism is (ε, d_p)-mDP from its numbers alone; one implementation per kind."""
    msg = f"no proof is known for mechanisms of kind {mechanism.kind!r}"
    raise TypeError(msg)
