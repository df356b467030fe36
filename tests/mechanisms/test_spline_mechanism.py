"""The spline mechanism: private with no tolerance, tight, optimal where the optimum is known."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metricdp as mdp
from mechanisms_tools import pairs_of_points
from metricdp.geometry.norms import dual_exponent, norm
from oracles import corner_program, count_violations
from problems import random_problem

ORDERS = [1.0, 2.0, math.inf]


def log_gradients(mechanism, points):
    """‖∇ ln z_k‖_q by central differences over a few dozen lattice steps."""
    points, step = mechanism.snap(points), 64 * mechanism.step
    parts = []
    for axis in range(points.shape[1]):
        move = np.zeros(points.shape[1])
        move[axis] = step
        ahead, behind = mechanism.probabilities(points + move), mechanism.probabilities(points - move)
        parts.append((np.log(ahead) - np.log(behind)) / (2 * step))
    return norm(np.stack(parts, axis=-1), dual_exponent(mechanism.p))


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2])
def test_no_violation_over_many_pairs(n_axes, p, degree):
    problem = random_problem(n_axes, n_axes=n_axes, n_outputs=6, p=p)
    mechanism = mdp.fit(problem, 2.0, "spline", cells=6, degree=degree)
    left, right = pairs_of_points(mechanism.grid, 180_000, seed=1)
    assert count_violations(mechanism, left, right) == 0
    # Tight, not timid: somewhere the slope is the steepest allowed.
    low, high = problem.bounds
    points = np.random.default_rng(0).uniform(low + 1e-3, high - 1e-3, size=(20_000, n_axes))
    steepest = log_gradients(mechanism, points).max() / 2.0
    assert steepest > 0.95
    assert steepest <= 1 + 1e-6


def test_no_violation_in_three_dimensions():
    problem = random_problem(3, n_axes=3, n_outputs=4)
    mechanism = mdp.fit(problem, 1.0, "spline", cells=2)
    left, right = pairs_of_points(mechanism.grid, 60_000, seed=1)
    assert count_violations(mechanism, left, right) == 0


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_degree_one_is_the_corner_program(p):
    problem = random_problem(5, n_outputs=3, p=p, prior=True)
    axes = [np.array([0.0, 1.0, 2.5, 4.0]), np.array([0.0, 2.0, 4.0])]
    mechanism = mdp.fit(problem, 0.8, "spline", degree=1, breakpoints=axes, gap=1e-8)
    assert mechanism.expected_loss(problem) == pytest.approx(corner_program(problem, axes, 0.8), rel=1e-4)


def test_two_outputs_on_a_line_approach_the_closed_form():
    """Wrong side costs 1: the best private mechanism errs with probability ½ e^{−ε|x|}."""
    x = np.linspace(-3, 3, 601)[:, None]
    wrong = np.column_stack([x[:, 0] > 0, x[:, 0] < 0]).astype(float)
    problem = mdp.Problem(x, [[-1.0], [1.0]], wrong)
    best = float(problem.prior @ (0.5 * np.exp(-2.0 * np.abs(x[:, 0])))) - 0.5 * problem.prior[300]
    excess = []
    for cells in (6, 12, 24, 48):
        mechanism = mdp.fit(problem, 2.0, "spline", cells=cells, breakpoints="uniform", gap=1e-8)
        excess.append(mechanism.expected_loss(problem) / best - 1)
    assert all(later < sooner for sooner, later in itertools.pairwise(excess))
    t = 2.0 * 6 / 48  # ε times the side of a cell; a quadratic reaches asinh(t)/t of the steepest slope
    assert excess[-1] == pytest.approx(t / math.asinh(t) - 1, rel=0.1)
    assert excess[-1] < excess[-2] / 3.5  # second order


def test_nested_refinement_never_raises_the_loss():
    problem = random_problem(2, n_outputs=5, n_records=150)
    losses = [
        mdp.fit(problem, 1.5, "spline", cells=n, breakpoints="uniform", gap=1e-7).report["loss"] for n in (2, 4, 8, 16)
    ]
    assert all(later <= sooner * (1 + 1e-6) for sooner, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0]


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    n_axes=st.integers(1, 2),
    n_outputs=st.integers(1, 5),
    p=st.sampled_from([1.0, 1.6, 2.0, math.inf]),
    epsilon=st.floats(0.05, 20.0),
    degree=st.integers(1, 3),
)
def test_random_problems(seed, n_axes, n_outputs, p, epsilon, degree):
    problem = random_problem(seed, n_axes=n_axes, n_outputs=n_outputs, p=p, prior=True, n_records=15)
    mechanism = mdp.fit(problem, epsilon, "spline", cells=3, degree=degree)
    rows = mechanism.probabilities(np.random.default_rng(seed).uniform(-1, 5, size=(50, n_axes)))
    assert np.isfinite(rows).all()
    assert np.allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    loss = mechanism.expected_loss(problem)
    assert problem.floor * (1 - 1e-12) <= loss <= problem.uniform_loss * (1 + 1e-6)
    assert loss == pytest.approx(mechanism.report["loss"], rel=1e-9)
    assert mechanism.report["program_bound"] <= loss * (1 + 1e-9)


def test_the_certificate_rejects_what_is_no_table_of_distributions():
    mechanism = mdp.fit(random_problem(0), 1.0, "spline", cells=6)
    assert mdp.certify(mechanism).holds

    def changed(place, value):
        table = mechanism.table.copy()
        table[place] = value
        return replace(mechanism, table=table)

    for value, words in ((0, "below 1"), (-5, "below 1"), (2**60, "too large"), (mechanism.table[3, 1] + 1, "sums")):
        found = mdp.certify(changed((3, 1), value))
        assert not found.holds
        assert words in found.claim
    assert "integers" in mdp.certify(replace(mechanism, table=mechanism.table.astype(float))).claim
    assert not mdp.certify(replace(mechanism, epsilon=0.999)).holds


def test_files_keep_the_mechanism(tmp_path):
    mechanism = mdp.fit(random_problem(0), 1.0, "spline", cells=4, degree=3)
    mechanism.save(tmp_path / "s.mdp")
    again = mdp.load(tmp_path / "s.mdp")
    points = np.random.default_rng(0).uniform(0, 4, size=(50, 2))
    assert np.array_equal(again.probabilities(points), mechanism.probabilities(points))
    assert mdp.certify(again).holds


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"degree": 4}, "`degree` must be 1, 2 or 3, got 4"),
        ({"degree": 0}, "`degree` must be a whole number of at least 1"),
        ({"gap": 0}, "`gap` must be"),
        ({"solver": "highs"}, "`solver` must be one of 'auto', 'structured', 'clarabel'"),
        ({"cells": 3000}, "GB of memory"),
    ],
)
def test_bad_options(change, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.fit(random_problem(0), 1.0, "spline", **change)


CERTIFIED = ["em", "tem", "em-remap", "laplace", "laplace-remap", "aipo-e", "aipo", "spline"]


@pytest.mark.parametrize(
    ("n_axes", "p", "epsilon"), [(1, 2.0, 3.0), (2, 2.0, 0.3), (2, 1.0, 2.0), (2, math.inf, 8.0), (3, 2.0, 1.0)]
)
def test_auto_is_never_worse_than_any_certified_method(n_axes, p, epsilon):
    problem = random_problem(7, n_axes=n_axes, n_outputs=6, p=p, n_records=100)
    chosen = mdp.fit(problem, epsilon, time_limit=5)
    assert mdp.certify(chosen).holds
    loss = chosen.expected_loss(problem)
    assert loss == pytest.approx(chosen.report["loss"], rel=1e-9)
    for method in CERTIFIED:
        try:
            cells = {"cells": 3 if n_axes == 3 else 5} if method in ("aipo", "aipo-e", "spline") else {}
            other = mdp.fit(problem, epsilon, method, **cells)
        except mdp.InvalidInputError as error:
            assert "Laplace noise is supported" in str(error)
            continue
        assert loss <= other.expected_loss(problem) * (1 + 1e-4), method


def test_auto_refines_where_it_pays_and_never_gets_worse():
    problem = random_problem(3, n_axes=1, n_outputs=8, n_records=300, side=100.0)  # one axis is not designed by tiles
    found = mdp.fit(problem, 1.0, time_limit=6)
    losses = [one["loss"] for one in found.report["tried"] if one["method"] == "spline"]
    assert len(losses) >= 2
    assert losses[-1] < losses[0]
    assert all(later <= sooner * (1 + 2e-4) for sooner, later in itertools.pairwise(losses))


def test_auto_in_no_time_still_answers():
    problem = random_problem(0, n_outputs=20, n_records=300, side=30.0)
    mechanism = mdp.fit(problem, 0.3, time_limit=0.01)
    assert mdp.certify(mechanism).holds
    assert mechanism.expected_loss(problem) <= problem.uniform_loss


def test_the_report_tells_how_far_from_the_best_possible():
    problem = random_problem(1, n_records=40)
    mechanism = mdp.fit(problem, 1.0, "spline", cells=8, bound_clusters=40)
    bound = mdp.lower_bound(problem, 1.0, clusters=40)
    assert mechanism.report["lower_bound"] == pytest.approx(bound, rel=1e-6)
    excess = mechanism.report["loss"] / bound - 1
    assert excess >= 0
    assert f"within {100 * excess:.2g} % of the best any (1, d_2)-private mechanism" in mechanism.report["optimality"]


@pytest.mark.parametrize("degree", [2, 3])
def test_the_program_s_own_bound_holds_for_every_degree(degree):
    problem = random_problem(4, n_outputs=5)
    rough = mdp.fit(problem, 1.5, "spline", cells=5, degree=degree, gap=1e-2)
    fine = mdp.fit(problem, 1.5, "spline", cells=5, degree=degree, gap=1e-7)
    assert rough.report["program_bound"] <= fine.report["loss"]
    assert fine.report["gap"] <= 2e-7
    assert rough.report["gap"] <= 1.1e-2


def test_refinement_cuts_under_pressure_and_keeps_every_breakpoint():
    from metricdp.mechanisms.auto import refined

    grid = mdp.Grid.uniform(np.array([[0.0, 0.0], [4.0, 8.0]]), (4, 2))
    finer = refined(grid, [np.array([0.0, 1.0, 100.0, 0.0]), np.array([1.0, 1.0])], growth=1.5)
    assert finer.breakpoints[0].tolist() == [0.0, 1.0, 2.0, 2.25, 2.5, 3.0, 4.0] or finer.breakpoints[0].tolist() == [
        0.0, 1.0, 2.0, 2.5, 2.75, 3.0, 4.0,
    ]  # fmt: skip
    assert len(finer.breakpoints[1]) == 4
    for old, new in zip(grid.breakpoints, finer.breakpoints, strict=True):
        assert set(old) <= set(new)
