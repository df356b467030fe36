"""Tasks on a Dask cluster. Needs the extra `cluster`; paths travel, data and mechanisms are read by the workers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from metricdp._dask import connected, finished

__all__ = ["run_on_cluster"]

# How often a task may fail, or lose its worker, before it counts as the cause.
_RETRIES = 3


class _Task(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Task)


def run_on_cluster(
    work: Callable[[T], dict[str, Any]], tasks: Sequence[T], address: str
) -> Generator[tuple[T, dict[str, Any]], None, None]:
    """Yield each task with its answer as it finishes, done by the workers of the scheduler at `address`.

    Tasks of a worker that dies are given to another. `work` must bear being called twice for one task, also at the
    same time, since a worker that is believed dead may be alive.
    """
    with connected(address, "cluster") as client:
        # Not pure: a second run with the same tasks must not be answered from memory.
        futures = {client.submit(work, task, pure=False, retries=_RETRIES): task for task in tasks}
        for future, task in finished(futures):
            yield task, _answer(future)


def _answer(future: Any) -> dict[str, Any]:
    error = future.exception()
    if error is None:
        answer: dict[str, Any] = future.result()
        return answer
    # Only errors of the system say nothing of what is in a file.
    detail = str(error) if isinstance(error, OSError) else "see the workers' memory and logs"
    return {"error": f"{type(error).__name__}, {detail}"}
