"""Jobs on this machine: in this process, or in worker processes, as many at once as memory allows."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from typing import Any

from threadpoolctl import threadpool_limits

from metricdp.experiments.engine.job import Job, Outcome, Result, Work, timed
from metricdp.experiments.engine.progress import Board
from metricdp.mechanisms.families import FOLDERS
from metricdp.mechanisms.options import free_memory_gb

__all__ = ["run_here", "run_in_processes"]

# Share of the memory available at the start that workers may take together.
_MEMORY_SHARE = 0.85

# From linux/prctl.h: which signal the kernel sends to a process when its parent dies.
_PR_SET_PDEATHSIG = 1

# Seconds between looks at the clock while all workers are busy.
_TICK = 0.5


def run_here(jobs: Sequence[Job], work: Work, board: Board) -> Generator[Outcome, None, None]:
    """Run jobs in this process, one after the other."""
    for job in jobs:
        board.started(job)
        yield Outcome(job, *timed(work, job))


def run_in_processes(
    jobs: Sequence[Job],
    work: Work,
    board: Board,
    *,
    workers: int,
    gigabytes: Callable[[Any], float],
    memory_gb: float | None = None,
) -> Generator[Outcome, None, None]:
    """Run jobs in worker processes and yield each with its result as it finishes.

    A job starts when a worker is free and the guesses of all running jobs fit into memory, or when nothing else
    runs. A job whose worker dies (out of memory, say) is tried once more, alone. However the loop over this generator
    ends, closing it ends the workers.
    """
    budget = _MEMORY_SHARE * free_memory_gb() if memory_gb is None else memory_gb
    crew = _Crew(work, workers, gigabytes, budget, board)
    try:
        yield from crew.run(deque(jobs))
    finally:
        crew.dismiss()


class _Worker:
    """A process with a pipe; a death shows as the end of the pipe and costs one job."""

    def __init__(self, work: Work) -> None:
        # Fresh processes: solvers keep threads, which a fork would leave in an unknown state.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work, list(FOLDERS)), daemon=True)
        with _without_interrupts():
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        with suppress(BrokenPipeError):  # the worker has died, which shows when its answer is collected
            self.pipe.send(job)

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()  # a worker has nothing to put in order, and SIGTERM can be blocked by what it runs
        self.process.join()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block SIGINT, also in processes that are started meanwhile: Ctrl-C would reach them before they can ignore it."""
    if sys.platform == "win32":
        yield
        return
    # It unblocks SIGINT once it has started, so it must have started before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: connection.Connection, work: Work, families: list[str]) -> None:
    """Run jobs until the pipe ends."""
    # Ctrl-C reaches every process of a terminal; what it means for workers is their parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    FOLDERS[:] = families  # the parent's registry may have families that were added after import
    threadpool_limits(1)  # as many workers as cores, so one thread each
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(work, job))


def _answer(work: Work, job: Job) -> tuple[Result, float] | Exception:
    """Return a job's result and seconds, or the exception that the parent is to raise."""
    try:
        return timed(work, job)
    except MemoryError:
        raise  # ends this process, so that the job is tried again alone
    except Exception as error:  # noqa: BLE001 - raised by the parent
        error.add_note("In a worker process:\n" + traceback.format_exc())
        return error


def _die_with_parent() -> None:
    """See to it that this process ends when its parent ends, be it by kill -9."""
    threading.Thread(target=_follow_parent, daemon=True).start()
    if sys.platform == "linux":
        # The kernel needs no thread of Python for it, which native code may keep from running.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _follow_parent() -> None:
    """End this process when its parent has ended, be it by kill -9, rather than finish a job for nobody."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _Crew:
    """The workers of one sweep."""

    def __init__(
        self, work: Work, size: int, gigabytes: Callable[[Any], float], budget_gb: float, board: Board
    ) -> None:
        self.work = work
        self.size = size
        self.gigabytes = gigabytes
        self.budget_gb = budget_gb
        self.board = board
        self.idle: list[_Worker] = []
        self.busy: dict[connection.Connection, _Worker] = {}

    def run(self, waiting: deque[Job]) -> Iterator[Outcome]:
        once_more: deque[Job] = deque()
        lost: set[str] = set()
        while waiting or once_more or self.busy:
            self._start(waiting)
            if not self.busy and once_more:
                self._give(once_more.popleft())
            for pipe in connection.wait(list(self.busy), timeout=_TICK):
                assert isinstance(pipe, connection.Connection)
                job, answer = self._collect(pipe)
                if answer is not None:
                    yield Outcome(job, *answer)
                elif job.key not in lost:
                    lost.add(job.key)
                    once_more.append(job)
                else:
                    yield Outcome(job, {"error": "The worker process died twice on this job; out of memory?"}, 0.0)
            self.board.tick()

    def _start(self, waiting: deque[Job]) -> None:
        """Give jobs to free workers while memory lasts, in order but for those that do not fit yet."""
        while len(self.busy) < self.size:
            used = sum(self.gigabytes(worker.job) for worker in self.busy.values())
            fits = (job for job in waiting if not self.busy or used + self.gigabytes(job) <= self.budget_gb)
            job = next(fits, None)
            if job is None:
                return
            waiting.remove(job)
            self._give(job)

    def _give(self, job: Job) -> None:
        worker = self.idle.pop() if self.idle else _Worker(self.work)
        self.busy[worker.pipe] = worker
        worker.give(job)
        self.board.started(job)

    def _collect(self, pipe: connection.Connection) -> tuple[Job, tuple[Result, float] | None]:
        """Return a worker's job with its result and seconds, or with None if the worker has died."""
        worker = self.busy.pop(pipe)
        assert worker.job is not None
        try:
            answer: tuple[Result, float] | Exception = pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.end()
            return worker.job, None
        self.idle.append(worker)
        if isinstance(answer, Exception):
            raise answer
        return worker.job, answer

    def dismiss(self) -> None:
        for worker in (*self.idle, *self.busy.values()):
            worker.end()
