"""Trackers: likelihoods from mechanisms, estimates after each report and of whole traces, reuse and bad input."""

import inspect
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import metricdp as mdp
from metricdp.geometry.norms import pairwise_distances
from metricdp.traces import Movement, Raster, Tracker, smooth, track, whole_traces
from metricdp.traces.estimates import best_point
from metricdp.traces.likelihoods import checked_report, log_likelihood
from problems import random_problem
from traces_tools import all_paths, small_movement

BOX = [[24.90, 60.15], [25.00, 60.20]]


@pytest.fixture(scope="module")
def noise():
    return mdp.noise(2.0, lonlat_bounds=BOX)


@pytest.fixture(scope="module")
def movement():
    rng = np.random.default_rng(0)
    projection = mdp.cities.Equirectangular(24.94, 60.17)
    raster = Raster.over([[-3, -3], [4, 4]], 0.5, projection)
    return Movement(raster, rng.uniform(0.1, 1, raster.n_cells), [rng.uniform(0, 1, (7, 7)) + 0.1], [60])


def designed(method, seed=0, **options):
    return mdp.fit(random_problem(seed, n_outputs=4), 1.5, method, **options)


def plane_movement(cells=8, seed=1):
    rng = np.random.default_rng(seed)
    raster = Raster([0.0, 0.0], 4 / cells, (cells, cells))
    return Movement(raster, rng.uniform(0.1, 1, cells**2), [rng.uniform(0.1, 1, (5, 5))], [60])


# Likelihoods


@pytest.mark.parametrize("method", ["em", "spline", "laplace-remap"])
def test_likelihoods_of_outputs_are_the_mechanisms_probabilities(method):
    mechanism = designed(method)
    raster = Raster([-0.5, -0.5], 0.5, (10, 10))  # half a unit beyond the box, where points are taken to it
    expected = mechanism.probabilities(np.clip(raster.centres, 0, 4))
    for output in range(4):
        assert np.allclose(np.exp(log_likelihood(mechanism, raster, output)), expected[:, output], rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3, np.inf])
def test_likelihoods_of_noise_are_its_law(p):
    mechanism = mdp.noise(1.5, p, bounds=[[0, 0], [4, 4]])
    raster = Raster([-1, -1], 0.5, (12, 12))
    report = checked_report(mechanism, [5.0, 1.0])
    logs = log_likelihood(mechanism, raster, report)
    distance = pairwise_distances(np.clip(raster.centres, 0, 4), np.array([[5.0, 1.0]]), p)[:, 0]
    assert np.allclose(logs - logs.max(), -1.5 * (distance - distance.min()), rtol=1e-6)


def test_likelihoods_of_noise_are_what_is_drawn():
    """Shares of 40,000 draws in a region against a sum of e^logs over a fine raster, for two places."""
    mechanism = mdp.noise(1.0, bounds=[[0, 0], [4, 4]])
    rng = mdp.InsecureSeed(0)
    here, there = np.array([[1.0, 1.0], [3.0, 2.0]])
    share = []
    for place in (here, there):
        drawn = np.asarray(mechanism.sample(np.tile(place, (40_000, 1)), rng))
        share.append(np.mean(np.hypot(*(drawn - [2.0, 1.0]).T) < 0.3))
    raster = Raster([0, 0], 0.02, (200, 200))
    logs = log_likelihood(mechanism, raster, checked_report(mechanism, [2.0, 1.0]))
    expected = logs[raster.cells_of(here[None])[0]] - logs[raster.cells_of(there[None])[0]]
    assert np.log(share[0] / share[1]) == pytest.approx(expected, abs=0.12)


def test_the_mechanism_may_have_another_projection(noise, movement):
    other = Raster.over([[-3, -3], [4, 4]], 0.5, mdp.cities.Equirectangular(24.95, 60.175))
    point = [24.93, 60.16]
    logs = log_likelihood(noise, other, checked_report(noise, point))
    highest = other.from_plane(other.centres)[logs.argmax()]
    assert np.abs(highest - point).max() < 0.005
    assert noise.projection != movement.raster.projection


def test_tables_are_shared_and_let_go():
    mechanism, raster = designed("em"), Raster([0, 0], 0.5, (8, 8))
    first = log_likelihood(mechanism, raster, 0)
    assert np.shares_memory(first.base if first.base is not None else first, log_likelihood(mechanism, raster, 0))
    gone = weakref.ref(mechanism)
    del mechanism, first
    assert gone() is None


def test_too_large_a_table_is_refused(monkeypatch):
    monkeypatch.setattr("metricdp.traces.likelihoods._MOST_NUMBERS", 100)
    with pytest.raises(mdp.ProblemTooLargeError, match="4 outputs and 64 cells make a table of 256 numbers"):
        log_likelihood(designed("em"), Raster([0, 0], 0.5, (8, 8)), 0)


# Estimates


@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 5.0]))
def test_estimates_minimise_the_expected_distance(seed, spread):
    rng = np.random.default_rng(seed)
    raster = Raster([1.0, -2.0], 0.25, (7, 5))
    belief = rng.dirichlet(np.full(35, spread))

    def expected(point):
        return belief @ np.sqrt(((raster.centres - point) ** 2).sum(axis=1) + 0.25**2 / 6)

    found = best_point(belief, raster)
    best = minimize(expected, belief @ raster.centres, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10})
    assert expected(found) <= best.fun + 1e-6
    assert np.allclose(best_point(belief, raster, "squared"), belief @ raster.centres)


def test_estimates_follow_the_cells_wherever_they_are():
    belief = np.random.default_rng(0).dirichlet(np.full(20, 0.2))
    at_origin = best_point(belief, Raster([0, 0], 1.0, (4, 5)))
    elsewhere = best_point(belief, Raster([10, -7], 0.1, (4, 5)))
    assert np.allclose(elsewhere, at_origin * 0.1 + [10, -7])
    sure = np.zeros(20)
    sure[13] = 1
    assert np.allclose(best_point(sure, Raster([0, 0], 1.0, (4, 5))), [2.5, 3.5], atol=1e-6)


# Tracker, track and smooth


@pytest.mark.parametrize("unix_s", [[0, 60, 120], [5.0, 17.5, 200.0]])
def test_trackers_are_the_sums_over_all_paths(unix_s):
    mechanism, movement = mdp.noise(1.5, bounds=[[-1, 2], [0.5, 3.5]]), small_movement(2)
    reports = np.array([[0.1, 2.2], [-0.6, 3.0], [0.3, 3.6]])
    # A dead-reckoned rate: the noise's own, ε itself without a projection.
    logs = -1.5 * pairwise_distances(reports, movement.raster.centres, 2)
    filtered, smoothed = all_paths(movement, logs, np.array(unix_s))
    for loss in ("euclidean", "squared"):
        expected = [best_point(belief, movement.raster, loss) for belief in filtered]
        tracker = Tracker(mechanism, movement, loss=loss)
        one_by_one = [tracker.update(*one) for one in zip(reports, unix_s, strict=True)]
        assert np.allclose(one_by_one, expected, atol=1e-6)
        assert np.allclose(tracker.belief(), filtered[-1], atol=1e-8)
        assert np.allclose(track(mechanism, movement, reports, unix_s, loss=loss), expected, atol=1e-6)
        expected = [best_point(belief, movement.raster, loss) for belief in smoothed]
        assert np.allclose(smooth(mechanism, movement, reports, unix_s, loss=loss), expected, atol=1e-6)


def test_trackers_of_mechanisms_with_outputs():
    mechanism, movement = designed("em"), plane_movement()
    with np.errstate(divide="ignore"):
        logs = np.log(mechanism.probabilities(movement.raster.centres)).T
    reports = [0, 3, 3, 1]
    expected = [best_point(belief, movement.raster) for belief in movement.filter(logs[reports])]
    assert np.allclose(track(mechanism, movement, reports, 60 * np.arange(4)), expected)
    expected = [best_point(belief, movement.raster) for belief in movement.smooth(logs[reports])]
    assert np.allclose(smooth(mechanism, movement, np.array(reports), 60 * np.arange(4)), expected)


def test_outputs_may_be_named_by_their_ids():
    problem = random_problem(0, n_outputs=3)
    named = mdp.Problem(
        problem.records, problem.outputs, "euclidean", bounds=problem.bounds, output_ids=["a", "b", "c"]
    )
    mechanism, movement = mdp.fit(named, 1.5, "em"), plane_movement()
    assert np.array_equal(Tracker(mechanism, movement).update("c", 0), Tracker(mechanism, movement).update(2, 0))
    assert np.array_equal(track(mechanism, movement, ["a", "c"], [0, 60]), track(mechanism, movement, [0, 2], [0, 60]))
    with pytest.raises(mdp.InvalidInputError, match="the id of one of the mechanism's outputs, got 'd'"):
        Tracker(mechanism, movement).update("d", 0)


def test_persons_are_tracked_separately_and_in_any_order(noise, movement):
    rng = np.random.default_rng(3)
    reports = rng.uniform(*BOX, (12, 2))
    ids = np.array(["ann", "bob", "cat"])[np.arange(12) % 3]
    unix_s = 100.0 * np.arange(12) + 1e9
    for run in (track, smooth):
        together = run(noise, movement, reports, unix_s, ids=ids)
        for who in "ann", "bob", "cat":
            mine = ids == who
            assert np.array_equal(together[mine], run(noise, movement, reports[mine], unix_s[mine]))


def test_one_report_each_is_the_static_remap(noise, movement):
    reports = np.random.default_rng(4).uniform(*BOX, (5, 2))
    found = track(noise, movement, reports, np.zeros(5), ids=np.arange(5))
    for one, report in zip(found, reports, strict=True):
        logs = log_likelihood(noise, movement.raster, checked_report(noise, report))
        posterior = movement.prior * np.exp(logs)
        assert np.allclose(
            one, movement.raster.from_plane(best_point(posterior / posterior.sum(), movement.raster)[None])
        )


def test_long_traces_are_smoothed_in_blocks(noise, movement, monkeypatch):
    rng = np.random.default_rng(5)
    reports, unix_s = rng.uniform(*BOX, (23, 2)), np.cumsum(rng.uniform(1, 90, 23))
    expected = smooth(noise, movement, reports, unix_s)
    monkeypatch.setattr(whole_traces, "_MOST_NUMBERS", 1)
    assert np.array_equal(smooth(noise, movement, reports, unix_s), expected)


def test_history_helps_and_hindsight_helps_more():
    rng = np.random.default_rng(6)
    raster = Raster([0, 0], 0.25, (40, 40))
    step = np.exp(-np.hypot(*np.mgrid[-4:5, -4:5]))
    movement = Movement(raster, np.ones(1600), [step], [60])
    mechanism = mdp.noise(1.0, bounds=[[0, 0], [10, 10]])
    walks = np.clip(5 + np.cumsum(rng.normal(0, 0.3, (20, 30, 2)), axis=1), 0.2, 9.8)
    reports = np.asarray(mechanism.sample(walks.reshape(-1, 2), mdp.InsecureSeed(7)))
    unix_s, ids = np.tile(60.0 * np.arange(30), 20), np.repeat(np.arange(20), 30)

    def error(estimates):
        return np.hypot(*(estimates - walks.reshape(-1, 2)).T).mean()

    static = error(track(mechanism, movement, reports, unix_s, ids=np.arange(600)))
    filtered = error(track(mechanism, movement, reports, unix_s, ids=ids))
    smoothed = error(smooth(mechanism, movement, reports, unix_s, ids=ids))
    assert smoothed < 0.9 * filtered < 0.9 * 0.7 * static


# What a tracker may know


def test_no_argument_of_a_tracker_is_a_true_point():
    """The whole interface: a mechanism, public movement, reports and times."""
    known = {"self", "mechanism", "movement", "report", "reports", "unix_s", "reused", "ids", "loss"}
    for function in (Tracker.__init__, Tracker.update, Tracker.belief, Tracker.estimate, Tracker.reset, track, smooth):
        assert set(inspect.signature(function).parameters) <= known


def test_a_new_tracker_and_a_reset_one_are_the_same(noise, movement):
    rng = np.random.default_rng(9)
    used = Tracker(noise, movement)
    for step in range(3):
        used.update(rng.uniform(*BOX), 60 * step)
    used.reset()
    assert used.unix_s is None
    assert np.array_equal(used.belief(), movement.prior)
    report = rng.uniform(*BOX)
    assert np.array_equal(used.update(report, 5), Tracker(noise, movement).update(report, 5))


def test_after_a_long_gap_the_tracker_starts_again(noise, movement):
    first, second = np.random.default_rng(10).uniform(*BOX, (2, 2))
    tracker = Tracker(noise, movement)
    tracker.update(first, 0)
    later = tracker.update(second, movement.forgets_after_s)
    assert np.allclose(later, Tracker(noise, movement).update(second, 0))


# Reused reports


def test_a_reused_report_is_no_second_observation(noise, movement):
    first, second = np.random.default_rng(11).uniform(*BOX, (2, 2))
    tracker, other = Tracker(noise, movement), Tracker(noise, movement)
    for one in (tracker, other):
        one.update(first, 0)
    again = tracker.update(first, 30, reused=True)
    assert np.array_equal(again, other.estimate(30))
    assert tracker.unix_s == 0
    assert np.array_equal(tracker.update(first, 0), other.estimate())  # the same report at the same time
    assert np.array_equal(tracker.update(second, 60), other.update(second, 60))
    counted = Tracker(noise, movement)
    counted.update(first, 0)
    assert not np.allclose(counted.update(first, 30), again, atol=1e-5)


def test_reused_reports_of_whole_traces(noise, movement):
    """They leave all other estimates as they are, and are told where the person is by draws before and after."""
    rng = np.random.default_rng(13)
    draws, unix_s = rng.uniform(*BOX, (4, 2)), np.array([0, 60, 200, 260.0])
    again = np.array([0, 1, 1, 1, 2, 3, 3])
    reused = np.array([False, False, True, True, False, False, True])
    times = np.array([0, 60, 90, 150, 200, 260, 300.0])
    for run in (track, smooth):
        found = run(noise, movement, draws[again], times, reused=reused)
        assert np.array_equal(found[~reused], run(noise, movement, draws, unix_s))
    tracker = Tracker(noise, movement)
    online = [tracker.update(draws[i], t, reused=bool(r)) for i, t, r in zip(again, times, reused, strict=True)]
    assert np.array_equal(track(noise, movement, draws[again], times, reused=reused), online)
    logs = [log_likelihood(noise, movement.raster, checked_report(noise, one)) for one in draws]
    later = movement.look_back(np.exp(logs[2]) * movement.look_back(np.exp(logs[3]), 60), 50)
    belief = movement.predict(movement.filter(logs[:2], unix_s[:2])[-1], 90) * later
    expected = best_point(belief / belief.sum(), movement.raster)
    found = smooth(noise, movement, draws[again], times, reused=reused)[3]
    assert np.allclose(found, movement.raster.from_plane(expected[None])[0], atol=1e-9)
    for wrong in ([True] + [False] * 6, [False, True] + [False] * 5):
        with pytest.raises(mdp.InvalidInputError, match=r"`reused` must be False .*, got True at index"):
            track(noise, movement, draws[again], times, reused=wrong)
    with pytest.raises(mdp.InvalidInputError, match="`reused` must be made of booleans, got int64"):
        track(noise, movement, draws[again], times, reused=[0] * 7)


def test_reuse_that_cannot_be_is_refused(noise, movement):
    first, second = np.random.default_rng(12).uniform(*BOX, (2, 2))
    tracker = Tracker(noise, movement)
    with pytest.raises(mdp.InvalidInputError, match="`reused` must be False"):
        tracker.update(first, 0, reused=True)
    tracker.update(first, 0)
    with pytest.raises(mdp.InvalidInputError, match="`reused` must be False"):
        tracker.update(second, 30, reused=True)
    with pytest.raises(mdp.InvalidInputError, match="`unix_s` must be after the last report's, for another report"):
        tracker.update(second, 0)
    assert tracker.unix_s == 0


# Bad input


@pytest.mark.parametrize(
    ("report", "unix_s", "words"),
    [
        (4, 60, "from 0 to 3, got 4"),
        (-1, 60, "a ledger refused"),
        (-2, 60, "got -2"),
        (1.0, 60, "got float"),
        (True, 60, "got True"),
        (None, 60, "got NoneType"),
        ("a", 60, "the id of one"),
        ([1, 2], 60, "got list"),
        (1, -1, "`unix_s` must be no earlier than the last report's, got 1 s before it"),
        (1, np.nan, "`unix_s` must be finite, got nan"),
        (1, "noon", "`unix_s` must be a number of seconds, got str"),
        (1, 1.7e12, "`unix_s` must be seconds since 1970, .*are they milliseconds"),
        (1, [60, 120], "`unix_s` must be one number of seconds"),
    ],
)
def test_bad_reports_are_refused_and_change_nothing(report, unix_s, words):
    tracker = Tracker(designed("em"), plane_movement())
    before = tracker.update(0, 0)
    with pytest.raises(mdp.InvalidInputError, match=words):
        tracker.update(report, unix_s)
    assert np.array_equal(tracker.estimate(), before)


@pytest.mark.parametrize(
    "report", [[24.9], [24.9, 60.1, 3], [np.nan, 60], [200.0, 60.0], "here", [[24.9, 60.1]] * 2, 3]
)
def test_bad_points_are_refused(report, noise, movement):
    with pytest.raises(mdp.InvalidInputError):
        Tracker(noise, movement).update(report, 0)


def test_what_does_not_belong_together_is_refused(noise, movement):
    with pytest.raises(mdp.InvalidInputError, match="takes plain coordinates and the movement model degrees"):
        Tracker(mdp.noise(1.0, bounds=[[0, 0], [4, 4]]), movement)
    with pytest.raises(mdp.InvalidInputError, match="`mechanism` must be one of two axes, got 1 axes"):
        Tracker(mdp.noise(1.0, bounds=[[0], [4]]), plane_movement())
    with pytest.raises(mdp.InvalidInputError, match="for different places"):
        Tracker(mdp.noise(1.0, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]]), movement)
    with pytest.raises(mdp.InvalidInputError, match="`loss` must be one of"):
        Tracker(noise, movement, loss="cubic")
    for run in (track, smooth):
        with pytest.raises(mdp.InvalidInputError, match="`unix_s` must be of shape"):
            run(noise, movement, [[24.95, 60.17]], [0, 60])
        with pytest.raises(mdp.InvalidInputError, match="`ids` must be of shape"):
            run(noise, movement, [[24.95, 60.17]], [0], ids=["a", "b"])
        with pytest.raises(mdp.InvalidInputError, match="`unix_s` must be increasing"):
            run(noise, movement, [[24.95, 60.17]] * 2, [60, 0])
        assert run(noise, movement, [], []).shape == (0, 2)
