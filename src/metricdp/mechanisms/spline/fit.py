"""The spline method: one convex program on a grid. `auto` refines the grid while time remains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._clock import Clock
from metricdp._validation import FloatArray, fraction, integer, reject
from metricdp.errors import SolverError
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import lattice_step
from metricdp.mechanisms.options import GridOptions, common_fields, require_memory
from metricdp.mechanisms.spline.mechanism import Spline
from metricdp.mechanisms.spline.program import inscribed_polytope, near_coarser, spline_program
from metricdp.mechanisms.spline.thinning import SPARSE_SHARE, is_sparse
from metricdp.optimise.engines import Solution, Status, engines_for, solve_shared
from metricdp.optimise.programs import SharedProgram
from metricdp.optimise.repair import make_shared_feasible
from metricdp.problem import Problem

__all__ = ["SplineOptions", "fit_spline"]

_DEFAULT_CELLS = {1: 128, 2: 24, 3: 6}

# The proof and the draws are exact, on integers. `probabilities` are rounded to floating point; this share of ε stays
# unspent so that they, too, keep the claim between points one lattice step apart.
_KEPT_FOR_PRINTING = 5e-7


@dataclass(frozen=True, kw_only=True)
class SplineOptions(GridOptions):
    """Options of "spline" beside the grid's.

    degree : 1, 2 or 3; 2 is best for the time it takes.
    gap : relative gap to the program's own optimum at which the solver stops.
    """

    breakpoints: str | Sequence[ArrayLike] = "adaptive"
    degree: int = 2
    gap: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("gap", self.gap)
        if integer("degree", self.degree, 1) > 3:
            raise reject("degree", "1, 2 or 3", self.degree)

    @classmethod
    def solvers(cls) -> tuple[str, ...]:
        """Return the engines that this method can use, the one that "auto" means first."""
        return tuple(engines_for(SharedProgram))


def fit_spline(problem: Problem, epsilon: float, options: SplineOptions) -> Spline:
    """Design a spline mechanism on the grid that the options give."""
    clock = Clock(options.time_limit)
    if options.cells is None and isinstance(options.breakpoints, str):
        options = replace(options, cells=_DEFAULT_CELLS.get(problem.n_axes, 3))
    cells = options.cells_per_axis(problem.n_axes)
    require_memory(
        memory_estimate_gb(cells, options.degree, problem.n_outputs),
        f"`cells` = {' x '.join(map(str, cells))} with {problem.n_outputs} outputs",
        "take fewer `cells`",
    )
    return design_on(problem, epsilon, options.grid(problem), options, clock).mechanism


@dataclass(frozen=True)
class Design:
    """A spline mechanism with what the next, finer one can start from."""

    mechanism: Spline
    solution: Solution
    spline: TensorSpline
    coefficients: FloatArray


def design_on(
    problem: Problem,
    epsilon: float,
    grid: Grid,
    options: SplineOptions,
    clock: Clock,
    coarser: Design | None = None,
) -> Design:
    """Solve the spline program on one grid, changing a coarser design only where that matters."""
    step = lattice_step(problem.bounds)
    spline = TensorSpline(grid.on_lattice(step), options.degree)
    kept = SPARSE_SHARE if is_sparse(spline.n_rows, problem.n_outputs) else _KEPT_FOR_PRINTING
    program = spline_program(problem, spline, epsilon * (1 - kept))
    if coarser is not None:
        program = near_coarser(program, spline, coarser.spline, coarser.coefficients)
    solution = solve_shared(program, solver=options.solver, gap=options.gap, time_limit=clock.left)
    table, mix = make_shared_feasible(_usable_table(program, solution), program)
    common = common_fields(problem, epsilon, "spline")
    mechanism = Spline.from_coefficients(common, step, spline, table)
    loss = mechanism.expected_loss(problem)
    report = _report(program, solution, spline, problem.p, loss) | {"repair_mix": mix, "seconds": clock.spent}
    mechanism = mechanism.with_report(**report)
    if options.progress is not None:
        options.progress(1.0, f"{' x '.join(map(str, grid.cells))} cells: loss {loss:.4f}")
    return Design(mechanism, solution, spline, table)


def _usable_table(program: SharedProgram, solution: Solution) -> FloatArray:
    """Return the solver's table, or uniform rows if time ran out before it had one."""
    if solution.table is not None and np.isfinite(solution.table).all():
        return solution.table
    if solution.status is Status.TIME_LIMIT:
        return np.full(program.cost.shape, 1 / program.cost.shape[1])
    msg = f"{solution.engine} ended with status '{solution.status}' on a program that has a solution."
    raise SolverError(msg)


def memory_estimate_gb(cells: tuple[int, ...], degree: int, n_outputs: int) -> float:
    """Estimate the peak memory of the structured solver, in GB, from the numbers of cells alone."""
    coefficients = math.prod(float(count + degree) for count in cells)
    sites = math.prod(float(degree * count + 1) for count in cells)
    band = degree * coefficients / max(count + degree for count in cells) + degree
    dense = 6 * coefficients**2 * 8
    assembly = sites * (degree + 1) ** (2 * len(cells)) * (len(cells) + 1) ** 2 * 16
    vectors = 40 * sites * n_outputs * (len(cells) + 1) * 8
    return float(dense + assembly + vectors + 3 * band * coefficients * n_outputs * 8) / 1e9


def _report(program: SharedProgram, solution: Solution, spline: TensorSpline, p: float, loss: float) -> dict[str, Any]:
    """Say how the solver's table came about and how `loss`, that of the finished mechanism, compares with it."""
    raw = _usable_table(program, solution)
    bound = None if solution.multipliers is None else program.dual_value(solution.multipliers)
    size = max(abs(loss), 1e-300)
    facts = {
        "solver": solution.engine,
        "status": str(solution.status),
        "solver_seconds": solution.seconds,
        "iterations": solution.iterations,
        "residual": float(max(program.excess(raw).max(), 0.0)),
        "loss": loss,
        "lost_to_repair_and_integers": (loss - program.objective(raw)) / size,
        "program_bound": bound,
        "gap": None if bound is None else (loss - bound) / size,
        "cells": list(spline.grid.cells),
        "degree": spline.degree,
        "coefficients": spline.n_coefficients,
        "support_share": 1.0 if program.support is None else float(program.support.mean()),
    }
    if p not in (1, 2, math.inf) and spline.grid.n_axes > 1:
        facts["polytope_share"] = inscribed_polytope(spline.grid.n_axes, p)[1]
    return facts
