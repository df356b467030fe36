"""The default: the best certified mechanism that the time allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metricdp._clock import Clock
from metricdp._validation import FloatArray, positive
from metricdp.errors import InvalidInputError, SolverError
from metricdp.grid import Grid
from metricdp.mechanisms.base import Mechanism
from metricdp.methods.aipo import AipoOptions, fit_aipo
from metricdp.methods.closed_form import (
    ExponentialOptions,
    LaplaceOptions,
    TruncatedOptions,
    fit_em,
    fit_em_remap,
    fit_laplace,
    fit_laplace_remap,
    fit_tem,
)
from metricdp.methods.options import ProgressCallback, free_memory_gb
from metricdp.methods.spline import SplineOptions, design_on, memory_estimate_gb
from metricdp.problem import Problem
from metricdp.programs.base import SharedProgram
from metricdp.proofs import examine
from metricdp.solvers import Solution

__all__ = ["AutoOptions", "fit_auto"]

# Cells per axis of the first spline, by number of axes.
_FIRST_CELLS = {1: 32, 2: 12, 3: 4}

# Refinement multiplies the cells of an axis by at most this, by less where time is short and not at all below the
# least. The time of a solve grows with the cells of an axis to the power measured for each number of axes.
_MOST_GROWTH, _LEAST_GROWTH = 1.42, 1.1
_TIME_EXPONENT = {1: 1.5, 2: 4.2, 3: 8.0}

# A finer grid that gained less than this share of the loss has shown that finer ones are not worth their time.
_WORTHWHILE = 2e-4

# Records whose losses decide whether a mechanism with slow rows can still win.
_SAMPLE = 2000


@dataclass(frozen=True, kw_only=True)
class AutoOptions:
    """Options of "auto".

    time_limit : seconds to spend.
    progress : called with the fraction done and a few words.
    """

    time_limit: float = 60.0
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        positive("time_limit", self.time_limit)

    def say(self, clock: Clock, words: str) -> None:
        """Tell the caller how much of the time is spent, and on what."""
        if self.progress is not None:
            self.progress(min(clock.spent / self.time_limit, 1.0), words)


def fit_auto(problem: Problem, epsilon: float, options: AutoOptions) -> Mechanism:
    """Return the certified mechanism of least loss among closed forms and splines refined while time remains."""
    clock = Clock(options.time_limit)
    tried: list[dict[str, Any]] = []
    best = _best_spline(problem, epsilon, options, clock, tried)
    for mechanism in _closed_forms(problem, epsilon):
        loss = _loss_unless_hopeless(mechanism, problem, best)
        tried.append({"method": mechanism.method, "loss": loss})
        options.say(clock, f"{mechanism.method}: loss {loss:.4f}")
        if (best is None or loss < best.report["loss"]) and examine(mechanism).holds:
            best = replace(mechanism, report={**mechanism.report, "loss": loss})
    if best is None:
        raise SolverError("No method gave a certified mechanism.")
    return replace(best, report={**best.report, "tried": tried, "seconds": clock.spent})


def _closed_forms(problem: Problem, epsilon: float) -> list[Mechanism]:
    """Return the mechanisms that cost next to nothing, and AIPO where Laplace noise is not to be had."""
    found: list[Mechanism] = [
        fit_em(problem, epsilon, ExponentialOptions()),
        fit_tem(problem, epsilon, TruncatedOptions()),
        fit_em_remap(problem, epsilon, ExponentialOptions()),
    ]
    try:
        found.append(fit_laplace(problem, epsilon, LaplaceOptions()))
        found.append(fit_laplace_remap(problem, epsilon, LaplaceOptions()))
    except InvalidInputError:
        found.append(fit_aipo(problem, epsilon, "aipo-e", AipoOptions()))
    return found


def _loss_unless_hopeless(mechanism: Mechanism, problem: Problem, best: Mechanism | None) -> float:
    """Return the expected loss; only an estimate from some records if that is already far above the best."""
    if best is not None and problem.n_records > 4 * _SAMPLE:
        chosen = np.random.default_rng(0).choice(problem.n_records, _SAMPLE, p=problem.prior)
        rows = mechanism.probabilities(problem.records[chosen])
        losses = np.einsum("ik,ik->i", rows, problem.loss[chosen])
        estimate, error = float(losses.mean()), float(losses.std()) / math.sqrt(_SAMPLE)
        if estimate - 6 * error > best.report["loss"]:
            return estimate
    return mechanism.expected_loss(problem)


def _best_spline(
    problem: Problem, epsilon: float, options: AutoOptions, clock: Clock, tried: list[dict[str, Any]]
) -> Mechanism | None:
    """Solve on finer and finer nested grids, cutting where relaxing the slopes would gain most."""
    if problem.n_axes not in _FIRST_CELLS:
        return None
    grid = Grid.adaptive(problem.bounds, _FIRST_CELLS[problem.n_axes], problem.records, problem.prior)
    best: Mechanism | None = None
    seconds = 0.0
    while True:
        if memory_estimate_gb(tuple(n - 1 for n in grid.shape), 2, problem.n_outputs) > 0.5 * free_memory_gb():
            return best
        started = clock.spent
        spline = SplineOptions(gap=1e-4, time_limit=options.time_limit)
        left = Clock(max(options.time_limit - clock.spent, 1.0))
        mechanism, program, solution = design_on(problem, epsilon, grid, spline, left)
        seconds = clock.spent - started
        loss = mechanism.report["loss"]
        cells = " x ".join(str(count - 1) for count in grid.shape)
        tried.append({"method": "spline", "cells": [count - 1 for count in grid.shape], "loss": loss})
        options.say(clock, f"spline with {cells} cells: loss {loss:.4f}")
        if not examine(mechanism).holds:
            return best
        gained = math.inf if best is None else best.report["loss"] - loss
        if gained > 0:
            best = mechanism
        if gained < _WORTHWHILE * abs(loss) or solution.multipliers is None:
            return best
        affordable = (0.85 * max(options.time_limit - clock.spent, 0.0) / seconds) ** (
            1 / _TIME_EXPONENT[problem.n_axes]
        )
        if affordable < _LEAST_GROWTH:
            return best
        grid = refined(grid, _pressure(program, solution, grid), min(affordable, _MOST_GROWTH))


def _pressure(program: SharedProgram, solution: Solution, grid: Grid) -> list[FloatArray]:
    """Return, per axis and cell, how much a finer cell would gain.

    The multiplier of a cone times its slack's first entry says what allowing steeper slopes there is worth; a
    quadratic spline on cells of side h reaches the steepest slope but for a share of order (εh)².
    """
    assert solution.multipliers is not None
    assert solution.table is not None
    n_axes = grid.n_axes
    worth = (solution.multipliers[0] * (program.operators[0] @ solution.table)).sum(axis=1)
    shape = tuple(2 * (count - 1) + 1 for count in grid.shape)
    worth = worth.reshape((-1, *shape)).sum(axis=0)
    pressures = []
    for axis, points in enumerate(grid.breakpoints):
        along = worth.sum(axis=tuple(other for other in range(n_axes) if other != axis))
        inside = along[1::2] + 0.5 * (along[:-1:2] + along[2::2])
        pressures.append(inside * np.diff(points) ** 2)
    return pressures


def refined(grid: Grid, pressures: list[FloatArray], growth: float) -> Grid:
    """Cut the cells under most pressure in two, on every axis, until there are `growth` times as many."""
    axes = []
    for points, pressure in zip(grid.breakpoints, pressures, strict=True):
        cut = np.argsort(-pressure)[: max(1, round((growth - 1) * len(pressure)))]
        axes.append(np.sort(np.append(points, (points[cut] + points[cut + 1]) / 2)))
    return Grid.from_breakpoints(axes)
