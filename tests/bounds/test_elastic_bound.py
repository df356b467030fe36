"""Lower bounds for a map of ε: never above what a mechanism achieves that keeps the map's promise."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import metricdp as mdp
from problems import random_problem


def centre_map(problem, least, most):
    low, high = problem.bounds
    third = (high - low) / 3
    borders = [[a, a + step, b - step, b] for a, b, step in zip(low, high, third, strict=True)]
    values = np.full((3,) * len(low), least)
    values[(1,) * len(low)] = most
    return mdp.EpsilonMap(borders, values)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_it_lies_below_a_certified_mechanism_and_between_those_of_one_epsilon(p):
    problem = random_problem(5, n_records=120, p=p)
    here = centre_map(problem, 0.4, 2.0)
    bound = mdp.lower_bound(problem, here, clusters=120)
    assert bound <= mdp.fit(problem, here, "spline", cells=10).report["loss"]
    least, most = (mdp.lower_bound(problem, epsilon, clusters=120) for epsilon in (2.0, 0.4))
    assert least < bound < most
    same = mdp.lower_bound(problem, mdp.EpsilonMap.constant(problem.bounds, 0.4), clusters=120)
    assert same == pytest.approx(most, rel=1e-7)


def test_with_a_cluster_for_every_record_it_is_the_optimum_between_records():
    """On a line the path metric is exact, so the dense program of all pairs has the same value."""
    rng = np.random.default_rng(0)
    records = np.sort(rng.uniform(0, 4, 14))
    problem = mdp.Problem(records[:, None], [[0.5], [2.2], [3.4]], "euclidean", bounds=[[0.0], [4.0]])
    here = mdp.EpsilonMap([[-1, 1.5, 5]], [0.5, 2.5])
    heights = np.interp(records, [0, 1.5, 4], [0, 0.75, 7.0])
    rows = []
    for i in range(14):
        for j in set(range(14)) - {i}:
            for k in range(3):
                row = np.zeros((14, 3))
                row[i, k], row[j, k] = 1, -math.exp(abs(heights[i] - heights[j]))
                rows.append(row.ravel())
    cost = problem.prior[:, None] * problem.loss
    sums = np.kron(np.eye(14), np.ones(3))
    found = linprog(cost.ravel(), np.array(rows), np.zeros(len(rows)), sums, np.ones(14), (0, 1), method="highs")
    assert mdp.lower_bound(problem, here, clusters=14) == pytest.approx(found.fun, rel=1e-6)
    assert mdp.lower_bound(problem, here, clusters=5) < found.fun


def test_the_first_order_method_knows_maps_too(monkeypatch):
    problem = random_problem(5, n_records=120)
    here = centre_map(problem, 0.4, 2.0)
    exact = mdp.lower_bound(problem, here, clusters=120)
    monkeypatch.setattr("metricdp.bounds.tight._LARGEST_INTERIOR", 0)
    assert exact * 0.97 < mdp.lower_bound(problem, here, clusters=120) <= exact * (1 + 1e-6)


def test_other_kinds_and_the_ground():
    city = mdp.cities.load("helsinki").problem(outputs=6, tasks=10, seed=0)
    here = centre_map(city, 1.0, 4.0)
    bound = mdp.lower_bound(city, here, clusters=200)
    mechanism = mdp.fit(city, here, "spline", cells=8, bound_clusters=200)
    assert mechanism.report["lower_bound"] == pytest.approx(bound, rel=1e-6)
    assert bound <= mechanism.report["loss"]
    assert "keeps this map's promise" in mechanism.report["optimality"]
    # True distances may be longer than the map's: the bound allows for that.
    stretch = mechanism.distortion.stretch
    plane = mdp.Problem(city.records, city.outputs, city.loss, prior=city.prior, bounds=city.bounds)
    assert mdp.lower_bound(plane, here.times(stretch), clusters=200) == pytest.approx(bound, rel=1e-6)
    assert mdp.lower_bound(city, here, kind="floor") == mdp.lower_bound(city, 1.0, kind="floor")
    paper = [mdp.lower_bound(city, epsilon, kind="paper", cells=6) for epsilon in (here, 4.0)]
    assert paper[0] == pytest.approx(paper[1], rel=1e-9)
    with pytest.raises(mdp.InvalidInputError, match="covers the box"):
        mdp.lower_bound(city, mdp.EpsilonMap([[0, 1], [0, 1]], [[1.0]]))
