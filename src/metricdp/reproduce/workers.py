"""Jobs on this machine: processes that are told one job at a time, as many as memory allows."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from metricdp.mechanisms.options import free_memory_gb
from metricdp.reproduce.jobs import run
from metricdp.reproduce.plan import Job
from metricdp.reproduce.progress import Board

__all__ = ["available_gb", "run_locally"]

# Share of the memory available at the start that workers may take together.
_MEMORY_SHARE = 0.85

# Seconds between looks at the clock while all workers are busy.
_TICK = 0.5

Outcome = tuple[Job, dict[str, Any]]


def run_locally(
    jobs: Sequence[Job],
    workers: int,
    gigabytes: Callable[[Job], float],
    board: Board,
    memory_gb: float | None = None,
) -> Iterator[Outcome]:
    """Run jobs in worker processes and yield each with its result as it finishes.

    A job starts when a worker is free and the guesses of all running jobs fit into memory, or when nothing else
    runs. A job whose worker dies (out of memory, say) is tried once more, alone.
    """
    budget = _MEMORY_SHARE * available_gb() if memory_gb is None else memory_gb
    crew = _Crew(workers, gigabytes, budget, board)
    try:
        yield from crew.work(deque(jobs))
    finally:
        crew.dismiss()


def available_gb() -> float:
    """Return the memory that can be had without swapping, caches included where the system says so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return free_memory_gb()
    known = dict(line.split(":", 1) for line in lines)
    return float(known["MemAvailable"].split()[0]) * 1024 / 1e9 if "MemAvailable" in known else free_memory_gb()


class _Worker:
    """A process with a pipe; a death shows as the end of the pipe and costs one job."""

    def __init__(self) -> None:
        # Fresh processes: solvers keep threads, which a fork would leave in an unknown state.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        self.pipe.send(job)

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _serve(pipe: connection.Connection) -> None:
    """Run jobs until the pipe ends."""
    # Ctrl-C reaches every process of a terminal; what it means for workers is their parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(run(job))


def _follow_parent() -> None:
    """End this process when its parent has ended, be it by kill -9, rather than finish a job for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Crew:
    """The workers of one sweep."""

    def __init__(self, size: int, gigabytes: Callable[[Job], float], budget_gb: float, board: Board) -> None:
        self.size = size
        self.gigabytes = gigabytes
        self.budget_gb = budget_gb
        self.board = board
        self.idle: list[_Worker] = []
        self.busy: dict[connection.Connection, _Worker] = {}

    def work(self, waiting: deque[Job]) -> Iterator[Outcome]:
        once_more: deque[Job] = deque()
        lost: set[str] = set()
        while waiting or once_more or self.busy:
            self._start(waiting)
            if not self.busy and once_more:
                self._give(once_more.popleft())
            for pipe in connection.wait(list(self.busy), timeout=_TICK):
                assert isinstance(pipe, connection.Connection)
                job, result = self._collect(pipe)
                if result is None and job.key not in lost:
                    lost.add(job.key)
                    once_more.append(job)
                else:
                    yield job, result or {"error": "The worker process died twice on this job; out of memory?"}
            self.board.tick()

    def _start(self, waiting: deque[Job]) -> None:
        """Give jobs to free workers while memory lasts, in order but for those that do not fit yet."""
        while len(self.busy) < self.size:
            used = sum(self.gigabytes(worker.job) for worker in self.busy.values() if worker.job is not None)
            fits = (job for job in waiting if not self.busy or used + self.gigabytes(job) <= self.budget_gb)
            job = next(fits, None)
            if job is None:
                return
            waiting.remove(job)
            self._give(job)

    def _give(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else _Worker()
        worker.give(job)
        self.busy[worker.pipe] = worker
        self.board.started(job)

    def _collect(self, pipe: connection.Connection) -> tuple[Job, dict[str, Any] | None]:
        """Return a worker's job and its result, None if the worker has died."""
        worker = self.busy.pop(pipe)
        assert worker.job is not None
        try:
            result: dict[str, Any] = pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.end()
            return worker.job, None
        self.idle.append(worker)
        return worker.job, result

    def dismiss(self) -> None:
        for worker in (*self.idle, *self.busy.values()):
            worker.end()
