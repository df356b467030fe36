"""Reports through mechanisms whose ε varies: what they add up to in the path metric, and what a ledger charges."""

import itertools
import math

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.path_metric import PathMetric
from oracles import steiner_distances
from problems import random_problem

SIDE = 6.0
MAPS = [
    mdp.EpsilonMap([[0, 2, 4, SIDE], [0, 3, SIDE]], [[0.3, 0.5], [0.9, 0.4], [0.3, 0.6]]),
    mdp.EpsilonMap([[0, 3, SIDE], [0, 1.5, SIDE]], [[0.2, 1.1], [0.7, 0.5]]),
    mdp.EpsilonMap([[0, SIDE], [0, 2, 4, SIDE]], [[0.8, 0.25, 0.8]]),
]


@pytest.fixture(scope="module")
def mechanisms():
    problem = random_problem(0, n_outputs=4, side=SIDE, n_records=150)
    return [mdp.fit(problem, one, "spline", cells=6) for one in MAPS]


def summed(maps):
    """The map ε₁ + … + εₙ, on all borders of all of them."""
    axes = [np.unique(np.concatenate(points)) for points in zip(*(one.breakpoints for one in maps), strict=True)]
    return mdp.EpsilonMap(axes, sum(one.least_over(axes) for one in maps))


def test_products_of_probabilities_stay_within_the_path_metric_of_the_sum(mechanisms):
    """The likeliest and the least likely sequences of reports, over all of them, from one place or from another."""
    rng = np.random.default_rng(1)
    total = summed([one.epsilon_map for one in mechanisms])
    here, there = (mechanisms[0].snap(rng.uniform(0, SIDE, (3000, 2))) for _ in range(2))
    logs = [np.log(one.probabilities(here)) - np.log(one.probabilities(there)) for one in mechanisms]
    # A sequence of three reports has the product of three ratios: all 4³ of them, by their logarithms.
    sequences = [
        sum(log[:, k] for log, k in zip(logs, ks, strict=True)) for ks in itertools.product(range(4), repeat=3)
    ]
    worst = np.abs(sequences).max(axis=0)
    bound = PathMetric(total, 2.0).between(here, there)
    assert (worst <= bound).all()
    assert (worst / bound).max() > 0.5  # not vacuous
    charged = sum(one.claimed_epsilon for one in mechanisms) * np.linalg.norm(here - there, axis=1)
    assert (bound <= charged * (1 + 1e-9)).all()
    assert np.median(bound / charged) < 0.8
    # The sum of the three metrics is not above the metric of the sum: each of the first may take its own path.
    parts = sum(PathMetric(one, 2.0).between(here, there) for one in MAPS)
    exact_parts = [PathMetric(one, 2.0).straight(here, there) for one in MAPS]
    assert np.allclose(sum(exact_parts), PathMetric(total, 2.0).straight(here, there), rtol=1e-9)
    assert (parts <= sum(exact_parts) * (1 + 1e-9)).all()


def test_the_bound_holds_against_a_path_metric_that_the_test_finds_itself(mechanisms):
    """Sums of the largest logarithms of the three, over all pairs of some points; nothing of the library bounds them."""
    total = summed([one.epsilon_map for one in mechanisms])
    points = mechanisms[0].snap(np.random.default_rng(2).uniform(0, SIDE, (80, 2)))
    allowed = steiner_distances(total.breakpoints, total.values, points, 17)
    logs = [np.log(one.probabilities(points)) for one in mechanisms]
    worst = sum(np.abs(log[:, None] - log[None, :]).max(axis=2) for log in logs)
    assert (worst <= allowed).all()
    off = ~np.eye(len(points), dtype=bool)
    assert (worst[off] / allowed[off]).max() > 0.6
    # Each of the three alone would be broken: the charge of one report does not pay for three.
    alone = steiner_distances(MAPS[0].breakpoints, MAPS[0].values, points, 17)
    assert (worst[off] > alone[off]).any()


def test_a_ledger_charges_the_largest_epsilon_of_a_map(mechanisms, tmp_path):
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=5.0) as ledger:
        for mechanism, largest in zip(mechanisms, (0.9, 1.1, 0.8), strict=True):
            assert mechanism.claimed_epsilon == largest
            assert ledger.sample(mechanism, ["ann"], [[1.0, 1.0]])[0] >= 0
        assert ledger.spent("ann") == 2.8
        # The charge does not depend on where somebody is, or refusals would tell.
        ledger.sample(mechanisms[0], ["bob", "eve"], [[0.5, 0.5], [3.0, 1.0]])
        assert ledger.spent("bob") == ledger.spent("eve") == 0.9
        found = [ledger.sample(mechanisms[1], ["ann"], [[1.0, 1.0]])[0] >= 0 for _ in range(4)]
        assert found == [True, True, False, False]


def test_on_the_ground_the_charge_is_per_true_kilometre(tmp_path):
    problem = mdp.cities.load("helsinki").problem(outputs=4, tasks=4, seed=0)
    (west, south), (east, north) = problem.bounds
    local = mdp.EpsilonMap([[west, 0.0, east], [south, north]], [[2.0], [5.0]])
    mechanism = mdp.fit(problem, local, "spline", cells=4)
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=12.0) as ledger:
        ledger.sample(mechanism, ["ann"], [[0.0, 0.0]])
        assert ledger.spent("ann") == 5.0
        assert ledger.budget("ann", mechanism).affordable == 1
    assert math.isclose(float(mechanism.plane_epsilon) * mechanism.distortion.kappa, 5.0)
