"""Approx-APO against the paper's definitions and against scipy, on every engine."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from metricdp.geometry.grid import Grid
from metricdp.mechanisms.aipo.program import approx_apo, memory_estimate_gb, surrogate_cost
from metricdp.mechanisms.aipo.split import budgets_from_shares
from metricdp.optimise.engines import Status, engines_for, solve
from metricdp.optimise.programs import Program
from metricdp.optimise.repair import make_feasible
from oracles import naive_constraints, naive_weights
from problems import random_problem


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_surrogate_cost_is_proposition_4(n_axes):
    problem = random_problem(n_axes, n_axes=n_axes, n_records=25, prior=True)
    grid = Grid.uniform(problem.bounds, 2)
    expected = np.zeros((grid.n_anchors, problem.n_outputs))
    for record, weight, losses in zip(problem.records, problem.prior, problem.loss, strict=True):
        for anchor, w in enumerate(naive_weights(grid, record)):
            for k, loss in enumerate(losses):
                expected[anchor, k] += w * weight * loss
    assert np.allclose(surrogate_cost(problem, grid), expected, atol=1e-14)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_optimum_equals_scipy_on_both_engines(p, n_axes):
    cells = {1: 6, 2: (3, 2), 3: 1}[n_axes]
    for seed in range(2):
        problem = random_problem(seed, n_axes=n_axes, n_outputs=4, p=p, prior=True)
        grid = Grid.uniform(problem.bounds, cells)
        cost = surrogate_cost(problem, grid)
        shares = np.random.default_rng(seed).dirichlet(np.ones(n_axes))
        budgets = budgets_from_shares(shares, 0.4, p)
        rows = naive_constraints(grid, budgets, 4)
        reference = linprog(
            cost.ravel(),
            A_ub=rows,
            b_ub=np.zeros(len(rows)),
            A_eq=np.kron(np.eye(grid.n_anchors), np.ones((1, 4))),
            b_eq=np.ones(grid.n_anchors),
            bounds=(0, None),
        ).fun
        program = approx_apo(cost, grid, budgets)
        assert program.inequality.shape == rows.shape
        for engine in engines_for(Program):
            solution = solve(program, solver=engine)
            assert solution.status is Status.OPTIMAL
            assert solution.engine.startswith(engine)
            assert program.objective(solution.table) == pytest.approx(reference, abs=1e-7)
            assert program.dual_value(solution.multipliers) == pytest.approx(reference, abs=1e-6)
            assert program.dual_value(solution.multipliers) <= reference + 1e-12


def test_any_multipliers_give_a_lower_bound():
    problem = random_problem(5)
    grid = Grid.uniform(problem.bounds, 3)
    program = approx_apo(surrogate_cost(problem, grid), grid, np.array([0.3, 0.2]))
    best = program.objective(solve(program).table)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1e-4, 1e-2, 1.0):
        assert program.dual_value(rng.normal(size=program.inequality.shape[0]) * scale) <= best + 1e-9


def test_dual_value_refuses_programs_with_entry_bounds():
    program = Program(
        np.ones((2, 2)),
        approx_apo(np.ones((2, 2)), Grid.uniform(np.array([[0.0], [1.0]]), 1), np.ones(1)).inequality,
        upper=np.ones((2, 2)),
    )
    with pytest.raises(ValueError, match="entry bounds"):
        program.dual_value(np.zeros(4))


@pytest.mark.parametrize("engine", list(engines_for(Program)))
def test_entry_bounds_are_respected(engine):
    grid = Grid.uniform(np.array([[0.0], [1.0]]), 2)
    inequality = approx_apo(np.zeros((3, 2)), grid, np.array([5.0])).inequality
    lower, upper = np.full((3, 2), 0.3), np.full((3, 2), 0.7)
    program = Program(np.array([[0.0, 1.0]] * 3), inequality, lower=lower, upper=upper)
    assert np.allclose(solve(program, solver=engine).table, [[0.7, 0.3]] * 3, atol=1e-6)


@pytest.mark.parametrize("engine", list(engines_for(Program)))
def test_infeasible_programs_say_so(engine):
    grid = Grid.uniform(np.array([[0.0], [1.0]]), 1)
    inequality = approx_apo(np.zeros((2, 2)), grid, np.array([1.0])).inequality
    program = Program(np.zeros((2, 2)), inequality, upper=np.full((2, 2), 0.2))
    solution = solve(program, solver=engine)
    assert solution.status is Status.INFEASIBLE
    assert solution.table is None


@pytest.mark.parametrize("engine", list(engines_for(Program)))
def test_time_limit_is_reported(engine):
    problem = random_problem(0, n_outputs=20, n_records=500, side=40.0)
    grid = Grid.uniform(problem.bounds, 16)
    program = approx_apo(surrogate_cost(problem, grid), grid, np.array([0.1, 0.1]))
    assert solve(program, solver=engine, time_limit=1e-3).status is Status.TIME_LIMIT


@pytest.mark.parametrize("damage", [0.0, 1e-9, 1e-4, 0.3])
def test_repair_makes_any_table_feasible(damage):
    problem = random_problem(1, n_outputs=6)
    grid = Grid.uniform(problem.bounds, 4)
    program = approx_apo(surrogate_cost(problem, grid), grid, np.array([0.2, 0.3]))
    table = solve(program).table + np.random.default_rng(0).normal(size=program.cost.shape) * damage
    mended, mix = make_feasible(table, program.inequality)
    assert (program.inequality @ mended.ravel()).max() <= 0
    assert np.allclose(mended.sum(axis=1), 1.0, atol=1e-14)
    assert mended.min() > 0
    if damage > 1e-8:  # and no more uniform was mixed in than needed
        rows = np.clip(table, 0, None)
        rows /= rows.sum(axis=1, keepdims=True)
        less = (1 - 0.99 * mix) * rows + 0.99 * mix / 6
        assert (program.inequality @ less.ravel()).max() > 0
    else:
        assert mix < 1e-6


def test_repair_of_garbage_is_still_a_distribution():
    grid = Grid.uniform(np.array([[0.0], [1.0]]), 2)
    inequality = approx_apo(np.zeros((3, 2)), grid, np.array([0.5])).inequality
    mended, _ = make_feasible(np.array([[-1.0, -2.0], [0.0, 0.0], [5.0, 0.0]]), inequality)
    assert np.allclose(mended.sum(axis=1), 1.0)
    assert (inequality @ mended.ravel()).max() <= 0


def test_memory_estimate_grows_with_anchors_and_outputs():
    assert memory_estimate_gb((17, 17), 20) < 1
    assert memory_estimate_gb((17, 17), 40) == pytest.approx(2 * memory_estimate_gb((17, 17), 20))
    assert memory_estimate_gb((60, 60, 60, 60), 20) > 100
