"""The exponential mechanism for a map of ε: scores that are not too steep, proved cell by cell."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import dual_exponent
from metricdp.mechanisms.aipo.mechanism import LogConvex
from metricdp.mechanisms.aipo.proof import cell_slopes
from oracles import steiner_distances
from problems import random_problem

HERE = mdp.EpsilonMap([[0, 1, 3, 4], [0, 2, 4]], [[0.5, 1.0], [2.0, 0.6], [0.8, 1.5]])


def naive_slopes(grid, table, p):
    """‖∇ ln f_k‖_q at every corner of every cell, edge by edge."""
    q = dual_exponent(p)
    logs = table.reshape(*grid.anchor_shape, -1)
    found = np.zeros(grid.cells)
    for cell in itertools.product(*map(range, grid.cells)):
        for corner, k in itertools.product(itertools.product((0, 1), repeat=grid.n_axes), range(table.shape[1])):
            here = tuple(np.array(cell) + corner)
            slope = []
            for axis, points in enumerate(grid.breakpoints):
                low, high = list(here), list(here)
                low[axis], high[axis] = cell[axis], cell[axis] + 1
                side = points[cell[axis] + 1] - points[cell[axis]]
                slope.append(abs(logs[(*high, k)] - logs[(*low, k)]) / side)
            size = max(slope) if math.isinf(q) else sum(s**q for s in slope) ** (1 / q)
            found[cell] = max(found[cell], size)
    return found


@pytest.mark.parametrize(("n_axes", "p"), [(1, 2.0), (2, 1.0), (2, 2.0), (2, math.inf), (2, 3.0), (3, 2.0)])
def test_slopes_of_cells_are_those_of_their_corners(n_axes, p):
    rng = np.random.default_rng(0)
    grid = Grid.from_breakpoints([np.cumsum(rng.uniform(0.2, 1, 4)) for _ in range(n_axes)])
    table = rng.normal(size=(grid.n_anchors, 3))
    found = cell_slopes(grid, table, p)
    assert found == pytest.approx(naive_slopes(grid, table, p), rel=1e-12)
    assert (found >= naive_slopes(grid, table, p)).all()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_it_is_proved_and_keeps_the_path_metric(p):
    problem = random_problem(3, p=p)
    mechanism = mdp.fit(problem, HERE, "em")
    assert isinstance(mechanism, LogConvex)
    assert mechanism.method == "em"
    assert mechanism.epsilon_map == HERE
    found = mdp.certify(mechanism)
    assert found.holds
    assert 0.99 < found.worst_ratio <= 1
    assert "the cell's own epsilon" in found.claim
    assert mdp.audit(mechanism, pairs=300).max_ratio <= 1
    if p == 2:
        points = mechanism.snap(np.random.default_rng(1).uniform(0, 4, (150, 2)))
        allowed = steiner_distances(HERE.breakpoints, HERE.values, points, 33)
        logs = np.log(mechanism.probabilities(points))
        assert (np.abs(logs[:, None] - logs[None, :]).max(axis=2) <= allowed).all()
    for place in np.ndindex(3, 2):
        values = HERE.values.copy()
        values[place] *= found.worst_ratio * (1 - 1e-3) * 0.5
        smaller = mdp.EpsilonMap(HERE.breakpoints, values)
        claimed = replace(mechanism, epsilon=smaller.max, epsilon_map=smaller)
        assert mdp.certify(claimed).holds == bool(
            (
                2 * cell_slopes(mechanism.grid, mechanism.log_table, p) + mechanism.rounding_cost
                <= smaller.least_over(mechanism.grid.breakpoints)
            ).all()
        )


def test_it_is_better_than_with_the_least_epsilon_and_near_that_of_a_number():
    problem = random_problem(3, n_records=200, side=8.0)
    here = mdp.EpsilonMap([[0, 2, 6, 8], [0, 2, 6, 8]], [[0.5, 0.5, 0.5], [0.5, 2, 0.5], [0.5, 0.5, 0.5]])
    mechanism = mdp.fit(problem, here, "em")
    assert mechanism.report["shrink"] > 0.94
    loss = mechanism.expected_loss(problem)
    assert mdp.fit(problem, 2.0, "em").expected_loss(problem) < loss
    assert loss < mdp.fit(problem, 0.5, "em").expected_loss(problem)
    # Nearly constant: what scores lose against true distances is a few percent of ε.
    nearly = mdp.EpsilonMap([[0, 4, 8], [0, 8]], [[1.0], [1.0 + 1e-9]])
    scored = mdp.fit(problem, nearly, "em")
    assert scored.report["shrink"] > 0.96
    assert scored.expected_loss(problem) < mdp.fit(problem, 0.94, "em").expected_loss(problem)


def test_a_constant_map_is_the_closed_form():
    problem = random_problem(3)
    number, same = (mdp.fit(problem, e, "em") for e in (0.7, mdp.EpsilonMap.constant(problem.bounds, 0.7)))
    assert same.epsilon == 0.7
    assert same.kind == number.kind == "exponential"
    assert np.array_equal(same.probabilities(problem.records), number.probabilities(problem.records))


def test_on_the_ground_and_through_a_file(tmp_path):
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)
    here = mdp.EpsilonMap.by_density(problem, people=100, least=1.0, most=6.0, cells=6)
    mechanism = mdp.fit(problem, here, "em")
    assert mdp.certify(mechanism).holds
    assert mechanism.distance == "ground"
    mechanism.save(tmp_path / "em.mdp")
    loaded = mdp.load(tmp_path / "em.mdp")
    assert loaded.epsilon_map == mechanism.epsilon_map
    assert np.array_equal(loaded.probabilities(problem.records[:50]), mechanism.probabilities(problem.records[:50]))


def test_in_one_and_three_dimensions():
    for n_axes in (1, 3):
        problem = random_problem(3, n_axes=n_axes)
        shape = (2,) + (1,) * (n_axes - 1)
        borders = [[0, 2, 4]] + [[0, 4]] * (n_axes - 1)
        mechanism = mdp.fit(problem, mdp.EpsilonMap(borders, np.array([0.5, 2.0]).reshape(shape)), "em")
        assert mdp.certify(mechanism).holds
