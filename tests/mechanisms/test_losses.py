"""Losses of mechanisms: exact sums, estimates whose errors can be believed, and limits of time."""

import numpy as np
import pytest

import metricdp as mdp
from metricdp._clock import Clock
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.losses import Loss, estimated_loss, exact_loss, loss_within
from problems import random_problem, weighted_problem


@pytest.fixture(scope="module")
def many():
    """A problem with more records than an estimate looks at, with a prior that is far from uniform."""
    problem = weighted_problem(5, n_records=6000, n_outputs=7)
    assert problem.prior.max() > 2 * problem.prior.min()
    return problem


@pytest.fixture
def em(many):
    return mdp.fit(many, 1.0, "em")


def test_an_exact_loss_is_the_sum_over_all_records(many, em):
    found = exact_loss(em, many, Clock(None))
    assert found.exact
    assert found.error == 0
    assert found.value == pytest.approx(em.expected_loss(many), rel=1e-12)
    assert found.value == pytest.approx(
        sum(
            weight * float(row @ loss)
            for weight, row, loss in zip(many.prior, em.probabilities(many.records), many.loss, strict=True)
        ),
        rel=1e-9,
    )


def test_an_exact_loss_is_given_up_when_it_cannot_be_had_in_time(many, em):
    clock = Clock(60.0)
    clock.stop()
    assert exact_loss(em, many, clock) is None


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_estimates_err_by_about_their_standard_error(many, epsilon, monkeypatch):
    """Over many samples the mean square of error / standard error is 1; one sample alone would show little."""
    mechanism = mdp.fit(many, epsilon, "em")
    truth = mechanism.expected_loss(many)
    fresh, seeds = np.random.default_rng, iter(range(1000))
    monkeypatch.setattr(np.random, "default_rng", lambda _: fresh(next(seeds)))
    found = [estimated_loss(mechanism, many, 60.0) for _ in range(60)]
    assert not any(one.exact for one in found)
    scores = np.array([(one.value - truth) / one.error for one in found])
    assert 0.6 < np.mean(scores**2) < 1.6
    assert abs(scores.mean()) < 0.6


def test_regression_makes_estimates_better_than_plain_means(many, em):
    chosen = np.random.default_rng(0).choice(many.n_records, 2000, p=many.prior)
    plain = np.einsum("ik,ik->i", em.probabilities(many.records[chosen]), many.loss[chosen]).std() / np.sqrt(2000)
    assert estimated_loss(em, many, 60.0).error < 0.7 * plain


def test_a_loss_is_exact_with_time_and_an_estimate_without(many, em):
    assert loss_within(em, many, 60.0).exact
    hasty = loss_within(em, many, 1e-6)
    assert not hasty.exact
    assert hasty.error > 0
    assert abs(hasty.value - em.expected_loss(many)) < 8 * hasty.error


@pytest.mark.parametrize("method", [name for name in METHODS if name != "aipo"])
def test_every_report_says_what_is_lost_and_how_exactly(method):
    problem = random_problem(2, n_records=80)
    options = {"auto": {"time_limit": 2.0}, "spline": {"cells": 4}}.get(method, {})
    if method in ("aipo-e", "aipo-r", "lp", "copt"):
        options = {"cells": 3}
    mechanism = mdp.fit(problem, 1.0, method, certify=False, **options)
    assert mechanism.report["loss_exact"] is True
    assert mechanism.report["loss_error"] == 0
    # The loss of a log-convex table is summed before points are rounded to the lattice.
    assert mechanism.report["loss"] == pytest.approx(mechanism.expected_loss(problem), rel=1e-7)


@pytest.mark.parametrize("method", ["em-remap", "laplace-remap"])
def test_a_remap_without_time_is_still_private(method):
    problem = random_problem(2, n_records=500)
    mechanism = mdp.fit(problem, 1.0, method, time_limit=1e-9)
    assert mdp.certify(mechanism).holds


def test_auto_says_which_methods_may_be_better_if_it_could_not_decide(many, monkeypatch):
    from metricdp.mechanisms import auto

    monkeypatch.setattr(auto, "exact_loss", lambda *_: None)
    monkeypatch.setattr(auto, "loss_within", lambda *_: Loss(3.0, 0.5, exact=False))
    monkeypatch.setattr(auto, "estimated_loss", lambda *_: Loss(3.0, 0.5, exact=False))
    monkeypatch.setattr(auto, "_best_spline", lambda *_: None)
    report = mdp.fit(many, 1.0, time_limit=5.0).report
    assert report["loss_exact"] is False
    assert report["loss_error"] == 0.5
    methods = {one["method"] for one in report["tried"]}
    assert len(report["undecided"]) == len(methods) - 1
    assert set(report["undecided"]) < methods


def test_auto_decides_between_rivals_by_exact_losses(many, monkeypatch):
    """Estimates that cannot tell methods apart are replaced; the best by exact loss wins whatever they said."""
    from metricdp.mechanisms import auto

    monkeypatch.setattr(auto, "loss_within", lambda *_: Loss(1.0, 0.5, exact=False))
    monkeypatch.setattr(auto, "_best_spline", lambda *_: None)
    chosen = mdp.fit(many, 1.0, time_limit=600.0)
    assert chosen.report["loss_exact"] is True
    assert chosen.report["undecided"] == []
    losses = {one["method"]: one["loss"] for one in chosen.report["tried"]}
    assert chosen.report["loss"] == min(losses.values()) == losses[chosen.method]


@pytest.mark.parametrize("solver", ["structured", "clarabel"])
def test_a_spline_without_time_is_still_certified(solver):
    problem = random_problem(0, n_outputs=20, n_records=300, side=30.0)
    mechanism = mdp.fit(problem, 0.3, "spline", cells=8, solver=solver, time_limit=1e-3)
    assert mechanism.report["certificate"]["holds"]
    assert mechanism.expected_loss(problem) <= problem.uniform_loss * (1 + 1e-9)


def test_a_lower_bound_counts_against_the_time_limit(monkeypatch):
    from metricdp.mechanisms import fitting

    asked = {}

    def noted(problem, epsilon, **options):
        asked.update(options)
        return problem.floor

    monkeypatch.setattr(fitting, "lower_bound", noted)
    problem = random_problem(1, n_records=40)
    mdp.fit(problem, 1.0, "spline", cells=3, bound_clusters=4, time_limit=30.0)
    assert 10.0 < asked["time_limit"] < 30.0
    mdp.fit(problem, 1.0, "spline", cells=3, bound_clusters=4)
    assert asked["time_limit"] is None
