"""Jobs on a Dask cluster. Needs the extra `cluster`, and the cities where every worker finds them."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from metricdp._dask import connected, finished
from metricdp.errors import InvalidInputError
from metricdp.experiments.engine.job import Job, Outcome, Work, timed
from metricdp.experiments.engine.progress import Board
from metricdp.experiments.engine.source import code_digest

__all__ = ["run_on_cluster"]


def run_on_cluster(jobs: Sequence[Job], work: Work, board: Board, *, address: str) -> Generator[Outcome, None, None]:
    """Run jobs on the cluster whose scheduler listens at HOST:PORT and yield each with its result as it finishes.

    Jobs of a worker that dies run again elsewhere: the scheduler sees to that.
    """
    with connected(f"tcp://{address}", "executor") as client:
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        _require_same_code(client.run(code_digest))
        # Earlier jobs first; results travel here as they come, and the cluster then forgets them.
        futures = {
            client.submit(timed, work, job, key=f"metricdp-{job.key}", priority=-number): job
            for number, job in enumerate(jobs)
        }
        board.on_cluster(len(client.scheduler_info()["workers"]))
        for future, job in finished(futures):
            try:
                result, seconds = future.result()
            except KilledWorker:
                result, seconds = {"error": "Every worker that took this job died; out of memory?"}, 0.0
            board.tick()
            yield Outcome(job, result, seconds)


def _require_same_code(digests: dict[str, str]) -> None:
    """Refuse workers whose results would be kept under a key that names other code."""
    for worker, digest in digests.items():
        if digest != code_digest():
            message = (
                f"The worker {worker} has other source code of metricdp than this process, or another version of "
                "numpy, scipy, highspy or clarabel; install the same everywhere."
            )
            raise InvalidInputError(message)
