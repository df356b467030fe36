"""The paper's methods: AIPO, AIPO-E (equal split) and AIPO-R (relaxed, not private)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from metricdp._clock import Clock
from metricdp._validation import FloatArray, integer, positive, reject
from metricdp.errors import InvalidInputError, SolverError
from metricdp.geometry.grid import Grid
from metricdp.geometry.lattice import lattice_step
from metricdp.mechanisms.aipo.mechanism import LogConvex, interpolate, rounding_cost
from metricdp.mechanisms.aipo.program import approx_apo, memory_estimate_gb, neighbour_inequalities, surrogate_cost
from metricdp.mechanisms.aipo.proof import certified_ratio
from metricdp.mechanisms.aipo.split import (
    budgets_from_shares,
    compose,
    equal_shares,
    search_scale,
    search_shares,
)
from metricdp.mechanisms.options import GridOptions, common_fields, require_memory, spendable
from metricdp.optimise.engines import Solution, solve
from metricdp.optimise.programs import Program
from metricdp.optimise.repair import make_feasible
from metricdp.problem import Problem

__all__ = ["AipoOptions", "fit_aipo", "fit_aipo_equal", "fit_aipo_relaxed"]


# The scale of the paper: normalising at most doubles the Lipschitz constant (Proposition 3), so anchors may spend half.
_PUBLISHED_SCALE = 0.5

# Programs solved in search of the largest certified scale, that of the published one included.
_SCALES = 7

# Repaired tables have no entry below 1e-9 / K.
_LARGEST_LOG = math.log(1.01e9)


@dataclass(frozen=True, kw_only=True)
class AipoOptions(GridOptions):
    """Options of the AIPO family beside the grid's.

    splits : how many budget splits may be tried ("aipo" only).
    refine : descend on the true, non-convex APO objective from the Approx-APO solution.
    scale : the share of ε that the budgets compose to, in (0, 1]. Half of it, as published, is always private. With
        "certified" larger shares are tried, and of those whose interpolant is proved private the best is kept.
    """

    splits: int = 12
    refine: bool = False
    scale: float | str = _PUBLISHED_SCALE

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("splits", self.splits, 1)
        if self.scale != "certified" and (isinstance(self.scale, str) or positive("scale", self.scale) > 1):
            raise reject("scale", "a number in (0, 1] or 'certified'", repr(self.scale))

    @property
    def certified(self) -> bool:
        """Whether the scale is to be found by proofs."""
        return self.scale == "certified"

    @property
    def first_scale(self) -> float:
        """The scale at which splits are compared."""
        return _PUBLISHED_SCALE if self.certified else float(self.scale)


def fit_aipo(problem: Problem, epsilon: float, options: AipoOptions) -> LogConvex:
    """Design AIPO: the best split of the budget between axes is searched for."""
    return _designed(problem, epsilon, "aipo", options)


def fit_aipo_equal(problem: Problem, epsilon: float, options: AipoOptions) -> LogConvex:
    """Design AIPO-E: all axes get the same budget."""
    return _designed(problem, epsilon, "aipo-e", options)


def fit_aipo_relaxed(problem: Problem, epsilon: float, options: AipoOptions) -> LogConvex:
    """Design AIPO-R: every axis spends all of ε, so that the mechanism is not private between anchors."""
    return _designed(problem, epsilon, "aipo-r", options)


def _designed(problem: Problem, epsilon: float, method: str, options: AipoOptions) -> LogConvex:
    """Design a log-convex mechanism (steps 1 and 2 of the paper); `method` names the variant."""
    shape = tuple(count + 1 for count in options.cells_per_axis(problem.n_axes))
    require_memory(
        memory_estimate_gb(shape, problem.n_outputs),
        f"`cells` with {' x '.join(map(str, shape))} anchors and {problem.n_outputs} outputs",
        "take fewer `cells`",
    )
    if method == "aipo-r" and options.scale != _PUBLISHED_SCALE:
        msg = "`scale` does not apply to method 'aipo-r', which spends all of epsilon on every axis; leave it out."
        raise InvalidInputError(msg)
    total = options.first_scale * _spendable(problem, epsilon)
    common = common_fields(problem, epsilon, method)
    design = _Design(problem, options.grid(problem), options, Clock(options.time_limit), common)
    if method == "aipo-r":
        design.solve_split(np.full(problem.n_axes, epsilon))
    elif method == "aipo-e" or problem.p == 1 or problem.n_axes == 1:
        design.solve_split(budgets_from_shares(equal_shares(problem.n_axes), total, problem.p))
    else:
        search_shares(
            lambda shares: design.solve_split(budgets_from_shares(shares, total, problem.p)),
            problem.n_axes,
            options.splits,
        )
    if options.certified:
        design.raise_scale()
    if options.refine:
        design.refine()
    return design.mechanism(design.table, design.report())


def _spendable(problem: Problem, epsilon: float) -> float:
    """Return the part of ε that slopes may use, once rounding errors of any repaired table are paid for."""
    largest = _LARGEST_LOG + math.log(problem.n_outputs)
    cost = rounding_cost(problem.n_axes, problem.n_outputs, largest, lattice_step(problem.bounds))
    left = spendable(epsilon) - cost
    if left <= 0:
        raise reject("epsilon", f"above {cost:.2g}, what rounding errors cost in this box", epsilon)
    return left


@dataclass
class _Design:
    """The search for one anchor table: what is fixed, and the best found so far by true loss."""

    problem: Problem
    grid: Grid
    options: AipoOptions
    clock: Clock
    common: dict[str, Any] = field(default_factory=dict)
    loss: float = np.inf
    table: FloatArray = field(default_factory=lambda: np.empty(0))
    budgets: FloatArray = field(default_factory=lambda: np.empty(0))
    facts: dict[str, Any] = field(default_factory=dict)
    tried: list[dict[str, Any]] = field(default_factory=list)
    scales: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = self.grid.weights(self.problem.records)
        self.cost = surrogate_cost(self.problem, self.grid)

    def mechanism(self, table: FloatArray, report: dict[str, Any]) -> LogConvex:
        """Return the mechanism of an anchor table."""
        return LogConvex(**self.common, report=report, grid=self.grid, log_table=np.log(table))

    def true_loss(self, table: FloatArray) -> float:
        """Return the loss of the normalised interpolant, which is the objective of Definition 7 (APO)."""
        rows = interpolate(self.weights, np.log(table))
        return float(self.problem.prior @ np.einsum("ik,ik->i", rows, self.problem.loss))

    def solve_split(self, budgets: FloatArray) -> float | None:
        """Solve Approx-APO for one budget split and return its true loss; None when time is up."""
        if self.clock.over and self.tried:
            return None
        found = self._solve(budgets)
        self.tried.append({"budgets": budgets.tolist(), "loss": found.loss})
        self._keep_if_better(found)
        self._say(len(self.tried) / self.options.splits, f"split {len(self.tried)}: loss {found.loss:.4f}")
        return found.loss

    def raise_scale(self) -> None:
        """Look for the largest budget scale whose interpolant is proved private; keep what lowers the loss."""
        unit = self.budgets / _PUBLISHED_SCALE
        search_scale(lambda scale: self._try_scale(scale, unit), _PUBLISHED_SCALE, _SCALES)

    def _try_scale(self, scale: float, unit: FloatArray) -> float | None:
        """Return the certified ratio at a scale; None when time is up. The published scale has been solved before."""
        if self.scales and self.clock.over:
            return None
        found = (
            self._solve(scale * unit) if self.scales else _Candidate(self.loss, self.table, self.budgets, self.facts)
        )
        ratio = self._ratio(found.table)
        self.scales.append({"scale": scale, "loss": found.loss, "certified_ratio": ratio})
        if ratio <= 1:
            self._keep_if_better(found)
        self._say(1.0, f"scale {scale:.4f}: loss {found.loss:.4f}, {ratio:.4f} of epsilon")
        return ratio

    def _ratio(self, table: FloatArray) -> float:
        return certified_ratio(self.mechanism(table, {}))[0]

    def _solve(self, budgets: FloatArray) -> _Candidate:
        program = approx_apo(self.cost, self.grid, budgets)
        solution = solve(program, solver=self.options.solver, time_limit=self.clock.left)
        table, mix = self._repaired(program, solution)
        return _Candidate(self.true_loss(table), table, budgets, _facts(program, solution, table, mix))

    def _keep_if_better(self, found: _Candidate) -> None:
        if found.loss < self.loss:
            self.loss, self.table, self.budgets, self.facts = found.loss, found.table, found.budgets, found.facts

    def refine(self, rounds: int = 30) -> None:
        """Descend on APO (Definition 7) by sequential linear programs in a shrinking trust region.

        The constraints stay those of Approx-APO; each step minimises the gradient of the true loss with every
        entry kept within a factor 1 + radius. A step is taken only if the true loss falls.
        """
        inequality = neighbour_inequalities(self.grid, self.budgets, self.problem.n_outputs)
        start, radius, steps = self.loss, 1.0, 0
        for round_ in range(rounds):
            if self.clock.over or radius < 1e-3:
                break
            before = self.loss
            if self._try_step(inequality, radius):
                steps += 1
                radius *= 2
                if before - self.loss < 1e-7 * before:
                    break
            else:
                radius /= 4
            self._say(1.0, f"refinement {round_ + 1}: loss {self.loss:.4f}")
        self.facts |= {"refine_steps": steps, "loss_before_refine": start}

    def _try_step(self, inequality: sparse.csr_array, radius: float) -> bool:
        program = Program(
            self._gradient(), inequality, lower=self.table / (1 + radius), upper=self.table * (1 + radius)
        )
        solution = solve(program, solver=self.options.solver, time_limit=self.clock.left)
        if solution.table is None or not np.isfinite(solution.table).all():
            return False
        table, mix = make_feasible(solution.table, inequality)
        loss = self.true_loss(table)
        if loss >= self.loss or (self.options.certified and self._ratio(table) > 1):
            return False
        self.loss, self.table = loss, table
        self.facts |= {"repair_mix": mix}
        return True

    def _gradient(self) -> FloatArray:
        """Return ∂(true loss)/∂Z_jk = Σ_x w_j(x) π(x) z_k(x) (L(x, k) − E_z L(x, ·)) / Z_jk."""
        rows = interpolate(self.weights, np.log(self.table))
        mean = np.einsum("ik,ik->i", rows, self.problem.loss)
        pull = self.problem.prior[:, None] * rows * (self.problem.loss - mean[:, None])
        return np.asarray(self.weights.T @ pull) / self.table

    def _repaired(self, program: Program, solution: Solution) -> tuple[FloatArray, float]:
        """Return a feasible table: the solver's, repaired, or uniform if that is better or the solver has none."""
        uniform = np.full(program.cost.shape, 1 / program.n_columns)
        if solution.table is None or not np.isfinite(solution.table).all():
            if solution.status.usable:  # stopped before it had a point
                return uniform, 1.0
            msg = f"{solution.engine} ended with status '{solution.status}' on a program that has a solution."
            raise SolverError(msg)
        table, mix = make_feasible(solution.table, program.inequality)
        # By the true loss: the program minimises only its surrogate.
        if self.true_loss(table) > self.problem.uniform_loss:
            return uniform, 1.0
        return table, mix

    def _say(self, fraction: float, words: str) -> None:
        if self.options.progress is not None:
            self.options.progress(min(fraction, 1.0), words)

    def report(self) -> dict[str, Any]:
        """Say how the table came about."""
        scaled = {"scales": self.scales, "certified_ratio": self._ratio(self.table)} if self.options.certified else {}
        return {
            **self.facts,
            **scaled,
            "loss": self.loss,
            "cells": list(self.grid.cells),
            "anchors": self.grid.n_anchors,
            "budgets": self.budgets.tolist(),
            "budgets_compose_to": compose(self.budgets, self.problem.p),
            "scale": compose(self.budgets, self.problem.p) / self.common["epsilon"],
            "splits": self.tried,
            "seconds": self.clock.spent,
        }


@dataclass(frozen=True)
class _Candidate:
    """A feasible table, its true loss, the budgets it satisfies and how it was found."""

    loss: float
    table: FloatArray
    budgets: FloatArray
    facts: dict[str, Any]


def _facts(program: Program, solution: Solution, table: FloatArray, mix: float) -> dict[str, Any]:
    value = program.objective(table)
    bound = None if solution.multipliers is None else program.dual_value(solution.multipliers)
    residual = None
    if solution.table is not None:
        residual = float(max((program.inequality @ solution.table.ravel()).max(), -solution.table.min(), 0.0))
    return {
        "solver": solution.engine,
        "status": str(solution.status),
        "solver_seconds": solution.seconds,
        "iterations": solution.iterations,
        "residual": residual,
        "repair_mix": mix,
        "surrogate_loss": value,
        "surrogate_bound": bound,
    }
