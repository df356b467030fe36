"""How far a sweep is, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from metricdp.experiments.engine.job import Job

__all__ = ["Board", "Forecast", "board_on", "in_words"]

# The forecast starts as if guesses of this many seconds had come true, so that the first jobs do not swing it.
_TRUST = 30.0

# Without a terminal to draw on, a line appears every so many seconds.
_LINE_EVERY = 30.0

# Running jobs that the bar names.
_SHOWN = 3


class Forecast:
    """Seconds left, from guesses that are corrected by how long jobs really took."""

    def __init__(self, guesses: dict[str, float], workers: int) -> None:
        self.open = dict(guesses)
        self.workers = max(workers, 1)
        self._guessed = self._taken = _TRUST

    def finished(self, key: str, seconds: float) -> None:
        """Take note of a job that is done."""
        self._guessed += self.open.pop(key, 0.0)
        self._taken += seconds

    def left(self, running: dict[str, float]) -> float:
        """Return the seconds left, given for how long each running job has been running.

        Examples
        --------
        >>> forecast = Forecast({"a": 30.0, "b": 60.0}, workers=1)
        >>> forecast.finished("a", 90.0)  # guesses are half of what jobs take
        >>> forecast.left({})
        120.0
        """
        rate = self._taken / self._guessed
        each = [max(rate * guess - running.get(key, 0.0), 0.0) for key, guess in self.open.items()]
        # No less than the longest job, however many workers there are.
        return max(sum(each) / self.workers, max(each, default=0.0))


class Board:
    """Shows jobs as they start and finish. This one shows nothing."""

    def planned(self, jobs: Sequence[Job], kept: int, seconds: Callable[[Any], float], workers: int) -> None:
        """Take note of the jobs to be run, of how many have results already, and of guesses of seconds."""

    def on_cluster(self, workers: int) -> None:
        """Take note of how many workers a cluster has."""

    def started(self, job: Job) -> None:
        """Take note of a job that has begun."""

    def finished(self, job: Job, seconds: float) -> None:
        """Take note of a job that is done."""

    def tick(self) -> None:
        """Bring what is shown up to date; called now and then while jobs run."""


class _Display(Board):
    """A live bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self.console = console
        self.bar = bar
        self.task: TaskID | None = None
        self.forecast = Forecast({}, 1)
        self.running: dict[str, tuple[Job, float]] = {}
        self.done = self.total = 0
        self.last_line = time.monotonic()

    def planned(self, jobs: Sequence[Job], kept: int, seconds: Callable[[Any], float], workers: int) -> None:
        self.forecast = Forecast({job.key: seconds(job) for job in jobs}, workers)
        self.done, self.total = kept, kept + len(jobs)
        self.task = self.bar.add_task("", total=max(self.total, 1), completed=kept, left="", now="")
        found = f", {kept} of them done before" if kept else ""
        self.console.print(f"{self.total} jobs{found}; about {in_words(self.forecast.left({}))} to go", highlight=False)

    def on_cluster(self, workers: int) -> None:
        self.forecast.workers = max(workers, 1)
        self.console.print(f"a cluster of {workers} workers", highlight=False)

    def started(self, job: Job) -> None:
        self.running[job.key] = job, time.monotonic()
        self._show()

    def finished(self, job: Job, seconds: float) -> None:
        self.running.pop(job.key, None)
        self.forecast.finished(job.key, seconds)
        self.done += 1
        self._show()

    def tick(self) -> None:
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        left = in_words(self.forecast.left({key: now - since for key, (_, since) in self.running.items()}))
        if self.console.is_terminal and self.task is not None:
            names = [job.words for job, _ in self.running.values()]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            words = "; ".join(names[:_SHOWN]) + more
            self.bar.update(self.task, completed=self.done, left=f"{left} left", now=words)
        elif now - self.last_line >= _LINE_EVERY:
            self.last_line = now
            self.console.print(f"{self.done} of {self.total} jobs done, about {left} left", highlight=False)


@contextmanager
def board_on(console: Console) -> Iterator[Board]:
    """Show progress on a console while the block runs."""
    bar = Progress(
        TextColumn("{task.completed:.0f}/{task.total:.0f} jobs"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.fields[now]}[/]"),
        console=console,
        transient=True,
    )
    with bar:
        yield _Display(console, bar)


def in_words(seconds: float) -> str:
    """Return a duration as people say it.

    Examples
    --------
    >>> in_words(42), in_words(600), in_words(3 * 3600 + 60)
    ('42 s', '10 min', '3 h 1 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
