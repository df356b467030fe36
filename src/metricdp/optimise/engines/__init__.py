"""Engines behind one function per form of program, one file each. A new engine is a file and a place in `ENGINES`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

from metricdp._validation import FloatArray, choice
from metricdp.optimise.engines import clarabel, highs, structured, tiles
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import Program, SharedProgram, TensorProgram

__all__ = ["ENGINES", "Solution", "Status", "engines_for", "solve", "solve_shared", "solve_tensor"]

# The first that solves a form is what "auto" means there: the structured solver is the faster and the leaner one where
# outputs share a cone, and HiGHS is 4 times faster than Clarabel on the linear programs here.
ENGINES: tuple[Engine, ...] = (structured.ENGINE, highs.ENGINE, clarabel.ENGINE, tiles.ENGINE)

_Form = type[Program | SharedProgram | TensorProgram]
_FIELD = {Program: "linear", SharedProgram: "shared", TensorProgram: "tensor"}


def engines_for(form: _Form) -> dict[str, Engine]:
    """Return the engines that solve a form of program, by name."""
    return {one.name: one for one in ENGINES if getattr(one, _FIELD[form]) is not None}


def _chosen(form: _Form, name: str) -> Engine:
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


def solve_tensor(
    program: TensorProgram,
    start: FloatArray,
    *,
    solver: str = "auto",
    gap: float = 3.0,
    until: float | None = None,
    time_limit: float | None = None,
    executor: Executor | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Solution:
    """Improve `start`, a table strictly inside all cones, with the named engine."""
    engine = _chosen(TensorProgram, solver).tensor
    assert engine is not None
    return engine(program, start, gap=gap, until=until, time_limit=time_limit, executor=executor, progress=progress)
