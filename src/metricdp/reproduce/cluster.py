"""Jobs on a Dask cluster. Needs the extra `cluster`, and the cities where every worker finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metricdp._validation import reject
from metricdp._version import __version__
from metricdp.reproduce.jobs import run
from metricdp.reproduce.plan import Job
from metricdp.reproduce.progress import Board

__all__ = ["run_on_cluster"]

# Seconds to wait for the scheduler.
_TIMEOUT = 30


def run_on_cluster(jobs: Sequence[Job], address: str, board: Board) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Run jobs on the cluster whose scheduler listens at HOST:PORT and yield each with its result as it finishes.

    Jobs of a worker that dies run again elsewhere: the scheduler sees to that.
    """
    try:
        from distributed import Client, KilledWorker, as_completed  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        msg = "Dask clusters need distributed; install it with: pip install 'metricdp[cluster]'"
        raise ModuleNotFoundError(msg, name="distributed") from error
    with Client(f"tcp://{address}", timeout=_TIMEOUT) as client:
        _require_same_library(client.run(library_version))
        # Earlier jobs first; results travel here as they come, and are let go of over there.
        futures = {
            client.submit(run, job, key=f"metricdp-{job.key}", priority=-number): job for number, job in enumerate(jobs)
        }
        board.on_cluster(len(client.scheduler_info()["workers"]))
        for future in as_completed(list(futures)):
            job = futures.pop(future)
            try:
                result = future.result()
            except KilledWorker:
                result = {"error": "Every worker that took this job died; out of memory?"}
            future.release()
            board.tick()
            yield job, result


def library_version() -> str:
    """Return the version of this library, for workers to tell."""
    return __version__


def _require_same_library(versions: dict[str, str]) -> None:
    """Refuse a cluster without workers, or with workers whose results would be those of another library."""
    if not versions:
        raise reject("executor", "the address of a cluster with workers", "one without any")
    for worker, version in versions.items():
        if version != __version__:
            raise reject("executor", f"a cluster that runs metricdp {__version__}", f"{version} on {worker}")
