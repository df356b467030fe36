"""Jobs on a Dask cluster. Needs the extra `cluster`, and the cities where every worker finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from metricdp._dask import connected, finished
from metricdp.reproduce.jobs import run
from metricdp.reproduce.plan import Job
from metricdp.reproduce.progress import Board

__all__ = ["run_on_cluster"]


def run_on_cluster(jobs: Sequence[Job], address: str, board: Board) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Run jobs on the cluster whose scheduler listens at HOST:PORT and yield each with its result as it finishes.

    Jobs of a worker that dies run again elsewhere: the scheduler sees to that.
    """
    with connected(f"tcp://{address}", "executor") as client:
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        # Earlier jobs first; results travel here as they come, and are let go of over there.
        futures = {
            client.submit(run, job, key=f"metricdp-{job.key}", priority=-number): job for number, job in enumerate(jobs)
        }
        board.on_cluster(len(client.scheduler_info()["workers"]))
        for future, job in finished(futures):
            try:
                result = future.result()
            except KilledWorker:
                result = {"error": "Every worker that took this job died; out of memory?"}
            board.tick()
            yield job, result
