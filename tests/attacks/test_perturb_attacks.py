"""What an attacker tries with `perturb`: places among the copied columns, chunks that tell, files that are traps."""

import dataclasses
import functools
import io
import json
import lzma
import os
import re
import stat
import struct
import subprocess
import sys

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely

import metricdp as mdp
import perturb_tools
from metricdp.geometry.projection import Equirectangular
from metricdp.perturb import Options, Perturbation, limits, perturb_file, perturb_folder, perturb_stream
from metricdp.perturb import folder as folder_module
from metricdp.perturb.chunks import rechunked
from metricdp.perturb.formats import Sink, geojson, open_source
from metricdp.perturb.limits import CHUNK_ROWS
from perturb_tools import CENTRE, city, plane, points, wkb

# Where somebody lives; it must be in no output.
HOME = (24.9518273645, 60.1817364519)
TRACES = [*(str(value).encode() for value in HOME), *(struct.pack("<d", value) for value in HOME)]
HERE = {"lon": [24.95, 24.96], "lat": [60.18, 60.19]}


def tells(path):
    """Whether a file that is not compressed has the home in it, as text or as numbers."""
    content = path.read_bytes()
    return any(trace in content for trace in TRACES)


def write(path, table):
    """Write a table without any compression."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    assert tells(path)
    return path


def marked(name, values, kind, extension):
    return pa.field(name, kind, metadata={"ARROW:extension:name": extension}), pa.array(values, kind)


# -- `--copy all` copies no geometry


def test_further_geometries_are_not_copied(tmp_path):
    homes = [shapely.Point(HOME)] * 2
    frame = geopandas.GeoDataFrame({"id": [1, 2], "home": homes}, geometry=[shapely.Point(24.95, 60.18)] * 2, crs=4326)
    frame["home"] = geopandas.GeoSeries(frame["home"], crs=4326)
    frame.to_parquet(tmp_path / "in.parquet", compression="none")
    summary = perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.arrow", Options(copy="all"))
    assert (summary.copied, summary.not_copied) == (("id",), {"geometry": "the point", "home": "geometry"})
    assert not tells(tmp_path / "out.arrow")
    with pytest.raises(mdp.InvalidInputError, match=r"`copy` must be columns that hold no geometries .*, got 'home'"):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out2.arrow", Options(copy=("home",)))


@pytest.mark.parametrize("value", [wkb(*HOME), f"POINT ({HOME[0]} {HOME[1]})"], ids=["binary", "text"])
@pytest.mark.parametrize("as_list", [False, True])
def test_the_standards_note_alone_makes_a_geometry(tmp_path, value, as_list):
    """The primary geometry too, where the caller says that the point is elsewhere."""
    columns = {"shape": {"encoding": "WKB"}}
    note = {"version": "1.0.0", "primary_column": "shape", "columns": ["shape"] if as_list else columns}
    table = pa.table({**HERE, "shape": [value] * 2}).replace_schema_metadata({"geo": json.dumps(note)})
    source = write(tmp_path / "in.parquet", table)
    options = Options(columns=("lon", "lat"), copy="all")
    summary = perturb_file(city(), source, tmp_path / "out.arrow", options)
    assert summary.not_copied["shape"] == "geometry"
    assert not tells(tmp_path / "out.arrow")
    with pytest.raises(mdp.InvalidInputError, match="hold no geometries"):
        named = dataclasses.replace(options, copy=("shape",))
        perturb_file(city(), source, tmp_path / "out2.arrow", named)


def test_bounding_boxes_that_the_note_names_are_not_copied(tmp_path):
    limits = {f"{axis}{side}": [f"{axis}{side}"] for side in ("min", "max") for axis in "xy"}
    note = {"primary_column": "shape", "columns": {"shape": {"covering": {"bbox": limits}}}}
    boxes = {name: [HOME["y" in name]] * 2 for name in limits}
    table = pa.table({**HERE, "shape": [wkb(*HOME)] * 2, **boxes}).replace_schema_metadata({"geo": json.dumps(note)})
    source = write(tmp_path / "in.parquet", table)
    perturb_file(city(), source, tmp_path / "out.arrow", Options(columns=("lon", "lat"), copy="all"))
    assert not tells(tmp_path / "out.arrow")


def test_parquets_own_type_of_geometries(tmp_path):
    class Geometry(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.binary(), "geoarrow.wkb")

        def __arrow_ext_serialize__(self):
            return b'{"crs": "EPSG:3067"}'

        @classmethod
        def __arrow_ext_deserialize__(cls, storage, serialized):
            return cls()

    pa.register_extension_type(Geometry())
    try:
        homes = pa.ExtensionArray.from_storage(Geometry(), pa.array([wkb(*HOME)] * 2))
        pyarrow.parquet.write_table(pa.table({**HERE, "shape": homes}), tmp_path / "in.parquet", store_schema=False)
    finally:
        pa.unregister_extension_type("geoarrow.wkb")
    if "GEOM" not in pyarrow.parquet.ParquetFile(tmp_path / "in.parquet").schema.column(2).logical_type.type:
        pytest.skip("this pyarrow does not write the type")
    options = Options(columns=("lon", "lat"), copy=("shape",))
    with pytest.raises(mdp.InvalidInputError, match="hold no geometries"):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.arrow", options)
    with pytest.raises(mdp.InvalidInputError, match="got the reference system 'EPSG:3067'"):
        perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.arrow")


PAIR = pa.struct([("x", pa.float64()), ("y", pa.float64())])
INNER = pa.field("item", PAIR, metadata={"ARROW:extension:name": "geoarrow.point"})
XY = {"x": HOME[0], "y": HOME[1]}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        marked("home", [wkb(*HOME)] * 2, pa.binary(), "geoarrow.wkb"),
        marked("home", [f"POINT ({HOME[0]} {HOME[1]})"] * 2, pa.string(), "geoarrow.wkt"),
        marked("home", [XY] * 2, PAIR, "geoarrow.point"),
        marked("home", [[XY]] * 2, pa.list_(PAIR), "GeoArrow.LineString"),
        marked("home", [wkb(*HOME)] * 2, pa.binary(), "ogc.wkb"),
        marked("home", [f"POINT ({HOME[0]} {HOME[1]})"] * 2, pa.string(), "google:sqlType:geography"),
        (pa.field("home", pa.list_(INNER)), pa.array([[XY]] * 2, pa.list_(INNER))),
        (pa.field("home", pa.struct([INNER])), pa.array([{"item": XY}] * 2, pa.struct([INNER]))),
        (pa.field("home", pa.map_(pa.string(), INNER)), pa.array([[("k", XY)]] * 2, pa.map_(pa.string(), INNER))),
    ],
    ids=["wkb", "wkt", "point", "linestring", "ogc", "BigQuery", "in a list", "in a struct", "in a map"],
)
def test_geoarrow_is_neither_copied_nor_can_be_named(tmp_path, field, values):
    fields = [pa.field("lon", pa.float64()), pa.field("lat", pa.float64()), field]
    table = pa.Table.from_arrays([pa.array(HERE["lon"]), pa.array(HERE["lat"]), values], schema=pa.schema(fields))
    source = write(tmp_path / "in.arrow", table)
    options = Options(columns=("lon", "lat"), copy="all")
    summary = perturb_file(city(), source, tmp_path / "out.arrow", options)
    assert summary.not_copied["home"] == "geometry"
    assert not tells(tmp_path / "out.arrow")
    with pytest.raises(mdp.InvalidInputError, match="hold no geometries"):
        perturb_file(city(), source, tmp_path / "out2.arrow", dataclasses.replace(options, copy=("home",)))


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize(("type_name", "reason"), [("geometry", "geometry"), ("circle", "an extension type")])
def test_types_of_other_vendors_are_not_copied(tmp_path, suffix, type_name, reason):
    """PostGIS' types come as opaque ones; whatever else a vendor's type is, it may be a place."""
    name, description = "ARROW:extension:name", "ARROW:extension:metadata"
    told = {name: "arrow.opaque", description: f'{{"type_name": "{type_name}", "vendor_name": "PostgreSQL"}}'}
    fields = [
        pa.field("lon", pa.float64()),
        pa.field("lat", pa.float64()),
        pa.field("home", pa.string(), metadata=told),
    ]
    columns = [pa.array(HERE["lon"]), pa.array(HERE["lat"]), pa.array([f"{HOME[0]} {HOME[1]}"] * 2)]
    source = write(tmp_path / f"in.{suffix}", pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    summary = perturb_file(city(), source, tmp_path / "out.csv", Options(copy="all"))
    assert summary.not_copied["home"] == reason
    assert not tells(tmp_path / "out.csv")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([{"lon": HOME[0], "lat": HOME[1]}] * 2), "struct"),
        (pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([{"lon": HOME[0], "lat": HOME[1]}])), "struct"),
        (pa.array([list(HOME)] * 2), "list"),
        (pa.array([list(HOME)] * 2, pa.list_(pa.float64(), 2)), "list"),
        (pa.array([list(HOME)] * 2, pa.large_list(pa.float64())), "list"),
        (pa.array([[("lon", HOME[0])]] * 2, pa.map_(pa.string(), pa.float64())), "map"),
        (pa.array([wkb(*HOME)] * 2), "binary"),
        (pa.array([wkb(*HOME)] * 2).dictionary_encode(), "binary"),
        (pa.array([wkb(*HOME)] * 2, pa.large_binary()), "binary"),
        (pa.array([wkb(*HOME)] * 2, pa.binary(21)), "binary"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_types_that_keep_places_are_not_copied(values, reason):
    batch = pa.RecordBatch.from_pydict({**HERE, "home": values})
    perturbation = Perturbation.of(city(), batch.schema, Options(copy="all"))
    assert perturbation.copying.left_out["home"] == reason
    assert perturbation(batch).schema.names == ["output_id", "lon", "lat"]


def test_json_objects_and_arrays_are_not_copied(tmp_path):
    """Neither where all of a property's values are such, nor where one is."""
    place = {"type": "Point", "coordinates": HOME}
    properties = [
        {"id": 1, "home": place, "path": [HOME, HOME], "mixed": "here", "none": None},
        {"id": 2, "home": None, "mixed": place, "deep": {"a": [{"b": HOME}]}},
    ]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [24.95, 60.18]},
            "properties": some,
            "bbox": HOME,
        }
        for some in properties
    ]
    (tmp_path / "in.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features, "home": place}))
    summary = perturb_file(city(), tmp_path / "in.geojson", tmp_path / "out.geojson", Options(copy="all"))
    assert summary.copied == ("id", "mixed", "none")
    assert summary.not_copied["mixed"] == "its objects and arrays"
    assert {summary.not_copied[name] for name in ("home", "path", "deep")} == {"nested JSON"}
    assert not tells(tmp_path / "out.geojson")
    answer = json.loads((tmp_path / "out.geojson").read_text())["features"]
    assert [feature["properties"].get("mixed") for feature in answer] == ["here", None]


NAMES = [
    "lat_deg", "latitude_e7", "lon_e7", "longitude_deg", "easting", "northing", "latlon", "lnglat",
    "gps", "gps_position", "h3index", "h3_cell", "geohash7", "geohash_9", "postcode", "zip",
    "zipcode", "postal_code", "plz", "address", "home_address", "street", "city", "district",
    "quadkey", "mgrs", "utm", "utm_x", "grid_ref", "what3words", "pluscode", "s2cell",
    "s2_token", "cell_id", "tile", "place", "place_id", "venue", "home", "work",
    "origin", "destination", "start_stop", "stop_name", "station", "neighbourhood", "region", "wkt",
    "geom_text", "coordinates_text",
]  # fmt: skip


def test_names_are_not_judged_but_told(tmp_path, capsys):
    """Plain columns are the caller's responsibility, so the caller is told of every one, on paper and in JSON."""
    from metricdp.cli import main

    city().save(tmp_path / "city.mdp")
    lines = [",".join(["lon", "lat", *NAMES]), *[",".join(["24.95", "60.18", *("here" for _ in NAMES)])] * 3]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    given = ["metricdp", "perturb", str(tmp_path / "city.mdp"), str(tmp_path / "in.csv"), "--copy", "all"]
    said = {}
    for number, more in enumerate(([], ["--json"])):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(sys, "argv", [*given[:4], str(tmp_path / f"out{number}.csv"), *given[4:], *more])
            main()
        assert not ended.value.code
        said[number] = capsys.readouterr().out
    assert f"copied as they are: {', '.join(NAMES)}\n" in said[0]
    assert json.loads(said[1])["copied"] == NAMES
    assert "lon (the point), lat (the point)" in said[0]


def test_the_points_own_names_beside_a_geometry_are_warned_of():
    batch = pa.table({**HERE, "geometry": [wkb(24.95, 60.18)] * 2})
    note = json.dumps({"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}})
    stream = perturb_stream(city(), batch.replace_schema_metadata({"geo": note}), copy="all")
    with pytest.warns(UserWarning, match="columns lon, lat were copied as they are; .* they may hold true points"):
        stream.read_all()


# -- the lengths of chunks tell nothing

GREENWICH = Equirectangular(-0.02, 51.46)


@functools.cache
def london():
    return dataclasses.replace(plane(), projection=GREENWICH)


@pytest.fixture
def small_blocks(monkeypatch):
    """Make files of ten thousand rows as long as others of millions."""
    for sink in (Sink, geojson.GeoJsonSink):
        monkeypatch.setattr(sink, "rows_at_once", 512)
    rows = {"PART_ROWS": 2000, "BATCH_ROWS": 700, "CHUNK_ROWS": 512}
    for name, size in {**rows, "BATCH_BYTES": 20_000, "READ_BYTES": 1000, "LONGEST_LINE": 5000}.items():
        monkeypatch.setattr(limits, name, size)


KINDS = ("arrow", "parquet", "csv", "csv.gz", "geojson", "geoparquet", "tsv.bz2", "jsonl.xz", "csv.zst")


def two_inputs(folder, suffix, rows=10_000):
    """Write twice the same people, but one of them is 7 m west of Greenwich in the second file and 7 m east before."""
    places = GREENWICH.to_lonlat(points(rows)).round(5).tolist()
    for number, lon in enumerate((0.0001, -0.0001)):
        people = [[lon, 51.4775], *places]
        if suffix == "csv":
            text = "\n".join(["lon,lat,id", *(f"{x:.5f},{y:.5f},{n}" for n, (x, y) in enumerate(people))])
        else:
            lines = [
                f'{{"type": "Feature", "geometry": {{"type": "Point", "coordinates": [{x:.5f}, {y:.5f}]}}, '
                f'"properties": {{"id": {n}}}}}'
                for n, (x, y) in enumerate(people)
            ]
            text = f'{{"type": "FeatureCollection", "features": [{", ".join(lines)}]}}'
        (folder / f"in{number}.{suffix}").write_text(text)
    return folder / f"in0.{suffix}", folder / f"in1.{suffix}"


def lengths(path):
    with open_source(path) as source:
        return [len(batch) for batch in source.batches(("lon", "lat"), ("id",))]


@pytest.mark.parametrize("suffix", ["csv", "geojson", "json"])
def test_files_do_not_tell_how_long_a_coordinates_text_was(tmp_path, small_blocks, suffix):
    """Both inputs are reported as the same outputs, so whatever differs between two output files gives her away."""
    first, second = two_inputs(tmp_path, suffix, rows=10_000 if suffix == "csv" else 4000)
    assert lengths(first) != lengths(second)
    for kind in KINDS[: 2 if suffix == "json" else None]:
        answers = []
        for number, source in enumerate((first, second)):
            target = tmp_path / f"out{number}.{kind}"
            perturb_file(london(), source, target, Options(copy="all"))
            answers.append(target.read_bytes())
        assert answers[0] == answers[1], kind
    with pa.ipc.open_file(tmp_path / "out1.arrow") as file:
        assert {file.get_batch(n).num_rows for n in range(file.num_record_batches - 1)} == {512}
    groups = pyarrow.parquet.ParquetFile(tmp_path / "out1.parquet").metadata
    assert {groups.row_group(n).num_rows for n in range(groups.num_row_groups - 1)} == {512}


def test_stdout_and_folders_do_not_tell_either(tmp_path, small_blocks, monkeypatch):
    class Recorder(io.BytesIO):
        def write(self, content):
            sizes.append(len(content))
            return len(content)

    first, second = two_inputs(tmp_path, "csv")
    written, folders = [], []
    for source in (first, second):
        sizes = []
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", io.TextIOWrapper(Recorder()))
            perturb_file(london(), source, "-")
        written.append(sizes)
        (tmp_path / source.stem).mkdir()
        source.rename(tmp_path / source.stem / "a.csv")
        perturb_folder(london(), tmp_path / source.stem, tmp_path / f"{source.stem}-out")
        folders.append((tmp_path / f"{source.stem}-out" / "a.csv").read_bytes())
    assert len(written[0]) > 10
    assert written[0] == written[1]
    assert folders[0] == folders[1]


def test_streams_do_not_tell_either(tmp_path, small_blocks):
    answers = []
    for path in two_inputs(tmp_path, "csv"):
        with open_source(path) as source:
            schema = source.selected(("lon", "lat"), ())
            given = pa.RecordBatchReader.from_batches(schema, source.batches(("lon", "lat"), ()))
            answers.append([len(batch) for batch in perturb_stream(london(), given)])
    assert answers[0] == answers[1]
    assert set(answers[0][:-1]) == {512}


def test_chunks_have_as_many_rows_as_the_documentation_says(tmp_path):
    first, _ = two_inputs(tmp_path, "csv", rows=300_000)
    perturb_file(london(), first, tmp_path / "out.arrow")
    perturb_file(london(), first, tmp_path / "out.parquet")
    sizes = [CHUNK_ROWS, CHUNK_ROWS, 300_001 - 2 * CHUNK_ROWS]
    with pa.ipc.open_file(tmp_path / "out.arrow") as file:
        assert [file.get_batch(n).num_rows for n in range(file.num_record_batches)] == sizes
    groups = pyarrow.parquet.ParquetFile(tmp_path / "out.parquet").metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == sizes


# -- files that are traps

MEMORY_MB = 500  # at rest it is 180

SERVER = """
import json, os, resource, sys
import metricdp as mdp
from metricdp.perturb import Options, perturb_file
mechanism = mdp.load(sys.argv[1])
for line in sys.stdin:
    source, target, options = json.loads(line)
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        try:
            perturb_file(mechanism, source, target, Options(**options), warn=lambda words: None)
            said = "done"
        except mdp.InvalidInputError as error:
            said = str(error)
        except BaseException as error:
            said = "NOT REFUSED: " + type(error).__name__
        sys.stdout.write(json.dumps(said) + "\\n")
        sys.stdout.flush()
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    print(json.dumps([status, used.ru_maxrss / 1024]), flush=True)
"""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A function that perturbs a file in a process of its own, and returns what was said and the peak of memory."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    place = tmp_path_factory.mktemp("mechanism")
    city().save(place / "city.mdp")
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER, place / "city.mdp"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    def ask(source, **options):
        server.stdin.write(json.dumps([str(source), str(source.with_name("out.arrow")), options]) + "\n")
        server.stdin.flush()
        said = json.loads(server.stdout.readline())
        if isinstance(said, list):
            pytest.fail(f"the process ended with {said}")
        status, peak = json.loads(server.stdout.readline())
        assert status == 0
        assert peak < MEMORY_MB, f"{peak:.0f} MB"
        return said

    yield ask
    server.stdin.close()
    server.stdout.close()
    server.wait()


def repeated(text, rows=20_000):
    """A column that says the same long text in every row: 1.3 GB of it, in 80 kB."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([text]))


def far(rows=20_000, **others):
    """Points that are all outside, so that nothing is written of what has to be read."""
    return pa.table({"lon": np.full(rows, 1.0), "lat": np.full(rows, 1.0), **others})


def varint(number):
    """Return a number as Thrift writes it."""
    number *= 2
    return bytes([*(number >> shift & 127 | 128 for shift in range(0, 28, 7)), number >> 28])


def forged_page(path, size, compressed):
    """Let the header of the first page say that it has `compressed` bytes, and `size` of them once decompressed."""
    table = pa.table({"lon": HOME[0] + np.arange(1000) / 1e6, "lat": HOME[1] + np.arange(1000) / 1e6})
    pyarrow.parquet.write_table(table, path, use_dictionary=False)
    place = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    sizes = b"\x15\x00\x15" + varint(size) + b"\x15" + varint(compressed)
    header = sizes + b"\x2c\x15" + varint(1000) + b"\x15\x00\x15\x06\x15\x06\x00\x00"
    content = path.read_bytes()
    path.write_bytes(content[:place] + header + content[place + len(header) :])
    return {}


def parquet_page_larger_than_memory(path):
    return forged_page(path, 2**31 - 1, 100), "pages that can be read in bounded memory, got 2,147,"


def parquet_page_longer_than_the_file(path):
    return forged_page(path, 100, 2**31 - 1), "damaged or cut off"


def parquet_sizes_of_33_bits(path):
    return forged_page(path, 2**32 + 100, 100), "damaged or cut off"


def parquet_text_in_every_row(path):
    pyarrow.parquet.write_table(far(text=repeated("x" * 2**16)), path)
    return {"copy": "all", "outside": "drop"}, "done"


def parquet_text_in_every_list(path):
    texts = pa.ListArray.from_arrays(pa.array(np.arange(20_001, dtype=np.int32)), repeated("x" * 2**16))
    pyarrow.parquet.write_table(far(text=texts), path)
    return {"copy": ["text"], "outside": "drop"}, "done"


def parquet_long_geometry_in_every_row(path):
    lines = struct.pack("<BII", 1, 2, 2**12) + bytes(2**16)
    table = pa.table({"geometry": repeated(lines)})
    note = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    pyarrow.parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(note)}), path)
    return {}, "`geometry` must be points only, got 20,000 others"


def arrow_buffer_that_claims_a_terabyte(path):
    table = pa.table({"lon": np.full(5000, HOME[0]), "lat": np.full(5000, HOME[1])})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)
    content = path.read_bytes()
    assert content.count(struct.pack("<q", 40_000)) == 2
    path.write_bytes(content.replace(struct.pack("<q", 40_000), struct.pack("<q", 2**40)))
    return {}, "must have batches that can be read in bounded memory, got one of 2,199,023,255,552 bytes"


def arrow_text_in_every_row(path):
    table = far(text=repeated("x" * 2**16))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return {"copy": "all", "outside": "drop"}, "done"


def arrow_text_in_every_run(path):
    try:
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([20_000], pa.int32()), pa.array(["x" * 2**16]))
    except TypeError:
        pytest.skip("this pyarrow cannot make runs of texts")
    table = far(text=runs)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return {"copy": "all", "outside": "drop"}, "done"


def arrow_text_in_every_view(path):
    if not hasattr(pa, "string_view"):
        pytest.skip("this pyarrow has no views")
    views = np.zeros((20_000, 4), dtype=np.int32)
    views[:, 0], views[:, 1] = 2**16, 0x78787878  # how long, and the first four letters
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"x" * 2**16)]
    table = far(text=pa.Array.from_buffers(pa.string_view(), 20_000, buffers))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return {"copy": "all", "outside": "drop"}, "done"


def feature(coordinates, properties="{}"):
    return f'{{"type": "Feature", "properties": {properties}, "geometry": {{"type": "Point", "coordinates": {coordinates}}}}}'


def collection(path, text):
    path.write_text(f'{{"features": [{feature(list(HOME))}, {text}')


def geojson_deep_brackets(path):
    collection(path, feature(list(HOME), '{"a": ' + "[" * 10**6 + "]" * 10**6 + "}") + "]}")
    return {"copy": "all"}, "at feature 2"


def geojson_deep_objects(path):
    collection(path, '{"a":' * 10**6)
    return {}, "at feature 2"


def geojson_brackets_side_by_side(path):
    collection(path, feature(list(HOME), '{"a": [' + "[]," * (8 * 2**20 // 3)))
    return {"copy": "all"}, "at feature 2"


def geojson_long_number(path):
    collection(path, feature("[" + "1" * 10**7 + ", 60]") + "]}")
    return {}, "at feature 2"


def geojson_infinite_number(path):
    collection(path, feature("[1e99999, 60]") + "]}")
    return {}, "NaN or infinity in 1 rows, the first of them row 2"


def geojson_text_without_an_end(path):
    collection(path, '{"a": "' + str(HOME[0]) * 10**7)
    return {}, "at feature 2"


def csv_nul(path):
    path.write_bytes(f"lon,lat\n{HOME[0]}\0,{HOME[1]}\n".encode())
    return {}, "row 1, column 'lon': a cell that should be a number is none"


def csv_endless_line(path):
    path.write_text(f"lon,lat,id\n{HOME[0]},{HOME[1]}," + "x" * (64 << 20))
    return {}, "a row that is longer than 4 MB"


def csv_quote_without_an_end(path):
    path.write_text(f'lon,lat,id\n{HOME[0]},{HOME[1]},"' + "x,y\n" * (16 << 20))
    return {}, "a row that is longer than 4 MB"


def csv_first_line_without_an_end(path):
    path.write_text(f'"{HOME[0]}' + "\n" * (32 << 20))
    return {}, "a first line of column names, got none"


def csv_of_100_000_columns(path):
    path.write_text("lon,lat," + ",".join(f"c{n}" for n in range(100_000)) + f"\n{HOME[0]},{HOME[1]}" + "," * 100_000)
    return {"copy": "all"}, "at most 16,384 columns, got 100,002"


def csv_with_a_cell_too_many_in_the_first_row(path):
    path.write_text(f"lon,lat\n{HOME[0]},{HOME[1]},7\n")
    return {}, "row 1: it has not as many cells as the first line has names"


def csv_with_a_cell_too_many_later(path):
    path.write_text("lon,lat\n" + "24.9,60.1\n" * 500_000 + f"{HOME[0]},{HOME[1]},7\n")
    return {}, "row 500,001: it has not as many cells as the first line has names"


def csv_with_its_first_line_twice(path):
    path.write_text(f"lon,lat\n{HOME[0]},{HOME[1]}\nlon,lat\n{HOME[0]},{HOME[1]}\n")
    return {}, "row 2, column 'lon': a cell that should be a number is none"


def csv_in_utf16_without_a_mark(path):
    path.write_text(f"lon,lat\n{HOME[0]},{HOME[1]}\n", encoding="utf-16-le")
    return {}, "say what it is with `encoding`"


def csv_in_another_encoding_than_named(path):
    path.write_bytes(f"lon,lat,id\n{HOME[0]},{HOME[1]},".encode("utf-16-le") + b"\x00\xd8\n")
    return {"copy": ["id"], "encoding": "utf-16-le"}, "say what it is with `encoding`"


def csv_with_a_number_of_a_million_digits(path):
    path.write_text(f"lon,lat\n{HOME[0]}{'7' * 10**6},{HOME[1]}\n1{'0' * 10**6},{HOME[1]}\n")
    return {}, "must be "


def in_blocks(path, first, block, count=128):
    """Write a file that is small as it is, and `count` megabytes once it is unpacked."""
    with perturb_tools.packed(path, "wb") as file:
        file.write(first.encode())
    begun = path.read_bytes()
    with perturb_tools.packed(path, "wb") as file:
        file.write(block * (2**23 // len(block)))
    # Members one after the other are one file.
    path.write_bytes(begun + path.read_bytes() * (count // 8))


def packed_long_row(path):
    in_blocks(path, f"lon,lat,id\n{HOME[0]},{HOME[1]},", b"0")
    return {}, "a row that is longer than 4 MB"


def packed_long_first_line(path):
    in_blocks(path, "", b"x")
    return {}, "a first line of column names, got none"


def packed_blank_lines(path):
    in_blocks(path, "", b"\n")
    return {}, "a first line of column names, got none"


def packed_blank_lines_after_the_names(path):
    in_blocks(path, f"lon,lat\n{HOME[0]},{HOME[1]}\n", b"\n")
    return {}, "done"


def packed_cut_off(path):
    with perturb_tools.packed(path, "wb") as file:
        file.write(b"lon,lat\n" + f"{HOME[0]},{HOME[1]}\n".encode() * 1000)
    path.write_bytes(path.read_bytes()[:-5])
    return {}, "damaged or cut off"


def packed_in_name_only(path):
    path.write_text(f"lon,lat\n{HOME[0]},{HOME[1]}\n")
    return {}, "damaged or cut off"


def packed_followed_by_something_else(path):
    with perturb_tools.packed(path, "wb") as file:
        file.write(f"lon,lat\n{HOME[0]},{HOME[1]}\n".encode())
    path.write_bytes(path.read_bytes() + f"{HOME[0]}".encode() * 10)
    return {}, "damaged or cut off"


def xz_that_claims_a_gigabyte_of_memory(path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    with lzma.open(path, "wb", filters=filters) as file:
        file.write(f"lon,lat\n{HOME[0]},{HOME[1]}\n".encode())
    return {}, "it takes more than 128 MB to decompress"


def jsonl(path, text, first=True):
    path.write_text((f'{{"lon": {HOME[0]}, "lat": {HOME[1]}}}\n' if first else "") + text)


def jsonl_deep_brackets(path):
    jsonl(path, '{"lon": 1, "lat": 1, "a": ' + "[" * 10**6 + "]" * 10**6 + "}")
    return {"copy": "all"}, "got text that is no JSON in line 2"


def jsonl_deep_objects(path):
    jsonl(path, '{"a":' * 10**6)
    return {}, "got text that is no JSON in line 2"


def jsonl_brackets_side_by_side(path):
    jsonl(path, '{"lon": 1, "lat": 1, "a": [' + "[]," * (8 * 2**20 // 3) + "1]}")
    return {"copy": "all"}, "bytes in line 2"


def jsonl_endless_line(path):
    jsonl(path, '{"a": "' + str(HOME[0]) * 10**7)
    return {}, "got more than 8,388,608 bytes in line 2"


def jsonl_long_number(path):
    jsonl(path, f'{{"lon": {"1" * 10**6}, "lat": {HOME[1]}}}')
    return {}, "got text that is no JSON in line 2"


def jsonl_number_beyond_floats(path):
    jsonl(path, f'{{"lon": 1{"0" * 400}, "lat": {HOME[1]}}}')
    return {}, "must be readable"


def jsonl_infinite_number(path):
    jsonl(path, f'{{"lon": 1e99999, "lat": {HOME[1]}}}')
    return {}, "NaN or infinity in 1 rows, the first of them row 2"


def jsonl_name_twice(path):
    jsonl(path, f'{{"lon": {HOME[0]}, "lon": 1, "lat": {HOME[1]}}}')
    return {}, "a name that appears twice in an object in line 2"


def jsonl_mixed_types(path):
    jsonl(path, f'{{"lon": "{HOME[0]}", "lat": {HOME[1]}}}')
    return {}, "a value of 'lon' that is no number in line 2"


def jsonl_no_object(path):
    jsonl(path, f"[{HOME[0]}, {HOME[1]}]")
    return {}, "something else than an object in line 2"


def jsonl_nul(path):
    jsonl(path, f'{{"lon": {HOME[0]}\0, "lat": {HOME[1]}}}')
    return {}, "got text that is no JSON in line 2"


def jsonl_not_utf8(path):
    path.write_bytes(f'{{"lon": {HOME[0]}, "lat": {HOME[1]}, "name": "'.encode() + b'\xe4"}\n')
    return {}, "say what it is with `encoding`"


def jsonl_of_100_000_names(path):
    jsonl(path, "".join(f'{{"c{n}": 1}}\n' for n in range(100_000)))
    return {}, "more than 16,384 different names in line 16,38"


def jsonlxz_blank_lines(path):
    in_blocks(path, f'{{"lon": {HOME[0]}, "lat": {HOME[1]}}}\n', b"\n \t\r")
    return {}, "done"


def traps(kind):
    return [trap for name, trap in globals().items() if name.startswith(f"{kind}_") and callable(trap)]


TRAPS = [
    *((f"in.{kind}", trap) for kind in ("parquet", "arrow", "geojson", "csv", "jsonl") for trap in traps(kind)),
    *((f"in.csv.{kind}", trap) for kind in ("gz", "bz2", "xz", "zst") for trap in traps("packed")),
    *(("in.csv.xz", trap) for trap in traps("xz")),
    *(("in.jsonl.xz", trap) for trap in traps("jsonlxz")),
]


@pytest.mark.parametrize(("name", "trap"), TRAPS, ids=[f"{trap.__name__}-{name}" for name, trap in TRAPS])
def test_traps(tmp_path, attacked, name, trap):
    """Memory stays bounded, the error says what is wrong and no coordinate, and nothing is left behind."""
    options, words = trap(tmp_path / name)
    said = attacked(tmp_path / name, **options)
    assert words in said
    assert not any(str(value)[:8] in said for value in HOME)
    assert {path.name for path in tmp_path.iterdir()} <= {name, "out.arrow"}
    assert (tmp_path / "out.arrow").exists() == (said == "done")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_damage_anywhere(tmp_path, attacked, suffix):
    """Whatever bytes are changed, a file is read or refused; pyarrow may end the process for some of them."""
    lonlat = CENTRE.to_lonlat(points(300))
    columns = {"lon": lonlat[:, 0], "lat": lonlat[:, 1], "id": ["ann", "bob", "eve"] * 100, "tags": [["a", "b"]] * 300}
    table = pa.table({**columns, "kind": pa.array(["u", None, "w"] * 100).dictionary_encode()})
    source = tmp_path / f"in.{suffix}"
    if suffix == "parquet":
        pyarrow.parquet.write_table(table, source, compression="zstd", data_page_version="2.0")
    else:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(source), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, 100)
    content, rng, answers = source.read_bytes(), np.random.default_rng(0), []
    for _ in range(30):
        damaged, place = bytearray(content), int(rng.integers(0, len(content) - 8))
        number = int(rng.choice([0, 1, 2**20, 2**31 - 1, 2**40, 2**62, -1]))
        damaged[place : place + 8] = number.to_bytes(8, "little", signed=True)
        source.write_bytes(damaged)
        answers.append(attacked(source, copy=["id", "tags", "kind"], outside="drop"))
        (tmp_path / "out.arrow").unlink(missing_ok=True)
        assert list(tmp_path.iterdir()) == [source]
    assert not any("NOT REFUSED" in said for said in answers)
    assert 3 < answers.count("done") < 27


def test_numbers_that_contradict_each_other_in_a_footer(tmp_path, attacked):
    """pyarrow ends the process when it is asked for such a column's metadata."""
    table = pa.table({"lon": HERE["lon"], "lat": HERE["lat"], "tags": [["a"], ["b", "c"]]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    content = (tmp_path / "in.parquet").read_bytes()
    # The members of the lists become values that cannot be null, but nulls among them are counted.
    members = re.compile(rb"\x25\x02(\x18\x07element|\x18\x04item)")
    assert len(members.findall(content)) == 1
    (tmp_path / "in.parquet").write_bytes(members.sub(lambda found: b"\x25\x00" + found[1], content))
    assert "NOT REFUSED" not in attacked(tmp_path / "in.parquet", copy=["tags"])


def test_tables_of_very_many_columns(tmp_path):
    """Nulls take next to nothing in a file, and some bytes each in memory."""
    names = [f"c{n}" for n in range(2000)]
    texts = pa.nulls(50_000, pa.string())
    pyarrow.parquet.write_table(far(50_000, **dict.fromkeys(names, texts)), tmp_path / "in.parquet")
    empty = "{" + ", ".join(f'"{name}": null' for name in names) + "}"
    lines = [feature([1, 1], empty), *[feature([1, 1])] * 5000]
    (tmp_path / "in.geojson").write_text(f'{{"features": [{", ".join(lines)}]}}')
    for source in ("in.parquet", "in.geojson"):
        with open_source(tmp_path / source) as opened:
            first = next(opened.batches(("lon", "lat"), names))
        assert len(first) * len(names) < 2**22
    schema = pa.schema([(name, pa.string()) for name in names])
    batch = pa.RecordBatch.from_arrays([texts] * len(names), schema=schema)
    chunk = next(rechunked([batch], schema, CHUNK_ROWS))
    assert len(chunk) == 2**27 // (8 * len(names))


def test_features_are_read_by_their_bytes_also_after_a_look_at_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(limits, "READ_BYTES", 1000)
    lines = [feature([1, 1], json.dumps({"note": "x" * 1000}))] * 100
    (tmp_path / "in.geojson").write_text(f'{{"features": [{", ".join(lines)}]}}')
    with open_source(tmp_path / "in.geojson") as source:
        assert max(len(batch) for batch in source.batches(("lon", "lat"), ("note",))) < 15


# -- who may read what is written


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions(tmp_path, umask, mask, expected):
    """What is not finished is the owner's alone; outputs have the permissions that the umask gives to new files."""
    os.umask(mask)
    seen = []

    def look(*_):
        for folder in (tmp_path / ".out.csv.parts", tmp_path / "all" / ".metricdp"):
            if folder.exists():
                seen.append(mode(folder))
                assert all(not tells(path) for path in folder.iterdir())

    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("in.csv", "in/a.csv", "in/deep/b.csv"):
        (tmp_path / name).write_text(f"lon,lat\n{HOME[0]},{HOME[1]}\n")
    perturb_file(city(), tmp_path / "in.csv", tmp_path / "out.csv", progress=look)
    perturb_folder(city(), tmp_path / "in", tmp_path / "all", progress=look)
    assert len(seen) == 3
    assert set(seen) == {0o700}
    assert {mode(path) for path in (tmp_path / "out.csv", *(tmp_path / "all").rglob("*.csv"))} == {expected}
    assert not any(tells(path) for path in (tmp_path / "all").rglob("*.csv"))


@pytest.mark.parametrize("trap", ["open to others", "a link", "a file"])
def test_a_folder_for_parts_that_somebody_else_has_laid_out(tmp_path, umask, trap):
    """It would be emptied, or what is in it would be taken for what was drawn."""
    (tmp_path / "in.csv").write_text("lon,lat\n24.95,60.18\n")
    parts, other = tmp_path / ".out.csv.parts", tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "precious").touch()
    if trap == "a link":
        parts.symlink_to(other)
    elif trap == "a file":
        parts.touch()
    else:
        parts.mkdir(mode=0o755)
    for option in ("resume", "overwrite"):
        with pytest.raises(mdp.InvalidInputError, match="is not a folder of this user's alone"):
            perturb_file(city(), tmp_path / "in.csv", tmp_path / "out.csv", **{option: True})
    assert (other / "precious").exists()
    assert not (tmp_path / "out.csv").exists()


# -- folders, here and on a cluster


def trips(place):
    (place / "in").mkdir()
    (place / "in" / "a.csv").write_text("lon,lat\n24.95,60.18\n")
    (place / "secret.csv").write_text(f"lon,lat,name\n{HOME[0]},{HOME[1]},ann\n")
    return place / "in"


@pytest.mark.parametrize("target", ["../secret.csv", "..", "../in", "missing.csv"])
def test_links_out_of_the_folder_are_not_followed(tmp_path, target):
    source = trips(tmp_path)
    (source / "b.csv").symlink_to(target)
    with pytest.raises(
        mdp.InvalidInputError, match=r"a folder without links but to files inside it, got the link b\.csv"
    ):
        perturb_folder(city(), source, tmp_path / "out", Options(copy="all"))
    assert not (tmp_path / "out").exists()


def test_links_inside_of_the_folder_are_files(tmp_path):
    source = trips(tmp_path)
    (source / "b.csv").symlink_to("a.csv")
    assert perturb_folder(city(), source, tmp_path / "out").files == 2


def test_outputs_never_lie_among_the_inputs(tmp_path):
    source = trips(tmp_path)
    (tmp_path / "link").symlink_to(source)
    for target in (source, source / "out", source / ".." / "in" / "out", tmp_path / "link" / "out"):
        with pytest.raises(mdp.InvalidInputError, match="`target` must be outside of the folder `source`"):
            perturb_folder(city(), source, target)
    perturb_folder(city(), source / ".." / "in", source / ".." / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.csv"]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_mechanism_that_is_swapped_while_the_cluster_works(tmp_path, monkeypatch):
    """Workers hold the file against the hash of the mechanism that was proved private, so nothing is drawn from it."""
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    source, do_all = trips(tmp_path), folder_module._do_all

    def swapped(tasks, *rest):
        london().save(tasks[0].state / "mechanism.mdp")
        return do_all(tasks, *rest)

    monkeypatch.setattr(folder_module, "_do_all", swapped)
    started = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    words = r"1 of 1 files failed.*must be the mechanism file with hash"
    with started as cluster, pytest.raises(mdp.InvalidInputError, match=words):
        perturb_folder(city(), source, tmp_path / "out", cluster=cluster.scheduler_address)
    assert not list((tmp_path / "out").glob("*.csv"))


def test_the_disk_under_another_name_is_the_disk(tmp_path):
    """As local:// the points themselves could be overwritten, through fsspec, and no check of paths would notice."""
    source = tmp_path / "points.csv"
    source.write_text("lon,lat\n24.94,60.17\n")
    for scheme in ("local", "LOCAL", "file"):
        with pytest.raises(mdp.InvalidInputError, match="target"):
            perturb_file(city(), source, f"{scheme}://{source}", overwrite=True)
    assert source.read_text() == "lon,lat\n24.94,60.17\n"
    perturb_file(city(), f"local://{source}", f"local://{tmp_path / 'out.csv'}")
    assert (tmp_path / "out.csv").read_text().startswith("output_id")
