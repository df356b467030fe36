"""Design of the exponential mechanism, plain (`em`), truncated (`tem`) and with a Bayes remap (`em-remap`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._chunks import chunks
from metricdp._clock import Clock
from metricdp._validation import fraction
from metricdp.errors import InvalidInputError
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import lattice_step
from metricdp.mechanisms.aipo.mechanism import LogConvex, rounding_cost
from metricdp.mechanisms.aipo.proof import cell_slopes
from metricdp.mechanisms.exponential.mechanism import Exponential
from metricdp.mechanisms.exponential.scores import path_scores
from metricdp.mechanisms.options import ClosedFormOptions, common_fields, spendable
from metricdp.problem import Problem

# Cells per axis of the grid of scores, by number of axes, and how much scores may differ.
_SCORED_CELLS = {1: 512, 2: 64, 3: 12}
_WIDEST = 1200.0

__all__ = ["TruncatedOptions", "fit_em", "fit_em_remap", "fit_tem"]


@dataclass(frozen=True, kw_only=True)
class TruncatedOptions(ClosedFormOptions):
    """Options of "tem" beside the common ones.

    beta : with probability 1 − beta the draw lies within γ = (2/ε) ln((1 − beta)(K − 1)/beta) of a point that
        is an output.
    """

    beta: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("beta", self.beta)


def fit_em(problem: Problem, epsilon: float | EpsilonMap, options: ClosedFormOptions) -> Exponential | LogConvex:
    """Build the exponential mechanism: output k with probability ∝ e^{−ε d_p(x, y_k)/2}.

    For a map of ε the exponent is half a score that stands for the path metric (`path_scores`), interpolated on a grid.
    """
    if isinstance(epsilon, EpsilonMap) and not epsilon.is_constant:
        return _by_scores(problem, epsilon, options)
    return _exponential(problem, epsilon.max if isinstance(epsilon, EpsilonMap) else epsilon, "em", None, options)


def _by_scores(problem: Problem, epsilon: EpsilonMap, options: ClosedFormOptions) -> LogConvex:
    """Build the exponential mechanism of scores, as steep as every cell's own ε allows."""
    clock = Clock(options.time_limit)
    local = epsilon.cropped(problem.bounds)
    grid = Grid.uniform(problem.bounds, _SCORED_CELLS.get(problem.n_axes, 4))
    scores = path_scores(grid, local, problem.outputs, problem.p)
    # What differs by this much is never drawn; a larger difference would underflow.
    scores = np.minimum(scores - scores.min(axis=1, keepdims=True).min(), _WIDEST)
    largest = float(scores.max()) / 2
    cost = rounding_cost(problem.n_axes, problem.n_outputs, largest, lattice_step(problem.bounds))
    steepest = cell_slopes(grid, -scores / 2, problem.p)
    allowed = local.least_over(grid.breakpoints) * spendable(1.0) - cost
    if not (allowed > 0).all():
        raise InvalidInputError(f"`epsilon` is too small somewhere for probabilities in floating point: {local.min:g}.")
    # Normalising may double a slope.
    shrink = min(1.0, float((allowed / (2 * np.maximum(steepest, 1e-300))).min()))
    options.say(1.0, "scores of outputs")
    return LogConvex(
        **common_fields(problem, local.max, "em"),
        epsilon_map=local,
        grid=grid,
        log_table=-scores / 2 * shrink,
        report={"shrink": shrink, "cells": list(grid.cells), "seconds": clock.spent},
    )


def fit_tem(problem: Problem, epsilon: float, options: TruncatedOptions) -> Exponential:
    """Build the truncated exponential mechanism (Carvalho et al. 2021): EM with the distance clipped at γ.

    Where γ would not be positive (one output, or a large `beta`) it is 0: all outputs are equally far, and the choice
    is uniform.
    """
    odds = (1 - options.beta) * (problem.n_outputs - 1) / options.beta
    clip = 2 / epsilon * math.log(max(odds, 1.0))
    return _exponential(problem, epsilon, "tem", clip, options)


def fit_em_remap(problem: Problem, epsilon: float, options: ClosedFormOptions) -> Exponential:
    """Build the paper's RMP: EM, each draw replaced by the output of least posterior expected loss."""
    clock = Clock(options.time_limit)
    mechanism = _exponential(problem, epsilon, "em-remap", None, options)
    labels = _bayes_labels(problem, mechanism, clock)
    report = {**mechanism.report, "outputs_used": len(np.unique(labels)), "seconds": clock.spent}
    return replace(mechanism, labels=labels, report=report)


def _exponential(
    problem: Problem, epsilon: float, method: str, clip: float | None, options: ClosedFormOptions
) -> Exponential:
    clock = Clock(options.time_limit)
    # Normalising may double the slope, so half of ε is what weights may spend.
    rate = spendable(epsilon) / 2
    facts: dict[str, Any] = {"rate": rate} if clip is None else {"rate": rate, "clip": clip}
    mechanism = Exponential(
        **common_fields(problem, epsilon, method),
        rate=rate,
        clip=clip,
        labels=np.arange(problem.n_outputs),
        report={**facts, "seconds": clock.spent},
    )
    options.say(1.0, "closed form")
    return mechanism


def _bayes_labels(problem: Problem, mechanism: Exponential, clock: Clock) -> NDArray[np.intp]:
    """Return argmin_k Σ_x π(x) z_j(x) L(x, y_k) for every draw j (Chatzikokolakis et al. 2017).

    When time runs out, the records looked at so far decide: labels are post-processing, so any are private.
    """
    cost = np.zeros((problem.n_outputs, problem.n_outputs))
    for part in chunks(problem.n_records, problem.n_outputs):
        rows = mechanism.probabilities(problem.records[part])
        # Subtract each record's minimum loss: the argmin does not change and cancellation is avoided.
        regret = problem.loss[part] - problem.loss[part].min(axis=1, keepdims=True)
        cost += (rows * problem.prior[part, None]).T @ regret
        if clock.over:
            break
    return cost.argmin(axis=1)
