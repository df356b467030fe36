"""What an adversary learns, against sums written from the definition, bounds of theory, and samplers of others."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metricdp as mdp
import oracles
from metricdp.attacking.guesses import best_chances, best_guesses
from metricdp.geometry.ground import Ground
from metricdp.geometry.projection import Equirectangular
from problems import random_problem, weighted_problem

ROUGHLY = 1.0002  # by which share a guess may miss the best one


def own(problem, rows):
    """Return a mechanism with these probabilities at the problem's records."""
    from metricdp.experiments.own_methods import OwnRows
    from metricdp.mechanisms.options import common_fields

    table = {tuple(x): row for x, row in zip(problem.records, rows, strict=True)}
    return OwnRows(
        **common_fields(problem, 1.0, "own"), rows=lambda points: np.array([table[tuple(x)] for x in points])
    )


# The best guess


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 12), axes=st.integers(1, 3), whole=st.booleans())
def test_guesses_are_enclosed(seed, n, axes, whole):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 4, (n, axes)).astype(float) if whole else rng.normal(size=(n, axes))
    weights = rng.random((3, n)) * (rng.random((3, n)) < 0.7)
    found = best_guesses(places, weights)
    others = np.vstack([places, rng.normal(size=(50, axes)), found.points + 1e-3 * rng.normal(size=found.points.shape)])
    for row, guess, cost, least in zip(weights, found.points, found.cost, found.least, strict=True):
        assert cost == pytest.approx(row @ np.linalg.norm(places - guess, axis=1), rel=1e-9, abs=1e-12)
        assert least <= cost <= max(least * 1.01, least + 1e-9)
        assert least <= (np.linalg.norm(others[:, None] - places, axis=2) @ row).min() + 1e-12


def test_guess_on_a_place_and_along_a_line():
    places = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [9.0, 9.0]])
    found = best_guesses(places, np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]]))
    assert found.points[:2].tolist() == [[1.0, 1.0], [9.0, 9.0]]
    assert found.cost.tolist() == pytest.approx([2 * math.sqrt(2), 0, 0])
    assert found.cost[1] == found.cost[2] == 0


def test_chance_within_a_radius_finds_the_crowd_away_from_the_median():
    places = np.array([[0.0, 0.0], [10.0, 0.0], [10.1, 0.0], [0.0, 7.0]])
    weights = np.array([[0.35, 0.2, 0.2, 0.25]])
    assert best_chances(places, weights, best_guesses(places, weights).points, 0.1)[0] == pytest.approx(0.4)


# One report and many, against the definition


@pytest.mark.parametrize("n_axes", [1, 2])
@pytest.mark.parametrize("reports", [1, 2, 3])
def test_equals_the_sum_over_all_sequences(n_axes, reports):
    problem = weighted_problem(reports, n_axes=n_axes, n_records=6, n_outputs=3)
    mechanism = mdp.fit(problem, 0.8, "em")
    rows = mechanism.probabilities(problem.records)
    found = mdp.attack(mechanism, problem, reports, within=[0.5])
    exact = oracles.naive_inference_error(rows, problem.prior, problem.records, reports)
    assert found.exact
    assert found.standard_error == 0
    assert found.error_least <= exact * (1 + 1e-9)
    assert exact <= found.error * (1 + 1e-9) <= exact * ROUGHLY
    assert found.last.named == pytest.approx(oracles.naive_named(rows, problem.prior, problem.records, reports))
    assert found.table[0].error == pytest.approx(
        oracles.naive_inference_error([[1.0]] * 6, problem.prior, problem.records, 1), rel=2e-4
    )


def test_simulation_agrees_with_the_exact_sum():
    problem = weighted_problem(5, n_records=30, n_outputs=3)
    mechanism = mdp.fit(problem, 1.0, "em")
    exact = mdp.attack(mechanism, problem, 4, within=[0.7])
    from metricdp.attacking import likelihoods

    assert exact.exact
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(likelihoods, "_LARGEST_SUM", 0)
        drawn = mdp.attack(mechanism, problem, 4, within=[0.7], draws=4000)
    assert not drawn.exact
    assert drawn.draws == 4000
    assert 0 < drawn.standard_error < 0.02
    assert abs(drawn.error - exact.error) < 4 * drawn.standard_error
    assert drawn.within[0.7] == pytest.approx(exact.within[0.7], abs=0.02)
    assert drawn.last.named == pytest.approx(exact.last.named, abs=0.01)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), n_axes=st.integers(1, 2))
def test_less_information_never_helps(seed, n_axes):
    """More reports tell more, and reports that are merged or mixed with chance tell less (Blackwell)."""
    rng = np.random.default_rng(seed)
    problem = weighted_problem(seed, n_axes=n_axes, n_records=8, n_outputs=4)
    rows = rng.dirichlet(np.ones(4), 8)
    found = mdp.attack(own(problem, rows), problem, [1, 2, 3])
    for more, fewer in zip(found.table[1:], found.table, strict=False):
        assert more.error_least <= fewer.error * (1 + 1e-9)
        assert more.named >= fewer.named - 1e-9
    mixed = mdp.attack(own(problem, 0.6 * rows + 0.4 / 4), problem, 2)
    assert mixed.error >= found.table[2].error_least * (1 - 1e-9)
    merged = np.column_stack([rows[:, 0] + rows[:, 1], np.zeros(8), rows[:, 2:]])
    assert mdp.attack(own(problem, merged), problem, 2).error >= found.table[2].error_least * (1 - 1e-9)


def test_reports_that_tell_nothing_leave_the_prior_and_reports_that_tell_all_leave_no_doubt():
    problem = weighted_problem(1, n_records=5, n_outputs=5)
    nothing = mdp.attack(own(problem, np.full((5, 5), 0.2)), problem, [1, 3])
    assert nothing.error == pytest.approx(nothing.error_without_reports, rel=2e-4)
    everything = mdp.attack(own(problem, np.eye(5)), problem, [1, 3], within=[0.01])
    assert everything.error == pytest.approx(0, abs=1e-12)
    assert everything.last.named == pytest.approx(1)
    assert everything.within == {0.01: pytest.approx(1)}


# As theory says


@pytest.mark.parametrize(("n_axes", "expected"), [(1, math.sqrt(2 / math.pi)), (2, math.sqrt(math.pi))])
def test_noise_from_one_place_falls_like_one_over_the_root_of_n(n_axes, expected):
    """Fisher information of noise ∝ e^{−ε|·|} is ε²/N per axis, so the error tends to E|normal of variance N/(n ε²)|."""
    side, spacing = (4.0, 0.004) if n_axes == 1 else (1.5, 0.03)
    axis = np.arange(0, side, spacing)
    records = np.stack(np.meshgrid(*[axis] * n_axes), axis=-1).reshape(-1, n_axes)
    problem = mdp.Problem(records, records[:1], "euclidean")
    mechanism = mdp.noise(4.0, bounds=problem.bounds)
    found = mdp.attack(mechanism, problem, [100, 400], draws=120, seed=3)
    for one in found.table[1:]:
        limit = expected / (4 * math.sqrt(one.reports))
        assert abs(one.error / limit - 1) < 0.1 + 4 * one.standard_error / limit
    assert found.table[1].error / found.table[2].error == pytest.approx(2, rel=0.12)


def test_two_places_are_told_apart_as_fast_as_chernoff_says():
    problem = mdp.Problem([[0.0], [2.0]], [[0.0], [1.0], [2.0]], "euclidean", prior=[0.3, 0.7])
    mechanism = mdp.fit(problem, 0.5, "em")
    rows = mechanism.probabilities(problem.records)
    rate, s = oracles.chernoff(*rows)
    found = mdp.attack(mechanism, problem, [1, 5, 20, 100, 200, 400])
    assert found.exact
    for one in found.table[1:]:
        assert one.error_least <= 2 * 0.3**s * 0.7 ** (1 - s) * math.exp(-rate * one.reports) * (1 + 1e-6)
    by_count = {one.reports: one.error for one in found.table}
    assert math.log(by_count[200] / by_count[400]) / 200 == pytest.approx(rate, rel=0.08)


def test_more_epsilon_is_more_to_learn_from_noise():
    """Planar Laplace noise of a smaller ε is that of a larger one plus independent noise, so it tells less."""
    problem = random_problem(0, n_records=150, side=2.0)
    errors = [
        mdp.attack(mdp.noise(epsilon, bounds=problem.bounds), problem, 2, draws=600) for epsilon in (0.5, 1, 2, 4, 8)
    ]
    for less, more in itertools.pairwise(errors):
        assert more.error + 2 * more.standard_error < less.error + 2 * less.standard_error
    assert all(one.error < one.error_without_reports for one in errors)


def test_noise_equals_a_quadrature_over_reports():
    problem = mdp.Problem([[0.0], [1.0], [3.0]], [[0.0]], "euclidean", prior=[0.5, 0.2, 0.3])
    found = mdp.attack(mdp.noise(1.0, bounds=problem.bounds), problem, 1, draws=4000)
    step = 0.001
    y = np.arange(-12, 15, step) + step / 2
    weights = problem.prior * np.exp(-np.abs(y[:, None] - problem.records[:, 0])) / 2
    costs = np.stack([(weights * np.abs(problem.records[:, 0] - x)).sum(axis=1) for x in problem.records[:, 0]])
    exact = costs.min(axis=0).sum() * step
    assert abs(found.error - exact) < 4 * found.standard_error
    assert found.standard_error < 0.02 * exact


def test_a_home_is_found_slower_when_nights_are_spent_elsewhere():
    problem = random_problem(1, n_records=100, side=3.0)
    for mechanism in (mdp.fit(problem, 2.0, "em"), mdp.noise(2.0, bounds=problem.bounds)):
        at_home, away = (mdp.attack(mechanism, problem, 30, away=share, draws=300) for share in (0.0, 0.5))
        assert at_home.error < 0.8 * away.error < 0.8 * away.error_without_reports
        assert at_home.last.named > away.last.named


# On the Earth


@pytest.mark.parametrize("lat", [-50.0, 0.0, 60.17])
def test_distances_on_the_ground_are_enclosed(lat):
    pyproj = pytest.importorskip("pyproj")
    projection = Equirectangular(24.94, lat)
    bounds = np.array([[-8.0, -3.0], [8.0, 12.0]])
    ground = Ground.over(projection, bounds)
    rng = np.random.default_rng(0)
    left, right = (rng.uniform(*bounds, (500, 2)) for _ in range(2))
    metres = pyproj.Geod(ellps="WGS84").inv(*projection.to_lonlat(left).T, *projection.to_lonlat(right).T)[2]
    plane = np.linalg.norm(ground.plane(left) - ground.plane(right), axis=1)
    assert (ground.shortest * plane <= metres / 1000 * (1 + 1e-9)).all()
    assert (metres / 1000 <= ground.longest * plane * (1 + 1e-9)).all()
    assert 0.99 < ground.shortest <= ground.longest < 1.01
    assert np.allclose(ground.coordinates(ground.plane(left)), left)


def test_a_problem_of_another_map_is_the_same_attack():
    degrees = np.array([[24.93, 60.16], [24.95, 60.17], [24.97, 60.18], [24.96, 60.16]])
    problem = mdp.Problem.from_lonlat(degrees, degrees[:3])
    shifted = mdp.Problem.from_lonlat(degrees, degrees[:3], bounds=[[24.9, 60.1], [25.1, 60.2]])
    mechanism = mdp.fit(problem, 2.0, "em")
    one, other = mdp.attack(mechanism, problem), mdp.attack(mechanism, shifted)
    assert one.distance_unit == "km"
    assert one.error == pytest.approx(other.error, rel=2e-3)
    assert set(one.within) == {0.1, 0.5}
    assert "km" in one.words or " m " in one.words


# Samplers of others


def test_a_learnt_sampler_is_never_better_than_the_bayes_bound_and_comes_close_to_it():
    problem = weighted_problem(2, n_records=12, n_outputs=4)
    mechanism = mdp.fit(problem, 1.0, "em")
    exact = mdp.attack(mechanism, problem, [1, 3])
    source = mdp.InsecureSeed(5)
    learnt = mdp.attack(
        lambda points: np.asarray(mechanism.sample(points, source)), problem, [1, 3], learn=60_000, draws=4000
    )
    assert math.isnan(learnt.error_least)
    for mine, best in zip(learnt.table[1:], exact.table[1:], strict=True):
        assert mine.error >= best.error_least - 4 * mine.standard_error
        assert mine.error == pytest.approx(best.error, abs=4 * mine.standard_error + 0.01 * best.error)


def test_snapping_to_a_grid_gives_away_the_cell():
    problem = random_problem(3, n_records=200, side=4.0)
    found = mdp.attack(np.round, problem, [1, 5], within=[0.75], learn=2000)
    assert found.error == pytest.approx(found.table[1].error, rel=0.02)  # asked again, it says the same again
    assert found.within[0.75] > 0.99
    assert found.error < 0.45


def test_coordinates_with_noise_are_told_apart_by_squares():
    problem = random_problem(4, n_records=50, side=2.0)
    noise = mdp.noise(3.0, bounds=problem.bounds)
    best = mdp.attack(noise, problem, [1, 5], draws=2000)
    source = mdp.InsecureSeed(6)
    learnt = mdp.attack(
        lambda points: np.asarray(noise.sample(points, source)), problem, [1, 5], learn=500_000, draws=2000
    )
    for mine, bound in zip(learnt.table[1:], best.table[1:], strict=True):
        assert mine.error > bound.error_least - 4 * mine.standard_error - 4 * bound.standard_error
        assert mine.error < 1.25 * bound.error
    coarse = mdp.attack(lambda points: np.asarray(noise.sample(points, source)), problem, 5, learn=50_000, cell=2.0)
    assert coarse.error > 1.2 * learnt.error


# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reports": 0}, "`reports` must be a whole number of at least 1, got 0"),
        ({"reports": []}, "`reports` must be a number of reports"),
        ({"reports": 1.5}, "`reports` must be a whole number"),
        ({"within": [0.0]}, "`within` must be a positive finite number"),
        ({"away": 1.0}, "`away` must be at least 0 and below 1"),
        ({"draws": 1}, "`draws` must be a whole number of at least 2"),
        ({"cell": 1.0}, "`cell` is about samplers"),
    ],
)
def test_bad_options_are_named(options, words):
    problem = random_problem(0, n_records=5)
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.attack(mdp.fit(problem, 1.0, "em"), problem, **options)


def test_bad_mechanisms_and_samplers_are_refused():
    problem = random_problem(0, n_records=5)
    with pytest.raises(
        mdp.InvalidInputError, match=r"`mechanism` must be a metricdp\.Mechanism or a function, got str"
    ):
        mdp.attack("em", problem)
    with pytest.raises(mdp.InvalidInputError, match="one whole number per point, or 2 finite coordinates"):
        mdp.attack(lambda points: points[:, :1], problem)
    with pytest.raises(mdp.InvalidInputError, match="finite coordinates"):
        mdp.attack(lambda points: points * np.nan, problem)
    with pytest.raises(mdp.InvalidInputError, match=r"`problem` must be a metricdp\.Problem"):
        mdp.attack(mdp.fit(problem, 1.0, "em"), "helsinki")
    line = random_problem(0, n_axes=1, n_records=5)
    with pytest.raises(mdp.InvalidInputError, match="`problem` must be of 2 axes, got 1"):
        mdp.attack(mdp.fit(problem, 1.0, "em"), line)
    lonlat = mdp.Problem.from_lonlat([[24.93, 60.16], [24.95, 60.17]], [[24.93, 60.16]])
    with pytest.raises(
        mdp.InvalidInputError, match="The problem is in longitude and latitude and the mechanism is not"
    ):
        mdp.attack(mdp.fit(problem, 1.0, "em"), lonlat)


def test_too_large_a_table_is_refused_before_it_is_made():
    rng = np.random.default_rng(0)
    problem = mdp.Problem(rng.random((60_000, 1)), rng.random((2, 1)), "euclidean")
    mechanism = mdp.fit(mdp.Problem(rng.random((5, 1)), rng.random((2000, 1)), "euclidean"), 1.0, "em")
    with pytest.raises(mdp.ProblemTooLargeError, match="60,000 records and 2,000 outputs"):
        mdp.attack(mechanism, problem)


def test_the_result_speaks_for_itself():
    problem = random_problem(0, n_records=20)
    found = mdp.attack(mdp.fit(problem, 1.0, "em"), problem, [1, 2], within=[1.0])
    assert found.words.startswith("Without any report they are ")
    assert "after one report " in found.words
    heads, rows = found.shown
    assert len(rows) == 3
    assert all(len(row) == len(heads) for row in rows)
    plain = found.to_dict()
    assert [row["reports"] for row in plain["table"]] == [0, 1, 2]
    assert plain["table"][1]["within"][0]["radius"] == 1.0
    assert "<table>" in found._repr_html_()
