"""Engines behind one function per form of program, one file each. A new engine is a file and a place in `ENGINES`."""

from __future__ import annotations

from metricdp._validation import choice
from metricdp.optimise.engines import clarabel, highs, structured
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import Program, SharedProgram

__all__ = ["ENGINES", "Solution", "Status", "engines_for", "solve", "solve_shared"]

# The first that solves a form is what "auto" means there: the structured solver is the faster and the leaner one where
# outputs share a cone, and HiGHS is 4 times faster than Clarabel on the linear programs here.
ENGINES: tuple[Engine, ...] = (structured.ENGINE, highs.ENGINE, clarabel.ENGINE)


def engines_for(form: type[Program | SharedProgram]) -> dict[str, Engine]:
    """Return the engines that solve a form of program, by name."""
    return {one.name: one for one in ENGINES if (one.linear if form is Program else one.shared) is not None}


def _chosen(form: type[Program | SharedProgram], name: str) -> Engine:
    able = engines_for(form)
    return able[next(iter(able)) if choice("solver", name, ("auto", *able)) == "auto" else name]


def solve(program: Program, *, solver: str = "auto", time_limit: float | None = None) -> Solution:
    """Solve a linear program with the named engine."""
    engine = _chosen(Program, solver).linear
    assert engine is not None
    return engine(program, time_limit=time_limit)


def solve_shared(
    program: SharedProgram,
    *,
    solver: str = "auto",
    gap: float = 1e-7,
    time_limit: float | None = None,
) -> Solution:
    """Solve a program whose outputs share one cone with the named engine."""
    engine = _chosen(SharedProgram, solver).shared
    assert engine is not None
    return engine(program, gap=gap, time_limit=time_limit)
