"""Finished results, one file per job: named by content, written whole or not at all, checked when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.reproduce.plan import Job

__all__ = ["Store", "open_store"]


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    def path(self, job: Job) -> Path:
        """Return where the result of a job is kept."""
        return self.folder / f"{job.key}.json"

    def get(self, job: Job) -> dict[str, Any] | None:
        """Return a job's result, or None if there is none that can be trusted."""
        try:
            found = json.loads(self.path(job).read_text(encoding="utf-8"))
            job_as_kept, result, digest = found["job"], found["result"], found["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if job_as_kept == job.content() and digest == _digest(result) else None

    def put(self, job: Job, result: dict[str, Any]) -> None:
        """Keep a job's result."""
        whole = {"job": job.content(), "city": job.place, "result": result, "sha256": _digest(result)}
        with atomic_file(self.path(job)) as stream:
            stream.write(json.dumps(whole, indent=1).encode())


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open a store for this process alone; the operating system frees it, however the process ends."""
    import fcntl  # noqa: PLC0415 - where it is missing, all else still works

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise reject("out", "a folder that no other run is writing to", str(folder)) from None
        for left_over in folder.glob(".*.tmp"):  # of a process that was killed while it wrote
            left_over.unlink()
        yield Store(folder)


def _digest(result: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
