"""Where independent parts of a design are computed: threads here, an executor of the caller's, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from metricdp._dask import connected
from metricdp._validation import reject

__all__ = ["checked_executor", "opened"]

_CLUSTER = "dask://"
_RULE = "None, a concurrent.futures.Executor or dask://HOST:PORT"


def checked_executor(executor: Executor | str | None) -> Executor | str | None:
    """Return an executor, or the address of one, after a look at its form."""
    address = isinstance(executor, str) and executor.startswith(_CLUSTER) and len(executor) > len(_CLUSTER)
    if executor is None or address or isinstance(executor, Executor):
        return executor
    raise reject("executor", _RULE, repr(executor))


@contextmanager
def opened(executor: Executor | str | None) -> Iterator[Executor | None]:
    """Yield an executor for the time of a design, connected to the cluster that an address names."""
    if not isinstance(executor, str):
        yield executor
        return
    address = f"tcp://{executor.removeprefix(_CLUSTER)}"
    # Not pure: equal tasks are never merged, so that results of one design are not kept for another.
    with connected(address, "executor") as client, client.get_executor(pure=False) as pool:
        yield pool
