"""Remap by history: which output is reported, and that nothing but draws and times decides."""

import itertools
import math

import numpy as np
import pytest

import metricdp as mdp
from metricdp.traces import HistoryRemap, Movement, Raster, Tracker
from problems import random_problem, weighted_problem

WALKS = np.array([[[0.5, 0.5], [1.0, 1.5], [2.0, 1.5]], [[3.5, 2.0], [3.0, 2.5], [1.0, 3.9]]])


def plane_movement(cells=8, seed=1):
    rng = np.random.default_rng(seed)
    raster = Raster([0.0, 0.0], 4 / cells, (cells, cells))
    return Movement(raster, rng.uniform(0.1, 1, cells**2), [rng.uniform(0.1, 1, (5, 5))], [60])


def loss_by_loops(problem, raster):
    """Mean loss of the records in each cell by their prior; that of the nearest record where there is none."""
    table = np.empty((raster.n_cells, problem.n_outputs))
    cells = raster.cells_of(problem.records)
    for cell, centre in enumerate(raster.centres):
        if (inside := cells == cell).any():
            table[cell] = np.average(problem.loss[inside], axis=0, weights=problem.prior[inside])
        else:
            table[cell] = problem.loss[np.hypot(*(problem.records - centre).T).argmin()]
    return table


def test_the_output_has_the_least_expected_loss():
    problem, movement = weighted_problem(0, n_outputs=6), plane_movement()
    noise = mdp.noise(1.0, bounds=problem.bounds)
    remap, tracker = HistoryRemap(noise, movement, problem), Tracker(noise, movement)
    table = loss_by_loops(problem, movement.raster)
    rng = np.random.default_rng(2)
    chosen = []
    for step, report in enumerate(rng.uniform(0, 4, (12, 2))):
        tracker.update(report, 60 * step)
        costs = tracker.belief() @ table
        chosen.append(remap.remap(report, 60 * step))
        assert costs[chosen[-1]] <= costs.min() + 1e-9
    assert len(set(chosen)) > 1


def test_degrees_in_and_places_of_another_projection():
    rng = np.random.default_rng(3)
    box = [[24.90, 60.15], [25.00, 60.20]]
    places = [[24.91, 60.16], [24.95, 60.19], [24.99, 60.17], [24.95, 60.155]]
    problem = mdp.Problem.from_lonlat(rng.uniform(*box, (2000, 2)), places, bounds=box)
    noise = mdp.noise(200.0, lonlat_bounds=box)
    raster = Raster.over([[-4, -4], [4, 4]], 0.1, mdp.cities.Equirectangular(24.94, 60.17))
    movement = Movement(raster, np.ones(raster.n_cells), [np.ones((3, 3))], [60], restart=0.9)
    remap = HistoryRemap(noise, movement, problem)
    spots = problem.projection.to_lonlat(problem.outputs)
    for k, spot in enumerate(spots):  # with hardly any noise everybody is at the place that they report
        assert remap.sample_lonlat(spot, 1000 * k) == k
        assert remap.sample(problem.outputs[k], 1000 * k + 500) == k


def seed_with_draws(mechanism, walk, wanted):
    for seed in range(5000):
        if np.array_equal(mechanism.sample(walk, mdp.InsecureSeed(seed)), wanted):
            return seed
    raise AssertionError("no seed draws that")


def test_equal_draws_and_times_give_equal_answers_whatever_the_secret():
    """Two walks that happen to draw the same: not a bit of belief, estimate or output tells which it was."""
    problem, movement = random_problem(4, n_outputs=3), plane_movement()
    mechanism = mdp.fit(problem, 0.7, "em")
    wanted = np.asarray(mechanism.sample(WALKS[0], mdp.InsecureSeed(0)))
    answers = []
    for walk in WALKS:
        remap = HistoryRemap(mechanism, movement, problem)
        source = Replayed([seed_with_draws(mechanism, walk[[i]], wanted[[i]]) for i in range(3)])
        outputs = [remap.sample(point, 45 * step, source.next()) for step, point in enumerate(walk)]
        answers.append((outputs, remap.tracker.belief().tobytes(), remap.tracker.estimate().tobytes()))
    assert answers[0] == answers[1]


class Replayed:
    def __init__(self, seeds):
        self.seeds = iter(seeds)

    def next(self):
        return mdp.InsecureSeed(next(self.seeds))


def test_all_answers_together_are_as_private_as_the_draws():
    """Every sequence of three draws, remapped: exact chances of every sequence of outputs from two walks."""
    problem, movement = random_problem(5, n_outputs=3), plane_movement()
    mechanism = mdp.fit(problem, 0.5, "em")
    remap = HistoryRemap(mechanism, movement, problem)
    chances = [{}, {}]
    rows = [mechanism.probabilities(walk) for walk in WALKS]
    for draws in itertools.product(range(3), repeat=3):
        remap.tracker.reset()
        answer = tuple(remap.remap(draw, 60 * step) for step, draw in enumerate(draws))
        for found, row in zip(chances, rows, strict=True):
            found[answer] = found.get(answer, 0) + math.prod(row[range(3), draws])
    assert sum(chances[0].values()) == pytest.approx(1)
    assert len(chances[0]) > 3
    allowed = math.exp(mechanism.epsilon * np.hypot(*(WALKS[0] - WALKS[1]).T).sum())
    for answer, chance in chances[0].items():
        assert max(chance / chances[1][answer], chances[1][answer] / chance) <= allowed


def test_a_refused_time_draws_nothing():
    problem, movement = random_problem(6), plane_movement()
    remap = HistoryRemap(mdp.noise(1.0, bounds=problem.bounds), movement, problem)

    class Counting(mdp.InsecureSeed):
        used = 0

        def words(self, count):
            Counting.used += count
            return super().words(count)

    remap.sample([1.0, 1.0], 60, Counting(0))
    used = Counting.used
    assert used > 0
    for unix_s in (60, 59, np.nan, "noon"):
        with pytest.raises(mdp.InvalidInputError, match="`unix_s` must be"):
            remap.sample([1.0, 1.0], unix_s, Counting(0))
    for point in ([1.0], [np.inf, 1.0], "secret place", [[1.0, 1.0]]):
        with pytest.raises(mdp.InvalidInputError) as refused:
            remap.sample(point, 120, Counting(0))
        assert "secret" not in str(refused.value)
    assert Counting.used == used


def test_a_reused_draw_may_move_on_with_time_but_counts_once():
    problem, movement = random_problem(7, n_outputs=9), plane_movement()
    noise = mdp.noise(1.0, bounds=problem.bounds)
    remap, other = HistoryRemap(noise, movement, problem), HistoryRemap(noise, movement, problem)
    for one in (remap, other):
        one.remap([3.0, 3.0], 0)
    remap.remap([3.0, 3.0], 40, reused=True)
    assert remap.remap([2.0, 2.0], 60) == other.remap([2.0, 2.0], 60)
    assert np.array_equal(remap.tracker.belief(), other.tracker.belief())


def test_history_beats_the_static_remap():
    rng = np.random.default_rng(8)
    box = [[0, 0], [10, 10]]
    problem = mdp.Problem(rng.uniform(0, 10, (2000, 2)), rng.uniform(0, 10, (40, 2)), "euclidean", bounds=box)
    movement = Movement(Raster([0, 0], 0.25, (40, 40)), np.ones(1600), [np.exp(-np.hypot(*np.mgrid[-4:5, -4:5]))], [60])
    walks = np.clip(5 + np.cumsum(rng.normal(0, 0.3, (12, 25, 2)), axis=1), 0.2, 9.8)
    static = np.asarray(mdp.fit(problem, 1.0, "laplace-remap").sample(walks.reshape(-1, 2), mdp.InsecureSeed(9)))
    remap, source = HistoryRemap(mdp.noise(1.0, bounds=box), movement, problem), mdp.InsecureSeed(10)
    by_history = []
    for walk in walks:
        remap.tracker.reset()
        by_history += [remap.sample(point, 60 * step, source) for step, point in enumerate(walk)]
    errors = [np.hypot(*(problem.outputs[one] - walks.reshape(-1, 2)).T).mean() for one in (static, by_history)]
    assert errors[1] < 0.8 * errors[0]


def test_only_proved_mechanisms_are_taken():
    problem, movement = random_problem(11), plane_movement()
    leaky = mdp.fit(problem, 1.0, "aipo-r", certify=False)
    with pytest.raises(mdp.NotCertified):
        HistoryRemap(leaky, movement, problem)
    assert HistoryRemap(leaky, movement, problem, certify=False).mechanism is leaky


def test_problems_that_do_not_fit_are_refused(monkeypatch):
    problem, movement = random_problem(12), plane_movement()
    noise = mdp.noise(1.0, bounds=problem.bounds)
    degrees = mdp.Problem.from_lonlat([[24.9, 60.1], [25.0, 60.2]], [[24.9, 60.1]])
    with pytest.raises(mdp.InvalidInputError, match="both be in degrees"):
        HistoryRemap(noise, movement, degrees)
    with pytest.raises(mdp.InvalidInputError, match="`problem` must be one of two axes, got 3 axes"):
        HistoryRemap(noise, movement, random_problem(12, n_axes=3))
    away = mdp.Problem(problem.records + 100, problem.outputs, "euclidean")
    with pytest.raises(mdp.InvalidInputError, match="No record of the problem lies in the cells"):
        HistoryRemap(noise, movement, away)
    monkeypatch.setattr("metricdp.traces.history_remap._MOST_NUMBERS", 10)
    with pytest.raises(mdp.ProblemTooLargeError, match="use larger cells"):
        HistoryRemap(noise, movement, problem)
