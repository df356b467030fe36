"""The exponential family against the definition, and the proofs of every closed-form mechanism."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricdp import Problem
from metricdp.certificates.proving import certify
from metricdp.certificates.search import steepest_pair
from metricdp.drawing.randomness import InsecureSeed
from metricdp.errors import InvalidInputError
from metricdp.geometry.norms import norm
from metricdp.mechanisms.exponential.fit import TruncatedOptions, fit_em, fit_em_remap, fit_tem
from metricdp.mechanisms.exponential.mechanism import Exponential
from metricdp.mechanisms.laplace.fit import LaplaceOptions, fit_laplace, fit_laplace_remap
from metricdp.mechanisms.options import ClosedFormOptions
from metricdp.mechanisms.tails import LEAST_PROBABILITY
from oracles import exponential_rows
from problems import weighted_problem

ORDERS = (1, 1.5, 2, math.inf)


def worst_ratio(mechanism, x, y):
    """Return the largest |ln z(x) − ln z(y)| / (ε d) over pairs and possible outputs."""
    left, right = mechanism.probabilities(x), mechanism.probabilities(y)
    possible = (left > 0).any(axis=0) | (right > 0).any(axis=0)
    change = np.abs(np.log(left[:, possible]) - np.log(right[:, possible]))
    distance = norm(y - x, mechanism.p)[:, None]
    return float((change / (mechanism.epsilon * distance)).max())


def test_em_is_the_definition():
    for p in ORDERS:
        for n_axes in (1, 2, 3):
            problem = weighted_problem(1, n_axes=n_axes, p=p)
            mechanism = fit_em(problem, 0.7, ClosedFormOptions())
            points = problem.records[:7]
            expected = exponential_rows(problem, 0.7 * (1 - 4e-6), points)
            np.testing.assert_allclose(mechanism.probabilities(points), expected, rtol=1e-12)


@pytest.mark.parametrize("p", ORDERS)
def test_tem_is_em_with_clipped_distances(p):
    problem = weighted_problem(2, p=p, side=20.0)
    mechanism = fit_tem(problem, 1.3, TruncatedOptions(beta=0.05))
    gamma = 2 / 1.3 * math.log(0.95 * 4 / 0.05)
    assert mechanism.clip == pytest.approx(gamma)
    expected = exponential_rows(problem, 1.3 * (1 - 4e-6), problem.records, clip=gamma)
    np.testing.assert_allclose(mechanism.probabilities(problem.records), expected, rtol=1e-12)
    far = fit_em(problem, 1.3, ClosedFormOptions()).probabilities(problem.records)
    assert np.abs(far - expected).max() > 1e-4  # the clipping bites


def test_tem_without_room_for_truncation_is_uniform():
    for problem, beta in ((weighted_problem(3), 0.9), (weighted_problem(3, n_outputs=1), 0.001)):
        mechanism = fit_tem(problem, 1.0, TruncatedOptions(beta=beta))
        np.testing.assert_allclose(mechanism.probabilities(problem.records), 1 / problem.n_outputs, rtol=1e-15)


def test_repeated_outputs_share_alike():
    problem = Problem([[0.0], [1.0]], [[0.0], [0.0], [1.0]], "euclidean")
    rows = fit_em(problem, 1.0, ClosedFormOptions()).probabilities([[0.3]])
    assert rows[0, 0] == rows[0, 1] > rows[0, 2] > 0


def test_em_remap_is_the_brute_force_minimiser():
    moved = 0
    for seed in range(6):
        problem = weighted_problem(seed, n_outputs=6)
        em = fit_em(problem, 0.6, ClosedFormOptions())
        mechanism = fit_em_remap(problem, 0.6, ClosedFormOptions())
        rows = em.probabilities(problem.records)
        expected = np.zeros_like(rows)
        for draw in range(6):
            risks = [
                sum(problem.prior[i] * rows[i, draw] * problem.loss[i, k] for i in range(problem.n_records))
                for k in range(6)
            ]
            assert mechanism.labels[draw] == int(np.argmin(risks))
            expected[:, int(np.argmin(risks))] += rows[:, draw]
        moved += int((mechanism.labels != np.arange(6)).sum())
        np.testing.assert_allclose(mechanism.probabilities(problem.records), expected, rtol=1e-12)
        assert mechanism.expected_loss(problem) <= em.expected_loss(problem)
    assert moved > 0


def test_em_draws_follow_the_rows():
    problem = weighted_problem(5)
    mechanism = fit_em_remap(problem, 1.0, ClosedFormOptions())
    point = problem.records[:1]
    drawn = mechanism.sample(np.repeat(point, 40_000, axis=0), InsecureSeed(3))
    share = np.bincount(drawn, minlength=5) / 40_000
    np.testing.assert_allclose(share, mechanism.probabilities(point)[0], atol=0.012)


@pytest.mark.parametrize(
    "build",
    [
        lambda p: fit_em(p, 4.0, ClosedFormOptions()),
        lambda p: fit_tem(p, 4.0, TruncatedOptions(beta=1e-9)),
        lambda p: fit_em_remap(p, 4.0, ClosedFormOptions()),
    ],
)
def test_em_family_at_huge_distances(build):
    problem = weighted_problem(4, n_outputs=8, side=1000.0)
    mechanism = build(problem)
    rows = mechanism.probabilities(np.random.default_rng(0).uniform(0, 1000, (500, 2)))
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert rows[rows > 0].min() >= LEAST_PROBABILITY
    used = np.unique(mechanism.labels)
    assert (rows[:, used] > 0).all()
    if mechanism.clip is None:
        assert (rows[:, used] < 9 * LEAST_PROBABILITY).any()  # the floor is needed here


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(ORDERS), st.integers(1, 3), st.floats(0.01, 50))
def test_em_family_keeps_the_guarantee(seed, p, n_axes, epsilon):
    problem = weighted_problem(seed, n_axes=n_axes, p=p)
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, (400, n_axes))
    y = np.clip(x + rng.normal(size=x.shape) * 10.0 ** rng.uniform(-6, 1, (400, 1)), 0, 4)
    for mechanism in (
        fit_em(problem, epsilon, ClosedFormOptions()),
        fit_tem(problem, epsilon, TruncatedOptions()),
        fit_em_remap(problem, epsilon, ClosedFormOptions()),
    ):
        rows = mechanism.probabilities(x)
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
        apart = norm(y - x, p) > 1e-7
        assert worst_ratio(mechanism, x[apart], y[apart]) <= 1.0


FITS = {
    "em": lambda p, e: fit_em(p, e, ClosedFormOptions()),
    "tem": lambda p, e: fit_tem(p, e, TruncatedOptions()),
    "em-remap": lambda p, e: fit_em_remap(p, e, ClosedFormOptions()),
    "laplace": lambda p, e: fit_laplace(p, e, LaplaceOptions(squares=12)),
    "laplace-remap": lambda p, e: fit_laplace_remap(p, e, LaplaceOptions(squares=12)),
}


@pytest.mark.parametrize("method", FITS)
def test_proofs_accept_what_was_fitted_and_nothing_steeper(method):
    problem = weighted_problem(6, side=20.0 if method.startswith("em") or method == "tem" else 5.0)
    mechanism = FITS[method](problem, 0.8)
    assert mechanism.method == method
    assert mechanism.epsilon == 0.8
    finding = certify(mechanism)
    assert finding.holds
    assert 0.999 < finding.worst_ratio <= 1
    assert "exp(0.8 (d + r))" in finding.claim
    assert ("floating point" in finding.claim) == (not method.startswith("laplace"))
    assert "Assumed: the random bits are uniform" in finding.claim
    spoilt = replace(mechanism, rate=mechanism.rate * 4)
    finding = certify(spoilt)
    assert not finding.holds
    # The pair shown is a real counterexample: look for oneself.
    assert finding.worst_ratio > 1
    x, y = np.array(finding.worst_where["points"])
    output = finding.worst_where["output"]
    logs = np.log(spoilt.probabilities([x, y])[:, output])
    assert abs(logs[0] - logs[1]) > 0.8 * float(norm(y - x, 2))


def test_a_rate_a_hair_too_steep_is_not_proved():
    mechanism = fit_em(weighted_problem(7), 1.0, ClosedFormOptions())
    assert not certify(replace(mechanism, rate=math.nextafter(0.5, 1))).holds
    assert certify(replace(mechanism, rate=0.5)).holds


def test_steepest_pair_finds_a_known_slope():
    # Two outputs on a line, x between them: ln z_0 has slope −2·rate·z_1, steepest next to output 1.
    problem = Problem([[0.0], [1.0]], [[0.0], [1.0]], "euclidean")
    mechanism = fit_em(problem, 1.0, ClosedFormOptions())
    points = np.linspace(0.01, 0.99, 99)[:, None]
    ratio, where, tried = steepest_pair(mechanism, points, 1e-5)
    far = mechanism.probabilities([[0.99]])[0].max()
    assert ratio == pytest.approx(2 * mechanism.rate * far, rel=1e-3)
    assert tried == 99 * 2
    assert len(where["points"]) == 2


@pytest.mark.parametrize("method", FITS)
def test_settings_round_trip(method):
    problem = weighted_problem(8)
    mechanism = FITS[method](problem, 0.8)
    common = {name: getattr(mechanism, name) for name in ("outputs", "bounds", "epsilon", "p", "method", "report")}
    again = type(mechanism).from_settings(common, mechanism.settings())
    np.testing.assert_array_equal(again.probabilities(problem.records), mechanism.probabilities(problem.records))
    assert mechanism.report["seconds"] >= 0


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("rate", -1.0, "`rate` must be a positive"),
        ("clip", -1.0, "`clip` must be"),
        ("clip", math.nan, "`clip` must be"),
        ("labels", np.array([0, 1, 2, 3, 9]), "`labels` must be from 0 to 4"),
        ("labels", np.array([0.0, 1.0, 2.0, 3.0, 4.0]), "`labels` must be a non-empty array of whole"),
        ("labels", np.array([0, 1]), "`labels` must be one for each of the 5"),
    ],
)
def test_bad_files_are_refused(setting, value, words):
    mechanism = fit_em(weighted_problem(8), 0.8, ClosedFormOptions())
    common = {name: getattr(mechanism, name) for name in ("outputs", "bounds", "epsilon", "p", "method", "report")}
    with pytest.raises(InvalidInputError, match=words):
        Exponential.from_settings(common, {**mechanism.settings(), setting: value})


@pytest.mark.parametrize(
    ("options", "given", "words"),
    [
        (TruncatedOptions, {"beta": 3}, "`beta` must be strictly between 0 and 1"),
        (TruncatedOptions, {"beta": 0}, "`beta` must be a positive"),
        (ClosedFormOptions, {"time_limit": -1}, "`time_limit` must be a positive"),
        (LaplaceOptions, {"squares": 1}, "`squares` must be a whole number of at least 2"),
        (LaplaceOptions, {"squares": 10.5}, "`squares` must be a whole number of at least 2"),
    ],
)
def test_bad_options_are_refused(options, given, words):
    with pytest.raises(InvalidInputError, match=words):
        options(**given)


def test_progress_ends_at_one():
    for method, fit in {
        "laplace-remap": lambda p, say: fit_laplace_remap(p, 1.0, LaplaceOptions(squares=8, progress=say)),
        "em": lambda p, say: fit_em(p, 1.0, ClosedFormOptions(progress=say)),
    }.items():
        heard = []
        fit(weighted_problem(9), lambda share, words, heard=heard: heard.append(share))
        assert heard[-1] == 1.0, method
        assert heard == sorted(heard)
