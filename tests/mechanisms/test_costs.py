"""The distance of reports, which every fit puts into its report."""

import math
import time

import numpy as np
import pytest

import metricdp as mdp
from metricdp.mechanisms import costs as module
from metricdp.mechanisms.costs import costs
from oracles import reports_within
from problems import random_problem, weighted_problem

QUICK = {"em": {}, "laplace-remap": {"squares": 16}, "aipo-e": {"cells": 2}, "spline": {"cells": 3}, "lp": {"cells": 2}}


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize("method", QUICK)
def test_a_fit_reports_its_costs_exactly_where_all_records_are_counted(method, p):
    problem = weighted_problem(3, p=p)
    mechanism = mdp.fit(problem, 1.0, method, certify=method != "lp", **QUICK[method])
    report = mechanism.report
    assert report["report_distance_95_error"] == 0
    assert report["report_distance_95"] == pytest.approx(reports_within(mechanism, problem, 0.95), rel=1e-9)
    assert (report["loss_without_privacy"], report["loss_of_uniform_choice"]) == (problem.floor, problem.uniform_loss)


def test_the_distance_agrees_with_drawn_reports():
    problem = weighted_problem(4)
    mechanism = mdp.fit(problem, 1.0, "em")
    rng = np.random.default_rng(5)
    people = rng.choice(problem.n_records, 40_000, p=problem.prior)
    said = np.asarray(mechanism.sample(problem.records[people], rng=mdp.InsecureSeed(6)))
    far = np.linalg.norm(problem.records[people] - problem.outputs[said], axis=1)
    beyond = (far > mechanism.report["report_distance_95"]).mean()
    # Five standard errors; the least distance that 95 % do not exceed may leave less than 5 % beyond it.
    assert beyond <= 0.05 + 5 * math.sqrt(0.05 * 0.95 / 40_000)
    at_or_beyond = (far >= mechanism.report["report_distance_95"] * (1 - 1e-9)).mean()
    assert at_or_beyond >= 0.05 - 5 * math.sqrt(0.05 * 0.95 / 40_000)


@pytest.mark.parametrize("method", ["em", "laplace-remap"])
def test_an_estimate_is_as_near_to_the_exact_distance_as_it_says(method, monkeypatch):
    problem = weighted_problem(7, n_records=150)
    mechanism = mdp.fit(problem, 1.5, method)
    exact = mechanism.report["report_distance_95"]
    monkeypatch.setattr(module, "_LARGEST_TABLE", 0)
    drawn = costs(mechanism, problem)
    error = drawn["report_distance_95_error"]
    assert 0 < error < 0.02 * exact
    assert abs(drawn["report_distance_95"] - exact) < 4.5 * error
    assert costs(mechanism, problem) == drawn  # two fits say the same


def test_errors_are_neither_boasts_nor_excuses(monkeypatch):
    """Over many seeds an estimate lies beyond two standard errors about as often as it should."""
    problem = weighted_problem(8, n_records=80)
    mechanism = mdp.fit(problem, 1.0, "em")
    exact = mechanism.report["report_distance_95"]
    monkeypatch.setattr(module, "_LARGEST_TABLE", 0)
    monkeypatch.setattr(module, "_DRAWS", 2000)
    off = []
    for seed in range(60):
        monkeypatch.setattr(module, "_SEED_OF_PEOPLE", 2 * seed)
        monkeypatch.setattr(module, "_SEED_OF_REPORTS", 2 * seed + 1)
        drawn = costs(mechanism, problem)
        off.append(abs(drawn["report_distance_95"] - exact) / drawn["report_distance_95_error"])
    # 5 % of 60 are 3; more than 10 have a chance below 1e-3. Errors that are far too wide would leave all within one.
    assert sum(one > 2 for one in off) <= 10
    assert sum(one > 1 for one in off) >= 5


def test_reports_with_no_privacy_are_those_of_the_best_outputs():
    problem = random_problem(2, n_records=40)
    best = problem.outputs[problem.loss.argmin(axis=1)]
    far = sorted(np.linalg.norm(problem.records - best, axis=1))
    found = mdp.fit(problem, 1.0, "em").report["report_distance_95_without_privacy"]
    assert found == pytest.approx(far[math.ceil(0.95 * len(far)) - 1])


def test_distances_of_a_city_are_at_least_those_on_the_ground_and_hardly_more():
    geod = pytest.importorskip("pyproj").Geod(ellps="WGS84")
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)
    mechanism = mdp.fit(problem, 8.0, "em")
    rng = np.random.default_rng(1)
    people = rng.choice(problem.n_records, 20_000)
    said = np.asarray(mechanism.sample(problem.records[people], rng=mdp.InsecureSeed(0)))
    here, there = (problem.projection.to_lonlat(xy) for xy in (problem.records[people], problem.outputs[said]))
    far_km = geod.inv(*here.T, *there.T)[2] / 1000
    limit = mechanism.report["report_distance_95"]
    assert abs((far_km > limit).mean() - 0.05) < 0.01
    assert mechanism.report["loss_unit"] == "km"


@pytest.mark.parametrize(("p", "n_axes"), [(1, 1), (2, 2), (1, 2), (3, 2), (math.inf, 3)])
def test_noise_without_outputs_has_its_distance_in_closed_form(p, n_axes):
    mechanism = mdp.noise(2.0, p, bounds=[[0.0] * n_axes, [1.0] * n_axes])
    points = np.full((40_000, n_axes), 0.5)
    moved = np.abs(np.asarray(mechanism.sample(points, rng=mdp.InsecureSeed(0))) - 0.5)
    far = moved.max(axis=1) if math.isinf(p) else (moved**p).sum(axis=1) ** (1 / p)
    beyond = (far > mechanism.report["report_distance_95"]).mean()
    assert beyond == pytest.approx(0.05, abs=5 * math.sqrt(0.05 * 0.95 / len(far)))


@pytest.mark.parametrize("p", [1, 3, math.inf])
def test_straight_distances_of_noise_on_the_ground_are_at_most_as_said(p):
    mechanism = mdp.noise(2.0, p, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]])
    middle = mechanism.bounds.mean(axis=0)
    moved = np.asarray(mechanism.sample(np.tile(middle, (20_000, 1)), rng=mdp.InsecureSeed(0))) - middle
    far = np.linalg.norm(moved, axis=1)
    assert (far > mechanism.report["report_distance_95"]).mean() < 0.055


def test_the_unit_of_a_loss_is_known_or_given():
    city = mdp.cities.load("helsinki").problem(outputs=3, tasks=3, seed=0)
    changed = {"projection": city.projection, "bounds": city.bounds}
    made = {
        loss: mdp.Problem(city.records, city.outputs, loss, **changed).loss_unit for loss in ("euclidean", "squared")
    }
    assert made == {"euclidean": "km", "squared": "km²"}
    assert random_problem(0).loss_unit == ""
    given = mdp.Problem([[0.0], [1.0]], [[0.0]], "euclidean", loss_unit="°C")
    assert given.loss_unit == mdp.fit(given, 1.0, "em").report["loss_unit"] == "°C"
    with pytest.raises(mdp.InvalidInputError, match="`loss_unit` must be at most 40 printable characters"):
        mdp.Problem([[0.0], [1.0]], [[0.0]], "euclidean", loss_unit="\x1b[2J")
    assert mdp.Problem([[0.0], [1.0]], [[0.0]], "euclidean") != given


def test_rome_in_a_second(rome):
    mechanism = mdp.fit(rome, 2.0, "laplace-remap")
    started = time.process_time()
    found = costs(mechanism, rome)
    assert time.process_time() - started < 1
    assert 0 < found["report_distance_95_error"] < 0.01 * found["report_distance_95"]
    chosen = np.random.default_rng(0).choice(rome.n_records, 500)
    chances = mechanism.probabilities(rome.records[chosen])
    far = np.linalg.norm(rome.records[chosen][:, None] - rome.outputs, axis=2) * mechanism.distortion.stretch
    beyond = np.where(far > found["report_distance_95"], chances, 0.0).sum(axis=1)
    assert abs(beyond.mean() - 0.05) < 5 * beyond.std() / math.sqrt(500) + 0.005
