"""Every method on one problem, at several ε: loss, gap to the best possible, violations, seconds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from metricdp._log import LOG
from metricdp._progress import Tell, told
from metricdp._validation import choice, integer, positive, reject
from metricdp.errors import SolverError
from metricdp.experiments import estimates
from metricdp.experiments.comparison import Comparison
from metricdp.experiments.engine.job import Job, Result
from metricdp.experiments.engine.progress import Board
from metricdp.experiments.engine.store import shared_store
from metricdp.experiments.engine.sweep import HERE, LOCAL, Guesses, sweep
from metricdp.experiments.measuring import ComparisonJob, identity, measure
from metricdp.experiments.own_methods import Compared, listed
from metricdp.mechanisms.families import METHODS
from metricdp.problem import Problem

__all__ = ["compare"]

_COLUMNS = (
    "method", "epsilon", "loss", "gap", "certified", "violation_ratio", "max_ratio", "inference_error", "seconds",
    "lower_bound", "error",
)  # fmt: skip
# What a result has beside its columns.
_BEHIND = ("ppr", "certificate")


def compare(
    problem: Problem,
    epsilons: Sequence[float],
    methods: Sequence[Compared] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    clusters: int = 300,
    pairs: int = 20_000,
    workers: int = 1,
    cache: str | os.PathLike[str] | None = None,
    progress: Tell | bool | None = None,
) -> Comparison:
    """Return one row per method and ε, the library's methods and yours.

    Columns: `loss`; `gap`, by which share the loss exceeds the tight lower bound that no private mechanism
    can beat; `certified`, whether it was proved private at this ε; `violation_ratio` and `max_ratio` of an audit at
    zero tolerance; `inference_error`, how far off an adversary is on average after one report, who knows the mechanism
    and the prior (see `attack`), in true km where there is a projection; `seconds` of the fit; `lower_bound`; `error`,
    the reason where a method does not apply or failed.

    The answer is a `pandas.DataFrame` that a notebook shows as a table of losses. Its `certificates` hold, by
    (method, ε), what was proved or the worst pair found, its `ratios` the distribution of likelihood ratios.

    Parameters
    ----------
    problem : Problem
        What to design for.
    epsilons : sequence of float
        Budgets per unit of distance.
    methods : sequence, optional
        Names from `metricdp.METHODS`, all of them by default. Beside them, methods of your own:

        - a fitted `Mechanism`. At each ε it is asked whether it is private there, whatever ε it was fitted with: from
          its own ε on it is, below it is shown as not proved, with the violations that an audit finds;
        - a function of (problem, epsilon), called once for each ε. It returns a `Mechanism`, or a function from points
          (m, N) to probabilities (m, K). Nothing can be proved of such a function, so the audit alone speaks of it.

        ``("a name", method)`` names the rows of either; a function has its own name otherwise. An exception in an own
        method is the `error` of its row.
    options : mapping, optional
        Options per method of the library, such as ``{"aipo": {"cells": 16}}``.
    clusters : int
        Clusters of the lower bound; more are tighter and slower.
    pairs : int
        Pairs of points that each audit compares.
    workers : int
        Processes. With more than one, call from under ``if __name__ == "__main__"``. Own methods that another process
        cannot be given, such as functions of a notebook, run in this one.
    cache : path, optional
        Folder for finished results: an interrupted comparison goes on where it stopped. Results are named by a hash of
        the problem, the options and the code that computed them, so that a changed method is computed again. Own
        functions are always computed again; own mechanisms are named by their contents.
    progress : callable, bool or None
        Called with the fraction done and a few words. By default a terminal or a notebook shows a bar after two
        seconds; True shows it at once, False never.

    Examples
    --------
    >>> import numpy as np
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> def always_even(problem, epsilon):
    ...     return lambda points: np.full((len(points), problem.n_outputs), 1 / problem.n_outputs)
    >>> frame = mdp.compare(problem, [1.0], ["em", always_even], clusters=3, pairs=100)
    >>> frame[["method", "certified", "violation_ratio"]].values.tolist()
    [['em', True, 0.0], ['always_even', False, 0.0]]
    """
    processes = integer("workers", workers, 1)
    jobs = _jobs(problem, epsilons, methods, options or {}, clusters, pairs)
    size = estimates.Size.of(problem)
    guesses = Guesses(partial(estimates.seconds, size=size), partial(estimates.gigabytes, size=size))
    store = None if cache is None else shared_store(Path(cache))
    here = [job for job in jobs if job.own is not None and not job.own.sendable]
    there = [job for job in jobs if job not in here]
    results: dict[str, Result] = {}
    with told(progress, "comparing") as tell:
        board = _Reporter(tell, len(jobs))
        for executor, some in ((HERE if processes == 1 else LOCAL, there), (HERE, here)):
            results |= sweep(
                some,
                partial(measure, problem),
                guesses=guesses,
                store=store,
                workers=processes,
                executor=executor,
                board=board,
            )
    return _frame(jobs, results)


def _jobs(
    problem: Problem,
    epsilons: Sequence[float],
    methods: Sequence[Compared] | None,
    options: Mapping[str, Mapping[str, Any]],
    clusters: int,
    pairs: int,
) -> list[ComparisonJob]:
    chosen = listed(methods)
    for name in options:
        choice("options", name, tuple(METHODS))
    budgets = [positive("epsilons", epsilon) for epsilon in epsilons]
    if not budgets or not chosen:
        raise reject("epsilons" if not budgets else "methods", "non-empty", "nothing")
    job = partial(ComparisonJob, problem=identity(problem), p=problem.p)
    of_bound = {"clusters": integer("clusters", clusters, 1)}
    audited = integer("pairs", pairs, 1)
    return [job(kind="bound", method="tight", epsilon=epsilon, options=of_bound) for epsilon in budgets] + [
        job(kind="fit", method=name, epsilon=epsilon, options=options.get(name, {}), pairs=audited, own=own)
        for epsilon in budgets
        for name, own in chosen.items()
    ]


class _Reporter(Board):
    """Tells a callback which part of the jobs is done."""

    def __init__(self, progress: Tell, total: int) -> None:
        self.progress = progress
        self.done, self.total = 0, total

    def planned(self, jobs: Sequence[Job], kept: int, seconds: Callable[[Any], float], workers: int) -> None:  # noqa: ARG002
        self.done += kept

    def finished(self, job: Job, seconds: float) -> None:
        self.done += 1
        LOG.info("compared %s in %.2f s", job.words, seconds)
        self.progress(self.done / self.total, job.words)


def _bound(job: ComparisonJob, result: Result) -> float:
    if "error" in result:
        raise SolverError(f"There is no {job.words}: {result['error']}")
    return float(result["lower_bound"])


def _frame(jobs: Sequence[ComparisonJob], results: Mapping[str, Result]) -> Comparison:
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
    frame = Comparison(rows, columns=list(_COLUMNS))
    frame.attrs["behind"] = [
        {"method": job.method, "epsilon": job.epsilon}
        | {name: results[job.key][name] for name in _BEHIND if name in results[job.key]}
        for job in fits
    ]
    return frame
