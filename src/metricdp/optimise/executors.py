"""Where independent parts of a design are computed: threads here, an executor of the caller's, or a Dask cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass

from metricdp._dask import connected
from metricdp._validation import reject

__all__ = ["Workplace", "checked_executor", "opened"]

_CLUSTER = "dask://"
_RULE = "None, a concurrent.futures.Executor or dask://HOST:PORT"


def checked_executor(executor: Executor | str | None) -> Executor | str | None:
    """Return an executor, or the address of one, after a look at its form."""
    address = isinstance(executor, str) and executor.startswith(_CLUSTER) and len(executor) > len(_CLUSTER)
    if executor is None or address or isinstance(executor, Executor):
        return executor
    raise reject("executor", _RULE, repr(executor))


@dataclass(frozen=True)
class Workplace:
    """Where tasks go: to an executor, or to threads of this process if that is None.

    workers : tasks that are worked on at once. Executors do not tell; they count as this machine's cores.
    """

    executor: Executor | None
    workers: int


@contextmanager
def opened(executor: Executor | str | None, time_limit: float | None = None) -> Iterator[Workplace]:
    """Yield a workplace for the time of a design, connected to the cluster if an address names one.

    time_limit : seconds that the connection may take at most.
    """
    if not isinstance(executor, str):
        yield Workplace(executor, os.cpu_count() or 1)
        return
    address = f"tcp://{executor.removeprefix(_CLUSTER)}"
    with connected(address, "executor", time_limit) as client:
        # Not pure: equal tasks are never merged, so that results of one design are not kept for another.
        pool = client.get_executor(pure=False)
        try:
            yield Workplace(pool, sum(client.nthreads().values()))
        finally:
            pool.shutdown(wait=False)  # tasks that nobody waits for any more are cancelled
