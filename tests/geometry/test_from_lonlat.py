"""Problems in degrees: arrays, tables and geometries, the box, the antimeridian, and what looks wrong."""

import re
import warnings

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricdp as mdp
from metricdp import InvalidInputError, Problem
from metricdp.geometry.projection import Equirectangular

RNG = np.random.default_rng(0)
HOMES = RNG.uniform([12.4, 41.8], [12.6, 42.0], (60, 2))
SHOPS = RNG.uniform([12.45, 41.85], [12.55, 41.95], (4, 2))


def great_circle_km(a, b):
    """Haversine, written from its definition: an independent measure of distance."""
    (lon, lat), (lon2, lat2) = np.radians(a).T[:, :, None], np.radians(b).T[:, None, :]
    h = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return 2 * 6371.0 * np.arcsin(np.sqrt(h))


def test_losses_are_kilometres_on_the_map():
    problem = Problem.from_lonlat(HOMES, SHOPS)
    true = great_circle_km(HOMES, SHOPS)
    assert problem.loss == pytest.approx(true, rel=2e-3)
    assert Problem.from_lonlat(HOMES, SHOPS, "squared").loss == pytest.approx(problem.loss**2)
    assert problem.projection == Equirectangular.for_box(*HOMES.T)
    assert problem.projection.to_lonlat(problem.records) == pytest.approx(HOMES, abs=1e-12)


def test_a_function_gets_kilometres_and_a_table_is_taken_as_it_is():
    seen = []

    def manhattan(records, outputs):
        seen.append((records, outputs))
        return np.abs(records[:, None] - outputs[None]).sum(axis=2)

    problem = Problem.from_lonlat(HOMES, SHOPS, manhattan)
    assert np.array_equal(seen[0][0], problem.records)
    assert np.array_equal(seen[0][1], problem.outputs)
    given = np.arange(240.0).reshape(60, 4)
    assert np.array_equal(Problem.from_lonlat(HOMES, SHOPS, given).loss, given)


def test_epsilon_is_per_true_kilometre():
    mechanism = mdp.fit(Problem.from_lonlat(HOMES, SHOPS), 2.0, "em")
    assert mechanism.distance == "ground"
    assert mechanism.claimed_epsilon == 2.0
    assert mdp.certify(mechanism).metres is not None
    assert mechanism.places[["lon", "lat"]].to_numpy() == pytest.approx(SHOPS, abs=1e-12)


def tables():
    lon, lat = HOMES.T
    yield pd.DataFrame({"Latitude": lat, "Longitude": lon, "x": 0.0})
    yield pd.DataFrame({"id": range(60), "pickup_lat": lat, "pickup_lng": lon}, index=range(5, 65))
    yield pl.DataFrame({"lat": lat, "lon": lon})
    yield gpd.GeoDataFrame({"a": 1}, geometry=gpd.points_from_xy(lon, lat), crs="EPSG:4326", index=range(60))
    yield gpd.GeoDataFrame(geometry=gpd.points_from_xy(lon, lat), crs="EPSG:4326").to_crs("EPSG:32633")
    yield gpd.GeoSeries(gpd.points_from_xy(lon, lat))


@pytest.mark.parametrize("table", list(tables()), ids=["pandas", "pickup", "polars", "geo", "metres", "series"])
def test_tables_are_read_by_names_and_geometries_by_their_reference_system(table):
    problem = Problem.from_lonlat(table, SHOPS)
    # Reprojecting there and back costs nanometres.
    assert problem.records == pytest.approx(Problem.from_lonlat(HOMES, SHOPS).records, abs=1e-9)


def test_ids_and_names_come_with_a_table():
    shops = pd.DataFrame({"lon": SHOPS[:, 0], "lat": SHOPS[:, 1], "code": [7, 8, 9, 10], "called": list("abcd")})
    problem = Problem.from_lonlat(HOMES, shops, id_column="code", name_column="called")
    assert problem.output_ids == (7, 8, 9, 10)
    assert problem.output_names == ("a", "b", "c", "d")
    geo = gpd.GeoDataFrame(shops, geometry=gpd.points_from_xy(shops["lon"], shops["lat"]), crs=4326)
    assert Problem.from_lonlat(HOMES, geo, id_column="code").output_ids == (7, 8, 9, 10)
    given = Problem.from_lonlat(HOMES, SHOPS, output_ids=[7, 8, 9, 10], output_names=list("abcd"))
    assert given == problem


def test_bounds_are_in_degrees():
    box = [[12.3, 41.7], [12.8, 42.1]]
    problem = Problem.from_lonlat(HOMES, SHOPS, bounds=box)
    assert (problem.projection.lon_deg, problem.projection.lat_deg) == pytest.approx((12.55, 41.9))
    assert problem.projection.to_lonlat(problem.bounds) == pytest.approx(np.array(box), abs=1e-12)


@given(st.floats(-180, 180), st.floats(2, 70), st.booleans())
def test_a_problem_looks_the_same_wherever_its_meridian_is(lon, lat, bounded):
    """Shifting everything to the east changes nothing, across the antimeridian too."""
    homes, shops = HOMES - [12.5, 41.9] + [0.0, lat], SHOPS - [12.5, 41.9] + [0.0, lat]
    box = np.array([[-0.2, lat - 0.2], [0.2, lat + 0.2]]) if bounded else None

    def turned(points):
        return None if points is None else np.column_stack([(points[:, 0] + lon + 180) % 360 - 180, points[:, 1]])

    here, there = (
        Problem.from_lonlat(homes, shops, bounds=box),
        Problem.from_lonlat(turned(homes), turned(shops), bounds=turned(box)),
    )
    assert there.records == pytest.approx(here.records, abs=1e-8)
    assert there.loss == pytest.approx(here.loss, abs=1e-8)
    assert there.bounds == pytest.approx(here.bounds, abs=1e-8)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"records": HOMES + np.array([0, 60])}, r"`records` must be longitudes .* 60 of 60 rows outside. Longitude comes first; are"),
        ({"records": HOMES * 1000}, r"`records` .* 60 of 60 rows outside. Are they degrees\?"),
        ({"outputs": [[12.5, 141.9]]}, r"`outputs` .* 1 of 1 rows outside"),
        ({"records": pd.DataFrame({"a": [1.0], "lat": [2.0]})}, "`records` must be a table with columns of longitude .* got a table of a, lat"),
        ({"records": pd.DataFrame({"lon": [1.0], "LON": [1.0], "lat": [2.0]})}, "`records` must be named where several could be meant, got lon, LON"),
        ({"records": pd.DataFrame({"lon": [1.0], "lat": ["north"]})}, "`records` must be an array of numbers"),
        ({"records": pd.DataFrame({"lon": [1.0], "lat": [np.nan]})}, "`records` must be finite"),
        ({"records": pd.DataFrame({"lon": [], "lat": []})}, "`records` must be non-empty"),
        ({"records": [[1.0, 2.0, 3.0]]}, r"`records` must be an array of shape \(rows, 2\)"),
        ({"records": [[-90.0, 0.0], [0.0, 1.0], [90.0, 2.0], [179.0, 2.0]]}, "`records` must be within 180 degrees of longitude"),
        ({"bounds": [[12.6, 41.8], [12.4, 42.0]]}, "`bounds` must be west and south, then east and north"),
        ({"bounds": [[12.4, 42.0], [12.6, 41.8]]}, "`bounds` must be west and south, then east and north"),
        ({"bounds": [[-100, 41.0], [100, 43.0]]}, "`bounds` must be .* less than 180 degrees wide"),
        ({"bounds": [[12.5, 41.0], [12.7, 43.0]]}, "`bounds` must be a box that holds every record, got .* records outside"),
        ({"bounds": [12.4, 41.8, 12.6, 42.0]}, r"`bounds` must be of shape \(2, 2\)"),
        ({"id_column": "id"}, "`id_column` must be left out unless the outputs are a table, got 'id'"),
        ({"outputs": pd.DataFrame({"lon": [12.5], "lat": [41.9]}), "name_column": "name"}, "`name_column` must be one of the columns lon, lat, got 'name'"),
        ({"outputs": pd.DataFrame({"lon": [12.5], "lat": [41.9], "id": [1]}), "id_column": "id", "output_ids": [1]}, "`output_ids` and `id_column` say the same thing"),
        ({"outputs": "h3:8", "output_ids": [1]}, "Cells bring their own ids; leave out `output_ids`"),
        ({"outputs": "places.csv"}, "`outputs` must be cells such as 'h3:8'"),
    ],
)  # fmt: skip
def test_bad_input_names_parameter_rule_and_value(change, words):
    with pytest.raises(InvalidInputError, match=words):
        Problem.from_lonlat(**({"records": HOMES, "outputs": SHOPS} | change))


def test_other_shapes_and_missing_geometries_are_refused():
    points = gpd.GeoSeries(gpd.points_from_xy(*HOMES[:3].T), crs=4326)
    with pytest.raises(InvalidInputError, match=r"`records` must be points .* got 3 of 3 rows with another geometry"):
        Problem.from_lonlat(points.to_crs(32633).buffer(10), SHOPS)
    points.iloc[1] = None
    with pytest.raises(InvalidInputError, match="got 1 of 3 rows with another geometry, or none"):
        Problem.from_lonlat(points, SHOPS)


def words_of(*arguments, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Problem.from_lonlat(*arguments, **options)
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_one_record_in_paris_stretches_rome_s_box_and_is_counted():
    (said,) = words_of(np.vstack([HOMES, [[2.35, 48.85]]]), SHOPS)
    assert said.startswith("1 of 61 records lie far from the rest: the box is ")
    sizes = [float(size) for size in re.findall(r"[\d.]+", said)[2:6]]
    west, south, north = 2.35, 41.8, 48.85
    assert sizes[1] == pytest.approx(great_circle_km([[west, south]], [[west, north]])[0, 0], rel=0.01)
    assert sizes[0] == pytest.approx(6371 * np.radians(12.6 - west) * np.cos(np.radians((south + north) / 2)), rel=0.01)
    assert sizes[2:] == pytest.approx(np.ptp(Problem.from_lonlat(HOMES, SHOPS).bounds, axis=0), rel=0.01)


@pytest.mark.parametrize(
    "records",
    [
        HOMES,
        HOMES[:2],
        RNG.normal([12.5, 41.9], 0.05, (20_000, 2)),
        np.column_stack([np.linspace(12, 13, 50), np.full(50, 41.9) + 1e-5 * RNG.random(50)]),
        np.vstack([HOMES, HOMES + 0.5]),
        np.vstack([np.tile(HOMES[:1], (100, 1)), HOMES]),
    ],
    ids=["uniform", "two", "normal", "road", "two towns", "one place often"],
)
def test_ordinary_records_are_not_doubted(records):
    assert words_of(records, records[:3]) == []


def test_absurd_places():
    kilometres = RNG.uniform(-0.5, 0.5, (30, 2))
    assert any("are they kilometres?" in words for words in words_of(kilometres, kilometres[:3]))
    kathmandu = RNG.uniform([85.2, 27.6], [85.4, 27.8], (30, 2))[:, ::-1]
    assert any("are the columns swapped?" in words for words in words_of(kathmandu, kathmandu[:3]))
    (said,) = words_of(RNG.uniform(-20, 20, (30, 2)) + 30, [[30.0, 30.0]])
    assert "more than a region" in said
    (said,) = words_of(HOMES, SHOPS[:, ::-1])
    assert said == "4 of 4 outputs lie far outside the box of the records; are their columns swapped?"
    (said,) = words_of(HOMES, SHOPS + 5)
    assert said.endswith("are they outputs for these records?")
