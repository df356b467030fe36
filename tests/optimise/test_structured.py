"""The structured solver: its cone algebra, and its answers against Clarabel and scipy."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from metricdp import InvalidInputError
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.spline.program import inscribed_polytope, near_coarser, spline_program
from metricdp.optimise.engines import Status, solve_shared
from metricdp.optimise.engines import _cones as cones
from metricdp.optimise.programs import SharedProgram
from metricdp.optimise.repair import make_shared_feasible
from problems import random_problem


def interior(seed, dimension=3, count=50):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(dimension, count))
    points[0] = np.linalg.norm(points[1:], axis=0) + rng.uniform(0.01, 2, size=count)
    return points


def arrow(u):
    """The matrix of the Jordan product with u."""
    matrix = u[0] * np.eye(len(u))
    matrix[0, 1:] = matrix[1:, 0] = u[1:]
    return matrix


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_cone_algebra(dimension):
    u, v = interior(0, dimension), np.random.default_rng(1).normal(size=(dimension, 50))
    expected = np.stack([arrow(u[:, i]) @ v[:, i] for i in range(50)], axis=1)
    assert np.allclose(cones.product(u, v), expected)
    assert np.allclose(cones.product(u, cones.Interior.of(u).divide(v)), v)
    one = np.zeros_like(u)
    one[0] = 1
    assert np.allclose(cones.product(u, cones.inverse(u)), one)


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_scaling_maps_the_dual_to_the_slack(dimension):
    s, y = interior(2, dimension), interior(3, dimension)
    scaling = cones.Scaling.of(s, y)
    assert np.allclose(scaling.apply(scaling.apply(y)), s)
    assert np.allclose(scaling.apply_inverse(s), scaling.apply(y))
    v = np.random.default_rng(4).normal(size=s.shape)
    known = scaling.inverse_squares()
    entries = np.array([[known[min(i, j), max(i, j)] for j in range(dimension)] for i in range(dimension)])
    assert np.allclose(np.einsum("ijn,jn->in", entries, v), scaling.apply_inverse(scaling.apply_inverse(v)))


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
def test_complementarity_after_a_step_is_the_same_in_scaled_coordinates(dimension):
    s, y = interior(5, dimension), interior(6, dimension)
    scaling = cones.Scaling.of(s, y)
    moves = np.random.default_rng(7).normal(size=(2, *s.shape))
    found = cones.complementarity(
        scaling.apply(y), 0.3 * scaling.apply_inverse(moves[0]), 0.7 * scaling.apply(moves[1])
    )
    assert found == pytest.approx(float(np.vdot(s + 0.3 * moves[0], y + 0.7 * moves[1])))


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_longest_step_ends_on_the_border(dimension):
    for seed in range(20):
        u, move = interior(seed, dimension, 5), np.random.default_rng(seed).normal(size=(dimension, 5))
        step = cones.Interior.of(u).longest_step(move)

        def margin(alpha, u=u, move=move):
            point = u + alpha * move
            return (point[0] - np.linalg.norm(point[1:], axis=0)).min()

        if math.isinf(step):
            assert margin(1e6) > 0
        else:
            assert margin(step * (1 - 1e-6)) > 0
            assert margin(step) == pytest.approx(0.0, abs=1e-6 * (1 + step))


def small_program(n_axes, p, degree=2, epsilon=1.0, seed=0):
    problem = random_problem(seed, n_axes=n_axes, n_outputs=4, p=p, prior=True)
    grid = Grid.uniform(problem.bounds, {1: 6, 2: 3, 3: 1}[n_axes])
    return spline_program(problem, TensorSpline(grid, degree), epsilon)


# The polytope that stands for the ball of p = 1.5 has so many faces in three axes that Clarabel takes half a minute.
@pytest.mark.parametrize(
    ("n_axes", "p", "degree"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if case in {(3, 1.5, 2), (3, 1.5, 3)} else [])
        for case in itertools.product([1, 2, 3], [1.0, 1.5, 2.0, math.inf], [1, 2, 3])
    ],
)
def test_both_engines_agree_and_the_answer_is_feasible(n_axes, p, degree):
    program = small_program(n_axes, p, degree)
    ours, theirs = (solve_shared(program, solver=name, gap=1e-8) for name in ("structured", "clarabel"))
    assert ours.status is Status.OPTIMAL
    value = program.objective(ours.table)
    assert value == pytest.approx(program.objective(theirs.table), abs=2e-6)
    assert program.excess(ours.table).max() < 0
    assert np.allclose(ours.table.sum(axis=1), 1.0, atol=1e-6)
    bound = program.dual_value(ours.multipliers)
    assert value - 1e-6 <= bound <= program.objective(theirs.table) + 1e-7
    assert program.dual_value(theirs.multipliers) <= value + 1e-7


def halved(grid):
    return Grid.from_breakpoints([np.sort(np.concatenate([x, (x[1:] + x[:-1]) / 2])) for x in grid.breakpoints])


def restricted_program(n_axes, p, degree, seed=0, epsilon=3.0):
    """A program beside a coarser solution, with a support cut so small that it matters."""
    problem = random_problem(seed, n_axes=n_axes, n_outputs=4, p=p, prior=True)
    coarse = Grid.uniform(problem.bounds, {1: 4, 2: 2, 3: 1}[n_axes])
    coarser, finer = TensorSpline(coarse, degree), TensorSpline(halved(coarse), degree)
    before = spline_program(problem, coarser, epsilon)
    table, _ = make_shared_feasible(solve_shared(before, gap=1e-6).table, before)
    full = spline_program(problem, finer, epsilon)
    program = near_coarser(full, finer, coarser, table)
    rng = np.random.default_rng(seed)
    support = program.support & (rng.random(program.support.shape) < 0.7)
    support[:, :2] = True
    return before.objective(table), replace(program, support=support), full


@pytest.mark.parametrize(
    ("n_axes", "p", "degree"), [(1, 2.0, 3), (2, 2.0, 1), (2, 2.0, 2), (2, 2.0, 3), (2, 1.0, 2), (3, math.inf, 2)]
)
def test_a_support_is_kept_and_both_engines_agree_on_it(n_axes, p, degree):
    before, program, full = restricted_program(n_axes, p, degree)
    assert 0.2 < program.support.mean() < 1
    ours, theirs = (solve_shared(program, solver=name, gap=1e-8) for name in ("structured", "clarabel"))
    assert ours.status is Status.OPTIMAL
    held = ~program.support
    assert np.array_equal(ours.table[held], program.background[held])
    assert program.excess(ours.table).max() < 1e-9
    assert np.allclose(ours.table.sum(axis=1), 1.0, atol=1e-6)
    value = program.objective(ours.table)
    assert value == pytest.approx(program.objective(theirs.table), abs=2e-6)
    assert value - 1e-6 <= program.dual_value(ours.multipliers) <= program.objective(theirs.table) + 1e-7
    # Between the coarser spline, which is always to be had, and the program without a support.
    best = full.objective(solve_shared(full, gap=1e-8).table)
    assert best - 1e-7 <= value <= before + 1e-5 * abs(before)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1e-3, 1e-1):
        assert program.dual_value(rng.normal(size=ours.multipliers.shape) * scale) <= value + 1e-7


def test_a_support_too_small_to_move_leaves_the_coarser_spline():
    before, program, _ = restricted_program(2, 2.0, 2)
    nothing = np.zeros_like(program.support)
    nothing[:, 0] = True
    found = solve_shared(replace(program, support=nothing), gap=1e-6)
    table, _ = make_shared_feasible(found.table, program)
    assert program.objective(table) == pytest.approx(before, rel=1e-4)


def test_an_output_that_nothing_may_change():
    _, program, _ = restricted_program(2, 2.0, 2)
    support = program.support.copy()
    support[:, 3] = False
    program = replace(program, support=support)
    ours, theirs = (solve_shared(program, solver=name, gap=1e-8) for name in ("structured", "clarabel"))
    assert ours.status is Status.OPTIMAL
    assert np.array_equal(ours.table[:, 3], program.background[:, 3])
    assert program.objective(ours.table) == pytest.approx(program.objective(theirs.table), abs=2e-6)


def test_linear_programs_equal_scipy():
    program = small_program(2, 1.0)
    general = program.expand()
    reference = linprog(
        program.cost.ravel(),
        A_ub=general.inequality,
        b_ub=np.zeros(general.inequality.shape[0]),
        A_eq=general.row_sums(),
        b_eq=np.ones(general.n_rows),
        bounds=(None, None),
    ).fun
    assert program.objective(solve_shared(program, gap=1e-9).table) == pytest.approx(reference, abs=1e-7)
    with pytest.raises(ValueError, match="linear"):
        small_program(2, 2.0).expand()


def test_any_multipliers_bound_the_optimum():
    program = small_program(2, 2.0)
    best = program.objective(solve_shared(program, gap=1e-8).table)
    rng = np.random.default_rng(0)
    shape = (3, program.operators[0].shape[0], 4)
    for scale in (0.0, 1e-3, 1e-1):
        assert program.dual_value(rng.normal(size=shape) * scale) <= best + 1e-7


def test_stopping_early_leaves_a_feasible_table_and_a_valid_bound():
    problem = random_problem(0, n_outputs=20, n_records=500, side=30.0)
    grid = Grid.uniform(problem.bounds, 14)
    program = spline_program(problem, TensorSpline(grid, 2), 0.3)
    early = solve_shared(program, time_limit=0.2)
    assert early.status is Status.TIME_LIMIT
    assert program.excess(early.table).max() < 0
    done = solve_shared(program, gap=1e-6)
    assert program.dual_value(early.multipliers) <= program.objective(done.table)
    assert program.objective(early.table) >= program.dual_value(done.multipliers)


@pytest.mark.parametrize("damage", [0.0, 1e-6, 1e-2])
def test_repair_brings_columns_back_into_the_cone(damage):
    program = small_program(2, 2.0)
    table = solve_shared(program, gap=1e-8).table
    table = table + damage * np.random.default_rng(0).normal(size=table.shape)
    mended, mix = make_shared_feasible(table, program)
    assert program.excess(mended).max() <= 0
    assert np.allclose(mended.sum(axis=1), 1.0, atol=1e-14)
    assert (mix < 1e-6) == (damage == 0.0)


@pytest.mark.parametrize("p", [1.2, 1.5, 3.0])
@pytest.mark.parametrize("n_axes", [2, 3])
def test_the_polytope_lies_inside_the_dual_ball_and_keeps_the_stated_share(p, n_axes):
    faces, share = inscribed_polytope(n_axes, p)
    q = p / (p - 1)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(20_000, n_axes))
    directions /= np.linalg.norm(directions, ord=q, axis=1)[:, None]
    reach = 1 / (directions @ faces.T).max(axis=1)  # where each ray leaves the polytope
    assert reach.max() <= 1.0
    assert reach.min() >= share - 1e-12
    assert share > (0.98 if n_axes == 2 else 0.85)
    assert share == pytest.approx(reach.min(), abs=0.02)


def test_splines_with_many_axes_take_the_norms_that_need_no_polytope():
    with pytest.raises(InvalidInputError, match=r"`p` must be 1, 2 or inf for a spline with 4 axes, got 1\.5"):
        inscribed_polytope(4, 1.5)


def test_unknown_engine():
    with pytest.raises(InvalidInputError, match="`solver` must be one of 'auto', 'structured', 'clarabel'"):
        solve_shared(small_program(1, 2.0), solver="highs")


def test_a_program_of_zero_cost_ends():
    program = small_program(1, 2.0)
    free = SharedProgram(np.zeros_like(program.cost), program.operators)
    solution = solve_shared(free)
    assert solution.status.usable
    assert free.excess(solution.table).max() < 0
