"""The audit: it convicts what is not private, leaves alone what is, and its figures equal plain loops."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from metricdp import Grid, InvalidInputError, Problem, fit
from metricdp.auditing.pairs import _CandidatePairs, audit
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.gridded.copt import CoptOptions, fit_copt
from metricdp.mechanisms.gridded.lp import LpOptions, fit_lp
from metricdp.mechanisms.gridded.mechanism import Cellwise
from oracles import distance


def rounding(step, n_axes, p):
    """What rounding two points to a lattice may add to their distance: half a step each, along every axis."""
    return step * distance(np.ones(n_axes), np.zeros(n_axes), p)


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(1)
    return Problem(generator.random((80, 2)) * [6.0, 4.0], generator.random((5, 2)) * [6.0, 4.0], "euclidean")


def cellwise(table, p=2.0):
    grid = Grid.from_breakpoints([[0.0, 1.0, 2.0]])
    outputs = np.zeros((len(table[0]), 1))
    return Cellwise(
        outputs=outputs, bounds=grid.bounds, epsilon=0.5, p=p, method="lp", grid=grid, table=np.array(table)
    )


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_private_mechanisms_pass_without_tolerance(problem, p):
    problem = Problem(problem.records, problem.outputs, problem.loss, p=p)
    for epsilon in (0.2, 3.0):
        found = audit(fit(problem, epsilon=epsilon, method="aipo-e", cells=6), pairs=20_000)
        assert found.violation_ratio == 0
        assert 0 < found.max_ratio <= 1
        assert found.compared > 3 * 19_000 * 5
        assert found.by_kind["search"]["violation_ratio"] == 0


def test_methods_that_are_not_private_are_convicted(problem):
    relaxed = audit(fit(problem, epsilon=0.4, method="aipo-r", cells=6, certify=False), pairs=5000)
    assert relaxed.violation_ratio > 0.01
    assert relaxed.max_ratio > 1.1
    for mechanism in (
        fit_lp(problem, 0.4, LpOptions(cells=6)),
        fit_copt(problem, 0.4, CoptOptions(cells=6, nearest=6)),
    ):
        found = audit(mechanism, pairs=5000)
        assert found.by_kind["border"]["violation_ratio"] > 0.5
        assert found.by_kind["random"]["violation_ratio"] < found.by_kind["border"]["violation_ratio"]
        assert found.max_ratio > 1e4


def test_worst_pair_can_be_checked_by_hand(problem):
    mechanism = fit(problem, epsilon=0.4, method="aipo-r", cells=4, certify=False)
    found = audit(mechanism, pairs=2000)
    (left, right), output = found.worst_pair["points"], found.worst_pair["output"]
    here, there = mechanism.probabilities([left, right])[:, output]
    assert found.worst_pair["distance"] == pytest.approx(distance(left, right, 2))
    assert found.rounding == pytest.approx(rounding(2.0**-20, 2, 2))
    expected = abs(math.log(here) - math.log(there)) / (0.4 * (distance(left, right, 2) + found.rounding))
    assert found.max_ratio == found.worst_pair["ratio"] == pytest.approx(expected)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("tolerance", [0.0, 0.2])
def test_figures_equal_a_plain_loop(problem, p, tolerance):
    problem = Problem(problem.records, problem.outputs, problem.loss, p=p)
    mechanism = fit(problem, epsilon=0.4, method="aipo-r", cells=4, certify=False)
    found = audit(mechanism, pairs=60, tolerance=tolerance, seed=5)
    source = _CandidatePairs(mechanism, None, np.random.default_rng(5))
    broken, values, worst = 0, {}, 0.0
    for kind in ("random", "near", "border"):
        values[kind] = []
        for left, right in source.draw(kind, 60):
            for a, b in zip(left, right, strict=True):
                rows = np.log(mechanism.probabilities([a, b]))
                allowed = distance(a, b, p) + rounding(2.0**-20, 2, p)
                for here, there in rows.T:
                    change = abs(here - there)
                    broken += change > 0.4 * allowed + tolerance
                    values[kind].append(change / allowed)
                    worst = max(worst, values[kind][-1] / 0.4)
    assert found.compared == sum(map(len, values.values())) == 900
    assert found.violation_ratio == pytest.approx(broken / 900)
    assert max(found.by_kind[kind]["max_ratio"] for kind in values) == pytest.approx(worst)
    assert found.max_ratio >= worst * (1 - 1e-12)
    assert found.ppr.quantiles["1"] == pytest.approx(max(values["random"]))
    assert found.ppr.quantiles["0.5"] == pytest.approx(np.quantile(values["random"], 0.5, method="lower"))
    assert sum(found.ppr.counts) == 300
    below_budget = sum(found.ppr.counts[:50])
    assert found.ppr.edges[50] == pytest.approx(0.4)
    assert below_budget == sum(value < 0.4 for value in values["random"])


def on_the_ground(mechanism, north_km):
    """Return the mechanism on a map whose centre is `north_km` south of its box."""
    shift = [0.0, north_km]
    return replace(
        mechanism,
        bounds=mechanism.bounds + shift,
        outputs=mechanism.outputs + shift,
        projection=Equirectangular(12.0, 40.0),
        distance="ground",
    )


def test_a_claim_on_the_ground_must_hold_with_its_kappa(problem):
    # Boxes far north of the centre of their map are stretched eastwards, so the same mechanism claims too much there.
    plane = fit(problem, epsilon=0.4, method="em")
    ground = on_the_ground(plane, 3000.0)
    kappa = ground.distortion.kappa
    assert kappa > 1.8
    before, after = audit(plane, pairs=2000), audit(ground, pairs=2000)
    assert before.violation_ratio == 0
    assert after.epsilon == 0.4
    assert after.violation_ratio > 0
    assert after.max_ratio == pytest.approx(kappa * before.max_ratio, rel=1e-3)
    assert after.ppr.quantiles["0.5"] == pytest.approx(kappa * before.ppr.quantiles["0.5"], rel=1e-3)


def test_where_there_is_no_kappa_nothing_is_allowed():
    mechanism = replace(
        cellwise([[0.5, 0.5], [0.6, 0.4]]),
        bounds=np.array([[0.0, 0.0], [2.0, 1.0]]),
        grid=Grid.from_breakpoints([[0.0, 1.0, 2.0], [0.0, 1.0]]),
        projection=Equirectangular(0.0, 89.995),
        distance="ground",
    )
    found = audit(mechanism, pairs=200)
    assert found.max_ratio == math.inf
    assert not any(math.isnan(value) for value in found.ppr.quantiles.values())
    assert found.ppr.quantiles["0"] == 0


@pytest.mark.parametrize("side", [0.3, 0.2500001, 40.0])
@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_honest_lattices_are_never_accused_however_close_the_points(side, p):
    # Pairs of a few lattice steps, where rounding is most of the distance; the box moves to the lattice in small boxes.
    generator = np.random.default_rng(3)
    low = np.array([0.1234567, -3.1415926]) * side
    problem = Problem(low + side * generator.random((60, 2)), low + side * generator.random((4, 2)), "euclidean", p=p)
    for method in ("spline", "aipo-e"):
        mechanism = fit(problem, 4.0 / side, method, cells=5)
        found = audit(mechanism, pairs=4000)
        assert found.violation_ratio == 0
        assert found.max_ratio <= 1
        left = mechanism.bounds[0] + np.ptp(mechanism.bounds, axis=0) * generator.random((40_000, 2))
        right = np.clip(left + 3 * mechanism.step * generator.standard_normal(left.shape), *mechanism.bounds)
        change = np.abs(
            np.diff(np.log(mechanism.probabilities(np.concatenate([left, right])).reshape(2, -1, 4)), axis=0)
        )
        apart = np.linalg.norm(right - left, ord=p, axis=1)
        assert (change[0].max(axis=1) <= mechanism.epsilon * (apart + found.rounding) + 1e-13).all()


def test_published_slack_hides_violations():
    # Rows 0.5 % apart in probability: broken as it stands, forgiven with a slack of 0.01.
    mechanism = cellwise([[0.500, 0.500], [0.505, 0.495]])
    assert audit(mechanism, pairs=500).by_kind["border"]["violation_ratio"] > 0.9
    forgiven = audit(mechanism, pairs=500, slack=0.01)
    assert forgiven.violation_ratio == 0
    assert forgiven.by_kind["search"]["violation_ratio"] == 0
    assert forgiven.slack == 0.01
    strict = audit(mechanism, pairs=500, slack=0.0)
    assert strict.by_kind["border"]["violation_ratio"] > 0.9


def test_published_ratios_are_smoothed():
    mechanism = cellwise([[0.2, 0.8], [0.7, 0.3]])
    found = audit(mechanism, pairs=500, slack=0.01)
    (left, right), output = found.worst_pair["points"], found.worst_pair["output"]
    here, there = mechanism.probabilities([left, right])[:, output] + 0.001
    assert found.rounding == 0  # cells round nothing
    assert found.max_ratio == pytest.approx(abs(math.log(here / there)) / (0.5 * distance(left, right, 2)))


def test_impossible_reports():
    both = audit(cellwise([[1.0, 0.0], [1.0, 0.0]]), pairs=200)
    assert both.violation_ratio == 0
    assert both.max_ratio == 0
    one = audit(cellwise([[1.0, 0.0], [0.9, 0.1]]), pairs=200)
    assert one.max_ratio == math.inf
    assert one.violation_ratio > 0
    assert one.ppr.quantiles["1"] == math.inf
    assert not any(math.isnan(value) for value in one.ppr.quantiles.values())
    assert one.ppr.counts[-1] > 0


def test_hill_climbing_finds_what_sampling_misses(problem):
    mechanism = fit(problem, epsilon=0.4, method="aipo-r", cells=4, certify=False)
    found = audit(mechanism, pairs=30)
    sampled = max(found.by_kind[kind]["max_ratio"] for kind in ("random", "near", "border"))
    assert found.by_kind["search"]["max_ratio"] > 1.01 * sampled
    assert found.max_ratio == found.by_kind["search"]["max_ratio"]


def test_given_points_are_where_pairs_come_from(problem):
    mechanism = fit_lp(problem, 0.4, LpOptions(cells=3))
    # All in one cell: no violation among random and near pairs, whatever the borders do.
    inside = np.array([[0.9, 0.6], [1.0, 0.7], [1.1, 0.6]])
    found = audit(mechanism, inside, pairs=300)
    assert found.by_kind["random"]["max_ratio"] == 0
    assert found.by_kind["near"]["max_ratio"] == 0
    assert audit(mechanism, inside[:1], pairs=10).by_kind.get("random") is None


def test_seed_repeats(problem):
    mechanism = fit(problem, epsilon=0.4, method="aipo-r", cells=4, certify=False)
    first, again, other = (audit(mechanism, pairs=200, seed=seed) for seed in (1, 1, 2))
    assert {**first.to_dict(), "seconds": 0} == {**again.to_dict(), "seconds": 0}
    assert first.max_ratio != other.max_ratio


def test_memory_is_bounded(problem):
    mechanism = fit_lp(problem, 0.4, LpOptions(cells=3))
    tracemalloc.start()
    audit(mechanism, pairs=400_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3e8


def test_bad_input_is_named(problem):
    mechanism = cellwise([[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(InvalidInputError, match="`pairs` must be a whole number of at least 1, got 0"):
        audit(mechanism, pairs=0)
    with pytest.raises(InvalidInputError, match=r"`tolerance` must be a non-negative number, got -1\.0"):
        audit(mechanism, tolerance=-1)
    with pytest.raises(InvalidInputError, match="`slack` must be a non-negative number"):
        audit(mechanism, slack=-0.1)
    with pytest.raises(InvalidInputError, match=r"`points` must be an array of shape \(rows, 1\)"):
        audit(mechanism, points=[[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match=r"`mechanism` must be a metricdp\.Mechanism, got Problem"):
        audit(problem)
    with pytest.raises(InvalidInputError, match="`mechanism` reports noisy points, but an audit needs finitely many"):
        audit(SimpleNamespace(kind="noise"))
