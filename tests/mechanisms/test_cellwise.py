"""LP and ConstOPT on grid cells, against dense programs written out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from metricdp import Grid, InvalidInputError, Problem, ProblemTooLargeError, SolverError, certify
from metricdp.mechanisms.gridded.copt import CoptOptions, fit_copt
from metricdp.mechanisms.gridded.copt_program import weights_program
from metricdp.mechanisms.gridded.lp import LpOptions, fit_lp
from metricdp.mechanisms.gridded.mechanism import Cellwise
from metricdp.optimise import lazy_constraints
from metricdp.optimise.engines import Solution, Status
from metricdp.optimise.engines.inequalities import solve_inequalities
from metricdp.optimise.lazy_constraints import optimal_discrete, private_between, solve_lazily
from metricdp.optimise.pair_constraints import nearest_pairs
from oracles import all_pairs_optimum, dense_copt, distance

ORDERS = [1.0, 2.0, 3.0, math.inf]


def worst_ratio_between(table, points, epsilon, p):
    worst = 0.0
    for i, j in itertools.combinations(range(len(points)), 2):
        change = np.abs(np.log(table[i]) - np.log(table[j])).max()
        worst = max(worst, change / (epsilon * distance(points[i], points[j], p)))
    return worst


@pytest.fixture
def problem():
    generator = np.random.default_rng(3)
    records = np.vstack([generator.random((60, 2)) * [4.0, 3.0], [[0.0, 0.0], [4.0, 3.0]]])
    prior = generator.random(62)
    return Problem(records, generator.random((4, 2)) * [4.0, 3.0], "euclidean", prior=prior)


def with_order(problem, p):
    return Problem(problem.records, problem.outputs, problem.loss, prior=problem.prior, p=p)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("solver", ["highs", "clarabel"])
def test_lazy_generation_reaches_the_all_pairs_optimum(p, solver):
    generator = np.random.default_rng(int(10 * min(p, 9)))
    points, outputs = generator.random((8, 2)) * 3, generator.random((4, 2)) * 3
    prior = generator.dirichlet(np.ones(8))
    found = optimal_discrete(points, outputs, prior=prior, epsilon=1.3, p=p, solver=solver)
    loss = np.array([[distance(x, y, 2) for y in outputs] for x in points])
    expected = all_pairs_optimum(prior[:, None] * loss, points, 1.3, p)
    assert found.complete
    assert found.value == pytest.approx(expected, abs=2e-6)
    assert found.bound <= expected + 1e-9
    assert found.value >= expected - 1e-9
    assert worst_ratio_between(found.table, points, 1.3, p) <= 1 + 1e-9
    np.testing.assert_allclose(found.table.sum(axis=1), 1, atol=1e-12)


def test_start_does_not_matter(problem):
    points = problem.records[:9]
    cost = problem.loss[:9] / 9
    distances = np.array([[distance(a, b, 2) for b in points] for a in points])
    nothing = solve_lazily(cost, distances, 0.8, np.empty((0, 2), dtype=np.intp))
    everything = solve_lazily(cost, distances, 0.8, nearest_pairs(points, 2, 8))
    assert nothing.rounds > 1
    assert everything.rounds == 1
    assert nothing.value == pytest.approx(everything.value, abs=1e-5)
    assert nothing.value == pytest.approx(all_pairs_optimum(cost, points, 0.8, 2), abs=1e-5)


def test_far_inputs_do_not_upset_the_solver():
    points = np.array([[0.0], [1.0], [100.0], [101.0]])
    found = optimal_discrete(points, points, epsilon=1.0)
    assert found.complete
    assert worst_ratio_between(found.table, points, 1.0, 2) <= 1 + 1e-9


def test_one_input_reports_its_best_output():
    found = optimal_discrete([[0.0]], [[3.0], [1.0]], epsilon=0.1)
    assert found.value == pytest.approx(1.0, abs=1e-6)


def test_nearest_pairs_go_both_ways():
    points = np.array([[0.0], [1.0], [1.5], [9.0]])
    # 9 is nobody's nearest, but its own nearest is 1.5.
    assert nearest_pairs(points, 2, 1).tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 3], [3, 2]]


def test_repair_holds_between_all_pairs():
    generator = np.random.default_rng(0)
    points = generator.random((12, 2)) * 5
    shrink = np.exp(-0.9 * np.array([[distance(a, b, 2) for b in points] for a in points]))
    table, mix = private_between(generator.dirichlet(np.ones(3) / 5, size=12), shrink)
    assert 0 < mix < 1
    assert worst_ratio_between(table, points, 0.9, 2) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("breakpoints", ["uniform", "adaptive"])
def test_lp_equals_the_dense_program(problem, p, breakpoints):
    problem = with_order(problem, p)
    mechanism = fit_lp(problem, 0.7, LpOptions(cells=(3, 4), breakpoints=breakpoints))
    x_edges, y_edges = mechanism.grid.breakpoints
    centres, cost = [], []
    for (x0, x1), (y0, y1) in itertools.product(itertools.pairwise(x_edges), itertools.pairwise(y_edges)):
        centres.append([(x0 + x1) / 2, (y0 + y1) / 2])
        x, y = problem.records.T
        here = (x >= x0) & ((x < x1) | (x1 == x_edges[-1])) & (y >= y0) & ((y < y1) | (y1 == y_edges[-1]))
        cost.append((problem.prior[here, None] * problem.loss[here]).sum(axis=0))
    expected = all_pairs_optimum(np.array(cost), centres, 0.7, p)
    assert mechanism.report["status"] == "optimal"
    assert mechanism.expected_loss(problem) == pytest.approx(expected, abs=2e-5)
    assert mechanism.expected_loss(problem) == pytest.approx(mechanism.report["loss"], abs=1e-12)
    assert worst_ratio_between(mechanism.probabilities(centres), centres, 0.7, p) <= 1


def test_axis_neighbours_suffice_for_p_1(problem):
    mechanism = fit_lp(with_order(problem, 1), 0.7, LpOptions(cells=(5, 4), breakpoints="adaptive"))
    assert mechanism.report["rounds"] == 1
    assert mechanism.report["constraints"] == 2 * (4 * 4 + 5 * 3) * 4


def test_every_point_of_a_cell_uses_its_row(problem):
    mechanism = fit_lp(problem, 0.7, LpOptions(cells=(3, 4)))
    corners = [[0.01, 0.01], [1.3, 0.7], [1.34, 0.01], [0.0, 0.75], [4.0, 3.0], [9.0, -9.0]]
    expected = mechanism.table[[0, 0, 4, 1, 11, 8]]
    np.testing.assert_array_equal(mechanism.probabilities(corners), expected)


def test_cells_are_numbered_as_their_centres():
    grid = Grid.from_breakpoints([[0.0, 1.0, 4.0], [0.0, 2.0, 3.0, 5.0], [0.0, 1.0]])
    assert grid.cell_numbers(grid.cell_centres).tolist() == list(range(6))


@pytest.mark.parametrize("design", [fit_lp, fit_copt])
def test_time_limit_still_gives_a_private_table(problem, design):
    options = LpOptions if design is fit_lp else CoptOptions
    mechanism = design(problem, 0.7, options(cells=6, time_limit=1e-6))
    assert worst_ratio_between(mechanism.table, mechanism.grid.cell_centres, 0.7, 2) <= 1
    assert mechanism.expected_loss(problem) <= problem.uniform_loss + 1e-9


def test_solver_failure_is_an_error(problem, monkeypatch):
    failed = Solution(None, None, Status.FAILED, "engine", 0.0, 0)
    monkeypatch.setattr(lazy_constraints, "solve", lambda *_, **__: failed)
    with pytest.raises(SolverError, match="engine ended with status 'failed'"):
        fit_lp(problem, 0.7, LpOptions(cells=3))


def test_progress_ends_at_one(problem):
    for design, options in ((fit_lp, LpOptions), (fit_copt, CoptOptions)):
        seen = []
        design(problem, 0.7, options(cells=3, progress=lambda fraction, words, seen=seen: seen.append(fraction)))
        assert seen == sorted(seen)
        assert seen[-1] == 1.0


@pytest.mark.parametrize("nearest", [1, 3, 7])
def test_copt_solves_its_program(nearest):
    generator = np.random.default_rng(5)
    inputs, outputs = generator.random((7, 2)) * 4, generator.random((3, 2)) * 4
    apart = np.array([[distance(a, b, 2) for b in inputs] for a in inputs])
    away = np.array([[distance(a, b, 2) for b in outputs] for a in inputs])
    mass = np.array([0.3, 0.0, 0.2, 0.1, 0.1, 0.2, 0.1])
    program = weights_program(away, mass, apart, away, 0.6, nearest)
    found = solve_inequalities(program.cost, program.matrix, program.right).variables
    table, worst = program.weights(found), program.worst_loss(found)
    expected = dense_copt(away, mass, apart, away, 0.6, nearest)
    exponential = np.exp(-0.6 * away) / np.exp(-0.6 * away).sum(axis=1, keepdims=True)
    # The mean is in the objective with weight 1e-3, so the worst row may give way by 1e-3 of the mean.
    assert expected - 1e-6 <= worst <= expected + 1e-3 * (mass @ (exponential * away).sum(axis=1))
    rows = table / table.sum(axis=1, keepdims=True)
    assert (rows * away).sum(axis=1)[mass > 0].max() <= worst + 1e-6
    assert worst <= 1.001 * (exponential * away).sum(axis=1)[mass > 0].max()
    for i, j in itertools.permutations(range(7), 2):
        assert (rows[i] <= math.exp(2 * 0.6 * apart[i, j]) * rows[j] + 1e-6).all()


@pytest.mark.parametrize("share", [0.5, 1])
def test_copt_is_private_between_centres(problem, share):
    mechanism = fit_copt(problem, 0.7, CoptOptions(cells=5, nearest=6, share=share))
    assert worst_ratio_between(mechanism.table, mechanism.grid.cell_centres, 0.7, 2) <= 1
    assert mechanism.report["status"] == "optimal"
    if share == 0.5:
        assert mechanism.report["repair_mix"] < 1e-5
        assert mechanism.expected_loss(problem) < problem.uniform_loss


@pytest.mark.parametrize("design", [fit_lp, fit_copt])
def test_certificate_shows_a_pair_across_a_border(problem, design):
    options = LpOptions if design is fit_lp else CoptOptions
    mechanism = design(problem, 0.7, options(cells=3))
    certificate = certify(mechanism)
    assert not certificate.holds
    (left, right), output = certificate.worst_where["points"], certificate.worst_where["output"]
    here, there = mechanism.probabilities([left, right])[:, output]
    assert certificate.worst_ratio == pytest.approx(abs(math.log(here / there)) / (0.7 * distance(left, right, 2)))
    assert certificate.worst_ratio > 1000
    assert distance(left, right, 2) < 1e-5


def cellwise(table, breakpoints=((0.0, 1.0, 2.0), (0.0, 1.0, 2.0))):
    grid = Grid.from_breakpoints(breakpoints)
    table = np.array(table)
    outputs = np.zeros((table.shape[1], grid.n_axes))
    return Cellwise(outputs=outputs, bounds=grid.bounds, epsilon=1.0, p=2.0, method="lp", grid=grid, table=table)


def test_certificate_finds_the_steepest_touching_cells():
    mechanism = cellwise([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.1, 0.9]])
    certificate = certify(mechanism)
    # The diagonal cells 0 and 3 touch in a corner, and differ most.
    assert mechanism.grid.cell_numbers(np.array(certificate.worst_where["points"])).tolist() == [0, 3]
    anti = cellwise([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9], [0.5, 0.5]])
    places = anti.grid.cell_numbers(np.array(certify(anti).worst_where["points"])).tolist()
    assert sorted(places) == [1, 2]


def test_equal_rows_are_private():
    certificate = certify(cellwise([[0.9, 0.1, 0.0]] * 4))
    assert certificate.holds
    assert certificate.worst_ratio == 0
    one_cell = certify(cellwise([[0.9, 0.1]], [[0.0, 1.0], [0.0, 1.0]]))
    assert one_cell.holds


def test_a_report_possible_on_one_side_only_is_infinitely_bad():
    assert certify(cellwise([[1.0, 0.0], [0.9, 0.1]] * 2)).worst_ratio == math.inf


def test_settings_round_trip(problem):
    mechanism = fit_lp(problem, 0.7, LpOptions(cells=(3, 2), breakpoints="adaptive"))
    names = ("outputs", "bounds", "epsilon", "p", "method", "report")
    common = {name: getattr(mechanism, name) for name in names}
    again = Cellwise.from_settings(common, mechanism.settings())
    np.testing.assert_array_equal(again.probabilities(problem.records), mechanism.probabilities(problem.records))
    short = {**mechanism.settings(), "table": mechanism.table[:-1]}
    with pytest.raises(InvalidInputError, match=r"`table` must be of shape \(cells, outputs\) = \(6, 4\)"):
        Cellwise.from_settings(common, short)
    wrong = {**mechanism.settings(), "table": mechanism.table * 1.01}
    with pytest.raises(InvalidInputError, match="rows that sum to 1"):
        Cellwise.from_settings(common, wrong)


def test_bad_options_are_named(problem):
    with pytest.raises(InvalidInputError, match="`nearest` must be a whole number of at least 1, got 0"):
        CoptOptions(nearest=0)
    with pytest.raises(InvalidInputError, match="`share` must be strictly between 0 and 1"):
        CoptOptions(share=2)
    with pytest.raises(InvalidInputError, match="`solver` must be one of 'auto', 'highs'"):
        CoptOptions(solver="clarabel")
    with pytest.raises(ProblemTooLargeError, match="`cells` with 1000000 cells"):
        fit_lp(problem, 0.7, LpOptions(cells=1000))
    with pytest.raises(InvalidInputError, match="`inputs` must be pairwise different"):
        optimal_discrete([[0.0], [0.0]], [[1.0]], epsilon=1)
    with pytest.raises(InvalidInputError, match=r"`loss` must be of shape \(inputs, outputs\) = \(2, 1\)"):
        optimal_discrete([[0.0], [1.0]], [[1.0]], loss=[[1.0, 2.0]], epsilon=1)
