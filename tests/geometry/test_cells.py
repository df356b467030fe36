"""Cells as outputs: known codes, cells that hold their points, limits."""

import sys

import h3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricdp import InvalidInputError, Problem, ProblemTooLargeError
from metricdp.geometry.cells import MOST_CELLS, cells_over, names_cells
from metricdp.geometry.projection import Equirectangular

ROME = np.random.default_rng(0).uniform([12.4, 41.8], [12.6, 42.0], (300, 2))
CENTRE = Equirectangular(12.5, 41.9)


def cells(points, spec):
    return cells_over(np.array(points), CENTRE, np.array([-10.0, -12.0]), spec)


@pytest.mark.parametrize(
    ("lon", "lat", "code"),
    [
        # Published examples: Niemeyer's own, and those of the English Wikipedia's article.
        (10.40744, 57.64911, "u4pruydqqvj"),
        (-5.6, 42.6, "ezs42"),
        (0.0, 0.0, "s00000"),
        (-180.0, -90.0, "000000000000"),
        (180.0, 90.0, "zzzzzzzzzzzz"),
    ],
)
def test_geohashes_of_known_places(lon, lat, code):
    assert cells([[lon, lat]], f"geohash:{len(code)}").ids == (code,)


@given(st.floats(-180, 180), st.floats(-90, 90), st.integers(1, 11))
def test_a_geohash_s_centre_is_within_half_a_cell_and_its_code_begins_longer_ones(lon, lat, letters):
    found, longer = (cells([[lon, lat]], f"geohash:{count}") for count in (letters, letters + 1))
    half = 180 / 2.0 ** ((5 * letters + 1) // 2), 90 / 2.0 ** (5 * letters // 2)
    assert (np.abs(found.lonlat - [[lon, lat]]) <= np.array(half) * (1 + 1e-9)).all()
    assert longer.ids[0].startswith(found.ids[0])
    assert cells(found.lonlat, f"geohash:{letters}").ids == found.ids


def test_hexagons_are_those_of_h3():
    found = cells(ROME, "h3:8")
    assert set(found.ids) == {h3.latlng_to_cell(lat, lon, 8) for lon, lat in ROME}
    assert found.lonlat[:, ::-1] == pytest.approx(np.array([h3.cell_to_latlng(one) for one in found.ids]))


def test_squares_count_from_the_corner_and_hold_their_points():
    found = cells(ROME, "square:2km")
    centre = dict(zip(found.ids, CENTRE.to_xy_km(*found.lonlat.T), strict=True))
    owners = set()
    for x, y in CENTRE.to_xy_km(*ROME.T):
        owner = f"x{int((x + 10) // 2)}y{int((y + 12) // 2)}"
        owners.add(owner)
        assert np.abs(centre[owner] - [x, y]).max() <= 1 + 1e-9
    assert owners == set(found.ids)
    assert cells(ROME, "SQUARE:2000M").ids == found.ids


def test_cells_are_outputs_with_ids():
    problem = Problem.from_lonlat(ROME, "geohash:5", output_names=None)
    assert problem.output_ids == cells(ROME, "geohash:5").ids
    assert problem.projection.to_lonlat(problem.outputs) == pytest.approx(cells(ROME, "geohash:5").lonlat)
    squares = Problem.from_lonlat(ROME, "square:5km", bounds=[[12.3, 41.7], [12.7, 42.1]])
    lowest = squares.projection.to_xy_km([12.3], [41.7])
    numbers = (squares.outputs - lowest) / 5 - 0.5
    assert numbers == pytest.approx(np.rint(numbers), abs=1e-9)


@pytest.mark.parametrize(("spec", "coarser"), [("h3:13", "h3"), ("geohash:10", "geohash"), ("square:10m", "square")])
def test_too_many_cells_are_counted_and_a_coarser_choice_is_few_enough(spec, coarser):
    many = np.random.default_rng(1).uniform([12.4, 41.8], [12.6, 42.0], (9_000, 2))
    with pytest.raises(ProblemTooLargeError, match=r"at most 5,000 cells, got \d,\d+ with") as caught:
        cells(many, spec)
    advice = str(caught.value).rpartition("; ")[2]
    choice, count = advice.split("'")[1], int(advice.split()[-1].rstrip(".").replace(",", ""))
    assert choice.startswith(f"{coarser}:")
    assert len(cells(many, choice).ids) == count <= MOST_CELLS


@pytest.mark.parametrize(
    "spec", ["h3:16", "h3:-1", "h3:8.5", "h3:²", "geohash:0", "geohash:13", "square:0m", "square:5", "square:1e9km", "h4:3"]
)  # fmt: skip
def test_what_is_no_cell_is_refused(spec):
    with pytest.raises(InvalidInputError, match="`outputs` must be"):
        cells(ROME, spec)


def test_names_of_files_are_not_cells():
    assert [names_cells(text) for text in ("h3:8", "Square:1km", "h3.csv", "a/h3:8", "h3:")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "h3", None)
    with pytest.raises(ModuleNotFoundError, match=r"Reporting H3 cells needs the package h3; .*metricdp\[cells\]"):
        cells(ROME, "h3:8")
