"""Every method on one problem, at several ε: loss, gap to the best possible, violations, seconds."""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from metricdp._atomic import atomic_file
from metricdp._validation import choice, integer, positive, reject
from metricdp._version import __version__
from metricdp.auditing.pairs import Ratios, audit
from metricdp.bounds.lower_bounds import lower_bound
from metricdp.certificates.proving import certify
from metricdp.errors import InvalidInputError, SolverError
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.fitting import fit
from metricdp.mechanisms.options import ProgressCallback
from metricdp.problem import Problem

__all__ = ["compare"]

_BOUND = "lower bound"
_COLUMNS = (
    "method", "epsilon", "loss", "gap", "certified", "violation_ratio", "max_ratio", "seconds", "lower_bound", "error",
)  # fmt: skip


@dataclass(frozen=True)
class _Task:
    """One cell of the table: a method at one ε, or the lower bound at one ε."""

    method: str
    epsilon: float
    options: Mapping[str, Any]

    def key(self, problem: Problem) -> str:
        """Name the result by everything it depends on."""
        parts = [__version__, problem.fingerprint, self.method, self.epsilon, sorted(self.options.items())]
        return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()


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
    likelihood ratios (`metricdp.audit.Ratios`) by (method, ε).

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
        Folder for finished results, named by content: an interrupted comparison goes on where it stopped.
    progress : callable, optional
        Called with the fraction done and a few words.
    """
    tasks = _tasks(epsilons, methods, options or {}, clusters, pairs)
    folder = None if cache is None else Path(cache)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    results: dict[_TaskName, dict[str, Any]] = {}
    todo = []
    for task in tasks:
        known = None if folder is None else _recall(folder / f"{task.key(problem)}.json")
        if known is None:
            todo.append(task)
        else:
            results[task.method, task.epsilon] = known
    for task, result in _run_all(problem, todo, integer("workers", workers, 1)):
        if folder is not None:
            _remember(folder / f"{task.key(problem)}.json", result)
        results[task.method, task.epsilon] = result
        if progress is not None:
            progress(len(results) / len(tasks), f"{task.method} at ε = {task.epsilon:g}")
    return _frame(tasks, results)


_TaskName = tuple[str, float]


def _tasks(
    epsilons: Sequence[float],
    methods: Sequence[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    clusters: int,
    pairs: int,
) -> list[_Task]:
    names = tuple(METHODS) if methods is None else tuple(methods)
    for name in (*names, *options):
        choice("methods", name, tuple(METHODS))
    budgets = [positive("epsilons", epsilon) for epsilon in epsilons]
    if not budgets or not names:
        raise reject("epsilons" if not budgets else "methods", "non-empty", "nothing")
    bound = [_Task(_BOUND, epsilon, {"clusters": integer("clusters", clusters, 1)}) for epsilon in budgets]
    audited = {"pairs": integer("pairs", pairs, 1)}
    fits = [_Task(name, eps, {**options.get(name, {}), **audited}) for eps in budgets for name in names]
    return bound + fits


def _run_all(problem: Problem, tasks: list[_Task], workers: int) -> Iterator[tuple[_Task, dict[str, Any]]]:
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, _run(problem, task)
        return
    # Fresh processes: solvers keep threads, which a fork would leave in an unknown state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_adopt, initargs=(problem,)) as pool:
        running = {pool.submit(_run_adopted, task): task for task in tasks}
        for done in as_completed(running):
            yield running[done], done.result()


_adopted: list[Problem] = []


def _adopt(problem: Problem) -> None:
    """Keep the problem in this worker, so that it travels once and not with every task."""
    _adopted[:] = [problem]
    threadpool_limits(1)  # as many workers as cores, so one thread each


def _run_adopted(task: _Task) -> dict[str, Any]:
    return _run(_adopted[0], task)


def _run(problem: Problem, task: _Task) -> dict[str, Any]:
    if task.method == _BOUND:
        return {"lower_bound": lower_bound(problem, task.epsilon, clusters=task.options["clusters"])}
    options = dict(task.options)
    pairs = options.pop("pairs")
    started = time.perf_counter()
    try:
        mechanism = fit(problem, task.epsilon, task.method, certify=False, **options)
    except (InvalidInputError, SolverError) as error:
        return {"error": str(error)}
    seconds = time.perf_counter() - started
    audited = audit(mechanism, pairs=pairs)
    return {
        "loss": mechanism.expected_loss(problem),
        "seconds": seconds,
        "certified": certify(mechanism).holds,
        "violation_ratio": audited.violation_ratio,
        "max_ratio": audited.max_ratio,
        "ppr": asdict(audited.ppr),
    }


def _recall(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _remember(path: Path, result: dict[str, Any]) -> None:
    with atomic_file(path) as stream:
        stream.write(json.dumps(result).encode())


def _frame(tasks: list[_Task], results: dict[_TaskName, dict[str, Any]]) -> pd.DataFrame:
    rows = []
    for task in tasks:
        if task.method == _BOUND:
            continue
        bound = results[_BOUND, task.epsilon]["lower_bound"]
        row = {"method": task.method, "epsilon": task.epsilon, "lower_bound": bound, "certified": False, "error": ""}
        row |= results[task.method, task.epsilon]
        loss = row.get("loss", math.nan)
        # Without any unavoidable loss there is nothing to measure a gap against.
        row["gap"] = loss / bound - 1 if bound > 0 else math.nan
        rows.append(row)
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    frame.attrs["ppr"] = {name: Ratios(**result["ppr"]) for name, result in results.items() if "ppr" in result}
    return frame
