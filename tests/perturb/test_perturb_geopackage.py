"""GeoPackage layers of points: read as every other file of geometries is, in bounded memory, and never written."""

import contextlib
import datetime as dt
import sqlite3
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import metricdp as mdp
from metricdp.perturb import Options, perturb_file, perturb_folder
from metricdp.perturb.formats import geopackage, open_source
from metricdp.perturb.points import read_places
from perturb_tools import CENTRE, city, nearest, points

geopandas = pytest.importorskip("geopandas")
pytest.importorskip("pyogrio")


def frame(xy, crs=4326):
    count = len(xy)
    columns = {
        "name": [f"place {row}" for row in range(count)],
        "whole": np.arange(count) - 3,
        "real": np.arange(count) / 7,
        "truth": np.arange(count) % 2 == 0,
        "time": pd.to_datetime(["2024-02-29T12:30:15Z"] * count),
    }
    shapes = geopandas.points_from_xy(*CENTRE.to_lonlat(xy).T)
    return geopandas.GeoDataFrame(columns, geometry=shapes, crs=4326).to_crs(crs)


@pytest.fixture
def layer(tmp_path):
    path = tmp_path / "points.gpkg"
    frame(points(500)).to_file(path)
    return path


def test_points_of_a_layer_are_perturbed(layer, tmp_path):
    options = Options(copy=("fid", "name", "whole", "real", "truth", "time"))
    summary = perturb_file(city(), layer, tmp_path / "out.parquet", options)
    assert summary.counts.rows_in == 500
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found["output_id"].tolist() == nearest(points(500)).tolist()
    assert found["fid"].tolist() == list(range(1, 501))
    given = frame(points(500))
    for name in ("name", "whole", "real", "truth"):
        assert found[name].tolist() == given[name].tolist()
    assert (found["time"] == given["time"]).all()


def test_the_true_points_are_not_among_the_columns_that_all_copies(layer, tmp_path):
    perturb_file(city(), layer, tmp_path / "out.parquet", Options(copy="all"))
    names = set(pd.read_parquet(tmp_path / "out.parquet").columns)
    assert names == {"output_id", "geometry", "fid", "name", "whole", "real", "truth", "time"}
    reported = geopandas.GeoSeries.from_wkb(pd.read_parquet(tmp_path / "out.parquet")["geometry"])
    assert set(zip(reported.x, reported.y, strict=True)) <= {*map(tuple, CENTRE.to_lonlat(city().outputs))}


def test_points_are_those_that_geopandas_reads(layer):
    places = read_places(layer, id_column="name")
    given = geopandas.read_file(layer)
    assert np.array_equal(places.points, np.column_stack([given.geometry.x, given.geometry.y]))
    assert places.columns.degrees
    assert places.ids == given["name"].tolist()


def test_a_run_that_was_cut_off_goes_on_after_the_rows_that_it_has(layer):
    with open_source(layer) as source:
        assert source.fraction() is None
        whole = pa.Table.from_batches(source.batches(("geom",), ("whole",)))
        assert source.fraction() == 1.0
        rest = pa.Table.from_batches(source.batches(("geom",), ("whole",), 123))
    assert rest.equals(whole.slice(123))


def test_null_and_empty_geometries_are_rows_without_a_point(tmp_path):
    given = frame(points(4))
    given.geometry = [given.geometry[0], None, geopandas.GeoSeries.from_wkt(["POINT EMPTY"])[0], given.geometry[3]]
    given.to_file(tmp_path / "in.gpkg")
    perturb_file(city(), tmp_path / "in.gpkg", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["output_id"].isna().tolist() == [False, True, True, False]


def test_other_degrees_are_taken_and_a_plane_is_refused(tmp_path):
    frame(points(4), 4258).to_file(tmp_path / "etrs89.gpkg")
    assert read_places(tmp_path / "etrs89.gpkg").columns.degrees
    frame(points(4), 3067).to_file(tmp_path / "tm35fin.gpkg")
    with pytest.raises(mdp.InvalidInputError, match=r"longitude and latitude, got the reference system .*TM35FIN"):
        perturb_file(city(), tmp_path / "tm35fin.gpkg", tmp_path / "out.csv")


def test_a_layer_of_lines_is_refused(tmp_path):
    shapes = geopandas.GeoSeries.from_wkt(["POINT (24.94 60.17)", "LINESTRING (24 60, 25 61)"], crs=4326)
    geopandas.GeoDataFrame(geometry=shapes).to_file(tmp_path / "in.gpkg")
    with pytest.raises(mdp.InvalidInputError, match="points only, got 1 others, the first in row 2"):
        perturb_file(city(), tmp_path / "in.gpkg", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.gpkg"]


def test_a_file_with_two_layers_or_none_is_refused(layer, tmp_path):
    frame(points(3)).to_file(layer, layer="second")
    with pytest.raises(mdp.InvalidInputError, match="more than one layer of features"):
        read_places(layer)
    frame(points(3)).to_file(tmp_path / "table.gpkg")
    with contextlib.closing(sqlite3.connect(tmp_path / "table.gpkg")) as database, database:
        database.execute("UPDATE gpkg_contents SET data_type = 'attributes'")
    with pytest.raises(mdp.InvalidInputError, match="no layer of features"):
        read_places(tmp_path / "table.gpkg")


def test_a_geopackage_is_no_target(layer, tmp_path):
    (tmp_path / "points.csv").write_text("lon,lat\n24.94,60.17\n")
    with pytest.raises(mdp.InvalidInputError, match=r"only read; write \.geoparquet or \.geojson"):
        perturb_file(city(), tmp_path / "points.csv", tmp_path / "out.gpkg")
    (tmp_path / "in").mkdir()
    layer.rename(tmp_path / "in" / "a.gpkg")
    with pytest.raises(mdp.InvalidInputError, match=r"only read; write \.geoparquet or \.geojson"):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out")


def test_without_pyogrio_the_error_names_the_extra(layer, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyogrio", None)
    with pytest.raises(mdp.InvalidInputError, match=r"pip install 'metricdp\[geo\]'"):
        open_source(layer)


def test_batches_are_small_where_rows_are_long(tmp_path, monkeypatch):
    given = frame(points(300))
    given["name"] = "x" * 5000
    given.to_file(tmp_path / "in.gpkg")
    monkeypatch.setattr(geopackage.limits, "BATCH_BYTES", 2**16)
    with open_source(tmp_path / "in.gpkg") as source:
        narrow = [len(batch) for batch in source.batches(("geom",), ())]
        wide = [len(batch) for batch in source.batches(("geom",), ("name",))]
    assert narrow == [300]
    assert sum(wide) == 300
    assert 1 < max(wide) <= 2**16 / 5000


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Helsinki"])
@pytest.mark.parametrize("fraction", [0, 250])
def test_times_as_geopandas_writes_them(tmp_path, zone, fraction):
    given = frame(points(3))
    given["time"] = pd.Timestamp("2024-02-29T12:30:15", tz=zone) + pd.Timedelta(fraction, "ms")
    given["day"] = dt.date(2024, 2, 29)
    given.to_file(tmp_path / "in.gpkg")
    perturb_file(city(), tmp_path / "in.gpkg", tmp_path / "out.parquet", Options(copy=("time", "day")))
    found = pd.read_parquet(tmp_path / "out.parquet")
    expected = given["time"] if zone else given["time"].dt.tz_localize("UTC")
    assert (found["time"] == expected).all()
    assert found["day"].astype(str).tolist() == ["2024-02-29"] * 3
