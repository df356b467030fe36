"""Rough guesses of what a job takes, for the order of work, the time left and the memory of workers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from metricdp.reproduce.plan import Job

__all__ = ["gigabytes", "seconds"]

# Measured on Rome and London with one core of an ordinary server; the forecast corrects them as jobs finish.
_ROW_OF_LAPLACE = 2.2e-4
_SEARCH_OF_LAPLACE = 13.0
_SPLIT_OF_272_ANCHORS = 2.4
_SPLINE_OF_576_CELLS = 5.0
_GRID_OF_121_CELLS = {"lp": 6.5, "copt": 1.5}
_BOUND_OF_1000_CLUSTERS = 33.0
_PAPER_BOUND = 6.0

# A worker with everything imported, and the arrays of one number per record and output that live together.
_WORKER_GB = 0.3
_COPIES = 12


def seconds(job: Job, nodes: int) -> float:
    """Guess the processor seconds of a job."""
    if job.kind == "bound":
        clusters = job.option("clusters", 1000)
        return _PAPER_BOUND if job.method == "paper" else _BOUND_OF_1000_CLUSTERS * (clusters / 1000) ** 1.7
    family = "aipo" if job.method.startswith("aipo") else job.method
    laplace = _ROW_OF_LAPLACE * nodes + (_SEARCH_OF_LAPLACE if job.pairs else 0.0)
    guesses = {
        "laplace": laplace,
        "laplace-remap": laplace,
        "aipo": _SPLIT_OF_272_ANCHORS * _cells(job, 1) / 272 * job.option("splits", 1),
        "spline": _SPLINE_OF_576_CELLS * (_cells(job, 0) / 576) ** 1.8 * (1 if job.p == 2 else 2),
        "auto": job.option("time_limit", 60.0) + _ROW_OF_LAPLACE * nodes,
        **{name: guess * (_cells(job, 0) / 121) ** 1.5 for name, guess in _GRID_OF_121_CELLS.items()},
    }
    return 0.5 + float(guesses.get(family, 1e-5 * nodes))


def gigabytes(job: Job, nodes: int) -> float:
    """Guess the peak memory of a worker that runs the job."""
    tables = _COPIES * 8e-9 * nodes * job.outputs
    own = 0.2
    if job.method == "auto":
        # The longer it may take, the finer its grids get.
        own = 0.4 + 0.004 * float(job.option("time_limit"))
    elif job.kind == "bound":
        own = 0.4 * job.option("clusters", 0) / 1000 + 0.2
    elif job.method == "spline":
        own = 0.2 + 2e-7 * _cells(job, 0) ** 2
    elif job.method.startswith("aipo") or job.method in _GRID_OF_121_CELLS:
        own = 0.2 + 1e-3 * _cells(job, 1)
    return _WORKER_GB + tables + own


def _cells(job: Job, extra: int) -> int:
    """Return cells, or with one extra along each axis their corners."""
    cells = job.option("cells", 16)
    per_axis = cells if isinstance(cells, Sequence) else (cells, cells)
    return math.prod(count + extra for count in per_axis)
