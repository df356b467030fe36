"""Options that methods share, and how a grid is chosen from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import ArrayLike

from metricdp._validation import choice, integer, positive, reject
from metricdp.errors import ProblemTooLargeError
from metricdp.geometry.grid import Grid
from metricdp.optimise.engines import engines_for
from metricdp.optimise.programs import Program
from metricdp.problem import Problem

__all__ = [
    "ClosedFormOptions",
    "GridOptions",
    "ProgressCallback",
    "common_fields",
    "free_memory_gb",
    "require_memory",
    "spendable",
]

ProgressCallback = Callable[[float, str], None]

# Share of ε that designs leave unspent, because a repaired table has rounding errors of its own.
_KEPT_FOR_ROUNDING = 4e-6

# Cells per axis by number of axes: a few seconds of work with 20 outputs on two cores.
_DEFAULT_CELLS = {1: 64, 2: 16, 3: 6}


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Options of every method that lays a grid.

    cells : cells along every axis, or one number per axis.
    breakpoints : "uniform", "adaptive" (finer where records are dense), "graded" (the same, less so: for many cells),
        or one increasing array per axis.
    solver : "auto", or an engine that solves the method's form of program (`solvers`).
    time_limit : seconds for the whole fit; the best certified answer by then is returned.
    progress : called with the fraction done and a few words.
    """

    cells: int | Sequence[int] | None = None
    breakpoints: str | Sequence[ArrayLike] = "uniform"
    solver: str = "auto"
    time_limit: float | None = None
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        choice("solver", self.solver, ("auto", *self.solvers()))
        if self.time_limit is not None:
            positive("time_limit", self.time_limit)

    @classmethod
    def solvers(cls) -> tuple[str, ...]:
        """Return the engines that this method can use, the one that "auto" means first."""
        return tuple(engines_for(Program))

    def cells_per_axis(self, n_axes: int) -> tuple[int, ...]:
        """Return the number of cells along each axis, without building anything."""
        if not isinstance(self.breakpoints, str):
            return tuple(np.size(axis) - 1 for axis in self.breakpoints)
        cells: Any = _DEFAULT_CELLS.get(n_axes, 3) if self.cells is None else self.cells
        per_axis = list(cells) if isinstance(cells, (Sequence, np.ndarray)) else [cells] * n_axes
        if len(per_axis) != n_axes:
            raise reject("cells", f"one whole number or one for each of the {n_axes} axes", repr(cells))
        return tuple(integer("cells", count, 1) for count in per_axis)

    def grid(self, problem: Problem) -> Grid:
        """Lay the grid over the problem's box."""
        cells = self.cells_per_axis(problem.n_axes)
        if isinstance(self.breakpoints, str):
            choice("breakpoints", self.breakpoints, ("uniform", "adaptive", "graded"))
            if self.breakpoints == "uniform":
                return Grid.uniform(problem.bounds, cells)
            lay = Grid.adaptive if self.breakpoints == "adaptive" else Grid.graded
            return lay(problem.bounds, cells, problem.records, problem.prior)
        if len(self.breakpoints) != problem.n_axes:
            raise reject("breakpoints", f"one array for each of the {problem.n_axes} axes", len(self.breakpoints))
        grid = Grid.from_breakpoints(self.breakpoints)
        if not np.array_equal(grid.bounds, problem.bounds):
            raise reject(
                "breakpoints",
                f"arrays that start and end at the box {problem.bounds.tolist()}",
                f"{grid.bounds.tolist()}",
            )
        return grid


def common_fields(problem: Problem, epsilon: float, method: str) -> dict[str, Any]:
    """Return what every mechanism takes over from its problem."""
    return {
        "outputs": problem.outputs,
        "bounds": problem.bounds,
        "epsilon": epsilon,
        "p": problem.p,
        "method": method,
        "projection": problem.projection,
    }


def spendable(epsilon: float) -> float:
    """Return the part of ε that slopes may use; the rest pays for computing in floating point."""
    return epsilon * (1 - _KEPT_FOR_ROUNDING)


def free_memory_gb() -> float:
    """Return the memory that a program can allocate now, in GB; the cache of files counts as free."""
    return float(psutil.virtual_memory().available) / 1e9


def require_memory(needed_gb: float, what: str, remedy: str) -> None:
    """Refuse work that would not fit, before allocating for it."""
    available_gb = free_memory_gb()
    if needed_gb > available_gb:
        msg = f"{what} needs about {needed_gb:.3g} GB of memory and {available_gb:.3g} GB are free; {remedy}."
        raise ProblemTooLargeError(msg)


@dataclass(frozen=True, kw_only=True)
class ClosedFormOptions:
    """Options of methods in closed form, which take little time; both options are there for a common interface.

    time_limit : seconds; a remap that runs out of time decides by the records it has looked at.
    progress : called with the fraction done and a few words.
    """

    time_limit: float | None = None
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        if self.time_limit is not None:
            positive("time_limit", self.time_limit)

    def say(self, share: float, words: str) -> None:
        """Tell the caller how far the fit is."""
        if self.progress is not None:
            self.progress(share, words)
