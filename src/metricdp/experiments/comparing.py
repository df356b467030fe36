"""Every method on one problem, at several ε: loss, gap to the best possible, violations, seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from metricdp._validation import choice, integer, positive, reject
from metricdp.auditing.pairs import Ratios
from metricdp.errors import SolverError
from metricdp.experiments import estimates
from metricdp.experiments.engine.job import Job, Result
from metricdp.experiments.engine.progress import Board
from metricdp.experiments.engine.store import shared_store
from metricdp.experiments.engine.sweep import HERE, LOCAL, Guesses, sweep
from metricdp.experiments.measuring import ComparisonJob, identity, measure
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.options import ProgressCallback
from metricdp.problem import Problem

__all__ = ["compare"]

_COLUMNS = (
    "method", "epsilon", "loss", "gap", "certified", "violation_ratio", "max_ratio", "seconds", "lower_bound", "error",
)  # fmt: skip


def compare(
    problem: Problem,
    epsilons: Sequence[float],
    methods: Sequence[str] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    clusters: int = 300,
    pairs: int = 20_000,
    workers: int = 1,
    cache: str | os.PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> pd.DataFrame:
    """Return one row per method and ε.

    Columns: `loss`; `gap`, by which share the loss exceeds the tight lower bound that no private mechanism
    can beat; `certified`; `violation_ratio` and `max_ratio` of an audit at zero tolerance; `seconds` of the fit;
    `lower_bound`; `error`, the reason where a method does not apply. ``frame.attrs["ppr"]`` holds the distribution of
    likelihood ratios (`metricdp.auditing.pairs.Ratios`) by (method, ε).

    Parameters
    ----------
    problem : Problem
        What to design for.
    epsilons : sequence of float
        Budgets per unit of distance.
    methods : sequence of str, optional
        Names from `metricdp.METHODS`; all of them by default.
    options : mapping, optional
        Options per method, such as ``{"aipo": {"cells": 16}}``.
    clusters : int
        Clusters of the lower bound; more are tighter and slower.
    pairs : int
        Pairs of points that each audit compares.
    workers : int
        Processes. With more than one, call from under ``if __name__ == "__main__"``.
    cache : path, optional
        Folder for finished results: an interrupted comparison goes on where it stopped. Results are named by a hash of
        the problem, the options and the code that computed them, so that a changed method is computed again.
    progress : callable, optional
        Called with the fraction done and a few words.
    """
    processes = integer("workers", workers, 1)
    jobs = _jobs(problem, epsilons, methods, options or {}, clusters, pairs)
    size = estimates.Size.of(problem)
    results = sweep(
        jobs,
        partial(measure, problem),
        guesses=Guesses(partial(estimates.seconds, size=size), partial(estimates.gigabytes, size=size)),
        store=None if cache is None else shared_store(Path(cache)),
        workers=processes,
        executor=HERE if processes == 1 else LOCAL,
        board=None if progress is None else _Reporter(progress),
    )
    return _frame(jobs, results)


def _jobs(
    problem: Problem,
    epsilons: Sequence[float],
    methods: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    clusters: int,
    pairs: int,
) -> list[ComparisonJob]:
    names = tuple(METHODS) if methods is None else tuple(methods)
    for name in (*names, *options):
        choice("methods", name, tuple(METHODS))
    budgets = [positive("epsilons", epsilon) for epsilon in epsilons]
    if not budgets or not names:
        raise reject("epsilons" if not budgets else "methods", "non-empty", "nothing")
    job = partial(ComparisonJob, problem=identity(problem), p=problem.p)
    of_bound = {"clusters": integer("clusters", clusters, 1)}
    audited = integer("pairs", pairs, 1)
    return [job(kind="bound", method="tight", epsilon=epsilon, options=of_bound) for epsilon in budgets] + [
        job(kind="fit", method=name, epsilon=epsilon, options=options.get(name, {}), pairs=audited)
        for epsilon in budgets
        for name in names
    ]


class _Reporter(Board):
    """Tells a callback which part of the jobs is done."""

    def __init__(self, progress: ProgressCallback) -> None:
        self.progress = progress
        self.done = self.total = 0

    def planned(self, jobs: Sequence[Job], kept: int, seconds: Callable[[Any], float], workers: int) -> None:  # noqa: ARG002
        self.done, self.total = kept, kept + len(jobs)

    def finished(self, job: Job, seconds: float) -> None:  # noqa: ARG002 - only how many are done
        self.done += 1
        self.progress(self.done / self.total, job.words)


def _bound(job: ComparisonJob, result: Result) -> float:
    if "error" in result:
        raise SolverError(f"There is no {job.words}: {result['error']}")
    return float(result["lower_bound"])


def _frame(jobs: Sequence[ComparisonJob], results: Mapping[str, Result]) -> pd.DataFrame:
    bounds = {job.epsilon: _bound(job, results[job.key]) for job in jobs if job.kind == "bound"}
    fits = [job for job in jobs if job.kind == "fit"]
    rows = []
    for job in fits:
        bound = bounds[job.epsilon]
        row: dict[str, Any] = {
            "method": job.method,
            "epsilon": job.epsilon,
            "lower_bound": bound,
            "certified": False,
            "error": "",
        }
        row |= results[job.key]
        loss = row.get("loss", math.nan)
        # Without any unavoidable loss there is nothing to measure a gap against.
        row["gap"] = loss / bound - 1 if bound > 0 else math.nan
        rows.append(row)
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    frame.attrs["ppr"] = {
        (job.method, job.epsilon): Ratios(**results[job.key]["ppr"]) for job in fits if "ppr" in results[job.key]
    }
    return frame
