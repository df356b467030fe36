"""GeoPackages that strangers have made: programs in the file, damage, values that warnings would quote, names."""

import contextlib
import resource
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

import metricdp as mdp
from metricdp.perturb import Options, perturb_file
from metricdp.perturb.formats import open_source
from metricdp.perturb.points import read_places
from perturb_tools import CENTRE, city, points

geopandas = pytest.importorskip("geopandas")
pytest.importorskip("pyogrio")

SECRET = "24.940001"


@pytest.fixture
def layer(tmp_path):
    path = tmp_path / "points.gpkg"
    shapes = geopandas.points_from_xy(*CENTRE.to_lonlat(points(400)).T)
    columns = {"name": "a", "whole": 1, "real": 0.5, "truth": True, "time": np.datetime64("2024-02-29T12:30")}
    geopandas.GeoDataFrame(columns, index=range(400), geometry=shapes, crs=4326).to_file(path)
    return path


def edited(path, *statements):
    """Change a file behind GDAL's back; its triggers call functions that only GDAL has."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        for statement in statements:
            database.execute(statement)
    return path


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE VIEW other AS SELECT 1 AS fid"],
        ["ALTER TABLE points RENAME TO hidden", f"CREATE VIEW points AS {ENDLESS} i AS fid, x'00' AS geom FROM n"],
        ["DROP TABLE gpkg_extensions", f"CREATE VIEW gpkg_extensions AS {ENDLESS} i AS table_name FROM n"],
        ["CREATE VIRTUAL TABLE words USING fts5(text)"],
        ["CREATE VIRTUAL TABLE rtree_fake USING fts5(text)"],
    ],
    ids=["view", "layer", "system-table", "virtual", "virtual-called-an-index"],
)
def test_programs_in_the_file_are_never_run(layer, statements):
    edited(layer, *statements)
    with pytest.raises(mdp.InvalidInputError, match="it has views or virtual tables"):
        open_source(layer)


def test_a_computed_column_is_refused(layer):
    edited(layer, "ALTER TABLE points ADD COLUMN more TEXT AS (hex(zeroblob(1000000)))")
    with pytest.raises(mdp.InvalidInputError, match="columns that are computed"):
        open_source(layer)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("time", f"'{SECRET}'"),
        ("time", "'2024-99-01T00:00:00Z'"),
        ("whole", f"'{SECRET}'"),
        ("real", "'secret'"),
        ("truth", "7"),
        ("name", "x'ff00fe'"),
        ("geom", f"'{SECRET}'"),
    ],
)
def test_values_of_another_type_are_refused_and_not_quoted(layer, tmp_path, column, value, capfd):
    """GDAL warns of some, and its warning quotes the value."""
    edited(layer, f"UPDATE points SET {column} = {value} WHERE fid = 7")
    with pytest.raises(mdp.InvalidInputError, match=f"column '{column}' has 1 values that its type does not") as caught:
        perturb_file(city(), layer, tmp_path / "out.csv", Options(copy=("name", "whole", "real", "truth", "time")))
    assert SECRET not in str(caught.value) + "".join(capfd.readouterr())
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("blob", ["x'00'", "x''", "x'47500001e6100000'", "zeroblob(100)", "x'4750000fe6100000ffff'"])
def test_a_geometry_that_is_none_is_refused_or_no_point(layer, tmp_path, blob):
    edited(layer, f"UPDATE points SET geom = {blob} WHERE fid = 7")
    try:
        places = read_places(layer)
    except mdp.InvalidInputError:
        return
    assert np.flatnonzero(~places.kept).tolist() == [6]


def test_text_that_is_not_utf8_is_refused(layer, tmp_path):
    edited(layer, "UPDATE points SET name = CAST(x'ff00fe' AS TEXT) WHERE fid = 7")
    with pytest.raises(mdp.InvalidInputError, match="damaged"):
        perturb_file(city(), layer, tmp_path / "out.parquet", Options(copy=("name",)))


def test_a_huge_value_is_refused_in_bounded_memory(layer):
    edited(layer, "UPDATE points SET geom = zeroblob(300000000) WHERE fid = 7")
    script = "import sys; from metricdp.perturb.points import read_places; read_places(sys.argv[1])"
    answer = subprocess.run(
        [sys.executable, "-c", script, str(layer)],
        capture_output=True, text=True, check=False, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30)),
    )  # fmt: skip
    assert "InvalidInputError" in answer.stderr.splitlines()[-1], answer.stderr


@pytest.mark.parametrize("seed", range(40))
def test_damaged_pages_end_in_an_error_that_quotes_nothing(layer, tmp_path, seed):
    rng = np.random.default_rng(seed)
    content = np.frombuffer(layer.read_bytes(), dtype=np.uint8).copy()
    places = rng.integers(16, len(content), rng.choice([1, 4, 64]))
    content[places] = rng.integers(0, 256, len(places))
    if seed % 5 == 0:
        content = content[: rng.integers(0, len(content))]
    layer.write_bytes(content.tobytes())
    with contextlib.suppress(mdp.InvalidInputError):
        places = read_places(layer)
        assert len(places.kept) <= 400 * 2


def test_a_page_that_is_used_again_and_again_is_found(layer):
    """A leaf of the table that stands for another one would give its rows twice."""
    with contextlib.closing(sqlite3.connect(layer)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'points'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    content = bytearray(layer.read_bytes())
    start = (root - 1) * size
    assert content[start] == 5, "the layer should be larger than a page"
    first = int.from_bytes(content[start + 12 : start + 14], "big")
    last = content[start + 8 : start + 12]
    content[start + first : start + first + 4] = last
    layer.write_bytes(content)
    with pytest.raises(mdp.InvalidInputError, match="damaged"):
        open_source(layer)


VRT = '<OGRVRTDataSource><OGRVRTLayer name="points"><SrcDataSource>{}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>'


def test_a_file_of_another_driver_is_not_opened(layer, tmp_path):
    """GDAL tells formats by their content, and some lead to other files and into the network."""
    (tmp_path / "vrt.gpkg").write_text(VRT.format(layer))
    with pytest.raises(mdp.InvalidInputError, match="damaged or cut off"):
        open_source(tmp_path / "vrt.gpkg")
    edited(layer, "PRAGMA application_id = 0")
    with pytest.raises(mdp.InvalidInputError, match="no GeoPackage"):
        open_source(layer)


@pytest.mark.parametrize("name", ["a;b.gpkg", "a!b.gpkg", "a.zip!b.gpkg", "a\nb.gpkg"])
def test_a_name_never_leads_to_another_file(layer, tmp_path, name):
    shutil.copy(layer, tmp_path / name)
    with pytest.raises(mdp.InvalidInputError, match="rename it"):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["/vsicurl/http://127.0.0.1:9/a.gpkg", "/vsimem/a.gpkg", "GPKG:points.gpkg"])
def test_names_of_gdal_are_names_of_no_file(name):
    with pytest.raises(FileNotFoundError):
        open_source(name)
    with pytest.raises(mdp.InvalidInputError, match="from a URL"):
        open_source("https://example.org/a.gpkg")


def test_nothing_is_written_beside_the_file(layer, tmp_path):
    with contextlib.closing(sqlite3.connect(layer)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE other (a)")
        database.commit()
    before = layer.read_bytes()
    assert len(read_places(layer).points) == 400
    assert layer.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["points.gpkg"]


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
def test_a_file_that_is_being_written_is_refused(layer, ending):
    layer.with_name(layer.name + ending).write_bytes(b"x")
    with pytest.raises(mdp.InvalidInputError, match="a program is writing it"):
        open_source(layer)
