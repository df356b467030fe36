"""Files of points to files of outputs: every format, whole or not at all, and never the true coordinates."""

import gzip
import io
import json
import struct
import subprocess
import sys
import traceback

import geopandas
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import shapely

import cli_tools
import metricdp as mdp
import perturb_tools
from metricdp.perturb import Options, limits, perturb_file, perturb_folder
from metricdp.perturb.formats import Sink, geojson, json_lines, json_values, open_source, sink_kind
from metricdp.perturb.formats.streams import share_read
from metricdp.perturb.parts import Parts
from perturb_tools import CENTRE, city, nearest, plane, points

ROWS = 1000
SUFFIXES = [
    "csv",
    "csv.gz",
    "tsv.xz",
    "jsonl",
    "ndjson.zst",
    "parquet",
    "geoparquet",
    "geojson",
    "geojson.bz2",
    "arrow",
]
# The other endings, which take the same ways.
MORE_SUFFIXES = ["tsv", "csv.bz2", "csv.xz", "csv.zst", "tsv.gz", "jsonl.gz", "json.zst", "pq", "feather", "ipc"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Make files of a thousand rows as long as others of millions."""
    for sink in (Sink, geojson.GeoJsonSink, json_lines.JsonLinesSink):
        monkeypatch.setattr(sink, "rows_at_once", 200)
    monkeypatch.setattr(json_values, "ROWS", 50)
    for name, size in {"PART_ROWS": 200, "BATCH_ROWS": 64, "READ_BYTES": 1000, "LONGEST_LINE": 5000}.items():
        monkeypatch.setattr(limits, name, size)


def frame(rows=ROWS, gaps=True):
    """Points with a few gaps, ids that look like numbers, and names that are hard to quote."""
    lonlat = CENTRE.to_lonlat(points(rows))
    table = pd.DataFrame({"id": [f"{n:05}" for n in range(rows)], "lon": lonlat[:, 0], "lat": lonlat[:, 1]})
    table["note"] = [f'näme "{n}",\nline' if n % 7 == 0 else "" for n in range(rows)]
    if gaps:
        table.loc[table.index % 10 == 3, "lon"] = None
    return table


def expected(table):
    xy = np.full((len(table), 2), np.nan)
    known = table[["lon", "lat"]].notna().all(axis=1).to_numpy()
    xy[known] = CENTRE.to_xy_km(table["lon"][known], table["lat"][known])
    return nearest(xy)


def as_geometries(table):
    empty = table["lon"].isna()
    shapes = [None if gap else shapely.Point(x, y) for gap, x, y in zip(empty, table["lon"], table["lat"], strict=True)]
    return geopandas.GeoDataFrame(table[["id", "note"]], geometry=shapes, crs=4326)


def write(table, path):
    """Write points with other writers than ours."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    kind = path.name.split(".")[1]
    if kind in ("csv", "tsv"):
        with perturb_tools.packed(path, "wb") as stream:
            options = pyarrow.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
            pyarrow.csv.write_csv(arrow, stream, options)
    elif kind in ("jsonl", "ndjson"):
        with perturb_tools.packed(path, "wb") as stream:
            stream.write(table.to_json(orient="records", lines=True, double_precision=15).encode())
    elif kind in ("parquet", "pq"):
        pyarrow.parquet.write_table(arrow, path, row_group_size=150)
    elif kind == "geoparquet":
        as_geometries(table).to_parquet(path, write_covering_bbox=True)
    elif kind in ("geojson", "json"):
        as_geometries(table).to_file(path.with_name("plain.geojson"), driver="GeoJSON")
        with perturb_tools.packed(path, "wb") as stream:
            stream.write(path.with_name("plain.geojson").read_bytes())
        path.with_name("plain.geojson").unlink()
    else:
        with pa.ipc.new_file(path, arrow.schema) as writer:
            writer.write_table(arrow, 130)
    return path


def read(path):
    """Read outputs with other readers than ours: ids, places, and what was copied."""
    kind = path.name.split(".")[1]
    if kind in ("csv", "tsv"):
        with perturb_tools.packed(path, "rb") as stream:
            table = pd.read_csv(
                io.BytesIO(stream.read()),
                sep="\t" if kind == "tsv" else ",",
                dtype={"id": str, "note": str, "lon": str, "lat": str},
                keep_default_na=False,
                na_values={"output_id": "", "lon": "", "lat": ""},
            )
    elif kind in ("jsonl", "ndjson"):
        with perturb_tools.packed(path, "rb") as stream:
            lines = stream.read().decode().split("\n")
        assert lines.pop() == ""
        table = pd.DataFrame(
            [json.loads(line) for line in lines], columns=None if lines else ["output_id", "lon", "lat"]
        )
        table = table.astype({"lon": float, "lat": float})
    elif kind in ("parquet", "pq", "arrow", "feather", "ipc"):
        arrow = pyarrow.parquet.read_table(path) if kind[0] == "p" else pa.ipc.open_file(path).read_all()
        if "geometry" not in arrow.schema.names:
            return arrow.to_pandas()
        table = geopandas.GeoDataFrame.from_arrow(arrow)
    elif kind == "geoparquet":
        table = geopandas.read_parquet(path)
    else:
        with perturb_tools.packed(path, "rb") as stream:
            table = geopandas.read_file(io.BytesIO(stream.read()))
    if "geometry" in table:
        table["lon"], table["lat"] = table.geometry.x, table.geometry.y
    return table


def check(table, answer):
    ids = answer["output_id"].fillna(-1).astype(int).to_numpy()
    assert np.array_equal(ids, expected(table))
    there = CENTRE.to_lonlat(plane().outputs)[ids]
    there[ids < 0] = np.nan
    # Readers of CSV round numbers; Python does not.
    places = np.array([[float(value) for value in answer[name]] for name in ("lon", "lat")]).T
    assert np.array_equal(places, there, equal_nan=True)


@pytest.mark.parametrize("given", SUFFIXES)
@pytest.mark.parametrize("wanted", SUFFIXES)
def test_from_every_format_to_every_format(tmp_path, given, wanted):
    table = frame()
    source, target = write(table, tmp_path / f"in.{given}"), tmp_path / f"out.{wanted}"
    summary = perturb_file(city(), source, target, Options(copy=("id", "note")))
    assert (summary.counts.rows_in, summary.counts.rows_out, summary.counts.nulls) == (ROWS, ROWS, 100)
    answer = read(target)
    check(table, answer)
    assert answer["id"].tolist() == table["id"].tolist()
    assert answer["note"].tolist() == table["note"].tolist()
    assert sorted(tmp_path.iterdir()) == sorted([source, target])


@pytest.mark.parametrize("suffix", MORE_SUFFIXES)
def test_from_the_other_endings_to_themselves(tmp_path, suffix):
    table = frame()
    source, target = write(table, tmp_path / f"in.{suffix}"), tmp_path / f"out.{suffix}"
    perturb_file(city(), source, target, Options(copy=("id", "note")))
    answer = read(target)
    check(table, answer)
    assert answer["id"].tolist() == table["id"].tolist()
    assert answer["note"].tolist() == table["note"].tolist()
    assert sorted(tmp_path.iterdir()) == sorted([source, target])


def test_geoparquet_stays_geoparquet_without_the_true_bounding_box(tmp_path):
    source, target = write(frame(), tmp_path / "in.geoparquet"), tmp_path / "out.geoparquet"
    perturb_file(city(), source, target, Options(copy="all"))
    answer = geopandas.read_parquet(target)
    assert answer.crs == geopandas.read_parquet(source).crs
    assert list(answer.columns) == ["output_id", "geometry", "id", "note"]
    assert "bbox" not in json.loads(pyarrow.parquet.read_schema(target).metadata[b"geo"])["columns"]["geometry"]


def test_geoparquet_with_structs(tmp_path):
    as_geometries(frame(gaps=False)).to_parquet(tmp_path / "in.parquet", geometry_encoding="geoarrow")
    perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.csv", Options(copy=("id",)))
    check(frame(gaps=False), read(tmp_path / "out.csv"))


def test_long_rows_come_in_small_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 1500)
    write(frame(), tmp_path / "in.parquet")
    with open_source(tmp_path / "in.parquet") as source:
        sizes = {names: max(map(len, source.batches(("lon", "lat"), names))) for names in ((), ("note", "id"))}
    assert sizes[()] == 64
    assert 10 < sizes["note", "id"] < 64


def test_arrow_streams_and_one_huge_batch(tmp_path):
    table = frame(gaps=False)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as file, pa.ipc.new_stream(file, arrow.schema) as writer:
        writer.write_table(arrow)
    perturb_file(city(), tmp_path / "in.arrow", tmp_path / "out.feather")
    check(table, pd.read_feather(tmp_path / "out.feather"))


def test_row_groups_of_the_output_are_parts(tmp_path):
    source = write(frame(), tmp_path / "in.parquet")
    perturb_file(city(), source, tmp_path / "out.parquet")
    sizes = pyarrow.parquet.ParquetFile(tmp_path / "out.parquet").metadata
    assert sizes.num_row_groups in range(4, 7)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "geojson", "arrow"])
def test_no_rows_at_all(tmp_path, suffix):
    source = write(frame(), tmp_path / f"in.{suffix}")
    if suffix == "geojson":
        source.write_text('{"type": "FeatureCollection", "features": []}')
    else:
        write(frame().iloc[:0].astype({"lon": float, "lat": float}), source)
    summary = perturb_file(city(), source, tmp_path / f"out.{suffix}")
    assert summary.counts.rows_out == 0
    assert len(read(tmp_path / f"out.{suffix}")) == 0


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_batches_of_which_nothing_is_left(tmp_path, suffix):
    table = frame(gaps=False)
    away = (table.index // 100) % 2 == 1
    table.loc[away, "lon"] += 1
    source = write(table, tmp_path / f"in.{suffix}")
    summary = perturb_file(city(), source, tmp_path / f"out.{suffix}", Options(copy=("id",), outside="drop"))
    assert (summary.counts.rows_in, summary.counts.rows_out, summary.counts.outside) == (ROWS, ROWS // 2, ROWS // 2)
    answer = read(tmp_path / f"out.{suffix}")
    assert answer["id"].tolist() == table["id"][~away].tolist()
    nothing = perturb_file(
        city(),
        source,
        tmp_path / f"none.{suffix}",
        Options(columns=("lat", "lon") if "geo" not in suffix else None, outside="drop"),
        warn=lambda _: None,
    )
    assert len(read(tmp_path / f"none.{suffix}")) == nothing.counts.rows_out


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sinks_bear_empty_batches(tmp_path, suffix):
    """In pyarrow 15, the CSV writer writes the batch before an empty one twice."""
    some = pa.RecordBatch.from_pydict({"output_id": [0, 1, 2], "lon": [1.5, 2.5, None], "lat": [3.0, 4.0, None]})
    empty = some.slice(0, 0)
    kind = sink_kind(tmp_path / f"out.{suffix}")
    if kind.format.geometries:
        return
    with pa.OSFile(str(tmp_path / f"out.{suffix}"), "wb") as stream:
        sink = kind(stream, some.schema)
        for batches in ([some, empty, some], [empty], [], [empty, some, empty]):
            sink.write(pa.Table.from_batches(batches, some.schema))
        sink.close()
    assert read(tmp_path / f"out.{suffix}")["output_id"].tolist() == [0, 1, 2] * 3


# -- CSV as people write it

HEAD = "24.94,60.17"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("\ufefflon,lat\n24.94,60.17\n", 1),
        ("lon;lat;id\n24.94;60.17;a,b\n", 1),
        ("lon\tlat\r\n24.94\t60.17\r\n\r\n", 1),
        ('"lon","lat","a ""b"""\n"24.94","60.17",x\n', 1),
        ("lon,lat\n24.94,60.17", 1),
        ("lon,lat\n", 0),
        ("lon,lat", 0),
        ("lon,lat\n,\nNA,nan\nnull,\n 24.94, 60.17\n", 4),
        ('lon,lat,"two\nlines"\n24.94,60.17,"a\nb"\n24.94,60.17,"\n\n"\n', 2),
    ],
)
def test_csv_dialects(tmp_path, text, rows):
    (tmp_path / "in.csv").write_text(text, encoding="utf-8", newline="")
    summary = perturb_file(city(), tmp_path / "in.csv", tmp_path / "out.csv", Options(copy="all"))
    assert summary.counts.rows_in == summary.counts.rows_out == rows
    assert len(pd.read_csv(tmp_path / "out.csv")) == rows


def test_csv_of_one_column_keeps_empty_lines(tmp_path):
    line = mdp.fit(mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean"), epsilon=100, method="em")
    (tmp_path / "in.csv").write_text("x\n0.5\n\n3.5\n")
    perturb_file(line, tmp_path / "in.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "output_id,x\n0,1\n,\n1,3\n"
    for suffix in ("geojson", "geoparquet"):
        with pytest.raises(mdp.InvalidInputError, match="`target` must be"):
            perturb_file(line, tmp_path / "in.csv", tmp_path / f"out.{suffix}")
    assert len(list(tmp_path.iterdir())) == 2


def test_quoted_lines_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LONGEST_LINE", 300)
    table = frame()
    perturb_file(city(), write(table, tmp_path / "in.csv"), tmp_path / "out.csv", Options(copy=("note",)))
    answer = read(tmp_path / "out.csv")
    check(table, answer)
    assert answer["note"].tolist() == table["note"].tolist()


# -- what is wrong with files, told without telling what is in them

SECRET = "24.318273645"
SECRETS = (SECRET, SECRET[:-1], SECRET[3:])


def silent(error):
    """Whether nothing of a secret is in an error and its traceback."""
    return not any(secret in "".join(traceback.format_exception(error)) for secret in SECRETS)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "in.csv",
            f"lon,lat\n24.9,60.1\n{SECRET}°,60.1\n",
            r"row 2, column 'lon': a cell that should be a number is none",
        ),
        ("in.csv", f"lon,lat\n24.9,60.1\n{SECRET},60.1,7\n", r"row 2: it has not as many cells"),
        ("in.csv", f"{SECRET},60.1\n{SECRET},60.1\n", r"got numbers in the first line"),
        ("in.csv", f"at {SECRET},at 60.123\n{SECRET},60.1\n", r"got a table of …, …"),
        ("in.csv", "", r"a first line of column names, got none"),
        (
            "in.csv",
            b"lon,lat,id\n24.9,60.1,\xff" + SECRET.encode() + b"\n",
            r"row 1, column 'id': text that is not UTF-8",
        ),
        (
            "in.csv",
            f"lon,lat\n{SECRET},inf\n",
            r"`lon, lat` must be finite .*, got NaN or infinity in 1 rows, the first of them row 1",
        ),
        (
            "in.csv.gz",
            gzip.compress(b"lon,lat\n" + f"{SECRET},60.1\n".encode() * 999, mtime=0)[:-20],
            r"damaged or cut off",
        ),
        ("in.csv.gz", f"lon,lat\n{SECRET},60.1\n", r"damaged or cut off"),
        ("in.parquet", f"PAR1{SECRET}", r"damaged or cut off"),
        ("in.arrow", f"ARROW1{SECRET}", r"damaged or cut off"),
        (
            "in.geojson",
            f'{{"features": [{{"geometry": {{"type": "Point", "coordinates": [{SECRET}',
            r"no JSON, or that ends too soon, at feature 1",
        ),
        (
            "in.geojson",
            f'{{"features": [{{"properties": {{}}, "geometry": {{"type": "Point", "coordinates": ["{SECRET}", 60]}}}}]}}',
            r"no point of two numbers at feature 1",
        ),
        (
            "in.geojson",
            f'{{"features": [{{"geometry": {{"type": "LineString", "coordinates": [[{SECRET}, 60]]}}}}]}}',
            r"no point of two numbers at feature 1",
        ),
        (
            "in.geojson",
            f'{{"features": [{{"geometry": null}}, {SECRET}]}}',
            r"something else than a feature at feature 2",
        ),
        ("in.geojson", f'{{"type": "Point", "coordinates": [{SECRET}, 60]}}', r"no JSON, or that ends too soon"),
        ("in.geojson", f'{{"features": [{{"geometry": null}},]}} {SECRET}', r"at feature 2"),
        (
            "in.geojson",
            f'{{"features": [{{"properties": "{SECRET}"}}]}}',
            r"something else than a feature at feature 1",
        ),
        (
            "in.geojson",
            f'{{"features": [{{"geometry": {{"type": "Point", "coordinates": [1{"0" * 400}, 60]}}}}]}}',
            r"must be readable",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("in.") else "",
)
def test_damaged_files(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for resume in (False, True):
        with pytest.raises(mdp.InvalidInputError, match=words) as caught:
            perturb_file(
                city(),
                tmp_path / name,
                tmp_path / "out.csv",
                Options(copy=("id",) if b"id" in (tmp_path / name).read_bytes()[:12] else ()),
                resume=resume,
                warn=lambda _: None,
            )
        assert silent(caught.value)
        assert not (tmp_path / "out.csv").exists()
        # Parts, of which there are none that hold anything, wait only if asked to.
        assert Parts(tmp_path / "out.csv").exists() <= resume


def test_damaged_pages(tmp_path):
    source = tmp_path / "in.parquet"
    table = pa.Table.from_pandas(frame(50_000, gaps=False), preserve_index=False)
    pyarrow.parquet.write_table(table, source, row_group_size=5000, write_page_checksum=True)
    content = bytearray(source.read_bytes())
    # The seventh row group's longitudes.
    column = pyarrow.parquet.ParquetFile(source).metadata.row_group(6).column(1)
    place = column.dictionary_page_offset or column.data_page_offset
    content[place + column.total_compressed_size // 2] ^= 255
    source.write_bytes(content)
    with pytest.raises(mdp.InvalidInputError, match=r"trouble at some row after (2\d|30),\d+: it is damaged"):
        perturb_file(city(), source, tmp_path / "out.parquet")
    source.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(mdp.InvalidInputError, match="damaged or cut off"):
        perturb_file(city(), source, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == [source]


def test_mixed_types_in_a_folder(tmp_path):
    (tmp_path / "in").mkdir()
    write(frame(20), tmp_path / "in" / "a.parquet")
    write(frame(20).astype({"lon": str}), tmp_path / "in" / "b.parquet")
    with pytest.raises(
        mdp.InvalidInputError,
        match=r"1 of 2 files failed.*b.parquet: `lon` must be a column of numbers, got type (large_)?string",
    ):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out")
    assert len(pd.read_parquet(tmp_path / "out" / "a.parquet")) == 20
    write(frame(20), tmp_path / "in" / "b.parquet")
    with pytest.raises(mdp.InvalidInputError, match="differs in its input; give `resume` the same"):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out", resume=True)


def test_missing_and_forbidden_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        perturb_file(city(), tmp_path / "in.csv", tmp_path / "out.csv")
    with pytest.raises(mdp.InvalidInputError, match="`source` must be '-' or a file that ends in"):
        perturb_file(city(), tmp_path / "in.xlsx", tmp_path / "out.csv")
    with pytest.raises(mdp.InvalidInputError, match="`target` must be '-' or a file that ends in"):
        perturb_file(city(), tmp_path / "in.csv", tmp_path / "out")
    with pytest.raises(mdp.InvalidInputError, match="a file in a folder that exists"):
        perturb_file(city(), tmp_path / "in.csv", tmp_path / "new" / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_nested_columns_do_not_go_into_csv(tmp_path):
    table = pa.table({"lon": [24.94], "lat": [60.17], "tags": [[1, 2]]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(
        mdp.InvalidInputError, match="`copy` must be columns of numbers, texts or times where CSV is written, got tags"
    ):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.csv", Options(copy=("tags",)))
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.geojson", Options(copy=("tags",)))
    assert json.loads((tmp_path / "out.geojson").read_text())["features"][0]["properties"]["tags"] == [1, 2]


# -- going on


class Cut(RuntimeError):
    """Stands for whatever ends a job before its time."""


def cut_after(rows):
    def progress(done, _):
        if done >= rows:
            raise Cut

    return progress


def everything_in(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_resume_draws_no_row_again(tmp_path, suffix):
    table = frame()
    source, target = write(table, tmp_path / f"in.{suffix}"), tmp_path / f"out.{suffix}"
    options = Options(copy=("id",))
    with pytest.raises(Cut):
        perturb_file(city(), source, target, options, resume=True, progress=cut_after(500))
    assert not target.exists()
    parts = Parts(target).folder
    before = {path.name: path.read_bytes() for path in parts.glob("part-*")}
    assert len(before) >= 2
    assert not (parts / "draft").exists()
    with pytest.raises(mdp.InvalidInputError, match="has an unfinished run; go on with `resume`"):
        perturb_file(city(), source, target, options)
    with pytest.raises(mdp.InvalidInputError, match="differs in its options; give `resume` the same"):
        perturb_file(city(), source, target, resume=True)
    assert {path.name: path.read_bytes() for path in parts.glob("part-*")} == before
    summary = perturb_file(city(), source, target, options, resume=True)
    assert 500 <= summary.resumed < ROWS
    assert (summary.counts.rows_in, summary.counts.rows_out, summary.counts.nulls) == (ROWS, ROWS, 100)
    answer = read(target)
    check(table, answer)
    assert answer["id"].tolist() == table["id"].tolist()
    assert sorted(tmp_path.iterdir()) == sorted([source, target])
    assert perturb_file(city(), source, target, options, resume=True).already_complete


def test_resume_keeps_the_very_draws(tmp_path, monkeypatch):
    """With an even choice, drawing again would show."""
    uniform = mdp.fit(
        mdp.Problem([[0.0], [1.0]], np.linspace(0, 1, 50)[:, None], "euclidean"), epsilon=1e-6, method="em"
    )
    pyarrow.parquet.write_table(pa.table({"x": np.zeros(1000)}), tmp_path / "in.parquet")
    with pytest.raises(Cut):
        perturb_file(uniform, tmp_path / "in.parquet", tmp_path / "out.parquet", resume=True, progress=cut_after(600))
    parts = sorted(Parts(tmp_path / "out.parquet").folder.glob("part-*"))
    drawn = [n for path in parts for n in pa.ipc.open_file(path).read_all()["output_id"].to_pylist()]
    perturb_file(uniform, tmp_path / "in.parquet", tmp_path / "out.parquet", resume=True)
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["output_id"].to_pylist()[: len(drawn)] == drawn


def test_a_cut_after_the_output_has_its_name_changes_nothing(tmp_path, monkeypatch):
    source = write(frame(), tmp_path / "in.csv")
    with monkeypatch.context() as context:
        context.setattr(Parts, "discard", lambda self: self.release())
        perturb_file(city(), source, tmp_path / "out.csv")
    before = (tmp_path / "out.csv").read_bytes()
    summary = perturb_file(city(), source, tmp_path / "out.csv", resume=True)
    assert summary.resumed == ROWS
    assert (tmp_path / "out.csv").read_bytes() == before
    assert not Parts(tmp_path / "out.csv").exists()


def test_an_error_leaves_nothing_and_an_interruption_leaves_parts(tmp_path):
    source = write(frame(), tmp_path / "in.parquet")
    with pytest.raises(Cut):
        perturb_file(city(), source, tmp_path / "out.parquet", progress=cut_after(400))
    assert list(tmp_path.iterdir()) == [source]

    def interrupt(rows, _):
        if rows >= 400:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perturb_file(city(), source, tmp_path / "out.parquet", progress=interrupt)
    assert perturb_file(city(), source, tmp_path / "out.parquet", resume=True).resumed >= 400


def test_outputs_are_not_replaced_unasked(tmp_path):
    source = write(frame(), tmp_path / "in.csv")
    (tmp_path / "out.csv").write_text("mine")
    with pytest.raises(mdp.InvalidInputError, match=r"out\.csv exists; replace it with `overwrite`"):
        perturb_file(city(), source, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "mine"
    with pytest.raises(mdp.InvalidInputError, match="`overwrite` starts anew; use one of them"):
        perturb_file(city(), source, tmp_path / "out.csv", overwrite=True, resume=True)
    perturb_file(city(), source, tmp_path / "out.csv", overwrite=True)
    check(frame(), read(tmp_path / "out.csv"))


def test_one_run_at_a_time(tmp_path):
    source = write(frame(), tmp_path / "in.csv")
    first = Parts(tmp_path / "out.csv")
    first.begin({})
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(mdp.InvalidInputError, match="Another run is writing the output"):
            perturb_file(city(), source, tmp_path / "out.csv", **options)
    first.release()
    perturb_file(city(), source, tmp_path / "out.csv", overwrite=True)


def test_damaged_parts_are_not_used(tmp_path):
    source = write(frame(), tmp_path / "in.csv")
    with pytest.raises(Cut):
        perturb_file(city(), source, tmp_path / "out.csv", resume=True, progress=cut_after(400))
    part = next(Parts(tmp_path / "out.csv").folder.glob("part-*"))
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(mdp.InvalidInputError, match="damaged; start anew with `overwrite`"):
        perturb_file(city(), source, tmp_path / "out.csv", resume=True)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "geojson", "arrow", "geoparquet"])
def test_true_coordinates_are_in_no_file(tmp_path, suffix):
    """Neither as text nor as bytes, in outputs and in what a cut leaves behind; unless asked for."""
    xy = points(ROWS)
    lonlat = CENTRE.to_lonlat(xy)
    lonlat[:, 0] = float(SECRET) + np.arange(ROWS) * 1e-12
    table = pd.DataFrame({"id": [str(n) for n in range(ROWS)], "lon": lonlat[:, 0], "lat": lonlat[:, 1], "note": ""})
    source = write(table, tmp_path / f"in.{suffix}")
    folder = tmp_path / "out"
    folder.mkdir()
    secrets = [*(value.encode() for value in SECRETS), *(struct.pack("<d", x) for x in lonlat[:50].ravel())]
    assert any(secret in everything_in(tmp_path) for secret in secrets) or suffix in ("parquet", "geoparquet")
    with pytest.warns(UserWarning, match="outside the box"), pytest.raises(Cut):
        perturb_file(
            city(), source, folder / f"out.{suffix}", Options(copy="all"), resume=True, progress=cut_after(400)
        )
    left = everything_in(folder)
    assert left
    assert not any(secret in left for secret in secrets)
    with pytest.warns(UserWarning, match="outside the box"):
        perturb_file(city(), source, folder / f"out.{suffix}", Options(copy="all"), resume=True)
    assert not any(secret in everything_in(folder) for secret in secrets)
    with pytest.warns(UserWarning, match="outside the box"):
        perturb_file(city(), source, folder / "kept.arrow", Options(keep_input=True))
    assert struct.pack("<d", lonlat[0, 0]) in everything_in(folder)


def test_people_have_budgets(tmp_path):
    table = frame(gaps=False)
    table["person"] = ["ann", "bob"] * (ROWS // 2)
    source = write(table, tmp_path / "in.parquet")
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=400 * 300) as ledger:
        options = Options(user_column="person")
        summary = perturb_file(city(), source, tmp_path / "out.parquet", options, ledger=ledger)
        assert summary.counts.refused == ROWS - 2 * 300
        assert ledger.remaining("ann") < city().claimed_epsilon
        with pytest.raises(mdp.InvalidInputError, match="A `ledger` needs `user_column`, the column that"):
            perturb_file(city(), source, tmp_path / "out2.parquet", ledger=ledger)
        with pytest.raises(
            mdp.InvalidInputError, match="`user_column` must be among the columns id, lon, lat, note, person, got 'who'"
        ):
            perturb_file(city(), source, tmp_path / "out2.parquet", Options(user_column="who"), ledger=ledger)
        with pytest.raises(mdp.InvalidInputError, match="`ledger` cannot be used with `cluster`"):
            perturb_folder(city(), tmp_path, tmp_path / "out", options, ledger=ledger, cluster="tcp://nowhere:1")
    answer = pd.read_parquet(tmp_path / "out.parquet")
    assert answer.columns.tolist() == ["output_id", "lon", "lat"]
    assert answer["output_id"].notna().tolist() == [True] * 600 + [False] * 400


# -- folders


def test_a_folder_gives_a_folder(tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    names = ["a.parquet", "b.csv.gz", "deep/c.geojson"]
    for name in names:
        write(frame(), tmp_path / "in" / name)
    for name in (".hidden.csv", "_SUCCESS"):
        (tmp_path / "in" / name).touch()
    summary = perturb_folder(city(), tmp_path / "in", tmp_path / "out")
    assert (summary.files, summary.counts.rows_in) == (3, 3 * ROWS)
    for name in names:
        check(frame(), read(tmp_path / "out" / name))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.parquet", "b.csv.gz", "deep"]
    assert perturb_folder(city(), tmp_path / "in", tmp_path / "out", resume=True).already_complete
    with pytest.raises(mdp.InvalidInputError, match="a new or an empty folder"):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "read.me").touch()
    with pytest.raises(mdp.InvalidInputError, match=r"a folder of files that end in .*, got read\.me"):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out2")


def test_a_folder_goes_on_file_by_file(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(4):
        write(frame(), tmp_path / "in" / f"{number}.parquet")
    with pytest.raises(Cut):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out", progress=cut_after(2 * ROWS))
    done = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.parquet")}
    assert len(done) == 2
    with pytest.raises(mdp.InvalidInputError, match="has an unfinished run; go on with `resume`"):
        perturb_folder(city(), tmp_path / "in", tmp_path / "out")
    summary = perturb_folder(city(), tmp_path / "in", tmp_path / "out", resume=True)
    assert (summary.resumed, summary.counts.rows_in) == (2 * ROWS, 4 * ROWS)
    assert all((tmp_path / "out" / name).read_bytes() == content for name, content in done.items())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{number}.parquet" for number in range(4)]


# -- the command


def run(*arguments, cwd, stdin=None):
    """Run the command: in this process, or in one of its own where it reads what is piped into it."""
    if stdin is None:
        return cli_tools.call("perturb", *arguments, cwd=cwd)
    return subprocess.run(
        [sys.executable, "-m", "metricdp", "perturb", *map(str, arguments)],
        cwd=cwd, input=stdin, capture_output=True, encoding="utf-8", check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    city().save(tmp_path / "city.mdp")
    write(frame(), tmp_path / "in.csv")
    return tmp_path


def test_command_and_its_summary(folder):
    answer = run("city.mdp", "in.csv", "out.parquet", "--copy", "id", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["rows_in"] == summary["rows_out"] == ROWS
    assert summary["nulls"] == 100
    assert summary["sha256"] == mdp.files.content_hash(folder / "city.mdp")
    assert summary["rows_per_second"] > 0
    check(frame(), pd.read_parquet(folder / "out.parquet"))
    again = run("city.mdp", "in.csv", "out.parquet", "--copy", "id", cwd=folder)
    assert (again.returncode, again.stdout) == (2, "")
    assert "out.parquet exists; replace it with `--overwrite`, or choose another `OUT`." in again.stderr
    spoken = run("city.mdp", "in.csv", "out.parquet", "--overwrite", cwd=folder)
    assert "1,000 rows written to out.parquet" in spoken.stdout
    assert "100 had no point and have no output" in spoken.stdout
    assert spoken.stderr == ""


def test_stdin_to_stdout(folder):
    text = (folder / "in.csv").read_text()
    answer = run("city.mdp", "-", "-", "--copy", "id", cwd=folder, stdin=text)
    assert answer.returncode == 0, answer.stderr
    table = pd.read_csv(io.StringIO(answer.stdout), dtype={"id": str, "lon": str, "lat": str})
    check(frame(), table)
    assert table["id"].tolist() == frame()["id"].tolist()
    run("city.mdp", "-", "out.parquet", cwd=folder, stdin=text)
    check(frame(), pd.read_parquet(folder / "out.parquet"))
    for options, words in (
        ("--json", "`--json` cannot be used where the output goes to stdout"),
        ("--resume", "not with stdin or stdout"),
    ):
        refused = run("city.mdp", "-", "-", options, cwd=folder)
        # With --json an error is a document on stdout; there are no rows in either case.
        said = json.loads(refused.stdout)["error"]["message"] if options == "--json" else refused.stderr
        assert words in said
        assert (refused.returncode, refused.stdout if options != "--json" else "") == (2, "")


def test_swapped_columns_in_the_command(folder, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_ROWS", 100)
    lonlat = CENTRE.to_lonlat(points(100))
    table = pd.DataFrame({"lon": lonlat[:, 1], "lat": lonlat[:, 0]})
    table.iloc[91:] = lonlat[91:]
    table.to_csv(folder / "swapped.csv", index=False)
    answer = run("city.mdp", "swapped.csv", "out.csv", cwd=folder)
    assert answer.returncode == 0
    assert answer.stderr.strip() == "warning: 91 % of points fall outside the box; are columns swapped?"
    assert "91 were outside the box" in answer.stdout
    assert "91 were outside the box" in run("city.mdp", "swapped.csv", "-", cwd=folder).stderr
    refused = run("city.mdp", "swapped.csv", "out2.csv", "--outside", "error", cwd=folder)
    assert refused.returncode == 2
    assert "91 % of points fall outside the box; are columns swapped?" in refused.stderr
    assert not (folder / "out2.csv").exists()


def test_budgets_in_the_command(folder):
    table = frame(100, gaps=False)
    table["person"] = "ann"
    write(table, folder / "people.csv")
    options = ("--user-column", "person", "--ledger", "budgets.db", "--max-epsilon", 400 * 30)
    answer = run("city.mdp", "people.csv", "out.csv", *options, "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["refused"] == 70
    repeated = run("city.mdp", "people.csv", "out2.csv", *options, "--beyond", "repeat-last", "--json", cwd=folder)
    assert json.loads(repeated.stdout)["refused"] == 0
    assert len(set(pd.read_csv(folder / "out2.csv")["output_id"])) == 1
    refused = run("city.mdp", "people.csv", "out3.csv", "--max-epsilon", 1, cwd=folder)
    assert "`--max-epsilon` must be given together with --ledger" in refused.stderr


def test_the_command_refuses(folder):
    not_private = mdp.fit(mdp.Problem([[0.0, 0.0], [4.0, 4.0]], [[1.0, 1.0]], "euclidean"), epsilon=1, method="em")
    assert not_private.projection is None
    not_private.save(folder / "flat.mdp")
    for arguments, words in (
        (("in.csv", "out.csv", "--cluster", "tcp://nowhere:1"), "`--cluster` must be used with a folder"),
        ((".", "out", "--overwrite"), "`--overwrite` must be used with a single file"),
        (("in.csv", "out.csv", "--columns", "a,b"), "`--columns` must be among the columns id, lon, lat, note"),
        (("missing.csv", "out.csv"), "No such file"),
    ):
        answer = run("city.mdp", *arguments, cwd=folder)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert answer.stderr.startswith("error:")
        assert words in answer.stderr
    answer = run("flat.mdp", "in.csv", "out.csv", cwd=folder)
    assert "it has no projection" in answer.stderr


def test_sources_know_how_far_they_are(tmp_path):
    for suffix in SUFFIXES:
        with open_source(write(frame(), tmp_path / f"in.{suffix}")) as source:
            names = ("geometry",) if suffix == "geoparquet" else ("lon", "lat")
            shares = [source.fraction() for _ in source.batches(names, ())]
            assert all(0 < share <= 1 for share in shares)
            assert shares == sorted(shares)


def test_a_file_that_its_reader_closes_meanwhile_tells_no_share():
    """Arrow's thread closes a file at its end, perhaps while somebody asks how far it is."""
    raw = pa.BufferReader(b"abcd")
    raw.read(1)
    assert share_read(raw) == 0.25

    class Closing:
        """Open when looked at, closed when asked."""

        closed = False

        def size(self):
            raw.close()
            return 4

        def tell(self):
            return raw.tell()

    assert share_read(Closing()) is None
