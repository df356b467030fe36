"""Connections to Dask clusters, for files of points and for experiments. Needs the extra `cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from metricdp._optional import optional
from metricdp._validation import reject
from metricdp._version import __version__

__all__ = ["connected", "finished"]

# Seconds to wait for the scheduler.
_TIMEOUT = 30

T = TypeVar("T")


@contextmanager
def connected(address: str, parameter: str, time_limit: float | None = None) -> Iterator[Any]:
    """Connect a client to the scheduler at `address`, whose workers must run this version of the library.

    parameter : the caller's parameter that holds the address, for messages.
    time_limit : seconds to wait for the scheduler, half a minute at most.
    """
    distributed = optional("distributed", "cluster", "A Dask cluster")
    timeout = _TIMEOUT if time_limit is None else min(_TIMEOUT, time_limit)
    with distributed.Client(address, timeout=timeout) as client:
        _require_same_library(client.run(_library_version), parameter)
        yield client


def finished(futures: dict[Any, T]) -> Iterator[tuple[Any, T]]:
    """Yield each future as it finishes, with its entry in `futures`; afterwards the cluster forgets its result."""
    distributed = optional("distributed", "cluster", "A Dask cluster")
    for future in distributed.as_completed(list(futures)):
        yield future, futures.pop(future)
        future.release()


def _library_version() -> str:
    return __version__


def _require_same_library(versions: dict[str, str], parameter: str) -> None:
    """Refuse a cluster without workers, or with workers whose answers would be those of another library."""
    if not versions:
        raise reject(parameter, "the address of a cluster with workers", "one without any")
    for worker, version in versions.items():
        if version != __version__:
            raise reject(parameter, f"a cluster that runs metricdp {__version__}", f"{version} on {worker}")
