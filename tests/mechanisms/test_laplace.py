"""Laplace noise on a lattice: rows against quadrature, against draws, and against the guarantee itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import metricdp as mdp
from metricdp import Problem
from metricdp.drawing.randomness import InsecureSeed
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.norms import norm, pairwise_distances
from metricdp.mechanisms.laplace.fit import LaplaceOptions, fit_laplace, fit_laplace_remap
from metricdp.mechanisms.laplace.mechanism import LatticeLaplace, NoiseFrame
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.tails import LEAST_PROBABILITY
from oracles import by_quadrature, half_plane
from problems import weighted_problem

SUPPORTED = [(1, 1), (1, 2), (1, 1.5), (1, math.inf), (2, 1), (2, 2), (2, math.inf), (3, 1)]
SIDE = 4.0


def patchwork(seed, p, n_axes, rate, shape, n_outputs=6, margin=2.0, side=SIDE):
    """A mechanism with labels strewn at random: walls everywhere, regions of one square."""
    rng = np.random.default_rng(seed)
    bounds = np.array([np.zeros(n_axes), np.full(n_axes, side)])
    box = NoiseFrame.of(p, n_axes).box(bounds)
    return LatticeLaplace(
        outputs=rng.uniform(0, side, (n_outputs, n_axes)),
        bounds=bounds,
        epsilon=rate / (1 - 4e-6),
        p=p,
        method="laplace",
        rate=rate,
        window=np.array([box[0] - margin / rate, box[1] + margin / rate]),
        labels=rng.integers(0, n_outputs, shape),
    )


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize("rate", [0.3, 2.0])
def test_rows_are_the_integral_of_the_density(p, rate):
    mechanism = patchwork(1, p, 2, rate, (5, 7))
    for x in mechanism.snap(np.random.default_rng(2).uniform(0, SIDE, (3, 2))):
        expected = by_quadrature(mechanism, x, fine=24 if p == 2 else 12)
        # For p = 2 the cone at x limits the quadrature, not the rows.
        np.testing.assert_allclose(mechanism.probabilities([x])[0], expected, rtol=3e-5 if p == 2 else 1e-10)


def test_one_axis_is_the_laplace_distribution():
    for p in (1, 1.5, 2, math.inf):
        mechanism = patchwork(3, p, 1, 1.7, (9,))
        x = mechanism.snap(1.234)
        lines = np.concatenate([[-np.inf], mechanism.squares.edges[0][1:-1], [np.inf]])
        cell = np.diff(stats.laplace(loc=x, scale=1 / 1.7).cdf(lines))
        expected = np.bincount(mechanism.labels, weights=cell, minlength=6)
        np.testing.assert_allclose(mechanism.probabilities([[x]])[0], expected, rtol=1e-13)


def test_three_axes_are_a_product():
    mechanism = patchwork(4, 1, 3, 0.9, (4, 3, 5))
    x = mechanism.snap(np.array([1.0, 2.5, 3.1]))
    cells = []
    for axis, edges in enumerate(mechanism.squares.edges):
        lines = np.concatenate([[-np.inf], edges[1:-1], [np.inf]])
        cells.append(np.diff(stats.laplace(loc=x[axis], scale=1 / 0.9).cdf(lines)))
    mass = np.einsum("i,j,k->ijk", *cells)
    expected = np.bincount(mechanism.labels.ravel(), weights=mass.ravel(), minlength=6)
    np.testing.assert_allclose(mechanism.probabilities([x])[0], expected, rtol=1e-13)


@pytest.mark.parametrize("rate", [0.05, 1.0, 40.0, 150.0])
def test_tails_keep_their_digits(rate):
    # One wall across the whole window, so that walls that leave it count as well.
    mechanism = replace(
        patchwork(0, 2, 2, rate, (16, 12), n_outputs=2),
        labels=np.repeat([0] * 8 + [1] * 8, 12).reshape(16, 12),
    )
    wall = mechanism.squares.edges[0][8]
    for gap in (2e-6, 0.01, 0.3, 1.0, 1.9):
        for x, k in ((mechanism.snap(wall - gap), 1), (mechanism.snap(wall + gap), 0)):
            expected = half_plane(rate, abs(x - wall))
            found = mechanism.probabilities([[x, 1.1]])[0, k]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_on_a_wall_and_on_a_corner_rows_are_continuous():
    mechanism = patchwork(5, 2, 2, 0.8, (6, 6))
    at = np.array([edges[3] for edges in mechanism.squares.edges])
    shifts = 1e-9 * np.array([[0, 0], [1, 1], [-1, 1], [1, -1], [-1, -1], [0, 1], [1, 0], [0, -1], [-1, 0]])
    rows = mechanism.probabilities(at + shifts)
    np.testing.assert_allclose(rows, rows[[0] * 9], rtol=1e-7)
    rows = mechanism.probabilities(at + np.array([[0, 0.2], [1e-9, 0.2], [-1e-9, 0.2]]))
    np.testing.assert_allclose(rows, rows[[0] * 3], rtol=1e-7)


@pytest.mark.parametrize(("n_axes", "p"), SUPPORTED)
def test_draws_follow_the_rows(n_axes, p):
    mechanism = patchwork(7, p, n_axes, 0.6, (5,) * n_axes, margin=1.0)
    count = 200_000
    for x in np.random.default_rng(1).uniform(0, SIDE, (2, n_axes)):
        drawn = mechanism.sample(np.repeat(x[None], count, axis=0), InsecureSeed(11))
        expected = mechanism.probabilities([x])[0] * count
        possible = expected > 0
        seen = np.bincount(drawn, minlength=6)
        assert seen[~possible].sum() == 0
        assert stats.chisquare(seen[possible], expected[possible]).pvalue > 1e-4


def test_draws_of_different_points_differ():
    mechanism = patchwork(7, 2, 2, 8.0, (8, 8))
    x = np.random.default_rng(1).uniform(0, SIDE, (2000, 2))
    drawn = mechanism.sample(x, InsecureSeed(5))
    rows = mechanism.probabilities(x)
    agreement = (rows**2).sum(axis=1)
    assert agreement.mean() > 0.4  # far from the 1/6 of draws that do not look at their point
    assert rows[np.arange(2000), drawn].mean() == pytest.approx(agreement.mean(), abs=0.02)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SUPPORTED), st.floats(0.02, 30), st.integers(1, 12))
def test_rows_are_distributions(seed, where, rate, squares):
    n_axes, p = where
    mechanism = patchwork(seed, p, n_axes, rate, (squares,) * n_axes, margin=1.0)
    x = np.random.default_rng(seed).uniform(0, SIDE, (50, n_axes))
    rows = mechanism.probabilities(np.concatenate([x, mechanism.bounds]))
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal((rows > 0).all(axis=0), np.isin(np.arange(6), mechanism.labels))


def violations(mechanism, x, y):
    left, right = mechanism.probabilities(x), mechanism.probabilities(y)
    possible = (left > 0).all(axis=0)
    change = np.abs(np.log(left[:, possible]) - np.log(right[:, possible]))
    allowed = mechanism.epsilon * (norm(y - x, mechanism.p) + mechanism.rounding)[:, None]
    return int((change > allowed).sum()), change.size, float((change / allowed).max())


@pytest.mark.parametrize(("n_axes", "p"), [(1, 2), (2, 1), (2, 2), (2, math.inf), (3, 1)])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
def test_no_pair_violates_the_guarantee(n_axes, p, rate):
    shape = {1: (64,), 2: (16, 14), 3: (6, 7, 5)}[n_axes]
    mechanism = patchwork(9, p, n_axes, rate, shape, n_outputs=10, side=10.0)
    rng = np.random.default_rng(10)
    count = 600 if p == 2 and n_axes == 2 else 10_000
    x = rng.uniform(0, 10, (count, n_axes))
    step = rng.normal(size=x.shape)
    step *= (10.0 ** np.resize([-6.0, -5, -3, -1, 0, 1], count) / norm(step, p))[:, None]
    y = np.clip(x + step, 0, 10)
    apart = norm(y - x, p) > 5e-7
    broken, compared, worst = violations(mechanism, x[apart], y[apart])
    assert compared > 8 * count
    assert broken == 0, worst
    if rate == 5.0:
        assert worst > 0.95  # pairs that use up the budget are among them


@pytest.mark.parametrize(("n_axes", "p"), [(1, 1), (2, 1), (2, 2), (2, math.inf)])
def test_huge_distances_stay_finite(n_axes, p):
    mechanism = patchwork(2, p, n_axes, 20.0, (20,) * n_axes, n_outputs=4, side=100.0)
    labels = np.indices(mechanism.labels.shape).sum(axis=0) * 4 // (20 * n_axes)
    mechanism = replace(mechanism, labels=labels)
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 100, (40, n_axes)), mechanism.bounds])
    rows = mechanism.probabilities(x)
    assert np.isfinite(rows).all()
    assert rows.min() == LEAST_PROBABILITY
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    y = np.clip(x + rng.normal(size=x.shape) * np.resize([1e-6, 0.01, 10.0], len(x))[:, None], 0, 100)
    apart = norm(y - x, p) > 5e-7
    assert violations(mechanism, x[apart], y[apart])[0] == 0


@pytest.mark.parametrize("epsilon", [1e-7, 1e5])
@pytest.mark.parametrize(("n_axes", "p"), [(1, 1), (2, 1), (2, 2), (2, math.inf), (3, 1)])
def test_extreme_budgets(n_axes, p, epsilon):
    problem = weighted_problem(5, n_axes=n_axes, p=p)
    for fit in (fit_laplace, fit_laplace_remap):
        for hopeless in (1e-200, 1e-100, 1e-9, 1e20):
            with pytest.raises(InvalidInputError, match="`epsilon`"):
                fit(problem, hopeless, LaplaceOptions(squares=8))
        if p == 2 and epsilon > 1:
            continue
        mechanism = fit(problem, epsilon, LaplaceOptions(squares=8))
        rows = mechanism.probabilities(problem.records)
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
        if epsilon < 1:  # next to no information
            np.testing.assert_allclose(rows, rows[[0] * len(rows)], rtol=3e-6)


def test_nearest_labels_are_nearest():
    for n_axes, p in SUPPORTED:
        problem = weighted_problem(3, n_axes=n_axes, p=p)
        mechanism = fit_laplace(problem, 1.0, LaplaceOptions(squares=9))
        centres = mechanism.frame.leave(mechanism.squares.centres)
        distance = pairwise_distances(centres, problem.outputs, p)
        chosen = distance[np.arange(len(centres)), mechanism.labels.ravel()]
        np.testing.assert_allclose(chosen, distance.min(axis=1), rtol=1e-12)


@pytest.mark.parametrize(("n_axes", "p"), [(1, 1), (2, 1), (2, 2), (2, math.inf), (3, 1)])
def test_remapped_labels_have_the_least_posterior_loss(n_axes, p):
    problem = weighted_problem(4, n_axes=n_axes, p=p)
    size = {1: 200, 2: 60, 3: 20}[n_axes]
    mechanism = fit_laplace_remap(problem, 1.5, LaplaceOptions(squares=size))
    centres = mechanism.frame.leave(mechanism.squares.centres)
    weight = np.exp(-mechanism.rate * pairwise_distances(centres, problem.records, p)) * problem.prior
    risk = weight @ problem.loss / weight.sum(axis=1, keepdims=True)
    chosen = risk[np.arange(len(centres)), mechanism.labels.ravel()]
    # Records are spread over squares, which moves them by up to half a square, so near ties may fall to either side.
    assert (chosen - risk.min(axis=1)).max() < 0.04
    assert (mechanism.labels.ravel() == risk.argmin(axis=1)).mean() > 0.97
    assert not np.array_equal(mechanism.labels, fit_laplace(problem, 1.5, LaplaceOptions(squares=size)).labels)


def test_remap_beats_nearest_and_finer_squares_hardly_matter():
    problem = weighted_problem(5, n_records=100)
    losses = [
        fit(problem, 1.0, LaplaceOptions(squares=size)).expected_loss(problem)
        for fit, size in ((fit_laplace, 128), (fit_laplace_remap, 128), (fit_laplace_remap, 256))
    ]
    assert losses[1] < losses[0]
    assert losses[1] == pytest.approx(losses[2], rel=1e-3)
    assert problem.floor < losses[1] < problem.uniform_loss


def test_squares_beyond_resolution_take_a_known_label():
    # Two clusters at the ends of a long box: halfway, e^{−ε d} is far below the rounding of the transform.
    records = np.concatenate([np.linspace(0, 1, 20), np.linspace(99, 100, 20)])[:, None]
    problem = Problem(records, [[0.5], [99.5]], "euclidean")
    mechanism = fit_laplace_remap(problem, 2.0, LaplaceOptions(squares=1000))
    centres = mechanism.squares.centres[:, 0]
    assert mechanism.report["squares_resolved"] < 0.5
    np.testing.assert_array_equal(mechanism.labels, (centres > 50).astype(int))


@pytest.mark.parametrize("rate", [0.05, 2.0, 40.0])
def test_rows_for_losses_differ_from_the_others_by_nothing_that_a_loss_can_see(rate):
    """At a large rate most walls are out of sight; at a small one none is."""
    problem = weighted_problem(2)
    mechanism = fit_laplace_remap(problem, rate, LaplaceOptions(squares=64))
    edges = np.clip(np.column_stack(np.meshgrid(*mechanism.squares.edges)).reshape(-1, 2)[::9], *problem.bounds)
    points = np.concatenate([np.random.default_rng(0).uniform(*problem.bounds, size=(300, 2)), edges])
    units = np.eye(problem.n_outputs)[:, None].repeat(len(points), axis=1)
    likely = np.column_stack([mechanism.losses_at(points, unit) for unit in units])
    exact = mechanism.probabilities(points)
    assert np.abs(likely - exact).max() < 1e-10
    assert mechanism.expected_loss(problem) == pytest.approx(
        float(problem.prior @ np.einsum("ik,ik->i", mechanism.probabilities(problem.records), problem.loss)), rel=1e-10
    )


def test_one_output_and_repeated_outputs():
    for p in (1, 2, math.inf):
        single = Problem([[0.0, 0.0], [1.0, 2.0]], [[0.5, 0.5]], "euclidean", p=p)
        double = Problem([[0.0, 0.0], [1.0, 2.0]], [[0.5, 0.5], [0.5, 0.5]], "euclidean", p=p)
        for fit in (fit_laplace, fit_laplace_remap):
            rows = fit(single, 1.0, LaplaceOptions(squares=8)).probabilities(single.records)
            np.testing.assert_allclose(rows, 1.0, rtol=1e-15)
            rows = fit(double, 1.0, LaplaceOptions(squares=8)).probabilities(single.records)
            np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-15)


@pytest.mark.parametrize(("n_axes", "p"), [(3, 2), (2, 1.5), (2, 3), (3, math.inf), (4, 1), (4, 2)])
def test_every_norm_and_up_to_four_axes(n_axes, p):
    problem = weighted_problem(1, n_axes=n_axes, p=p)
    losses = {}
    for fit in (fit_laplace, fit_laplace_remap):
        mechanism = fit(problem, 1.0, LaplaceOptions(squares=6))
        rows = mechanism.probabilities(problem.records[:3])
        drawn = mechanism.sample(np.repeat(problem.records[:3], 20_000, axis=0), InsecureSeed(3)).reshape(3, -1)
        for row, outputs in zip(rows, drawn, strict=True):
            seen = np.bincount(outputs, minlength=len(row))
            kept = row > 0
            assert stats.chisquare(seen[kept], row[kept] / row[kept].sum() * len(outputs)).pvalue > 1e-4
        losses[fit] = mechanism.expected_loss(problem)
    assert losses[fit_laplace_remap] < losses[fit_laplace]


def test_five_axes_are_refused():
    with pytest.raises(InvalidInputError, match="1 to 4 axes, got 5"):
        fit_laplace(weighted_problem(1, n_axes=5), 1.0, LaplaceOptions(squares=4))


def test_too_much_is_refused_before_it_is_tried():
    with pytest.raises(ProblemTooLargeError, match="`squares`"):
        fit_laplace(weighted_problem(1), 1.0, LaplaceOptions(squares=10**6))
    with pytest.raises(ProblemTooLargeError, match="`epsilon`"):
        fit_laplace(weighted_problem(1), 1e9, LaplaceOptions())


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("rate", 0.0, "`rate` must be a positive"),
        ("window", np.zeros((2, 3)), "`window` must be of shape"),
        ("window", np.array([[0.0, 0.0], [SIDE, SIDE]]), "wider than the box on every side"),
        ("labels", np.zeros((4, 4)), "`labels` must be a non-empty array of whole"),
        ("labels", np.zeros(4, dtype=int), "`labels` must be a non-empty array of whole numbers with 2 axes"),
        ("labels", np.full((4, 4), 6), "`labels` must be from 0 to 5"),
    ],
)
def test_bad_files_are_refused(setting, value, words):
    mechanism = patchwork(1, 2, 2, 1.0, (4, 4))
    common = {name: getattr(mechanism, name) for name in ("outputs", "bounds", "epsilon", "p", "method", "report")}
    with pytest.raises(InvalidInputError, match=words):
        LatticeLaplace.from_settings(common, {**mechanism.settings(), setting: value})


def test_a_remap_out_of_time_says_so():
    problem = weighted_problem(4)
    mechanism = fit_laplace_remap(problem, 1.0, LaplaceOptions(squares=256, time_limit=1e-9))
    assert mechanism.report["outputs_tried"] == 1
    assert fit_laplace_remap(problem, 1.0, LaplaceOptions(squares=256)).report["outputs_tried"] == 5


def test_points_belong_to_the_nearest_square():
    squares = Squares(np.array([[0.0, 0.0], [4.0, 3.0]]), (4, 3))
    points = np.array([[-9.0, 1.5], [0.5, 0.5], [1.0, 1.0], [99.0, 99.0], [3.999, -1.0]])
    assert squares.square_of(points).tolist() == [1, 0, 4, 11, 9]
    np.testing.assert_array_equal(squares.square_of(squares.centres), np.arange(12))


def test_the_old_name_of_the_option_still_works_with_a_warning():
    problem = weighted_problem(1)
    with pytest.warns(DeprecationWarning, match="The option `lattice` is now called `squares`"):
        old = mdp.fit(problem, 1.0, "laplace", lattice=8)
    new = mdp.fit(problem, 1.0, "laplace", squares=8)
    assert np.array_equal(old.labels, new.labels)
    assert new.report["squares"] == [8, 8]
    with (
        pytest.warns(DeprecationWarning, match="lattice"),
        pytest.raises(InvalidInputError, match="`squares` was given twice, once by its old name"),
    ):
        mdp.fit(problem, 1.0, "laplace", squares=8, lattice=8)
    with pytest.raises(InvalidInputError, match="Method 'em' has no option 'lattice'"):
        mdp.fit(problem, 1.0, "em", lattice=8)
