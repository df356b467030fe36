"""What every engine can do and what it answers, in one vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from metricdp._validation import FloatArray

__all__ = ["Engine", "Solution", "Status"]


class Status(StrEnum):
    """Canonical outcome of a solve; each engine maps its own words to these.

    "improved": no worse than the start and near the optimum by experience, but no bound says how near.
    """

    OPTIMAL = "optimal"
    IMPROVED = "improved"
    INACCURATE = "inaccurate"
    TIME_LIMIT = "time limit"
    INFEASIBLE = "infeasible"
    FAILED = "failed"

    @property
    def usable(self) -> bool:
        """Whether the engine's table is worth repairing."""
        return self in (Status.OPTIMAL, Status.IMPROVED, Status.INACCURATE, Status.TIME_LIMIT)


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
    tensor : improves a feasible table of a `TensorProgram`; takes `gap`, `until`, `time_limit`,
        `executor` and `progress`.
    """

    name: str
    linear: Callable[..., Solution] | None = None
    shared: Callable[..., Solution] | None = None
    tensor: Callable[..., Solution] | None = None
