"""The spline method: one convex program on a grid. `auto` refines the grid while time remains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._clock import Clock
from metricdp._validation import FloatArray, fraction, integer, reject
from metricdp.errors import InvalidInputError, SolverError
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import lattice_step
from metricdp.mechanisms.options import GridOptions, common_fields, require_memory
from metricdp.mechanisms.spline.background import background
from metricdp.mechanisms.spline.mechanism import Spline
from metricdp.mechanisms.spline.program import (
    inscribed_polytope,
    near_coarser,
    spline_program,
    tensor_program,
    worthwhile_coefficients,
)
from metricdp.mechanisms.spline.thinning import SPARSE_SHARE, is_sparse
from metricdp.optimise.engines import Solution, Status, engines_for, solve_shared, solve_tensor
from metricdp.optimise.executors import checked_executor, opened
from metricdp.optimise.programs import SharedProgram, TensorProgram
from metricdp.optimise.repair import make_shared_feasible, make_tensor_feasible
from metricdp.problem import Problem

__all__ = ["COARSE_GAP", "Design", "SplineOptions", "design_by_tiles", "design_on", "fit_spline", "has_coarser"]

_DEFAULT_CELLS = {1: 128, 2: 24, 3: 6}

# Tiles, and the background that they start from, have sizes for up to so many axes.
_MOST_TILED_AXES = 3

# The proof and the draws are exact, on integers. `probabilities` are rounded to floating point; this share of ε stays
# unspent so that they, too, keep the claim between points one lattice step apart.
_KEPT_FOR_PRINTING = 5e-7

# Share of uniform that is mixed into a coarser design, so that a finer one starts inside the cones.
_TRACE = 1e-6

# The relative gap, or the level of the barrier, at which a coarser design stops that tiles go on from; nearer the
# optimum it lies too near the border of its cones. Then the levels that tiles take it and a background to lie at.
COARSE_GAP, _COARSE_UNTIL = 3e-3, 1.5e-3
_COARSE_LEVEL, _BACKGROUND_LEVEL = 0.02, 3.0

# Designs by tiles are made on coarser grids first, each with every second breakpoint of the next: what reaches farther
# than a tile is found there. The coarsest has at least so many cells per axis, on average no wider than this over 1/ε.
_FEWEST_COARSE_CELLS, _WIDEST_COARSE_CELL = {1: 96, 2: 24, 3: 12}, 1.1

# Share of the time left that the coarser designs may take.
_COARSE_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class SplineOptions(GridOptions):
    """Options of "spline" beside the grid's.

    degree : 1, 2 or 3; 2 is best for the time it takes.
    gap : relative gap to the program's own optimum at which the solver stops; "tiles" has no such gap.
    executor : where "tiles" solves its tiles: threads of this process, a `concurrent.futures.Executor`, or the
        scheduler of a Dask cluster as "dask://HOST:PORT".
    """

    breakpoints: str | Sequence[ArrayLike] = "adaptive"
    degree: int = 2
    gap: float = 1e-5
    executor: Executor | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("gap", self.gap)
        if integer("degree", self.degree, 1) > 3:
            raise reject("degree", "1, 2 or 3", self.degree)
        if checked_executor(self.executor) is not None and not self.by_tiles:
            raise InvalidInputError("`executor` is for `solver` = 'tiles'; the other engines solve everything here.")

    @property
    def by_tiles(self) -> bool:
        """Whether the engine improves a table tile by tile."""
        return self.solver in engines_for(TensorProgram)

    @classmethod
    def solvers(cls) -> tuple[str, ...]:
        """Return the engines that this method can use, the one that "auto" means first."""
        return (*engines_for(SharedProgram), *engines_for(TensorProgram))


def fit_spline(problem: Problem, epsilon: float | EpsilonMap, options: SplineOptions) -> Spline:
    """Design a spline mechanism on the grid that the options give, and the borders of the map of ε if there is one."""
    clock = Clock(options.time_limit)
    if options.by_tiles and problem.n_axes > _MOST_TILED_AXES:
        raise reject("solver", f"another than 'tiles' with more than {_MOST_TILED_AXES} axes", repr(options.solver))
    if options.cells is None and isinstance(options.breakpoints, str):
        options = replace(options, cells=_DEFAULT_CELLS.get(problem.n_axes, 3))
    _require_room(options.cells_per_axis(problem.n_axes), problem.n_outputs, options)
    grid = options.grid(problem)
    if isinstance(epsilon, EpsilonMap):
        _require_room(_laid(problem, epsilon, grid, options.degree).spline.grid.cells, problem.n_outputs, options)
    design = design_by_tiles if options.by_tiles else design_on
    return design(problem, epsilon, grid, options, clock).mechanism


def _require_room(cells: tuple[int, ...], n_outputs: int, options: SplineOptions) -> None:
    estimate = tiles_memory_estimate_gb if options.by_tiles else memory_estimate_gb
    require_memory(
        estimate(cells, options.degree, n_outputs),
        f"`cells` = {' x '.join(map(str, cells))} with {n_outputs} outputs",
        "take fewer `cells`, or fewer in the map of `epsilon` if there is one",
    )


@dataclass(frozen=True)
class _Laid:
    """A spline on the lattice whose breakpoints include the borders of a map, and that map of ε in the plane."""

    spline: TensorSpline
    epsilon: EpsilonMap

    def spendable(self, problem: Problem) -> FloatArray:
        """Return the part of ε that slopes may use at each site: of the least ε of all cells that the site touches."""
        kept = SPARSE_SHARE if is_sparse(self.spline.n_rows, problem.n_outputs) else _KEPT_FOR_PRINTING
        return self.spline.least_at_sites(self.epsilon.least_over(self.spline.grid.breakpoints)) * (1 - kept)


def _laid(problem: Problem, epsilon: float | EpsilonMap, grid: Grid, degree: int) -> _Laid:
    step = lattice_step(problem.bounds)
    on_lattice = grid.on_lattice(step)
    given = epsilon if isinstance(epsilon, EpsilonMap) else EpsilonMap.constant(problem.bounds, epsilon)
    local = given.over(on_lattice.bounds, step)
    return _Laid(TensorSpline(on_lattice.including(local.breakpoints), degree), local)


@dataclass(frozen=True)
class Design:
    """A spline mechanism with what the next, finer one can start from."""

    mechanism: Spline
    solution: Solution
    spline: TensorSpline
    coefficients: FloatArray
    site_epsilon: FloatArray


def design_on(
    problem: Problem,
    epsilon: float | EpsilonMap,
    grid: Grid,
    options: SplineOptions,
    clock: Clock,
    coarser: Design | None = None,
) -> Design:
    """Solve the spline program on one grid, changing a coarser design only where that matters."""
    laid = _laid(problem, epsilon, grid, options.degree)
    spline, spent = laid.spline, laid.spendable(problem)
    program = spline_program(problem, spline, spent)
    if coarser is not None:
        worthwhile = worthwhile_coefficients(problem, spline)
        program = near_coarser(program, spline, coarser.spline, coarser.coefficients, worthwhile)
    solution = solve_shared(program, solver=options.solver, gap=options.gap, time_limit=clock.left)
    found = _usable_table(program, solution)
    table, mix = make_shared_feasible(found, program)
    mechanism = _mechanism_of(problem, epsilon, laid, table)
    raw = program.objective(found)
    bound = None if solution.multipliers is None else program.dual_value(solution.multipliers)
    facts = {
        "residual": float(max(program.excess(found).max(), 0.0)),
        "program_bound": bound,
        "gap": None if bound is None else (mechanism.report["loss"] - bound) / _size(mechanism.report["loss"]),
        "support_share": 1.0 if program.support is None else float(program.support.mean()),
    }
    mechanism = _reported(mechanism, solution, raw, problem.p, facts | {"repair_mix": mix}, clock)
    _say(options, mechanism)
    return Design(mechanism, solution, spline, table, spent)


def _usable_table(program: SharedProgram, solution: Solution) -> FloatArray:
    """Return the solver's table, or uniform rows if time ran out before it had one."""
    if solution.table is not None and np.isfinite(solution.table).all():
        return solution.table
    if solution.status is Status.TIME_LIMIT:
        return np.full(program.cost.shape, 1 / program.cost.shape[1])
    msg = f"{solution.engine} ended with status '{solution.status}' on a program that has a solution."
    raise SolverError(msg)


def design_by_tiles(
    problem: Problem,
    epsilon: float | EpsilonMap,
    grid: Grid,
    options: SplineOptions,
    clock: Clock,
    coarser: Design | None = None,
) -> Design:
    """Improve a feasible spline tile by tile, from near Laplace noise with remap or from a coarser design.

    A coarser design's breakpoints must be among the grid's, and its solver should have stopped at a gap of about
    `COARSE_GAP`. Without one, the grid's own coarser grids come first.
    """
    laid = _laid(problem, epsilon, grid, options.degree)
    spline, spent = laid.spline, laid.spendable(problem)
    program = tensor_program(problem, spline, spent)
    if coarser is None:
        start, gap = _started(problem, epsilon, laid, program, float(spent.min()), options, clock)
    else:
        start, gap = _from_coarser(program, spline, coarser.spline, coarser.coefficients), _COARSE_LEVEL
    if start is None and clock.over and max(grid.cells) > 1:  # uniform rows on one cell are the same and take no time
        return design_by_tiles(problem, epsilon, Grid.uniform(problem.bounds, 1), options, clock)
    facts: dict[str, Any] = {"start_loss": None if start is None else program.objective(start)}
    if start is None:  # uniform rows are inside every cone
        start = np.full(program.cost.shape, 1 / problem.n_outputs)
    solution = _improved(program, start, gap, options, clock)
    assert solution.table is not None
    table, mix = make_tensor_feasible(solution.table, program)
    coefficients = table.reshape(-1, problem.n_outputs)
    mechanism = _mechanism_of(problem, epsilon, laid, coefficients)
    # The repair mixes in what the worst excess over a cone asks for, or the least mix if there is none.
    facts |= {"repair_mix": mix, "residual": mix / (1 - mix) / problem.n_outputs}
    facts |= {"program_bound": None, "gap": None}
    mechanism = _reported(mechanism, solution, program.objective(solution.table), problem.p, facts, clock)
    _say(options, mechanism)
    return Design(mechanism, solution, spline, coefficients, spent)


def _started(
    problem: Problem,
    epsilon: float | EpsilonMap,
    laid: _Laid,
    program: TensorProgram,
    least: float,
    options: SplineOptions,
    clock: Clock,
) -> tuple[FloatArray | None, float]:
    """Return a table inside all cones, of a coarser grid or a background, and the level that it lies at.

    least : the least ε of the program's sites.
    """
    coarser = _coarser_table(problem, epsilon, laid, options, clock)
    if coarser is not None:
        return _from_coarser(program, laid.spline, *coarser), _COARSE_LEVEL
    return background(problem, laid.spline, program, least, clock), _BACKGROUND_LEVEL


def _coarser_table(
    problem: Problem, epsilon: float | EpsilonMap, laid: _Laid, options: SplineOptions, clock: Clock
) -> tuple[TensorSpline, FloatArray] | None:
    """Return a spline on every second breakpoint with coefficients that tiles improved, or None if it were too coarse.

    It may itself have started on a still coarser grid.
    """
    grid = laid.spline.grid
    if not has_coarser(grid.cells, laid.epsilon.max * float(np.ptp(grid.bounds, axis=0).max())):
        return None
    coarse = _laid(problem, epsilon, grid.thinned(), options.degree)
    # A finer spline may be sparse, which leaves more of ε unspent; what is found here must be feasible there, too.
    spline, spent = coarse.spline, (1 - SPARSE_SHARE) * coarse.spendable(problem)
    program = tensor_program(problem, spline, spent)
    time = Clock(None if clock.left is None else _COARSE_SHARE * clock.left)
    start, gap = _started(problem, epsilon, coarse, program, float(spent.min()), options, time)
    if start is None:
        return None
    table = _improved(program, start, gap, options, time, until=_COARSE_UNTIL).table
    assert table is not None
    return spline, table.reshape(-1, problem.n_outputs)


def has_coarser(cells: tuple[int, ...], side: float) -> bool:
    """Return whether a design by tiles on so many cells comes after one on half of them.

    side : ε times the longest side of the box.
    """
    halves = [count // 2 for count in cells]
    enough = min(halves) >= _FEWEST_COARSE_CELLS[len(cells)] and not any(count % 2 for count in cells)
    return enough and side / max(halves) <= _WIDEST_COARSE_CELL


def _improved(
    program: TensorProgram,
    start: FloatArray,
    gap: float,
    options: SplineOptions,
    clock: Clock,
    until: float | None = None,
) -> Solution:
    with opened(options.executor) as where:
        return solve_tensor(
            program,
            start,
            gap=gap,
            until=until,
            solver=options.solver,
            time_limit=clock.left,
            executor=where.executor,
            progress=options.progress,
        )


def _from_coarser(
    program: TensorProgram, spline: TensorSpline, coarser: TensorSpline, coefficients: FloatArray
) -> FloatArray:
    """Return the coefficients of a coarser spline on a finer one, strictly inside all cones."""
    same = np.asarray(spline.from_coarser(coarser) @ coefficients).reshape(program.cost.shape)
    inside, _ = make_tensor_feasible(same, program)
    return (1 - _TRACE) * inside + _TRACE / inside.shape[-1]


def _mechanism_of(problem: Problem, epsilon: float | EpsilonMap, laid: _Laid, coefficients: FloatArray) -> Spline:
    """Return the mechanism of coefficients inside all cones, with its loss in the report."""
    common = common_fields(problem, laid.epsilon.max, "spline")
    common["epsilon_map"] = laid.epsilon if isinstance(epsilon, EpsilonMap) else None
    mechanism = Spline.from_coefficients(common, lattice_step(problem.bounds), laid.spline, coefficients)
    return mechanism.with_report(loss=mechanism.expected_loss(problem))


def _say(options: SplineOptions, mechanism: Spline) -> None:
    if options.progress is not None:
        cells = " x ".join(map(str, mechanism.grid.cells))
        options.progress(1.0, f"{cells} cells: loss {mechanism.report['loss']:.4f}")


def memory_estimate_gb(cells: tuple[int, ...], degree: int, n_outputs: int) -> float:
    """Estimate the peak memory of the structured solver, in GB, from the numbers of cells alone."""
    coefficients = math.prod(float(count + degree) for count in cells)
    sites = math.prod(float(degree * count + 1) for count in cells)
    band = degree * coefficients / max(count + degree for count in cells) + degree
    dense = 6 * coefficients**2 * 8
    # Along an axis a site's value uses up to `degree` coefficients and its slope one more. With degree 1 a breakpoint
    # is two sites.
    assembly = sites * max(4, degree * (degree + 1)) ** len(cells) * (len(cells) + 1) ** 2 * 16
    vectors = 40 * sites * n_outputs * (len(cells) + 1) * 8
    return float(dense + assembly + vectors + 3 * band * coefficients * n_outputs * 8) / 1e9


def tiles_memory_estimate_gb(cells: tuple[int, ...], degree: int, n_outputs: int) -> float:
    """Estimate the peak memory of a design by tiles, in GB: tables of coefficients, then the integer rows, if dense.

    Sparse rows are made a few at a time. Rome, 400 outputs, 200 x 200 cells took 1.6 GB, 1,000 on 128 x 128 2.3 GB.
    """
    coefficients = math.prod(float(count + degree) for count in cells)
    sites = math.prod(degree * count + 1 for count in cells)
    rows = 0 if is_sparse(sites, n_outputs) else 6 * sites
    return float(16 * coefficients + rows) * n_outputs * 8 / 1e9


def _reported(
    mechanism: Spline, solution: Solution, raw: float, p: float, facts: dict[str, Any], clock: Clock
) -> Spline:
    """Say how the solver's table came about, and how the finished mechanism's loss compares with `raw`, the table's."""
    loss, grid = mechanism.report["loss"], mechanism.grid
    facts = facts | {
        "solver": solution.engine,
        "status": str(solution.status),
        "solver_seconds": solution.seconds,
        "iterations": solution.iterations,
        "lost_to_repair_and_integers": (loss - raw) / _size(loss),
        "cells": list(grid.cells),
        "degree": mechanism.degree,
        "coefficients": mechanism.spline.n_coefficients,
        "seconds": clock.spent,
    }
    if p not in (1, 2, math.inf) and grid.n_axes > 1:
        facts["polytope_share"] = inscribed_polytope(grid.n_axes, p)[1]
    return mechanism.with_report(**facts)


def _size(loss: float) -> float:
    return max(abs(loss), 1e-300)
