"""Method lp (Bordenabe et al. 2014): the optimal mechanism between the centres of cells, and only between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metricdp._clock import Clock
from metricdp.mechanisms.gridded.cells import Cells, cellwise_mechanism
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.mechanisms.options import GridOptions, spendable
from metricdp.optimise.lazy_constraints import Optimum, solve_lazily
from metricdp.problem import Problem

__all__ = ["LpOptions", "fit_lp"]


@dataclass(frozen=True, kw_only=True)
class LpOptions(GridOptions):
    """Options of "lp": those of every method that lays a grid."""


def fit_lp(problem: Problem, epsilon: float, options: LpOptions) -> Cellwise:
    """Minimise Σ_x π(x) Σ_k L(x, k) Z_{cell(x) k} with Z_ik ≤ e^{ε d_p(c_i, c_j)} Z_jk for all centres c."""
    clock = Clock(options.time_limit)
    cells = Cells.lay(problem, options)
    found = solve_lazily(
        cells.cost,
        cells.apart,
        spendable(epsilon),
        cells.starting_pairs(problem.p),
        solver=options.solver,
        clock=clock,
        progress=options.progress,
    )
    facts = {**_lp_facts(found), "seconds": clock.spent}
    return cellwise_mechanism(problem, epsilon, "lp", cells, found.table, facts)


def _lp_facts(found: Optimum) -> dict[str, Any]:
    return {
        "solver": found.solution.engine,
        "status": str(found.solution.status) if found.complete else "not converged",
        "solver_seconds": found.solution.seconds,
        "iterations": found.solution.iterations,
        "repair_mix": found.mix,
        "bound": found.bound,
        "rounds": found.rounds,
        "constraints": found.constraints,
    }
