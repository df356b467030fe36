"""The default: the best certified mechanism that the time allows."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from metricdp._clock import Clock
from metricdp._validation import FloatArray, positive
from metricdp.errors import InvalidInputError
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.aipo.fit import AipoOptions, fit_aipo_equal
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.exponential.fit import TruncatedOptions, fit_em, fit_em_remap, fit_tem
from metricdp.mechanisms.laplace.fit import LaplaceOptions, fit_laplace, fit_laplace_remap
from metricdp.mechanisms.losses import Loss, estimated_loss, exact_loss, loss_within
from metricdp.mechanisms.options import ClosedFormOptions, ProgressCallback, free_memory_gb
from metricdp.mechanisms.spline.fit import (
    COARSE_GAP,
    Design,
    SplineOptions,
    design_by_tiles,
    design_on,
    memory_estimate_gb,
)
from metricdp.mechanisms.spline.mechanism import Spline
from metricdp.mechanisms.spline.plan import TilePlan
from metricdp.mechanisms.spline.program import has_cones
from metricdp.optimise.executors import Workplace, checked_executor, opened
from metricdp.problem import Problem

__all__ = ["AutoOptions", "fit_auto"]

# Cells per axis of the first spline, by number of axes.
_FIRST_CELLS = {1: 32, 2: 12, 3: 4, 4: 2}

# The time of a solve grows with the cells of an axis to about this power, by number of axes.
_TIME_EXPONENT = {1: 1.5, 2: 3.6, 3: 8.0, 4: 8.0}

# Refinement spends the time left in one go if that multiplies the cells of an axis by no more than the largest growth,
# in several steps otherwise, and ends where it would be less than the least.
_LARGEST_GROWTH, _LEAST_GROWTH = 2.6, 1.1
_TIME_SHARE = 0.8

# Designs by tiles need so many cells per axis, and are repeated on finer grids of so many times the cells.
_FEWEST_TILED_CELLS, _LEAST_GROWTH_OF_TILES = 24, 1.25

# Splines whose cells are no wider than this over 1/ε, on average, mostly win against noise. (Rome: cells of 1.45 won by
# 11 % of the excess with 300 outputs at ε = 4, and by 13 % with 400 at ε = 8; cells of 1.7 lost with 1,000 at ε = 8.)
_COMPETITIVE = 1.5

# How busy the machine is shows in closed forms that take at least so many seconds; more than this is not believed.
_SHORTEST_LOOK, _LARGEST_SLOWDOWN = 0.5, 10.0

# Refinement ends once a finer grid gains less than this share of the loss.
_WORTHWHILE = 2e-4

# Shares of the time that the loss of one closed form may take, and its remap.
_LOSS_SHARE, _LAPLACE_REMAP_SHARE, _EM_REMAP_SHARE = 0.05, 0.4, 0.1

# A loss that is estimated lies within so many standard errors of the estimate, in all probability.
_DECIDED = 6.0


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """Options of "auto".

    time_limit : seconds to spend, the proof included. The answer comes at most a fifth and two seconds later. Losses
        that cannot be computed in time are estimated, and the report says so: `loss_exact`, `loss_error`, and in
        `undecided` the methods that may be better than the one returned for all that is known. Where no spline won
        and a finer one might, `longer_time_limit` says about which limit that would take.
    progress : called with the fraction done and a few words.
    executor : where designs by tiles solve their tiles: threads of this process, a `concurrent.futures.Executor`, or
        the scheduler of a Dask cluster as "dask://HOST:PORT". All else is computed here.
    """

    time_limit: float = 60.0
    progress: ProgressCallback | None = None
    executor: Executor | str | None = None

    def __post_init__(self) -> None:
        positive("time_limit", self.time_limit)
        checked_executor(self.executor)

    def say(self, clock: Clock, words: str) -> None:
        """Tell the caller how much of the time is spent, and on what."""
        if self.progress is not None:
            self.progress(min(clock.spent / self.time_limit, 1.0), words)


def fit_auto(problem: Problem, epsilon: float | EpsilonMap, options: AutoOptions) -> tuple[Mechanism, ...]:
    """Return closed forms and the best of splines that are refined while time remains, the least loss first.

    Of a map of ε most closed forms take the least; "em" and splines make use of all of it.
    """
    clock = Clock(options.time_limit)
    # First of all, so that a cluster that does not answer is noticed before the work.
    with opened(options.executor, options.time_limit) as where:
        return _best(problem, epsilon, options, clock, where)


def _best(
    problem: Problem, epsilon: float | EpsilonMap, options: AutoOptions, clock: Clock, where: Workplace
) -> tuple[Mechanism, ...]:
    started, processor_started = clock.spent, time.process_time()
    contest = _Contest(problem, clock)
    for mechanism in _closed_forms(problem, epsilon, options, clock):
        contest.enter(mechanism, loss_within(mechanism, problem, _LOSS_SHARE * options.time_limit))
        options.say(clock, f"{mechanism.method}: loss {contest.entries[-1].loss.value:.4f}")
    splines: list[dict[str, Any]] = []
    slowdown = _slowdown(clock.spent - started, time.process_time() - processor_started)
    plan = TilePlan.of(problem, epsilon, slowdown, where.workers)
    closed_seconds = clock.spent
    spline = _best_spline(problem, epsilon, plan, replace(options, executor=where.executor), clock, splines)
    if spline is not None:
        contest.enter(spline, Loss.exactly(spline.report["loss"]))
    contest.decide()
    options.say(clock, f"{contest.ranked()[0].mechanism.method} has the least loss")
    return contest.candidates(splines, _longer_limit(plan, closed_seconds, options.time_limit, splines))


def _longer_limit(
    plan: TilePlan | None, closed_seconds: float, limit: float, tried: list[dict[str, Any]]
) -> float | None:
    """Return about which time limit, at least, would let a spline be designed that may win; in steps of ten seconds.

    None if one as fine was tried, or if none can be had.
    """
    finest = max((max(one["cells"]) for one in tried), default=0)
    if plan is None or plan.width(finest) <= _COMPETITIVE:
        return None
    seconds = max(2 * limit, closed_seconds + plan.seconds_for(_COMPETITIVE))
    return 10.0 * math.ceil(seconds / 10) if math.isfinite(seconds) else None


@dataclass
class _Entry:
    """A mechanism, what is known of its loss, and what the loss is at least and at most in all probability."""

    mechanism: Mechanism
    loss: Loss

    @property
    def least(self) -> float:
        return self.loss.value - _DECIDED * self.loss.error

    @property
    def most(self) -> float:
        return self.loss.value + _DECIDED * self.loss.error


@dataclass
class _Contest:
    """Mechanisms of which the one with the least loss is to be found while time lasts."""

    problem: Problem
    clock: Clock
    entries: list[_Entry] = field(default_factory=list)

    def enter(self, mechanism: Mechanism, loss: Loss) -> None:
        self.entries.append(_Entry(mechanism, loss))

    def ranked(self) -> list[_Entry]:
        """Return all entries, the least loss first."""
        return sorted(self.entries, key=lambda entry: entry.loss.value)

    def rivals(self) -> list[_Entry]:
        """Return the entries that may have the least loss for all that is known, in order."""
        most = min(entry.most for entry in self.entries)
        return [entry for entry in self.ranked() if entry.least <= most]

    def decide(self) -> None:
        """Replace the estimates of rivals by exact losses, or by better estimates where time does not allow that."""
        while estimates := [entry for entry in self.rivals() if not entry.loss.exact]:
            exact = exact_loss(estimates[0].mechanism, self.problem, self.clock)
            if exact is None:
                break
            estimates[0].loss = exact
        for number, entry in enumerate(estimates):
            if not self.clock.over:
                seconds = self.clock.at_most(math.inf) / (len(estimates) - number)
                entry.loss = estimated_loss(entry.mechanism, self.problem, seconds)

    def candidates(self, splines: list[dict[str, Any]], longer_limit: float | None) -> tuple[Mechanism, ...]:
        """Return the mechanisms in order, with what was tried and which others may be better for all that is known.

        longer_limit : with which time limit a finer spline might win, if none did.
        """
        best, *others = self.ranked()
        closed = [entry for entry in (best, *others) if entry.mechanism.method != "spline"]
        facts = {
            "tried": splines + [{"method": entry.mechanism.method, **entry.loss.facts()} for entry in closed],
            "undecided": [entry.mechanism.method for entry in others if entry.least < best.most],
            "seconds": self.clock.spent,
        }
        if longer_limit is not None and best.mechanism.method != "spline":
            facts["longer_time_limit"] = longer_limit
        return tuple(entry.mechanism.with_report(**entry.loss.facts(), **facts) for entry in (best, *others))


def _closed_forms(
    problem: Problem, given: float | EpsilonMap, options: AutoOptions, clock: Clock
) -> Iterator[Mechanism]:
    """Yield the mechanisms that cost next to nothing, and AIPO where Laplace noise does not support the problem.

    The first takes no time, so there is always an answer; others are left out once the clock has run out.
    """
    epsilon = given.min if isinstance(given, EpsilonMap) else given
    yield fit_em(problem, epsilon, ClosedFormOptions())
    if isinstance(given, EpsilonMap) and not given.is_constant and not clock.over:
        yield fit_em(problem, given, ClosedFormOptions())
    try:
        for design in (fit_laplace, fit_laplace_remap):
            if not clock.over:
                yield design(problem, epsilon, LaplaceOptions(time_limit=_LAPLACE_REMAP_SHARE * options.time_limit))
    except InvalidInputError:
        yield fit_aipo_equal(problem, epsilon, AipoOptions(scale="certified", time_limit=options.time_limit / 2))
    if not clock.over:
        yield fit_tem(problem, epsilon, TruncatedOptions())
    if not clock.over:
        yield fit_em_remap(problem, epsilon, ClosedFormOptions(time_limit=_EM_REMAP_SHARE * options.time_limit))


def _slowdown(seconds: float, processor_seconds: float) -> float:
    """Return how many seconds a processor second takes here now, as closed forms show, which only compute."""
    if seconds < _SHORTEST_LOOK:
        return 1.0
    return float(np.clip(seconds / max(processor_seconds, 1e-9), 1.0, _LARGEST_SLOWDOWN))


def _best_spline(
    problem: Problem,
    epsilon: float | EpsilonMap,
    plan: TilePlan | None,
    options: AutoOptions,
    clock: Clock,
    tried: list[dict[str, Any]],
) -> Spline | None:
    """Return the best spline that the time allows: by tiles where they were measured to be better."""
    if plan is None or plan.affordable_cells(clock.at_most(math.inf)) < _FEWEST_TILED_CELLS:
        return _best_by_whole_programs(problem, epsilon, options, clock, tried)
    return _best_by_tiles(problem, epsilon, plan, options, clock, tried)


def _best_by_tiles(
    problem: Problem,
    epsilon: float | EpsilonMap,
    plan: TilePlan,
    options: AutoOptions,
    clock: Clock,
    tried: list[dict[str, Any]],
) -> Spline | None:
    """Design on as many cells as the time allows, and once more on finer ones if the first took less than thought."""
    best: Spline | None = None
    cells = plan.affordable_cells(clock.at_most(math.inf))
    while cells >= _FEWEST_TILED_CELLS and not clock.over:
        mechanism = _tiled(problem, epsilon, plan, cells, options.executor, clock)
        loss = mechanism.report["loss"]
        tried.append({"method": "spline", "solver": "tiles", "cells": list(mechanism.grid.cells), "loss": loss})
        options.say(clock, f"spline with {' x '.join(map(str, mechanism.grid.cells))} cells: loss {loss:.4f}")
        gained = math.inf if best is None else best.report["loss"] - loss
        if gained > 0:
            best = mechanism
        finer = plan.affordable_cells(clock.at_most(math.inf))
        if gained < _WORTHWHILE * abs(loss) or finer < _LEAST_GROWTH_OF_TILES * cells:
            break
        cells = finer
    return best


def _tiled(
    problem: Problem,
    epsilon: float | EpsilonMap,
    plan: TilePlan,
    cells: int,
    executor: Executor | str | None,
    clock: Clock,
) -> Spline:
    """Design on a graded grid; where outputs reach far, a whole program on half the cells comes first."""
    by_tiles = SplineOptions(solver="tiles", degree=plan.degree, executor=executor)
    finish = plan.finishing_seconds(cells)
    step = Clock(max(clock.at_most(math.inf) - finish, 1e-3))
    if plan.is_local:
        grid = Grid.graded(problem.bounds, cells, problem.records, problem.prior)
        return design_by_tiles(problem, epsilon, grid, by_tiles, step).mechanism
    grid = _coarse_grid(problem, epsilon, cells // 2)
    coarse = design_on(problem, epsilon, grid, SplineOptions(gap=COARSE_GAP, degree=plan.degree), step)
    finer = refined(coarse.spline.grid, _pressure(coarse), 2.0)
    return design_by_tiles(problem, epsilon, finer, by_tiles, step, coarse).mechanism


def _coarse_grid(problem: Problem, epsilon: float | EpsilonMap, cells: int) -> Grid:
    """Return a graded grid that has about so many cells per axis together with the borders of a map of ε."""
    grid = Grid.graded(problem.bounds, cells, problem.records, problem.prior)
    if not isinstance(epsilon, EpsilonMap):
        return grid
    borders = epsilon.cropped(problem.bounds).breakpoints
    for count in range(cells, 1, -2):
        grid = Grid.graded(problem.bounds, count, problem.records, problem.prior).including(borders)
        if max(grid.cells) <= cells:
            break
    return grid


def _best_by_whole_programs(
    problem: Problem, epsilon: float | EpsilonMap, options: AutoOptions, clock: Clock, tried: list[dict[str, Any]]
) -> Spline | None:
    """Solve on finer and finer nested grids while time remains, cutting where steeper slopes would gain most."""
    if problem.n_axes not in _FIRST_CELLS or not has_cones(problem.n_axes, problem.p):
        return None
    grid = Grid.adaptive(problem.bounds, _FIRST_CELLS[problem.n_axes], problem.records, problem.prior)
    degree = 3 if problem.n_axes < 3 else 2
    best: Design | None = None
    while not clock.over and memory_estimate_gb(grid.cells, degree, problem.n_outputs) < 0.5 * free_memory_gb():
        step = Clock(clock.left)
        design = design_on(problem, epsilon, grid, SplineOptions(gap=2e-4, degree=degree), step, best)
        loss = design.mechanism.report["loss"]
        cells = design.mechanism.grid.cells
        tried.append({"method": "spline", "cells": list(cells), "loss": loss})
        options.say(clock, f"spline with {' x '.join(map(str, cells))} cells: loss {loss:.4f}")
        gained = math.inf if best is None else best.mechanism.report["loss"] - loss
        if gained > 0:
            best = design
        growth = _affordable_growth(options.time_limit - clock.spent, step.spent, problem.n_axes)
        if gained < _WORTHWHILE * abs(loss) or growth < _LEAST_GROWTH or design.solution.multipliers is None:
            break
        grid = refined(design.spline.grid, _pressure(design), growth)
    return None if best is None else best.mechanism


def _affordable_growth(seconds_left: float, seconds_spent: float, n_axes: int) -> float:
    """Return by how much to multiply the cells of an axis next, so that the last solve ends in time."""
    ratio = max(_TIME_SHARE * seconds_left / seconds_spent, 1e-9)
    growth = ratio ** (1 / _TIME_EXPONENT[n_axes])
    if growth <= _LARGEST_GROWTH:
        return growth
    return min(math.sqrt(growth), 2.0)


def _pressure(design: Design) -> list[FloatArray]:
    """Return, per axis and cell, how much a finer cell would gain.

    A cone's multiplier times ε b says what allowing steeper slopes at its site is worth; a spline on cells of side h
    reaches the steepest slope but for a share that grows like (εh)², with the site's own ε.
    """
    assert design.solution.multipliers is not None
    grid, m = design.spline.grid, design.spline.degree
    shape = tuple(m * cells + 1 for cells in grid.cells)
    value = (design.spline.cone_operators()[0] @ design.coefficients).reshape((*shape, -1))
    # Linear programs have several inequalities at each site; their multipliers are added.
    worth = (design.solution.multipliers[0].reshape((-1, *shape, value.shape[-1])).sum(axis=0) * value).sum(axis=-1)
    worth *= design.site_epsilon**3
    pressures = []
    for axis, points in enumerate(grid.breakpoints):
        along = worth.sum(axis=tuple(other for other in range(grid.n_axes) if other != axis))
        start = m * np.arange(len(points) - 1)
        inside = along[start[:, None] + np.arange(m + 1)].sum(axis=1)
        pressures.append(inside * np.diff(points) ** 2)
    return pressures


def refined(grid: Grid, pressures: list[FloatArray], growth: float) -> Grid:
    """Halve the cell under most pressure, again and again, until each axis has `growth` times as many cells.

    Half a cell has half the multipliers and a quarter of the square of its side: an eighth of the pressure.
    """
    axes = []
    for points, pressure in zip(grid.breakpoints, pressures, strict=True):
        heap = [
            (-float(push), float(left), float(right))
            for push, left, right in zip(pressure, points, points[1:], strict=False)
        ]
        heapq.heapify(heap)
        for _ in range(max(1, round((growth - 1) * len(pressure)))):
            push, left, right = heap[0]
            middle = (left + right) / 2
            heapq.heapreplace(heap, (push / 8, left, middle))
            heapq.heappush(heap, (push / 8, middle, right))
        axes.append(np.sort([*(left for _, left, _ in heap), points[-1]]))
    return Grid.from_breakpoints(axes)
