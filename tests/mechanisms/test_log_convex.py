"""Interpolated rows against the paper's definitions; sampling against the rows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import metricdp as mdp
from mechanisms_tools import hand_made
from metricdp.geometry.lattice import snap
from oracles import decimal_row, naive_row
from problems import random_problem


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_rows_follow_the_definition(n_axes):
    rng = np.random.default_rng(n_axes)
    grid = mdp.Grid.uniform(np.array([[0.0] * n_axes, [2.0] * n_axes]), 2)
    table = rng.dirichlet(np.ones(4), size=grid.n_anchors)
    mechanism = hand_made(grid, np.log(table))
    points = snap(rng.uniform(0, 2, size=(30, n_axes)), 2.0**-20)
    expected = [naive_row(grid, np.log(table), x) for x in points]
    assert np.allclose(mechanism.probabilities(points), expected, rtol=1e-12)


def test_anchors_keep_their_rows():
    grid = mdp.Grid.uniform(np.array([[0.0, 0.0], [2.0, 3.0]]), (2, 3))
    table = np.random.default_rng(0).dirichlet(np.ones(5), size=grid.n_anchors)
    assert np.allclose(hand_made(grid, np.log(table)).probabilities(grid.anchors), table, rtol=1e-13)


def test_logs_far_below_underflow_are_handled():
    grid = mdp.Grid.uniform(np.array([[0.0], [1.0]]), 1)
    mechanism = hand_made(grid, np.array([[0.0, -2000.0], [-2000.0, 0.0]]))
    rows = mechanism.probabilities([[0.0], [0.5], [1.0]])
    assert rows.tolist() == [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]


def test_outside_is_clamped_or_refused_without_telling_where():
    mechanism = mdp.fit(random_problem(0), 0.5, "aipo-e", cells=2)
    far = [[-7.123456, 2.0]]
    assert np.array_equal(mechanism.probabilities(far), mechanism.probabilities([[0.0, 2.0]]))
    with pytest.raises(
        mdp.InvalidInputError, match="`x` must be inside the box of the mechanism, got 1 points outside"
    ) as caught:
        mechanism.probabilities(far, outside="error")
    assert "7.123" not in str(caught.value)
    with pytest.raises(mdp.InvalidInputError, match="`outside` must be one of 'clamp', 'error', got 'drop'"):
        mechanism.sample(far, outside="drop")
    for method in (mechanism.probabilities, mechanism.sample):
        with (
            pytest.warns(DeprecationWarning, match='`outside="raise"` is now called `outside="error"`') as warned,
            pytest.raises(mdp.InvalidInputError, match="inside the box"),
        ):
            method(far, outside="raise")
        assert warned[0].filename == __file__


@pytest.mark.parametrize("x", [[[np.nan, 0.0]], [[0.0]], [[[0.0, 0.0]]], [["a", "b"]]])
def test_bad_points(x):
    mechanism = mdp.fit(random_problem(0), 0.5, "aipo-e", cells=2)
    with pytest.raises(mdp.InvalidInputError, match="`x` must be"):
        mechanism.sample(x)


def test_no_points_no_rows():
    mechanism = mdp.fit(random_problem(0), 0.5, "aipo-e", cells=2)
    assert mechanism.probabilities(np.empty((0, 2))).shape == (0, 5)
    assert mechanism.sample(np.empty((0, 2))).shape == (0,)


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_samples_follow_the_rows(n_axes):
    mechanism = mdp.fit(random_problem(3, n_axes=n_axes), 1.0, "aipo-e", cells=3)
    points = np.random.default_rng(0).uniform(0, 4, size=(3, n_axes))
    rng = mdp.InsecureSeed(11)
    for point, row in zip(points, mechanism.probabilities(points), strict=True):
        drawn = mechanism.sample(np.tile(point, (100_000, 1)), rng)
        counts = np.bincount(drawn, minlength=len(row))
        assert chisquare(counts, row * 100_000).pvalue > 1e-4


def test_samples_differ_with_the_system_generator_and_repeat_with_a_seed():
    mechanism = mdp.fit(random_problem(3), 2.0, "aipo-e", cells=2)
    points = np.random.default_rng(0).uniform(0, 4, size=(400, 2))
    assert not np.array_equal(mechanism.sample(points), mechanism.sample(points))
    seeded = [mechanism.sample(points, mdp.InsecureSeed(5)) for _ in range(2)]
    assert np.array_equal(*seeded)


def test_expected_loss_is_the_double_sum():
    problem = random_problem(2, n_records=12, prior=True)
    mechanism = mdp.fit(problem, 0.8, "aipo-e", cells=2)
    rows = mechanism.probabilities(problem.records)
    naive = sum(problem.prior[i] * rows[i, k] * problem.loss[i, k] for i in range(12) for k in range(problem.n_outputs))
    assert mechanism.expected_loss(problem) == pytest.approx(naive, rel=1e-12)
    with pytest.raises(mdp.InvalidInputError, match="`problem` must be over 5 outputs and 2 axes"):
        mechanism.expected_loss(random_problem(0, n_outputs=4))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n_axes=st.integers(1, 3),
    n_outputs=st.integers(1, 5),
    p=st.sampled_from([1.0, 1.7, 2.0, math.inf]),
    epsilon=st.floats(0.01, 30.0),
    prior=st.booleans(),
)
def test_random_problems(seed, n_axes, n_outputs, p, epsilon, prior):
    problem = random_problem(seed, n_axes=n_axes, n_outputs=n_outputs, p=p, prior=prior, n_records=15)
    mechanism = mdp.fit(problem, epsilon, "aipo-e", cells=2)
    rows = mechanism.probabilities(np.random.default_rng(seed).uniform(-1, 5, size=(50, n_axes)))
    assert np.isfinite(rows).all()
    assert np.allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    loss = mechanism.expected_loss(problem)
    assert problem.floor * (1 - 1e-12) <= loss
    assert loss <= problem.uniform_loss * (1 + 1e-12)


def test_points_are_rounded_to_the_lattice_of_the_box():
    grid = mdp.Grid.uniform(np.array([[0.1, 0.1], [2.1, 3.3]]), 2)
    mechanism = hand_made(grid, np.log(np.random.default_rng(0).dirichlet(np.ones(4), size=9)))
    assert mechanism.step == 2.0**-20
    points = np.random.default_rng(1).uniform(*grid.bounds, size=(50, 2))
    snapped = mechanism.snap(np.concatenate([points, grid.bounds]))
    assert np.array_equal(snapped, snap(snapped, 2.0**-20))
    assert ((grid.bounds[0] <= snapped) & (snapped <= grid.bounds[1])).all()
    assert np.array_equal(mechanism.probabilities(points), mechanism.probabilities(snapped[:-2]))
    moved = snapped[:-2] + 0.49 * 2.0**-20
    assert np.array_equal(mechanism.probabilities(moved), mechanism.probabilities(snapped[:-2]))
    seeded = [mechanism.sample(x, mdp.InsecureSeed(4)) for x in (points, snapped[:-2])]
    assert np.array_equal(*seeded)


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_rounding_errors_are_within_what_is_charged(n_axes):
    """Rows in floating point against rows in fractions and long decimals."""
    rng = np.random.default_rng(n_axes)
    axes = [np.sort(rng.uniform(-30, 30, 4)) for _ in range(n_axes)]
    grid = mdp.Grid.from_breakpoints(axes)
    mechanism = hand_made(grid, np.log(rng.dirichlet(np.full(5, 0.2), size=grid.n_anchors) + 1e-12))
    points = mechanism.snap(rng.uniform(*grid.bounds, size=(20, n_axes)))
    exact = np.array([[float(z) for z in decimal_row(grid, mechanism.log_table, x)] for x in points])
    error = np.abs(mechanism.probabilities(points) / exact - 1).max()
    assert error <= mechanism.rounding_cost * mechanism.step / 2
    assert error > 0
