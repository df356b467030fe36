"""What every engine can do and what it answers, in one vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from metricdp._validation import FloatArray

__all__ = ["Engine", "Solution", "Status"]


class Status(StrEnum):
    """Canonical outcome of a solve; each engine maps its own words to these."""

    OPTIMAL = "optimal"
    INACCURATE = "inaccurate"
    TIME_LIMIT = "time limit"
    INFEASIBLE = "infeasible"
    FAILED = "failed"

    @property
    def usable(self) -> bool:
        """Whether the engine's table is worth repairing."""
        return self in (Status.OPTIMAL, Status.INACCURATE, Status.TIME_LIMIT)


@dataclass(frozen=True)
class Solution:
    """A solver's answer, not to be trusted before it is repaired and checked.

    `table` is the primal point or None; `multipliers` belong to the inequalities (≥ 0 at an optimum).
    """

    table: FloatArray | None
    multipliers: FloatArray | None
    status: Status
    engine: str
    seconds: float
    iterations: int


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A solver: one function for each form of program that it can solve, None for the others.

    linear : solves a `Program`; takes `time_limit`.
    shared : solves a `SharedProgram`; takes `gap` and `time_limit`.
    """

    name: str
    linear: Callable[..., Solution] | None = None
    shared: Callable[..., Solution] | None = None
