"""Proofs that a mechanism is (ε, d_p)-mDP, from its numbers alone."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from metricdp.mechanisms.base import Mechanism
from metricdp.proofs import examine

__all__ = ["Certificate", "certify"]


@dataclass(frozen=True)
class Certificate:
    """What was proved, or the worst counterexample found.

    holds : whether the claim was proved.
    claim : the statement, with its domain and its assumptions, in words.
    worst_ratio : for a proof, a bound on |ln z_k(x) − ln z_k(x')| / (ε d_p(x, x')) over the whole domain;
        otherwise the worst value found.
    worst_where : where that is: points and output.
    checked : how many comparisons the proof or the search made.
    """

    holds: bool
    epsilon: float
    p: float
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(self)


def certify(mechanism: Mechanism) -> Certificate:
    """Prove the mechanism's privacy, or say that it could not be proved and show the worst pair found."""
    started = time.perf_counter()
    found = examine(mechanism)
    return Certificate(
        holds=found.holds,
        epsilon=mechanism.epsilon,
        p=mechanism.p,
        claim=found.claim,
        worst_ratio=found.worst_ratio,
        worst_where=found.worst_where,
        checked=found.checked,
        seconds=time.perf_counter() - started,
    )
