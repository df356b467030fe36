"""Files that people really have: encodings, spellings of null, nested columns, partition folders, types that stay."""

import datetime as dt
import decimal
import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cli_tools
import metricdp as mdp
import perturb_tools
from metricdp.perturb import Options, perturb_batch, perturb_file, perturb_folder, perturb_stream
from metricdp.perturb.formats import FORMATS, open_source, suffixes
from metricdp.perturb.points import read_places
from perturb_tools import CENTRE, city, nearest, points, wkb

ROWS = 40
LONLAT = CENTRE.to_lonlat(points(ROWS))
IDS = nearest(points(ROWS)).tolist()


def ids(path):
    return pd.read_csv(path)["output_id"].tolist()


# -- encodings

TEXT = "lon,lat,näme\n" + "".join(f"{lon!r},{lat!r},Töölö {n}\n" for n, (lon, lat) in enumerate(LONLAT.tolist()))


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.xz"])
@pytest.mark.parametrize(
    ("encoding", "mark", "named"),
    [
        ("utf-8", "\ufeff", None),
        ("utf-16-le", "\ufeff", None),
        ("utf-16-be", "\ufeff", None),
        ("utf-32-le", "\ufeff", None),
        ("utf-16-le", "", "utf-16-le"),
        ("utf-16-be", "", "UTF_16BE"),
        ("utf-16-le", "\ufeff", "latin-1"),
        ("latin-1", "", "latin-1"),
        ("cp1252", "", "cp1252"),
        ("mac-roman", "", "mac-roman"),
        ("utf-8", "\ufeff", "utf-8"),
    ],
)
def test_encodings(tmp_path, suffix, encoding, mark, named):
    with perturb_tools.packed(tmp_path / f"in.{suffix}", "wb") as file:
        file.write((mark + TEXT).encode(encoding))
    perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out.csv", Options(copy="all", encoding=named))
    answer = pd.read_csv(tmp_path / "out.csv")
    assert answer["output_id"].tolist() == IDS
    assert answer["näme"].tolist() == [f"Töölö {n}" for n in range(ROWS)]


@pytest.mark.parametrize("suffix", ["jsonl", "geojson"])
def test_encodings_of_json(tmp_path, suffix):
    (tmp_path / "in.csv").write_text(TEXT, encoding="utf-8")
    perturb_file(city(), tmp_path / "in.csv", tmp_path / f"in.{suffix}", Options(copy="all"))
    text = (tmp_path / f"in.{suffix}").read_text(encoding="utf-8")
    for encoding, named in (("utf-16", None), ("latin-1", "latin-1")):
        (tmp_path / f"in.{suffix}").write_bytes(text.encode(encoding))
        options = Options(copy=("näme",), encoding=named)
        perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out.csv", options, overwrite=True)
        assert pd.read_csv(tmp_path / "out.csv")["näme"].tolist() == [f"Töölö {n}" for n in range(ROWS)]
    with pytest.raises(mdp.InvalidInputError, match="say what it is with `encoding`"):
        perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out.csv", Options(copy=("näme",)), overwrite=True)


def test_the_option_is_named_where_it_is_missing_and_checked_where_it_is_given(tmp_path):
    city().save(tmp_path / "city.mdp")
    (tmp_path / "in.csv").write_bytes(TEXT.encode("latin-1"))
    missing = cli_tools.call("perturb", "city.mdp", "in.csv", "out.csv", "--copy", "näme", cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "text that is not UTF-8; say what it is with `--encoding`, such as latin-1" in missing.stderr
    given = cli_tools.call(
        "perturb", "city.mdp", "in.csv", "out.csv", "--copy", "näme", "--encoding", "latin-1", cwd=tmp_path
    )
    assert given.returncode == 0, given.stderr
    assert ids(tmp_path / "out.csv") == IDS
    for wrong in ("klingon", "rot13", "zlib", "x\0y", ""):
        with pytest.raises(mdp.InvalidInputError, match="`encoding` must be a text encoding that Python knows"):
            Options(encoding=wrong)
    pyarrow.parquet.write_table(pa.table({"lon": [24.94], "lat": [60.17]}), tmp_path / "in.parquet")
    with pytest.raises(mdp.InvalidInputError, match=r"`encoding` must be given for text files only, .*\.parquet"):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out2.csv", Options(encoding="utf-8"))
    with pytest.raises(mdp.InvalidInputError, match="`encoding` must be given for text files only"):
        perturb_stream(city(), pa.table({"lon": [24.94], "lat": [60.17]}), encoding="utf-8")


# -- null, and texts as they were written


@pytest.mark.parametrize("spelling", ["", "NA", "N/A", "#N/A", "NULL", "null", "NaN", "nan", "None", "<NA>", r"\N"])
def test_spellings_of_null(tmp_path, spelling):
    """As a coordinate it is no point, as pandas reads it; as a copied text it stays what it is."""
    (tmp_path / "in.tsv").write_text(f"lon\tlat\tid\n24.94\t60.17\ta\n{spelling}\t60.17\t{spelling}\n")
    summary = perturb_file(city(), tmp_path / "in.tsv", tmp_path / "out.tsv", Options(copy=("id",)))
    assert summary.counts.nulls == 1
    if spelling != r"\N":
        assert pd.read_csv(tmp_path / "in.tsv", sep="\t")["lon"].isna().tolist() == [False, True]
    copied = pd.read_csv(tmp_path / "out.tsv", sep="\t", dtype=str, keep_default_na=False)
    assert copied["id"].tolist() == ["a", spelling]
    assert copied["output_id"][1] == ""


def test_texts_of_csv_stay_as_written(tmp_path):
    texts = ["007", "1.10", "1e3", "TRUE", " padded ", "2024-01-01", "٣", "0x1F", "-0", "1,5", 'a "b"', "two\nlines"]
    frame = pd.DataFrame({"lon": 24.94, "lat": 60.17, "text": texts})
    frame.to_csv(tmp_path / "in.csv", index=False)
    perturb_file(city(), tmp_path / "in.csv", tmp_path / "out.csv", Options(copy=("text",)))
    assert pd.read_csv(tmp_path / "out.csv", dtype=str)["text"].tolist() == texts
    with duckdb.connect() as database:
        found = database.sql(f"SELECT text FROM read_csv('{tmp_path / 'out.csv'}', all_varchar=true)").fetchall()
    assert [row[0] for row in found] == texts


# -- types of copied columns

ZONED = pa.timestamp("us", "Europe/Helsinki")
NOW = dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)
TYPED = {
    "int8": pa.array([1, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, 0], pa.uint64()),
    "decimal": pa.array([decimal.Decimal("1.10"), None], pa.decimal128(12, 2)),
    "zoned": pa.array([NOW, None], ZONED),
    "naive": pa.array([NOW.replace(tzinfo=None), None], pa.timestamp("ms")),
    "date": pa.array([NOW.date(), None]),
    "time": pa.array([NOW.time(), None], pa.time64("us")),
    "bool": pa.array([True, None]),
    "text": pa.array(["a", None]),
    "large": pa.array(["a", None], pa.large_string()),
    "category": pa.array(["a", None]).dictionary_encode(),
    "ordered": pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), ["low", "high"], ordered=True),
    "float": pa.array([0.1, None], pa.float32()),
    "duration": pa.array([dt.timedelta(1), None], pa.duration("s")),
}


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_copied_columns_keep_their_types(tmp_path, suffix):
    table = pa.table({"lon": [24.94, 24.95], "lat": [60.17, 60.18], **TYPED})
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
            writer.write_table(table)
    perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out.parquet", Options(copy="all"))
    before = pyarrow.parquet.read_table(tmp_path / "in.parquet") if suffix == "parquet" else table
    after = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    for name in TYPED:
        kind = before.schema.field(name).type
        if pa.types.is_dictionary(kind):
            # Parquet has 32 bits for the number of a value, whatever came in.
            kind = pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
        assert after.schema.field(name).type == kind, name
        assert after[name].to_pylist() == before[name].to_pylist(), name


def test_categories_stay_categories_over_many_row_groups(tmp_path):
    frame = pd.DataFrame(
        {"lon": LONLAT[:, 0], "lat": LONLAT[:, 1], "kind": pd.Categorical(["bus", "tram"] * (ROWS // 2))}
    )
    frame.to_parquet(tmp_path / "in.parquet", row_group_size=7)
    perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.parquet", Options(copy=("kind",)))
    answer = pd.read_parquet(tmp_path / "out.parquet")
    assert answer["kind"].dtype == "category"
    assert answer["kind"].tolist() == frame["kind"].tolist()


# -- columns inside of columns

PLACE = pa.struct([("lon", pa.float64()), ("lat", pa.float64()), ("device", pa.struct([("id", pa.string())]))])
NESTED = [{"lon": lon, "lat": lat, "device": {"id": f"d{n}"}} for n, (lon, lat) in enumerate(LONLAT.tolist())]
NESTED[3] = None
NESTED[5] = {"lon": None, "lat": 60.17, "device": None}
EXPECTED = [None if n in (3, 5) else number for n, number in enumerate(IDS)]
DEVICES = [None if n in (3, 5) else f"d{n}" for n in range(ROWS)]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_dotted_names_lead_into_structs(tmp_path, suffix):
    table = pa.table({"n": range(ROWS), "location": pa.array(NESTED, PLACE)})
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, tmp_path / "in.parquet", row_group_size=9)
    elif suffix == "arrow":
        with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
            writer.write_table(table, 9)
    else:
        lines = [json.dumps({"n": n, "location": place}) + "\n" for n, place in enumerate(NESTED)]
        (tmp_path / "in.jsonl").write_text("".join(lines))
    options = Options(columns=("location.lon", "location.lat"), copy=("location.device.id", "n"))
    perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out.parquet", options)
    answer = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert answer.schema.names == ["output_id", "lon", "lat", "location.device.id", "n"]
    assert answer["output_id"].to_pylist() == EXPECTED
    assert answer["location.device.id"].to_pylist() == DEVICES
    with pytest.raises(mdp.InvalidInputError, match=r"`columns` must be among the columns n, location"):
        wrong = Options(columns=("location.nothing.lon", "n.lat"))
        if suffix == "jsonl":
            wrong = Options(columns=("n.lon", "n.lat"))
        perturb_file(city(), tmp_path / f"in.{suffix}", tmp_path / "out2.parquet", wrong)


def test_of_a_struct_only_what_is_named_is_read(tmp_path):
    table = pa.table({"location": pa.array([dict(place or {}, note="x" * 1000) for place in NESTED])})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", use_dictionary=False)
    with open_source(tmp_path / "in.parquet", names=("location.lon",)) as source:
        sizes = [sum(sizes.data for sizes in source._columns(name)) for name in ("location.lon", "location")]
        batch = next(source.batches(("location.lon",), ()))
    assert batch.schema.names == ["location.lon"]
    assert 10 * sizes[0] < sizes[1]


def test_texts_inside_of_structs_over_many_row_groups(tmp_path):
    """pyarrow cannot read a batch of two row groups whose texts inside of a struct have different dictionaries."""
    table = pa.table({"lon": LONLAT[:, 0], "lat": LONLAT[:, 1], "location": pa.array(NESTED, PLACE)})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", row_group_size=9)
    perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.parquet", Options(copy=("location",)))
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet")["location"].to_pylist() == NESTED


def test_dotted_names_in_memory():
    table = pa.table({"location": pa.array(NESTED, PLACE)})
    names = ["location.lon", "location.lat"]
    answer = perturb_stream(city(), table, names, copy=["location.device.id"]).read_all()
    assert answer["output_id"].to_pylist() == EXPECTED
    batch = perturb_batch(city(), table.to_batches()[0], names, keep_input=True)
    assert batch.schema.names[-2:] == ["true_location.lon", "true_location.lat"]
    assert batch.column("true_location.lat").to_pylist()[5] == 60.17


def test_a_column_whose_own_name_has_dots_comes_first():
    table = pa.table({"a": pa.array([{"lon": 0.0, "lat": 0.0}]), "a.lon": [24.94], "a.lat": [60.17]})
    answer = perturb_stream(city(), table, ["a.lon", "a.lat"]).read_all()
    assert answer["output_id"].to_pylist() == nearest(np.reshape(CENTRE.to_xy_km(24.94, 60.17), (1, 2))).tolist()


@pytest.mark.parametrize("name", ["home.x", "bbox.xmin"])
def test_parts_of_geometries_are_not_copied(tmp_path, name):
    pair = pa.array([{"x": 24.9518273645, "y": 60.1}])
    box = pa.array([{"xmin": 24.9518273645}])
    mark = {"ARROW:extension:name": "geoarrow.point"}
    schema = pa.schema(
        [
            pa.field("lon", pa.float64()),
            pa.field("lat", pa.float64()),
            pa.field("home", pair.type, metadata=mark),
            pa.field("bbox", box.type),
            pa.field("shape", pa.binary()),
        ],
        metadata={
            "geo": json.dumps({"columns": {"shape": {"covering": {"bbox": {"xmin": ["bbox", "xmin"]}}}}}),
        },
    )
    columns = [pa.array([24.94]), pa.array([60.17]), pair, box, pa.array([wkb(24.9, 60.1)])]
    pyarrow.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), tmp_path / "in.parquet")
    options = Options(columns=("lon", "lat"), copy=(name,))
    with pytest.raises(mdp.InvalidInputError, match="`copy` must be columns that hold no geometries"):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.parquet", options)


def test_copying_all_takes_nothing_out_of_objects(tmp_path):
    (tmp_path / "in.jsonl").write_text(
        '{"at": {"lon": 24.94, "lat": 60.17}, "home": {"lon": 24.9518273645}, "id": 1}\n'
    )
    options = Options(columns=("at.lon", "at.lat"), copy="all")
    summary = perturb_file(city(), tmp_path / "in.jsonl", tmp_path / "out.jsonl", options)
    assert summary.copied == ("id",)
    assert "9518" not in (tmp_path / "out.jsonl").read_text()


# -- folders of partitions


def partitions(place):
    for day, rows in (
        ("2024-01-01", slice(0, 10)),
        ("2024-01-02", slice(10, 25)),
        ("__HIVE_DEFAULT_PARTITION__", slice(25, ROWS)),
    ):
        folder = place / "in" / f"day={day}" / "city=S%C3%A3o Paulo"
        folder.mkdir(parents=True)
        table = pa.table({"lon": LONLAT[rows, 0], "lat": LONLAT[rows, 1]})
        pyarrow.parquet.write_table(table, folder / "part-0.parquet")
    return place / "in"


def test_partition_columns_can_be_copied_and_stay_in_the_layout(tmp_path):
    source = partitions(tmp_path)
    summary = perturb_folder(city(), source, tmp_path / "out", Options(copy=("day", "city")))
    assert (summary.files, summary.copied) == (3, ("day", "city"))
    layout = sorted(path.relative_to(source) for path in source.rglob("*.parquet"))
    assert sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.parquet")) == layout
    days = set()
    for path in layout:
        table = pyarrow.parquet.ParquetFile(tmp_path / "out" / path).read()
        days.update(table["day"].to_pylist())
        assert set(table["city"].to_pylist()) == {"São Paulo"}
    assert days == {"2024-01-01", "2024-01-02", None}
    with duckdb.connect() as database:
        glob = tmp_path / "out" / "**" / "*.parquet"
        found = database.sql(f"SELECT day, count(*) FROM read_parquet('{glob}', hive_partitioning=true) GROUP BY day")
        assert sorted(count for _, count in found.fetchall()) == [10, 15, 15]


def test_all_leaves_partition_columns_to_the_layout(tmp_path):
    summary = perturb_folder(city(), partitions(tmp_path), tmp_path / "out", Options(copy="all"))
    assert summary.copied == ()
    assert summary.not_copied["day"] == "in the names of folders"
    found = pyarrow.dataset.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert sorted(found["output_id"].to_pylist()) == sorted(IDS)


def test_partitions_can_be_people_but_not_points(tmp_path):
    source = tmp_path / "in"
    for user in ("ann", "bob"):
        (source / f"user={user}" / "x=24.9").mkdir(parents=True)
        (source / f"user={user}" / "x=24.9" / "a.csv").write_text("lon,lat\n" + "24.94,60.17\n" * 5)
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=400 * 3) as ledger:
        summary = perturb_folder(city(), source, tmp_path / "out", Options(user_column="user"), ledger=ledger)
        assert summary.counts.refused == 2 * 2
        assert ledger.remaining("ann") < city().claimed_epsilon
    with pytest.raises(mdp.InvalidInputError, match="`columns` must be among the columns lon, lat, got 'x'"):
        perturb_folder(city(), source, tmp_path / "out2", Options(columns=("x", "lat")))


def test_a_column_of_the_file_comes_before_the_folders(tmp_path):
    folder = tmp_path / "in" / "day=monday"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("lon,lat,day\n24.94,60.17,friday\n")
    perturb_folder(city(), tmp_path / "in", tmp_path / "out", Options(copy=("day",)))
    assert pd.read_csv(tmp_path / "out" / "day=monday" / "a.csv")["day"].tolist() == ["friday"]


# -- every format tells the same

NUMBERS = st.none() | st.floats(-180, 180, allow_subnormal=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
TABLES = st.lists(st.tuples(NUMBERS, NUMBERS, TEXTS, st.integers(-(2**53), 2**53)), max_size=20)
PLAIN = [suffix for suffix in suffixes() if suffix not in (".geoparquet", ".gpkg")]


def written(path, rows):
    """Write rows with pyarrow, pandas or the standard library."""
    frame = pd.DataFrame(rows, columns=["lon", "lat", "text", "whole"]).astype(
        {"lon": float, "lat": float, "whole": "int64"}
    )
    arrow = pa.table(
        {
            "lon": pa.array([row[0] for row in rows], pa.float64()),
            "lat": pa.array([row[1] for row in rows], pa.float64()),
            "text": pa.array([row[2] for row in rows], pa.string()),
            "whole": pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    kind = path.name.split(".")[1]
    if kind in ("parquet", "pq"):
        pyarrow.parquet.write_table(arrow, path)
    elif kind in ("arrow", "feather", "ipc"):
        with pa.ipc.new_file(path, arrow.schema) as writer:
            writer.write_table(arrow)
    else:
        with perturb_tools.packed(path, "wb") as file:
            if kind in ("csv", "tsv"):
                file.write(frame.to_csv(index=False, sep="\t" if kind == "tsv" else ",").encode())
            elif kind in ("jsonl", "ndjson"):
                names = ("lon", "lat", "text", "whole")
                lines = (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
                file.write("".join(lines).encode())
            else:
                file.write(json.dumps({"type": "FeatureCollection", "features": [*map(feature, rows)]}).encode())


def feature(row):
    place = None if None in row[:2] else {"type": "Point", "coordinates": row[:2]}
    return {"type": "Feature", "geometry": place, "properties": {"text": row[2], "whole": row[3]}}


@pytest.mark.parametrize("suffix", PLAIN)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=TABLES)
def test_every_format_gives_the_same_points_and_columns(tmp_path, suffix, rows):
    path = tmp_path / f"in{suffix}"
    written(path, rows)
    with open_source(path) as source:
        if not rows and source.schema.names != ["lon", "lat", "text", "whole"]:
            return  # JSON without objects has no names
        batches = list(source.batches(("lon", "lat"), ("text", "whole")))
        schema = source.selected(("lon", "lat"), ("text", "whole"))
    table = pa.Table.from_batches(batches, schema)
    found = [tuple(value) for value in zip(table["lon"].to_pylist(), table["lat"].to_pylist(), strict=True)]
    if path.name.split(".")[1] in ("geojson", "json"):
        rows = [(None, None, *row[2:]) if None in row[:2] else row for row in rows]
    assert found == [row[:2] for row in rows]
    decode = json.loads if path.name.split(".")[1] in ("geojson", "json", "jsonl", "ndjson") else lambda value: value
    assert [decode(value) for value in table["text"].to_pylist()] == [row[2] for row in rows]
    assert [int(value) for value in table["whole"].to_pylist()] == [row[3] for row in rows]


def test_the_property_covers_every_format():
    assert {kind for kind in FORMATS if set(kind.suffixes).isdisjoint(PLAIN)} == {
        kind for kind in FORMATS if kind.geometries or not kind.is_written
    }


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_outputs_read_alike_in_pandas_and_duckdb(tmp_path, suffix):
    (tmp_path / "in.csv").write_text(TEXT, encoding="utf-8")
    path = tmp_path / f"out.{suffix}"
    perturb_file(city(), tmp_path / "in.csv", path, Options(copy="all"))
    readers = {
        "csv": pd.read_csv,
        "tsv": lambda given: pd.read_csv(given, sep="\t"),
        "jsonl": lambda given: pd.read_json(given, lines=True, precise_float=True),
        "parquet": pd.read_parquet,
    }
    mine = readers[suffix](path)
    with duckdb.connect() as database:
        source = f"read_json('{path}')" if suffix == "jsonl" else f"'{path}'"
        other = database.sql(f"FROM {source}").df()
    assert mine["output_id"].tolist() == other["output_id"].tolist() == IDS
    assert mine["näme"].tolist() == other["näme"].tolist()
    assert np.allclose(mine[["lon", "lat"]], other[["lon", "lat"]], rtol=0, atol=1e-12)


def test_places_of_problems_are_found_by_dotted_names_too(tmp_path):
    lines = [
        json.dumps({"at": {"lon": lon, "lat": lat}, "id": n}) + "\n" for n, (lon, lat) in enumerate(LONLAT.tolist())
    ]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    found = read_places((tmp_path / "in.jsonl").as_uri(), ("at.lon", "at.lat"), id_column="id")
    assert np.array_equal(found.points, LONLAT)
    assert [int(one) for one in found.ids] == list(range(ROWS))
