"""The paper's experiments from the plan to the report: what `metricdp reproduce` runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metricdp._validation import integer
from metricdp.experiments import estimates
from metricdp.experiments.canvas import require_plots
from metricdp.experiments.engine.progress import Board
from metricdp.experiments.engine.store import sole_store
from metricdp.experiments.engine.sweep import Guesses, check_executor, sweep
from metricdp.experiments.paper.evidence import Evidence
from metricdp.experiments.paper.job import PaperJob
from metricdp.experiments.paper.measuring import measure
from metricdp.experiments.paper.places import Place, survey
from metricdp.experiments.paper.plan import COMPARED, EXPERIMENTS, Settings, plan
from metricdp.experiments.paper.plan import quick as quick_settings
from metricdp.experiments.paper.report import Checks, checks, write_report
from metricdp.experiments.paper.tables import gather

__all__ = ["Reproduction", "guesses", "reproduce"]

_CITIES = ("rome", "london", "nyc")
_EPSILONS = tuple(round(0.2 * step, 12) for step in range(1, 9))

# Central Helsinki is about 1 x 1.7 km, so that budgets per km are larger than those of whole cities.
_QUICK_CITIES = ("helsinki",)
_QUICK_EPSILONS = (4.0, 16.0)


@dataclass(frozen=True)
class Reproduction:
    """The results of a run: what the report is made from, the first checks, and the names of the files."""

    evidence: Evidence
    checks: Checks
    files: dict[str, str]


def reproduce(
    experiments: Sequence[str] = EXPERIMENTS,
    *,
    out: str | os.PathLike[str],
    cities: Sequence[str] | None = None,
    epsilons: Sequence[float] | None = None,
    methods: Sequence[str] = COMPARED,
    repeats: int = 1,
    workers: int | None = None,
    executor: str = "local",
    auto_seconds: float = 60.0,
    quick: bool = False,
    board: Board | None = None,
) -> Reproduction:
    """Run experiments of the paper and write a report; results of an earlier run in the same folder are used again.

    Parameters
    ----------
    experiments : sequence of str
        Some of "utility", "violation", "time", "budget", "granularity", "l1", "ppr".
    out : path
        Folder of the report and, in `results`, of finished jobs. A run that was stopped goes on from there.
    cities : sequence of str, optional
        Names or paths that `metricdp.cities.load` takes; Rome, London and New York by default.
    epsilons : sequence of float, optional
        Budgets per km; 0.2, 0.4, …, 1.6 by default.
    methods : sequence of str
        Which methods to compare.
    repeats : int
        How often outputs and tasks are drawn.
    workers : int, optional
        Processes, fewer where memory is short; as many as processors by default.
    executor : str
        "local", or "dask://HOST:PORT" for a Dask cluster.
    auto_seconds : float
        Seconds for each fit of "auto".
    quick : bool
        Small versions of everything, on Helsinki unless cities are given: about a minute.
    board : Board, optional
        Shows progress.
    """
    started = time.perf_counter()
    check_executor(executor)
    require_plots()
    processes = (os.cpu_count() or 1) if workers is None else integer("workers", workers, 1)
    places = survey(cities if cities is not None else _QUICK_CITIES if quick else _CITIES)
    budgets = epsilons if epsilons is not None else _QUICK_EPSILONS if quick else _EPSILONS
    settings = Settings(
        epsilons=tuple(budgets), repeats=repeats, methods=tuple(methods), auto_seconds=auto_seconds
    )  # fmt: skip
    settings = quick_settings(settings) if quick else settings
    jobs = plan(experiments, places, settings)
    folder = Path(out)
    with sole_store(folder / "results") as store:
        results = sweep(
            jobs, measure, guesses=guesses(places), store=store, workers=processes, executor=executor, board=board
        )
        evidence = Evidence(tuple(experiments), places, settings, gather(jobs, results))
        seconds = time.perf_counter() - started
        files = write_report(evidence, folder, workers=processes, seconds=seconds)
    return Reproduction(evidence, checks(evidence), files)


def guesses(places: Sequence[Place]) -> Guesses:
    """Return guesses of what the jobs in these cities take."""
    nodes = {place.network: place.nodes for place in places}

    def size(job: PaperJob) -> estimates.Size:
        return estimates.Size(nodes[job.network], job.outputs)

    return Guesses(
        lambda job: estimates.seconds(job, size(job)),
        lambda job: estimates.gigabytes(job, size(job)),
    )
