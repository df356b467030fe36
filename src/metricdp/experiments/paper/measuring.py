"""What a job of the paper's experiments computes. Runs in any process that finds the cities."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from metricdp import cities
from metricdp._validation import FloatArray, reject
from metricdp.auditing.pairs import audit
from metricdp.bounds.choosing import lower_bound
from metricdp.certificates.proving import certify
from metricdp.cities import RoadNetwork
from metricdp.errors import InvalidInputError, SolverError
from metricdp.experiments.engine.job import Result
from metricdp.experiments.paper.job import PaperJob
from metricdp.experiments.paper.places import digest
from metricdp.experiments.paper.ratios import compare_all_pairs
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.aipo.mechanism import LogConvex
from metricdp.mechanisms.aipo.program import approx_apo, surrogate_cost
from metricdp.mechanisms.aipo.split import budgets_from_shares
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.fitting import fit
from metricdp.mechanisms.options import common_fields, spendable
from metricdp.optimise.engines import solve
from metricdp.optimise.repair import make_feasible
from metricdp.problem import Problem

__all__ = ["measure"]

# Share of its time limit that a job may take before its figures count as decided by the clock.
_BY_CLOCK = 0.95

# Entries of a mechanism's report that are copied into the result.
_FACTS = ("cells", "anchors", "budgets", "splits", "status", "degree", "loss_before_refine")


def measure(job: PaperJob) -> Result:
    """Compute one job; the reason under "error" where its method does not apply."""
    started = time.perf_counter()
    # Sums depend on the number of threads, and figures must not depend on where a job runs.
    with threadpool_limits(1):
        try:
            result = _KINDS[job.kind](job, _problem(job))
        except (InvalidInputError, SolverError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - started
    limit = job.option("time_limit")
    by_clock = job.method == "auto" or (limit is not None and result["seconds"]["fit"] >= _BY_CLOCK * limit)
    return {**result, "by_clock": by_clock, "seconds": {**result["seconds"], "all": seconds}}


def _problem(job: PaperJob) -> Problem:
    problem = _drawn(job.city, job.network, job.outputs, job.tasks, job.seed)
    # The paper's ε is per kilometre of the plane, so the projection, which makes it per true kilometre, is left out.
    return Problem(problem.records, problem.outputs, problem.loss, problem.prior, job.p, problem.bounds)


@lru_cache(maxsize=3)
def _drawn(city: str, network: str, outputs: int, tasks: int, seed: int) -> Problem:
    return _network(city, network).problem(outputs=outputs, tasks=tasks, seed=seed)


@lru_cache(maxsize=3)
def _network(city: str, network: str) -> RoadNetwork:
    found = cities.load(city)
    if digest(found) != network:
        raise reject("city", "the network that the run was planned for", f"{city!r} with other nodes or edges")
    return found


def _fit(job: PaperJob, problem: Problem) -> Result:
    design = _with_other_outputs(problem, job.seed) if job.mismatched else problem
    clock = _Stopwatch()
    mechanism = fit(design, job.epsilon, job.method, certify=False, progress=False, **dict(job.options))
    clock.lap("fit")
    loss = mechanism.expected_loss(problem)
    clock.lap("loss")
    holds = certify(mechanism).holds
    clock.lap("certify")
    result = {
        "loss": loss,
        "uniform_loss": problem.uniform_loss,
        "floor": problem.floor,
        "certified": holds,
        "facts": {"method": mechanism.method} | {n: mechanism.report[n] for n in _FACTS if n in mechanism.report},
        "sample": _sample(job, problem, mechanism) if job.sample else None,
        "search": _search(job, problem, mechanism) if job.pairs else None,
    }
    clock.lap("audit")
    return {**result, "seconds": clock.laps}


def _with_other_outputs(problem: Problem, seed: int) -> Problem:
    """Return the problem with outputs elsewhere, drawn independently of those that the loss belongs to."""
    chosen = np.random.default_rng([seed, 1]).choice(problem.n_records, problem.n_outputs, replace=False)
    return Problem(
        problem.records, problem.records[chosen], problem.loss, problem.prior, problem.p, problem.bounds
    )  # fmt: skip


def _sample(job: PaperJob, problem: Problem, mechanism: Mechanism) -> dict[str, Any]:
    rng = np.random.default_rng([job.seed, 2])
    chosen = rng.choice(problem.n_records, min(job.sample, problem.n_records), replace=False)
    # The guarantee is between the points that the mechanism tells apart.
    points = mechanism.snap(problem.records[chosen])
    return asdict(compare_all_pairs(mechanism.probabilities(points), points, job.epsilon, job.p))


def _search(job: PaperJob, problem: Problem, mechanism: Mechanism) -> dict[str, Any]:
    found = audit(mechanism, points=problem.records, pairs=job.pairs, seed=job.seed)
    return {
        "compared": found.compared,
        "violation_ratio": found.violation_ratio,
        "max_ratio": found.max_ratio,
    }


def _bound(job: PaperJob, problem: Problem) -> Result:
    clock = _Stopwatch()
    value = lower_bound(problem, job.epsilon, kind=job.method, progress=False, **dict(job.options))
    clock.lap("fit")
    return {"loss": value, "floor": problem.floor, "uniform_loss": problem.uniform_loss, "seconds": clock.laps}


def _split(job: PaperJob, problem: Problem) -> Result:
    """Solve Approx-APO for one budget split; its costs may be floored, as in the public code."""
    clock = _Stopwatch()
    grid = Grid.uniform(problem.bounds, job.option("cells"))
    shares = np.array([job.option("share"), 1 - job.option("share")])
    budgets = budgets_from_shares(shares, spendable(job.epsilon) / 2, job.p)
    # The public code sums losses over records, in metres; ours are means in kilometres.
    least = job.option("floor_m") / (1000 * problem.n_records)
    table = _anchor_table(np.maximum(surrogate_cost(problem, grid), least), grid, budgets, job.option("time_limit"))
    clock.lap("fit")
    mechanism = LogConvex(**common_fields(problem, job.epsilon, "aipo"), grid=grid, log_table=np.log(table))
    loss = mechanism.expected_loss(problem)
    clock.lap("loss")
    return {"loss": loss, "facts": {"budgets": budgets.tolist()}, "seconds": clock.laps}


def _anchor_table(cost: FloatArray, grid: Grid, budgets: FloatArray, time_limit: float) -> FloatArray:
    program = approx_apo(cost, grid, budgets)
    solution = solve(program, time_limit=time_limit)
    if solution.table is None or not np.isfinite(solution.table).all():
        raise SolverError(f"{solution.engine} ended with status '{solution.status}'.")
    return make_feasible(solution.table, program.inequality)[0]


class _Stopwatch:
    """Seconds of one step after the other."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


_KINDS = {"fit": _fit, "bound": _bound, "split": _split}
