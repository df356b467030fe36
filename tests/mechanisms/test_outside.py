"""Warnings of points outside the box: when, in which words, and never with a coordinate."""

import re
import warnings

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.outside import FEWEST_POINTS, suspicion
from metricdp.perturb import Counts

CENTRE = Equirectangular(12.5, 41.9)
BOUNDS = np.array([[-5.0, -4.0], [5.0, 4.0]])


@pytest.fixture(scope="module")
def mechanism():
    records = np.random.default_rng(0).uniform(*BOUNDS, (50, 2))
    problem = mdp.Problem(records, records[:4], "euclidean", bounds=BOUNDS, projection=CENTRE)
    return mdp.fit(problem, 1.0, "em")


def inside(count):
    return np.random.default_rng(1).uniform(*BOUNDS, (count, 2))


def words_of(call, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*arguments)
    assert len(caught) <= 1, "once per call"
    assert all(one.filename == __file__ for one in caught), "blamed on the caller"
    return str(caught[0].message) if caught else None


def calls(mechanism, noise):
    return [mechanism.sample, mechanism.probabilities, noise.sample], [
        mechanism.sample_lonlat,
        mechanism.probabilities_lonlat,
        noise.sample_lonlat,
    ]


@pytest.fixture(scope="module")
def noise():
    return mdp.noise(1.0, bounds=BOUNDS, projection=CENTRE)


def test_points_inside_and_rounding_errors_at_the_edge_are_not_worth_a_word(mechanism, noise):
    plane, lonlat = calls(mechanism, noise)
    edge = np.tile(BOUNDS[1] + 5e-6, (50, 1))
    for points in (inside(50), edge):
        assert [words_of(call, points) for call in plane] == [None] * 3
        assert [words_of(call, CENTRE.to_lonlat(points)) for call in lonlat] == [None] * 3


def test_degrees_for_kilometres_and_the_reverse_are_named(mechanism, noise):
    plane, lonlat = calls(mechanism, noise)
    points = inside(50)
    for call in plane:
        said = words_of(call, CENTRE.to_lonlat(points))
        assert said.startswith("100 % of points fall outside the box; they look like longitude and latitude")
        assert "`sample_lonlat`" in said
    for call in lonlat:
        said = words_of(call, points)
        assert said.startswith("100 % of points fall outside the box; they look like kilometres")
        assert "`sample`" in said


def test_swapped_and_other_places(mechanism):
    points = inside(50)
    degrees = CENTRE.to_lonlat(points)
    assert words_of(mechanism.sample_lonlat, degrees[:, ::-1]).endswith("are columns swapped?")
    assert words_of(mechanism.sample_lonlat, degrees + np.array([1.0, 0.0])).endswith("are the units right?")
    assert words_of(mechanism.sample, points + 100).endswith("are the units right?")


def test_half_is_not_most_and_shares_are_rounded_down(mechanism):
    points = inside(300)
    points[:150] += 100
    assert words_of(mechanism.sample, points) is None
    points[150] += 100
    assert words_of(mechanism.sample, points).startswith("50 % of points")


def test_a_few_points_may_be_one_person_s_so_nothing_is_said_of_them(mechanism):
    away = inside(FEWEST_POINTS) + 100
    assert words_of(mechanism.sample, away[:-1]) is None
    assert words_of(mechanism.sample, away) is not None


def test_warnings_hold_no_coordinates(mechanism):
    said = words_of(mechanism.sample, np.full((50, 2), 123.456))
    assert re.findall(r"\d+", said) == ["100"]


def test_without_a_projection_nothing_is_known_of_units():
    problem = mdp.Problem(inside(20), inside(3), "euclidean", bounds=BOUNDS)
    assert words_of(mdp.fit(problem, 1.0, "em").sample, inside(50) + 100) is None


def test_files_go_by_the_same_rule():
    for outside, points, swapped in [(0, 0, 0), (5, 10, 5), (6, 10, 0), (6, 10, 4), (100, 100, 50)]:
        counts = Counts(rows_in=points, outside=outside, swapped=swapped)
        assert counts.suspicion == suspicion(outside, points, swapped=swapped)
