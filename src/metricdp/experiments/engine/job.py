"""What the engine knows of a job: what its result depends on, and how it is run."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple

from metricdp.experiments.engine.source import code_digest

__all__ = ["Job", "Outcome", "Result", "Work", "timed"]

Result = dict[str, Any]


class Job(ABC):
    """One thing to compute, as plain values that can be sent to another process."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return everything that the result depends on besides the code, as JSON has it."""

    @property
    @abstractmethod
    def words(self) -> str:
        """A few words for progress and errors."""

    @property
    def batch(self) -> Hashable:
        """Jobs of one batch are run one after the other, since workers keep the data that they share."""
        return None

    @property
    def lasting(self) -> bool:
        """Whether the result may be kept for later runs, because `content` says all that it depends on."""
        return True

    @cached_property
    def key(self) -> str:
        """The name of the result: a hash of the job's content and of the code that computes it."""
        parts = {"code": code_digest(), "job": self.content()}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


# From a job to its result. It is sent to worker processes, so it must be a function of a module or a `partial` of one.
# A result with the entry "error" is a failure: it says why, and is not kept.
Work = Callable[[Any], Result]


class Outcome(NamedTuple):
    """A job with its result and the seconds that it took, 0 if no worker lived to tell."""

    job: Job
    result: Result
    seconds: float


def timed(work: Work, job: Job) -> tuple[Result, float]:
    """Return the result of a job and the seconds that it took."""
    started = time.perf_counter()
    result = work(job)
    return result, time.perf_counter() - started
