"""A sweep: every job once, results kept as they come, so that it can be stopped at any moment and continued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from metricdp._validation import reject
from metricdp.reproduce import estimates
from metricdp.reproduce.cluster import run_on_cluster
from metricdp.reproduce.places import Place
from metricdp.reproduce.plan import Job
from metricdp.reproduce.progress import Board
from metricdp.reproduce.store import Store
from metricdp.reproduce.workers import run_locally

__all__ = ["check_executor", "sweep"]

_LOCAL, _DASK = "local", "dask://"


def check_executor(executor: str) -> str:
    """Return the executor if it is one."""
    host, _, port = executor.removeprefix(_DASK).rpartition(":")
    if executor != _LOCAL and not (executor.startswith(_DASK) and host and port.isdecimal()):
        raise reject("executor", "'local' or 'dask://HOST:PORT'", repr(executor))
    return executor


def sweep(
    jobs: Sequence[Job], places: Sequence[Place], store: Store, *, workers: int, executor: str, board: Board
) -> dict[str, dict[str, Any]]:
    """Return the results of all jobs by key: those kept in the store, and the others computed now.

    Results are kept one by one as they come. Failures are not kept: they may be the day's (memory, a lost worker).
    """
    different = {job.key: job for job in jobs}
    results = {key: kept for key, job in different.items() if (kept := store.get(job)) is not None}
    nodes = {place.network: place.nodes for place in places}
    missing = _ordered([job for key, job in different.items() if key not in results], nodes)
    board.planned(missing, len(results), lambda job: estimates.seconds(job, nodes[job.network]), workers)
    for job, result in _executed(missing, nodes, workers, executor, board):
        if "error" not in result:
            store.put(job, result)
        results[job.key] = result
        board.finished(job, result.get("seconds", {}).get("all", 0.0))
    return results


def _executed(
    jobs: Sequence[Job], nodes: dict[str, int], workers: int, executor: str, board: Board
) -> Iterator[tuple[Job, dict[str, Any]]]:
    if not jobs:
        return iter(())
    if executor == _LOCAL:
        return run_locally(jobs, workers, lambda job: estimates.gigabytes(job, nodes[job.network]), board)
    return run_on_cluster(jobs, executor.removeprefix(_DASK), board)


def _ordered(jobs: list[Job], nodes: dict[str, int]) -> list[Job]:
    """Sort by city and repeat, since workers keep the problems they have met, and the longest jobs first."""
    first = {(job.network, job.seed): number for number, job in reversed(list(enumerate(jobs)))}
    guess = partial(_seconds, nodes)
    return sorted(jobs, key=lambda job: (first[job.network, job.seed], -guess(job)))


def _seconds(nodes: dict[str, int], job: Job) -> float:
    return estimates.seconds(job, nodes[job.network])
