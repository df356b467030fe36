"""Method copt, ConstOPT of Imola et al. (2022): a linear program near each output, exponential elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._clock import Clock
from metricdp._validation import fraction, integer
from metricdp.geometry.norms import pairwise_distances
from metricdp.mechanisms.gridded.cells import Cells, cellwise_mechanism
from metricdp.mechanisms.gridded.copt_program import weights_program
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.mechanisms.options import GridOptions, spendable
from metricdp.optimise.engines.inequalities import solve_inequalities
from metricdp.optimise.lazy_constraints import private_between
from metricdp.problem import Problem

__all__ = ["CoptOptions", "fit_copt"]


@dataclass(frozen=True, kw_only=True)
class CoptOptions(GridOptions):
    """Options of "copt" beside the grid's; its program is solved by HiGHS.

    nearest : r, how many cells nearest to each output have free weights; all others follow e^{−s d}.
    share : s / ε, what the weights may spend. Normalising the rows may double it, so one half keeps the rows
        (ε, d_p)-mDP between cell centres before any repair, as for the exponential mechanism.
    """

    nearest: int = 24
    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("nearest", self.nearest, 1)
        if self.share != 1:
            fraction("share", self.share)

    @classmethod
    def solvers(cls) -> tuple[str, ...]:
        """Return the only engine for its program, which is not of the form that the others share."""
        return ("highs",)


def fit_copt(problem: Problem, epsilon: float, options: CoptOptions) -> Cellwise:
    """Solve for the weights, normalise their rows, and repair what rounding broke between centres."""
    clock = Clock(options.time_limit)
    cells = Cells.lay(problem, options)
    budget = spendable(epsilon)
    mean_loss = cells.cost / np.where(cells.mass > 0, cells.mass, 1.0)[:, None]
    away = pairwise_distances(cells.centres, problem.outputs, problem.p)
    program = weights_program(mean_loss, cells.mass, cells.apart, away, options.share * budget, options.nearest)
    found = solve_inequalities(program.cost, program.matrix, program.right, time_limit=clock.left)
    weights = program.fallback if found.variables is None else program.weights(found.variables)
    worst = None if found.variables is None else program.worst_loss(found.variables)
    table, mix = private_between(weights, np.exp(-budget * cells.apart))
    if options.progress is not None:
        options.progress(1.0, f"worst row {worst}")
    facts = {
        "solver": "highs",
        "status": str(found.status),
        "iterations": found.iterations,
        "repair_mix": mix,
        "worst_row_loss": worst,
        "nearest": options.nearest,
        "share": options.share,
        "seconds": clock.spent,
    }
    return cellwise_mechanism(problem, epsilon, "copt", cells, table, facts)
