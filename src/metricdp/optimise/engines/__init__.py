"""Engines behind one function per form of program, one file each."""

from __future__ import annotations

from collections.abc import Callable

from metricdp._validation import choice
from metricdp.optimise.engines import clarabel, highs, structured
from metricdp.optimise.engines.base import Solution, Status
from metricdp.optimise.programs import Program, SharedProgram

__all__ = ["ENGINES", "SHARED_ENGINES", "Solution", "Status", "solve", "solve_shared"]

ENGINES: dict[str, Callable[..., Solution]] = {"highs": highs.solve, "clarabel": clarabel.solve}
SHARED_ENGINES: dict[str, Callable[..., Solution]] = {
    "structured": structured.solve,
    "clarabel": clarabel.solve_shared,
}


def solve(program: Program, *, solver: str = "auto", time_limit: float | None = None) -> Solution:
    """Solve a linear program with the named engine; "auto" is HiGHS, 4 times faster than Clarabel on these."""
    name = choice("solver", solver, ("auto", *ENGINES))
    return ENGINES["highs" if name == "auto" else name](program, time_limit=time_limit)


def solve_shared(
    program: SharedProgram,
    *,
    solver: str = "auto",
    gap: float = 1e-7,
    time_limit: float | None = None,
) -> Solution:
    """Solve a program whose outputs share one cone; "auto" is the structured solver, the faster and the leaner one."""
    name = choice("solver", solver, ("auto", *SHARED_ENGINES))
    engine = SHARED_ENGINES["structured" if name == "auto" else name]
    return engine(program, gap=gap, time_limit=time_limit)
