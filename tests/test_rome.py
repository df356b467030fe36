"""Figures for a real city, against an independent prototype; skipped where Rome's network is missing."""

import pytest

import metricdp as mdp

EPSILONS = (0.2, 0.4, 0.8, 1.6)
REFERENCE = {
    "em": (6.90, 5.55, 4.15, 3.24),
    "laplace": (5.75, 4.18, 3.28, 2.91),
    "laplace-remap": (5.38, 4.02, 3.13, 2.73),
    "aipo-e": (6.50, 5.28, 4.01, 3.14),
}
OPTIONS = {"aipo-e": {"cells": (15, 16)}}  # cells of 3.16 x 3.07 km


def test_the_network_and_the_extremes(rome):
    assert rome.n_records == 43_160
    assert rome.uniform_loss == pytest.approx(8.85, rel=0.01)
    assert rome.floor == pytest.approx(2.534, rel=0.01)


@pytest.mark.parametrize("method", ["em", "aipo-e"])
@pytest.mark.parametrize("number", range(4))
def test_quick_methods(rome, method, number):
    mechanism = mdp.fit(rome, EPSILONS[number], method, **OPTIONS.get(method, {}))
    assert mechanism.expected_loss(rome) == pytest.approx(REFERENCE[method][number], rel=0.01)


@pytest.mark.parametrize("method", ["laplace", "laplace-remap"])
def test_laplace_at_one_budget(rome, method):
    assert mdp.fit(rome, 0.4, method).expected_loss(rome) == pytest.approx(REFERENCE[method][1], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["laplace", "laplace-remap"])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_laplace_at_the_others(rome, method, number):
    mechanism = mdp.fit(rome, EPSILONS[number], method)
    assert mechanism.expected_loss(rome) == pytest.approx(REFERENCE[method][number], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "clusters", "least"), [(1.6, 1000, 2.60), (0.4, 2000, 3.58)])
def test_the_lower_bound_is_tight(rome, epsilon, clusters, least):
    assert least <= mdp.lower_bound(rome, epsilon, clusters=clusters)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["em", "tem", "em-remap", "laplace", "laplace-remap", "aipo-e"])
def test_no_violations_at_zero_tolerance(rome, method):
    mechanism = mdp.fit(rome, 0.8, method, **OPTIONS.get(method, {}))
    found = mdp.audit(mechanism, pairs=5_000)
    assert found.violation_ratio == 0.0
    assert found.max_ratio <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lp", "copt", "aipo-r"])
def test_violations_of_what_is_not_private(rome, method):
    mechanism = mdp.fit(rome, 0.8, method, certify=False, cells=8)
    assert mdp.audit(mechanism, points=rome.records, pairs=5_000).violation_ratio > 0
