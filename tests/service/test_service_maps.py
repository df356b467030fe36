"""What the service tells of a mechanism whose ε varies over the box."""

import json
import math

import numpy as np
import pytest

import metricdp as mdp

pytest.importorskip("fastapi", reason="needs the extra `service`")

from metricdp.service import Settings
from metricdp.service.state.map_answers import cell_radii
from problems import random_problem
from service_tools import call, ledger_options, post, saved


@pytest.fixture(scope="module")
def city():
    problem = mdp.cities.load("helsinki").problem(outputs=6, tasks=10, seed=0)
    (west, south), (east, north) = problem.bounds
    xs, ys = np.linspace(west, east, 4), np.linspace(south, north, 5)
    values = [[4, 4, 5, 4], [4, 12, 8, 4], [4, 6, 4, 4]]
    return mdp.fit(problem, mdp.EpsilonMap([xs, ys], np.array(values, float)), "spline", cells=6)


@pytest.fixture(scope="module")
def settings(city, tmp_path_factory):
    plain = mdp.fit(random_problem(0), 1.0, "em")
    return Settings(files=saved(tmp_path_factory.mktemp("maps"), elastic=city, plain=plain))


def test_the_list_says_which_mechanisms_have_a_map(settings, city):
    listed = {one["id"]: one for one in call(settings, "GET", "/v1/mechanisms").json()["mechanisms"]}
    assert listed["plain"]["epsilon_map"] is None
    assert listed["elastic"]["epsilon"] == 12.0
    expected = {"least": 4.0, "most": 12.0, "radius_least": 1 / 12, "radius_most": 1 / 4, "cells": [3, 4]}
    assert listed["elastic"]["epsilon_map"] == expected
    detail = call(settings, "GET", "/v1/mechanisms/elastic").json()
    assert detail["epsilon_map"] == listed["elastic"]["epsilon_map"]
    assert "Private by a map of epsilon, from 4.0 to 12.0" in detail["claim"]


def test_the_map_is_public(settings, city):
    found = call(settings, "GET", "/v1/mechanisms/elastic/epsilon-map").json()
    assert found["values"] == city.epsilon_map.values.tolist()
    assert found["plane_values"] == city.plane_map.values.tolist()
    assert found["breakpoints"] == [points.tolist() for points in city.epsilon_map.breakpoints]
    assert (found["unit"], found["mechanism"]) == ("km", "elastic")
    assert found["sha256"] == call(settings, "GET", "/v1/mechanisms/elastic").json()["sha256"]
    lon, lat = found["breakpoints_lonlat"]
    corners = city.projection.to_xy_km([lon[0], lon[-1]], [lat[0], lat[-1]])
    assert corners == pytest.approx(city.bounds, abs=1e-9)
    assert [len(lon), len(lat)] == [4, 5]


def test_the_radius_of_a_cell_holds_at_each_of_its_places(city):
    """The radius around random places of a cell, as the certificate has it, is never below the cell's."""
    radii, certificate = cell_radii(city), mdp.certify(city)
    local = city.epsilon_map
    rng = np.random.default_rng(0)
    for cell in np.ndindex(local.shape):
        low, high = ([points[i + side] for points, i in zip(local.breakpoints, cell, strict=True)] for side in (0, 1))
        places = rng.uniform(low, high, (200, 2))
        assert certificate.radius(places).min() >= radii[cell]
        assert radii[cell] <= 1 / local.values[cell]
    # Deep inside the cell of the largest ε nothing larger is near; and no radius is smaller than that.
    assert radii.min() == pytest.approx(1 / 12, rel=1e-4)
    # A cell away from the centre has a larger one, and pairs at that distance keep the promise.
    assert radii[0, 3] > 0.1
    here = rng.uniform([local.breakpoints[0][0], local.breakpoints[1][3]], [local.breakpoints[0][1], local.breakpoints[1][4]], (3000, 2))  # fmt: skip
    angle = rng.uniform(0, 2 * np.pi, 3000)
    away = radii[0, 3] / city.distortion.stretch
    there = np.clip(here + away * np.column_stack([np.cos(angle), np.sin(angle)]), *city.bounds)
    assert 1.2 < (city.probabilities(here) / city.probabilities(there)).max() <= math.e


def test_other_mechanisms_have_no_map(settings):
    for path, words in (("plain", "one ε for its whole box"), ("nobody", "no mechanism of this id")):
        answer = call(settings, "GET", f"/v1/mechanisms/{path}/epsilon-map")
        assert answer.status_code == 404
        assert words in answer.json()["detail"]


def test_a_draw_costs_the_largest_epsilon(settings, tmp_path):
    charged = Settings(files=settings.files[:1], ledger=ledger_options(tmp_path, 30.0))
    point = [24.94, 60.17]
    answer = post(charged, {"points": [point] * 3, "user": "ann"}).json()
    assert answer["refused"] == 1
    assert post(charged, {"user": "ann"}, "/v1/budget").json()["spent"] == 24.0


def test_the_document_knows_the_map(settings):
    document = call(settings, "GET", "/openapi.json").json()
    assert "/v1/mechanisms/{id}/epsilon-map" in document["paths"]
    schema = document["components"]["schemas"]["MapMessage"]
    found = call(settings, "GET", "/v1/mechanisms/elastic/epsilon-map").json()
    assert set(schema["required"]) == set(found)
    assert json.dumps(found).count("null") == 0
