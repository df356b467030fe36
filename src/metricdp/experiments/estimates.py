"""Rough guesses of what a job takes, for the order of work, the time left and the memory of workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from metricdp.problem import Problem

__all__ = ["Size", "gigabytes", "seconds"]

# Measured on Rome and London with one core of an ordinary server; the forecast corrects them as jobs finish.
_ROW_OF_LAPLACE = 2.2e-4
_SEARCH_OF_LAPLACE = 13.0
_SPLIT_OF_272_ANCHORS = 2.4
_SPLINE_OF_576_CELLS = 5.0
_GRID_OF_121_CELLS = {"lp": 6.5, "copt": 1.5}
_BOUND_OF_1000_CLUSTERS = 33.0
_PAPER_BOUND = 6.0

# Seconds per record of methods that are not named here; those in closed form take about that.
_ROW_OF_OTHERS = 1e-5

# What "auto" and methods with grids take unless told otherwise: seconds, and cells of the whole grid.
_AUTO_SECONDS = 60.0
_CELLS = 256

# A worker with everything imported, and the arrays of one number per record and output that live together.
_WORKER_GB = 0.3
_COPIES = 12


@dataclass(frozen=True)
class Size:
    """How large a problem is."""

    records: int
    outputs: int
    axes: int = 2

    @classmethod
    def of(cls, problem: Problem) -> Size:
        """Return the size of a problem."""
        return cls(problem.n_records, problem.n_outputs, problem.n_axes)


class _Asked(Protocol):
    """What a guess needs to know of a job."""

    @property
    def kind(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def p(self) -> float: ...
    @property
    def pairs(self) -> int: ...
    def option(self, name: str, default: Any = None, /) -> Any: ...


def seconds(job: _Asked, size: Size) -> float:
    """Guess the processor seconds of a job."""
    if job.kind == "bound":
        share = job.option("clusters", 1000) / 1000
        return _PAPER_BOUND if job.method == "paper" else _BOUND_OF_1000_CLUSTERS * share**1.7
    family = "aipo" if job.method.startswith("aipo") else job.method
    laplace = _ROW_OF_LAPLACE * size.records + (_SEARCH_OF_LAPLACE if job.pairs else 0.0)
    cells = _cells(job, size, 0)
    guesses = {
        "laplace": laplace,
        "laplace-remap": laplace,
        "aipo": _SPLIT_OF_272_ANCHORS * _cells(job, size, 1) / 272 * _number(job.option("splits"), 1),
        "spline": _SPLINE_OF_576_CELLS * (cells / 576) ** 1.8 * (1 if job.p == 2 else 2),
        "auto": _number(job.option("time_limit"), _AUTO_SECONDS) + _ROW_OF_LAPLACE * size.records,
        **{name: guess * (cells / 121) ** 1.5 for name, guess in _GRID_OF_121_CELLS.items()},
    }
    return 0.5 + float(guesses.get(family, _ROW_OF_OTHERS * size.records))


def gigabytes(job: _Asked, size: Size) -> float:
    """Guess the peak memory of a worker that runs the job."""
    tables = _COPIES * 8e-9 * size.records * size.outputs
    own = 0.2
    if job.kind == "bound":
        own = 0.4 * job.option("clusters", 0) / 1000 + 0.2
    elif job.method == "auto":
        # The longer it may take, the finer its grids get.
        own = 0.4 + 0.004 * _number(job.option("time_limit"), _AUTO_SECONDS)
    elif job.method == "spline":
        own = 0.2 + 2e-7 * _cells(job, size, 0) ** 2
    elif job.method.startswith("aipo") or job.method in _GRID_OF_121_CELLS:
        own = 0.2 + 1e-3 * _cells(job, size, 1)
    return _WORKER_GB + tables + own


def _cells(job: _Asked, size: Size, extra: int) -> int:
    """Return cells, or with one extra along each axis their corners."""
    cells = job.option("cells")
    per_axis = cells if isinstance(cells, Sequence) and not isinstance(cells, str) else [cells] * size.axes
    default = round(_CELLS ** (1 / size.axes))
    return math.prod(int(_number(count, default)) + extra for count in per_axis)


def _number(given: Any, otherwise: float) -> float:
    """Return an option, or the default if it is not a number: telling the user so is up to the method."""
    return given if isinstance(given, (int, float)) and math.isfinite(given) else otherwise
