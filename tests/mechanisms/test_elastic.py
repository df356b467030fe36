"""Mechanisms for a map of ε: against a dense program in one dimension, and against the number for a constant map."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog

import metricdp as mdp
from metricdp.files.header import describe
from metricdp.mechanisms.spline.sparse_table import SparseTable
from problems import random_problem, weighted_problem

HELSINKI = {"outputs": 6, "tasks": 10, "seed": 0}


def centre_map(problem, least, most, share=1 / 3):
    """ε is `most` in the middle of the box and `least` around it."""
    n_axes = problem.n_axes
    borders = [
        [a, (a + b) / 2 - share * (b - a) / 2, (a + b) / 2 + share * (b - a) / 2, b] for a, b in problem.bounds.T
    ]
    values = np.full((3,) * n_axes, least)
    values[(1,) * n_axes] = most
    return mdp.EpsilonMap(borders, values)


def file_of(mechanism):
    header, arrays = describe(mechanism)
    header["report"] = {name: value for name, value in header["report"].items() if "seconds" not in name}
    header["certificate"].pop("seconds")
    own = {name: array for name, array in arrays.items() if not name.startswith("epsilon_")}
    return json.dumps(header, sort_keys=True), own


CONSTANT = [
    ({}, {"cells": 6}),
    ({}, {"cells": 6, "degree": 1}),
    ({"p": 1.0}, {"cells": 5, "degree": 3}),
    ({"p": math.inf}, {"cells": 4, "solver": "clarabel"}),
    ({"n_axes": 1}, {"cells": 20, "solver": "clarabel"}),
    ({}, {"cells": 5, "solver": "clarabel"}),
    ({}, {"cells": 10, "solver": "tiles", "degree": 3}),
]


@pytest.mark.parametrize(("kind", "options"), CONSTANT)
def test_a_constant_map_is_the_number_bit_for_bit(kind, options):
    problem = weighted_problem(3, **kind)
    low, high = problem.bounds
    wider = [[a - 1, (a + b) / 2, b + 1] for a, b in zip(low, high, strict=True)]
    same = mdp.EpsilonMap(wider, np.full((2,) * len(low), 0.7))
    by_number, by_map = (mdp.fit(problem, given, "spline", **options) for given in (0.7, same))
    assert by_map.epsilon_map == mdp.EpsilonMap.constant(by_map.bounds, 0.7)
    assert np.array_equal(by_number.table, by_map.table)
    certificates = [replace(mdp.certify(one), seconds=0.0) for one in (by_number, by_map)]
    assert certificates[0] == certificates[1]
    (header, arrays), (other_header, other_arrays) = map(file_of, (by_number, by_map))
    assert header == other_header
    assert arrays.keys() == other_arrays.keys()
    assert all(array.tobytes() == other_arrays[name].tobytes() for name, array in arrays.items())


def test_a_constant_map_is_the_number_on_the_ground_and_with_a_sparse_table(monkeypatch):
    problem = mdp.cities.load("helsinki").problem(**HELSINKI)
    same = mdp.EpsilonMap.constant(problem.bounds, 3.0)
    tables = [mdp.fit(problem, given, "spline", cells=6).table for given in (3.0, same)]
    assert np.array_equal(*tables)
    monkeypatch.setattr("metricdp.mechanisms.spline.thinning.SPARSE_FROM", 1000)
    thin, other = (mdp.fit(problem, given, "spline", cells=6).table for given in (3.0, same))
    assert thin.floor == other.floor
    assert np.array_equal(thin.columns, other.columns)
    assert np.array_equal(thin.extras, other.extras)


def test_a_sparse_table_of_a_map_is_proved_cell_by_cell(monkeypatch):
    monkeypatch.setattr("metricdp.mechanisms.spline.thinning.SPARSE_FROM", 1000)
    problem = random_problem(2, n_records=200, side=6.0)
    here = centre_map(problem, 0.3, 1.5, 0.5)
    mechanism = mdp.fit(problem, here, "spline", cells=8)
    assert isinstance(mechanism.table, SparseTable)
    found = mdp.certify(mechanism)
    assert found.holds
    assert found.worst_ratio > 0.99
    # With a smaller ε in one cell the same table breaks the promise.
    smaller = mdp.EpsilonMap(
        mechanism.epsilon_map.breakpoints, np.where(mechanism.epsilon_map.values == 0.3, 0.29, 1.5)
    )
    assert not mdp.certify(replace(mechanism, epsilon_map=smaller)).holds


def test_in_one_dimension_the_optimum_with_two_epsilons_is_that_of_a_dense_program():
    """The best table on a fine line of points, mDP in the path metric between neighbours, is a little better."""
    rng = np.random.default_rng(1)
    records = np.sort(rng.uniform(0, 4, 24))
    problem = mdp.Problem(records[:, None], [[0.5], [2.2], [3.4]], "euclidean", bounds=[[0.0], [4.0]])
    here = mdp.EpsilonMap([[0, 1.5, 4]], [0.5, 2.5])
    mechanism = mdp.fit(problem, here, "spline", cells=400, breakpoints="uniform")
    # d_ε on the line is exact: F(x') − F(x) with F the integral of ε.
    spots = np.unique(np.concatenate([records, np.linspace(0, 4, 401)]))
    heights = np.interp(spots, [0, 1.5, 4], [0, 0.75, 0.75 + 2.5 * 2.5])
    n, k = len(spots), 3
    cost = np.zeros((n, k))
    np.add.at(cost, np.searchsorted(spots, records), problem.prior[:, None] * problem.loss)
    factor = np.exp(np.diff(heights))
    lower, upper = (sparse.eye_array(n, format="csr")[part] for part in (slice(0, -1), slice(1, None)))
    grows, falls = upper - sparse.diags_array(factor) @ lower, lower - sparse.diags_array(factor) @ upper
    limits = sparse.kron(sparse.vstack([grows, falls]), sparse.eye_array(k))
    sums = sparse.kron(sparse.eye_array(n), np.ones((1, k)))
    found = linprog(cost.ravel(), limits, np.zeros(limits.shape[0]), sums, np.ones(n), (0, 1), method="highs")
    assert found.status == 0
    loss = mechanism.expected_loss(problem)
    assert found.fun <= loss <= found.fun * 1.002
    # Either ε alone is far from it.
    assert mdp.fit(problem, 0.5, "spline", cells=96).expected_loss(problem) > 1.2 * loss
    assert mdp.fit(problem, 2.5, "spline", cells=96).expected_loss(problem) < 0.95 * loss


@pytest.mark.parametrize("options", [{"cells": 8}, {"cells": 12, "solver": "tiles", "degree": 3}])
def test_a_map_lies_between_its_least_and_its_largest_epsilon(options):
    problem = random_problem(2, n_records=200, side=6.0)
    here = centre_map(problem, 0.3, 1.5, 0.5)
    least, varied, most = (mdp.fit(problem, given, "spline", **options) for given in (0.3, here, 1.5))
    assert most.report["loss"] < varied.report["loss"] < least.report["loss"]
    assert varied.epsilon == 1.5
    assert varied.epsilon_map == here.over(varied.bounds, varied.step)
    for points, edges in zip(here.breakpoints, varied.grid.breakpoints, strict=True):
        assert np.abs(points[:, None] - edges).min(axis=1).max() <= varied.step / 2
    assert mdp.certify(varied).holds
    # The claim of one ε is false for it: the guarantee outside the middle is stronger than the largest ε says.
    assert not mdp.certify(replace(varied, epsilon=0.3, epsilon_map=None)).holds


def test_methods_with_one_epsilon_take_the_least_and_say_so():
    problem = random_problem(4)
    here = centre_map(problem, 0.3, 1.5)
    for method in ("laplace", "laplace-remap", "tem", "em-remap"):
        mechanism = mdp.fit(problem, here, method)
        assert mechanism.epsilon == 0.3
        assert mechanism.epsilon_map is None
        assert "the map's least, 0.3" in mechanism.report["epsilon_map"]
        assert np.array_equal(
            mechanism.probabilities(problem.records), mdp.fit(problem, 0.3, method).probabilities(problem.records)
        )


def test_a_map_that_does_not_cover_the_box_is_refused():
    problem = random_problem(0)
    small = mdp.EpsilonMap([[0, 4], [0, 3.9]], [[1.0]])
    with pytest.raises(mdp.InvalidInputError, match="`epsilon` must be a map that covers the box"):
        mdp.fit(problem, small, "spline")
    with pytest.raises(mdp.InvalidInputError, match="covers the box"):
        mdp.fit(problem, mdp.EpsilonMap([[0, 4]], [1.0]), "laplace")


def test_a_mechanism_refuses_a_map_that_is_not_its_own():
    problem = random_problem(0)
    mechanism = mdp.fit(problem, centre_map(problem, 0.3, 1.5), "spline", cells=4)
    with pytest.raises(mdp.InvalidInputError, match="the largest value of its map"):
        replace(mechanism, epsilon=2.0)
    with pytest.raises(mdp.InvalidInputError, match="exactly the box"):
        replace(mechanism, epsilon_map=mdp.EpsilonMap([[0, 5], [0, 4]], [[1.5]]))
    laplace = mdp.fit(problem, 1.5, "laplace")
    with pytest.raises(mdp.InvalidInputError, match="left out for a LatticeLaplace"):
        replace(laplace, epsilon_map=mdp.EpsilonMap.constant(laplace.bounds, 1.5))


@pytest.mark.parametrize(("kind", "share"), [({"n_axes": 1}, 0.5), ({}, 0.5), ({"p": 1.0}, 1e-3)])
def test_auto_with_a_map_is_no_worse_than_any_method(kind, share):
    """A narrow middle gains nothing, so a method with one ε may win; the answer keeps the map's promise either way."""
    problem = random_problem(7, n_records=100, **kind)
    here = centre_map(problem, 0.5, 2.5, share)
    chosen = mdp.fit(problem, here, time_limit=20)
    found = mdp.certify(chosen)
    assert found.holds
    if chosen.epsilon_map is None:
        assert chosen.epsilon == 0.5
        assert "the map's least" in chosen.report["epsilon_map"]
    else:
        assert chosen.epsilon_map == here.over(chosen.bounds, chosen.step)
    for method in ("em", "tem", "laplace", "laplace-remap", "em-remap"):
        other = mdp.fit(problem, here, method)
        assert chosen.report["loss"] <= other.expected_loss(problem) * (1 + 1e-4)
    options = {"cells": 5} if problem.n_axes == 2 else {"cells": 12}
    assert chosen.report["loss"] <= mdp.fit(problem, here, "spline", **options).report["loss"] * (1 + 1e-4)


def test_refined_grids_keep_the_borders_of_the_map():
    problem = random_problem(7, n_axes=1, n_records=100)
    here = mdp.EpsilonMap([[0, 1.1, 2.7, 4]], [0.5, 2.5, 1.0])
    chosen = mdp.fit(problem, here, time_limit=3)
    assert len(chosen.report["tried"]) > 2
    for one in chosen.report["tried"]:
        assert one["method"] != "spline" or one["cells"][0] >= 3
    assert chosen.method == "spline"
    assert np.isin(chosen.epsilon_map.breakpoints[0], chosen.grid.breakpoints[0]).all()
