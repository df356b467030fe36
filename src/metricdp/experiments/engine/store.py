"""Finished results, one file per job: named by content, written whole or not at all, checked when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from metricdp._atomic import atomic_file
from metricdp.errors import InvalidInputError
from metricdp.experiments.engine.job import Job, Result

__all__ = ["Store", "shared_store", "sole_store"]


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    def path(self, job: Job) -> Path:
        """Return where the result of a job is kept."""
        return self.folder / f"{job.key}.json"

    def get(self, job: Job) -> Result | None:
        """Return a job's result, or None if there is none or its file is damaged."""
        try:
            found = json.loads(self.path(job).read_text(encoding="utf-8"))
            job_as_kept, result, digest = found["job"], found["result"], found["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if job_as_kept == job.content() and digest == _digest(result) else None

    def put(self, job: Job, result: Result) -> None:
        """Keep a job's result."""
        whole = {"words": job.words, "job": job.content(), "result": result, "sha256": _digest(result)}
        with atomic_file(self.path(job)) as stream:
            stream.write(json.dumps(whole, indent=1).encode())


def shared_store(folder: Path) -> Store:
    """Return a store that several processes may use at once: equal keys have equal results, whoever writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    return Store(folder)


@contextmanager
def sole_store(folder: Path) -> Iterator[Store]:
    """Open a store for this process alone; the operating system frees it, however the process ends."""
    import fcntl  # noqa: PLC0415 - where it is missing, all else still works

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another run is writing to {folder}; wait for its end or choose another folder."
            raise InvalidInputError(message) from None
        for left_over in folder.glob(".*.tmp"):  # of a process that was killed while it wrote
            left_over.unlink()
        yield Store(folder)


def _digest(result: Result) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
