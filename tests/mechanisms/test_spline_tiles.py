"""Splines designed by tiles: certified, no worse than Laplace noise with remap, whatever the problem looks like."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import metricdp as mdp
from mechanisms_tools import pairs_of_points
from oracles import count_violations
from problems import random_problem


@pytest.mark.parametrize(("n_axes", "p"), [(1, 2.0), (2, 1.0), (2, 2.0), (2, math.inf), (3, 2.0)])
def test_certified_and_as_good_as_the_whole_program(n_axes, p):
    problem = random_problem(1, n_axes=n_axes, n_outputs=5, p=p, prior=True)
    options = {"cells": {1: 80, 2: 12, 3: 3}[n_axes], "degree": 2, "breakpoints": "graded"}
    mechanism = mdp.fit(problem, 1.5, "spline", solver="tiles", **options)
    assert mdp.certify(mechanism).holds
    left, right = pairs_of_points(mechanism.grid, 40_000, seed=1)
    assert count_violations(mechanism, left, right) == 0
    report = mechanism.report
    assert report["solver"] == "tiles"
    assert report["status"] == "improved"
    assert report["loss"] == pytest.approx(mechanism.expected_loss(problem))
    assert report["loss"] < report["start_loss"]
    best = mdp.fit(problem, 1.5, "spline", gap=1e-7, **options).expected_loss(problem)
    assert best - 1e-6 <= report["loss"] <= best + 0.01 * (best - problem.floor)


ODD = {
    "two records": {"records": [[0.0, 0.0], [1.0, 1.0]], "outputs": [[0.0, 0.0], [1.0, 1.0]]},
    "one output": {"records": [[0.0, 0.0], [1.0, 1.0]], "outputs": [[0.3, 0.4]]},
    "coincident outputs": {"records": np.random.default_rng(0).random((9, 2)), "outputs": [[0.5, 0.5]] * 3},
    "records on a line": {
        "records": np.column_stack([np.linspace(0, 1, 30), np.full(30, 0.5)]),
        "outputs": [[0.0, 0.5], [1.0, 0.5]],
        "bounds": [[0, 0], [1, 1]],
    },
    "one record": {"records": [[0.5, 0.5]], "outputs": [[0.1, 0.1], [0.9, 0.9]], "bounds": [[0, 0], [1, 1]]},
    "a record without mass": {
        "records": [[0.0, 0.0], [1.0, 1.0]],
        "outputs": [[0.0, 0.0], [1.0, 1.0]],
        "prior": [1.0, 0.0],
    },
}


@pytest.mark.parametrize("cells", [1, 7])
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("epsilon", [1e-3, 3.0, 100.0])
def test_odd_problems(name, cells, epsilon):
    problem = mdp.Problem(loss="euclidean", **ODD[name])
    mechanism = mdp.fit(problem, epsilon, "spline", solver="tiles", cells=cells, breakpoints="graded")
    assert mdp.certify(mechanism).holds
    assert problem.floor - 1e-9 <= mechanism.report["loss"] <= problem.uniform_loss + 1e-6


def test_without_time_for_a_background_rows_start_uniform():
    problem = random_problem(0)
    mechanism = mdp.fit(problem, 2.0, "spline", solver="tiles", time_limit=1e-6)
    assert mechanism.report["start_loss"] is None
    assert mechanism.report["status"] == "time limit"
    assert mechanism.report["loss"] == pytest.approx(problem.uniform_loss)
    assert mechanism.report["cells"] == [1, 1]  # on which uniform rows are proved and stored at once


def test_an_executor_of_the_caller_gives_the_same_table():
    problem = random_problem(0, n_outputs=4)
    options = {"solver": "tiles", "cells": 14}
    here = mdp.fit(problem, 2.0, "spline", **options)
    with ThreadPoolExecutor(2) as pool:
        there = mdp.fit(problem, 2.0, "spline", executor=pool, **options)
        assert pool.submit(int).result() == 0  # the pool is the caller's, and still open
    assert np.array_equal(here.table, there.table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "tiles", "executor": "tcp://a:1"},
            "`executor` must be None, a concurrent.futures.Executor or dask://",
        ),
        ({"solver": "tiles", "executor": "dask://"}, "`executor` must be None"),
        ({"solver": "tiles", "executor": 3}, "`executor` must be None"),
        ({"executor": "dask://a:1"}, "`executor` is for `solver` = 'tiles'"),
    ],
)
def test_wrong_executors(options, message):
    with pytest.raises(mdp.InvalidInputError, match=message):
        mdp.fit(random_problem(0), 1.0, "spline", **options)


def crowded_problem(n_outputs):
    """Records in six crowds, so that adaptive cells differ much in width."""
    rng = np.random.default_rng(0)
    centres = rng.uniform(10, 40, size=(6, 2))
    near = centres[rng.integers(6, size=3000)] + rng.normal(scale=3.0, size=(3000, 2))
    records = np.clip(near, 0, 50)
    outputs = records[rng.choice(len(records), n_outputs, replace=False)]
    return mdp.Problem(records, outputs, "euclidean", bounds=[[0, 0], [50, 50]])


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.6, 6.0])
@pytest.mark.parametrize(("degree", "breakpoints"), [(2, "adaptive"), (3, "adaptive"), (3, "graded")])
def test_within_a_third_of_a_percent_of_the_whole_program(epsilon, degree, breakpoints):
    """Where outputs reach beyond tiles, where they are local, and where cells are wide against 1/ε."""
    problem = crowded_problem(12)
    options = {"cells": 24, "degree": degree, "breakpoints": breakpoints}
    whole = mdp.fit(problem, epsilon, "spline", gap=1e-4, **options).report
    loss = mdp.fit(problem, epsilon, "spline", solver="tiles", **options).report["loss"]
    assert whole["program_bound"] <= loss <= 1.003 * whole["program_bound"]
