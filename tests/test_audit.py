"""The audit: it convicts what is not private, leaves alone what is, and its figures equal plain loops."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from metricdp import Grid, InvalidInputError, Problem, fit
from metricdp.audit import _Source, audit
from metricdp.mechanisms.cellwise import Cellwise
from metricdp.methods.cellwise import ConstOptOptions, GridLpOptions, fit_constopt, fit_grid_lp


def distance(a, b, p):
    gap = np.abs(np.asarray(a) - np.asarray(b))
    return gap.max() if math.isinf(p) else (gap**p).sum() ** (1 / p)


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
        fit_grid_lp(problem, 0.4, GridLpOptions(cells=6)),
        fit_constopt(problem, 0.4, ConstOptOptions(cells=6, nearest=6)),
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
    expected = abs(math.log(here) - math.log(there)) / (0.4 * distance(left, right, 2))
    assert found.max_ratio == found.worst_pair["ratio"] == pytest.approx(expected)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("tolerance", [0.0, 0.2])
def test_figures_equal_a_plain_loop(problem, p, tolerance):
    problem = Problem(problem.records, problem.outputs, problem.loss, p=p)
    mechanism = fit(problem, epsilon=0.4, method="aipo-r", cells=4, certify=False)
    found = audit(mechanism, pairs=60, tolerance=tolerance, seed=5)
    source = _Source(mechanism, None, np.random.default_rng(5))
    broken, values, worst = 0, {}, 0.0
    for kind in ("random", "near", "border"):
        values[kind] = []
        for left, right in source.draw(kind, 60):
            for a, b in zip(mechanism.snap(left), mechanism.snap(right), strict=True):
                rows = np.log(mechanism.probabilities([a, b]))
                for here, there in rows.T:
                    change = abs(here - there)
                    broken += change > 0.4 * distance(a, b, p) + tolerance
                    values[kind].append(change / distance(a, b, p))
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
    mechanism = fit_grid_lp(problem, 0.4, GridLpOptions(cells=3))
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
    mechanism = fit_grid_lp(problem, 0.4, GridLpOptions(cells=3))
    tracemalloc.start()
    audit(mechanism, pairs=1_000_000)
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
