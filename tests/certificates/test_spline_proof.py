"""The exact certificate of splines against the theorem's condition, written from the definition in fractions."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.spline.mechanism import Spline
from oracles import site_ratio_power
from problems import random_problem


def sites_of(mechanism):
    """Every (cell, site)."""
    places = itertools.product(range(mechanism.degree + 1), repeat=mechanism.grid.n_axes)
    return itertools.product(itertools.product(*map(range, mechanism.grid.cells)), list(places))


def sites_by_row(mechanism):
    """For every control row the (cell, site) whose slopes it enters: itself and its neighbours in the cells."""
    m = mechanism.degree
    counts = [m * cells + 1 for cells in mechanism.grid.cells]
    by_row = {row: [] for row in range(math.prod(counts))}
    for cell, a in sites_of(mechanism):
        place = np.array([m * i + j for i, j in zip(cell, a, strict=True)])
        for axis, move in itertools.product(range(len(counts)), (-1, 0, 1)):
            other = place + move * (np.arange(len(counts)) == axis)
            if (other >= 0).all() and (other < counts).all():
                by_row[int(np.ravel_multi_index(other, counts))].append((cell, a))
    return by_row


def worst_power(mechanism, sites=None, outputs=None):
    return max(
        site_ratio_power(mechanism, cell, a, k)
        for cell, a in (sites_of(mechanism) if sites is None else sites)
        for k in (range(mechanism.n_outputs) if outputs is None else outputs)
    )


def epsilon_power(mechanism):
    epsilon = Fraction(repr(mechanism.epsilon))
    return epsilon**2 if mechanism.p == 2 else epsilon


CASES = [(1, 2.0, 1), (1, 1.0, 3), (2, 2.0, 1), (2, 2.0, 2), (2, 2.0, 3), (2, 1.0, 2), (2, math.inf, 2), (3, 2.0, 1)]


def fitted(n_axes, p, degree, seed=0, n_outputs=3):
    problem = random_problem(seed, n_axes=n_axes, n_outputs=n_outputs, p=p)
    return mdp.fit(problem, 1.5, "spline", cells={1: 6, 2: 3, 3: 2}[n_axes], degree=degree)


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_the_verdict_turns_exactly_at_the_worst_ratio(n_axes, p, degree):
    mechanism = fitted(n_axes, p, degree)
    worst = worst_power(mechanism)
    assert worst <= epsilon_power(mechanism)
    found = mdp.certify(mechanism)
    assert found.holds
    root = math.sqrt(worst) if p == 2 else float(worst)
    assert found.worst_ratio == pytest.approx(root / mechanism.epsilon, rel=1e-12)
    # The decimal numbers around the worst ratio: those at or above it are proved, those below are not.
    for epsilon in (root * (1 + shift) for shift in (-1e-12, -1e-15, -2e-16, 0.0, 2e-16, 1e-15, 1e-12)):
        claimed = replace(mechanism, epsilon=epsilon)
        assert mdp.certify(claimed).holds == (epsilon_power(claimed) >= worst), epsilon


def test_one_part_in_a_trillion_is_refused_with_its_place():
    mechanism = fitted(2, 2.0, 2)
    worst = math.sqrt(worst_power(mechanism))
    refused = mdp.certify(replace(mechanism, epsilon=worst * (1 - 1e-12)))
    assert not refused.holds
    assert refused.worst_ratio > 1
    cell, a, k = max(
        ((cell, a, k) for cell, a in sites_of(mechanism) for k in range(3)),
        key=lambda one: site_ratio_power(mechanism, *one),
    )
    expected = [
        points[i] + (points[i + 1] - points[i]) * j / 2
        for points, i, j in zip(mechanism.grid.breakpoints, cell, a, strict=True)
    ]
    assert refused.worst_where["output"] == k
    assert np.allclose(refused.worst_where["points"], [expected], atol=1e-6)
    assert "no violating pair was found" in refused.claim  # so small a violation shows in no pair of floats


def moved(mechanism, row, giver, taker, units):
    table = mechanism.table.copy()
    table[row, giver] -= units
    table[row, taker] += units
    return replace(mechanism, table=table)


@pytest.mark.parametrize("wanted", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_verdict_over_many_corruptions_is_right(wanted):
    """Units moved within one row, from 1 to most of a weight; the definition says whether a cone breaks."""
    rng = np.random.default_rng(0)
    verdicts = {True: [], False: []}
    mechanisms = [fitted(2, 2.0, degree, seed) for degree in (1, 2) for seed in (0, 1)] + [
        fitted(2, 1.0, 2),
        fitted(1, 2.0, 3),
    ]
    limits = [epsilon_power(mechanism) for mechanism in mechanisms]
    touched = [sites_by_row(mechanism) for mechanism in mechanisms]
    while min(map(len, verdicts.values())) < wanted:
        which = rng.integers(len(mechanisms))
        mechanism = mechanisms[which]
        row = int(rng.integers(len(mechanism.table)))
        giver, taker = rng.choice(3, size=2, replace=False)
        most = int(mechanism.table[row, giver]) - 1
        units = min(int(2 ** rng.uniform(0, 41)), most)
        if units < 1:
            continue
        corrupt = moved(mechanism, row, giver, taker, units)
        harmless = worst_power(corrupt, touched[which][row], [giver, taker]) <= limits[which]
        if len(verdicts[harmless]) < wanted:
            verdicts[harmless].append(mdp.certify(corrupt).holds)
    assert sum(verdicts[True]) == wanted
    assert sum(verdicts[False]) == 0


def test_a_single_entry_changed_alone_is_always_refused():
    rng = np.random.default_rng(1)
    mechanism = fitted(2, 2.0, 2)
    for _ in range(1000):
        table = mechanism.table.copy()
        place = tuple(rng.integers(table.shape))
        table[place] += int(2 ** rng.uniform(0, 40)) * rng.choice([-1, 1])
        assert not mdp.certify(replace(mechanism, table=table)).holds


def test_other_norms_are_checked_with_rounding_counted_against_them():
    mechanism = mdp.fit(random_problem(0, p=1.5), 1.0, "spline", cells=3)
    found = mdp.certify(mechanism)
    assert found.holds
    assert "rounding counted against it" in found.claim
    assert not mdp.certify(replace(mechanism, epsilon=mechanism.epsilon * found.worst_ratio)).holds


def test_a_hand_made_table_on_the_border_of_its_cone():
    """One axis, degree 1: from 8 to 12 units in one unit of length is a slope of exactly 1/2 of the lower value."""
    grid = Grid.from_breakpoints([[0.0, 1.0]])
    rows = np.array([[8, 24], [12, 20]])
    fields = {"outputs": np.zeros((2, 1)), "bounds": grid.bounds, "p": 2.0, "method": "spline"}
    mechanism = Spline(**fields, epsilon=0.5, step=2.0**-20, grid=grid, degree=1, table=rows)
    found = mdp.certify(mechanism)
    assert found.holds
    assert found.worst_ratio == 1.0
    assert found.worst_where == {"points": [[0.0]], "output": 0}
    assert not mdp.certify(replace(mechanism, epsilon=0.49999999999999994)).holds


def test_sums_that_agree_only_when_they_overflow_are_refused():
    """128 weights of 2^57 sum to 2^64 and of 2^58 to 2^65, both 0 in 64 bits; every slope is within its cone."""
    grid = Grid.from_breakpoints([[0.0, 1.0]])
    rows = np.array([[2**57] * 128, [2**58] * 128])
    fields = {"outputs": np.zeros((128, 1)), "bounds": grid.bounds, "p": 2.0, "method": "spline"}
    mechanism = Spline(**fields, epsilon=1.0, step=2.0**-20, grid=grid, degree=1, table=rows)
    assert rows.sum(axis=1).tolist() == [0, 0]
    found = mdp.certify(mechanism)
    assert not found.holds
    assert "sum is too large" in found.claim


def test_a_degree_whose_products_may_overflow_is_refused():
    """16 times the largest weight wraps to 0 in 64 bits."""
    grid = Grid.from_breakpoints([[0.0, 1.0]])
    fields = {"outputs": np.zeros((2, 1)), "bounds": grid.bounds, "p": 2.0, "method": "spline"}
    rows = np.array([[1, 2**58]] + [[2**58, 1]] * 16)
    found = mdp.certify(Spline(**fields, epsilon=1.0, step=2.0**-20, grid=grid, degree=16, table=rows))
    assert not found.holds
    assert "degree" in found.claim


def test_repair_and_integers_cost_next_to_nothing():
    mechanism = mdp.fit(random_problem(2, n_outputs=20, n_records=400, side=30.0), 0.3, "spline", cells=12)
    assert 0 <= mechanism.report["lost_to_repair_and_integers"] < 1e-6
