"""A sweep: every job once, results kept as they come, so that it can be stopped at any moment and continued."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from metricdp._validation import reject
from metricdp.experiments.engine.cluster import run_on_cluster
from metricdp.experiments.engine.job import Job, Outcome, Result, Work
from metricdp.experiments.engine.progress import Board
from metricdp.experiments.engine.store import Store
from metricdp.experiments.engine.workers import run_here, run_in_processes

__all__ = ["HERE", "LOCAL", "Guesses", "check_executor", "sweep"]

# Where jobs run: in this process, in worker processes of this machine, or on the Dask cluster whose address follows.
HERE, LOCAL, _DASK = "here", "local", "dask://"


@dataclass(frozen=True)
class Guesses:
    """What a job may take, from the job: processor seconds, and gigabytes of memory at its peak."""

    seconds: Callable[[Any], float]
    gigabytes: Callable[[Any], float]


def check_executor(executor: str) -> str:
    """Return the executor if it is "local" or the address of a cluster."""
    host, _, port = executor.removeprefix(_DASK).rpartition(":")
    if executor != LOCAL and not (executor.startswith(_DASK) and host and port.isdecimal()):
        raise reject("executor", "'local' or 'dask://HOST:PORT'", repr(executor))
    return executor


def sweep(
    jobs: Sequence[Job],
    work: Work,
    *,
    guesses: Guesses,
    store: Store | None = None,
    workers: int = 1,
    executor: str = LOCAL,
    board: Board | None = None,
) -> dict[str, Result]:
    """Return the results of all jobs by key: those kept in the store, and the others computed now.

    Results are kept one by one as they come. Failures are not kept: the next run may have more memory or time.

    Parameters
    ----------
    jobs : sequence of Job
        Jobs with equal keys are computed once.
    work : callable
        Computes one job.
    guesses : Guesses
        For the order of work, the forecast and the memory of workers.
    store : Store, optional
        Where results are kept.
    workers : int
        Processes, with the executor "local".
    executor : str
        "here" (this process), "local" (worker processes) or "dask://HOST:PORT".
    board : Board, optional
        Shows progress.
    """
    shown = Board() if board is None else board
    different = {job.key: job for job in jobs}
    results: dict[str, Result] = {}
    if store is not None:
        lasting = {key: job for key, job in different.items() if job.lasting}
        results = {key: kept for key, job in lasting.items() if (kept := store.get(job)) is not None}
    missing = _ordered([job for key, job in different.items() if key not in results], guesses.seconds)
    shown.planned(missing, len(results), guesses.seconds, workers)
    if not missing:
        return results
    # Closed however the loop ends: an exception may keep a generator alive, and with it the workers.
    with closing(_outcomes(missing, work, guesses, workers, executor, shown)) as outcomes:
        for job, result, seconds in outcomes:
            if store is not None and job.lasting and "error" not in result:
                store.put(job, result)
            results[job.key] = result
            shown.finished(job, seconds)
    return results


def _outcomes(
    jobs: Sequence[Job], work: Work, guesses: Guesses, workers: int, executor: str, board: Board
) -> Generator[Outcome, None, None]:
    if executor == HERE:
        return run_here(jobs, work, board)
    if executor == LOCAL:
        return run_in_processes(jobs, work, board, workers=workers, gigabytes=guesses.gigabytes)
    return run_on_cluster(jobs, work, board, address=executor.removeprefix(_DASK))


def _ordered(jobs: list[Job], seconds: Callable[[Any], float]) -> list[Job]:
    """Sort by batch, in the order of their first jobs, and the longest jobs of each batch first."""
    first = {job.batch: number for number, job in reversed(list(enumerate(jobs)))}
    return sorted(jobs, key=lambda job: (first[job.batch], -seconds(job)))
