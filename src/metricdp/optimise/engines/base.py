"""What every engine answers, in one vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from metricdp._validation import FloatArray

__all__ = ["Solution", "Status"]


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
