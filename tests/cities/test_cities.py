"""Road networks: projection, distances, the loss and the real cities."""

from __future__ import annotations

import json
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricdp import cities
from metricdp.cities import design
from metricdp.cities.medoids import medoids
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.projection import Equirectangular


@pytest.fixture
def data_dir(monkeypatch):
    """Folder with Rome, London and New York City; the library is pointed there."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("METRICDP_DATA") or shared)
    if not (folder / "rome" / "nodes.csv.xz").is_file():
        pytest.skip(f"road networks are not at {folder}; set METRICDP_DATA to the folder that holds rome, london, nyc")
    monkeypatch.setenv("METRICDP_DATA", str(folder))
    return folder


def random_network(seed: int, nodes: int = 40, edges: int = 150) -> RoadNetwork:
    """Strongly connected, with parallel edges, self-loops and one-way streets."""
    rng = np.random.default_rng(seed)
    ring = np.arange(nodes)
    u = np.concatenate([ring, rng.integers(0, nodes, edges)])
    v = np.concatenate([np.roll(ring, -1), rng.integers(0, nodes, edges)])
    u, v = np.concatenate([u, u[:9]]), np.concatenate([v, v[:9]])
    ids = rng.permutation(10 * nodes)[:nodes]
    lon, lat = rng.uniform(24.9, 25.0, nodes), rng.uniform(60.1, 60.2, nodes)
    return RoadNetwork("toy", ids, lon, lat, u, v, rng.uniform(1, 900, len(u)))


def networkx_graph(city: RoadNetwork, *, directed: bool):
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from(range(city.n_nodes))
    for u, v, metres in zip(city.u.tolist(), city.v.tolist(), city.length_m.tolist(), strict=True):
        graph.add_edge(u, v, weight=metres / 1000)
    return graph


def naive_path(city: RoadNetwork, *, directed: bool = False):
    lengths = dict(nx.all_pairs_dijkstra_path_length(networkx_graph(city, directed=directed)))
    n = city.n_nodes
    return np.array([[lengths[x].get(y, np.inf) for y in range(n)] for x in range(n)])


def two_islands() -> RoadNetwork:
    return RoadNetwork("islands", range(5), [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [3, 0, 1], [4, 1, 2], [5.0, 1.0, 2.0])


class TestProjection:
    @given(
        st.floats(-179, 179),
        st.floats(-80, 80),
        st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=9),
    )
    def test_round_trip(self, lon, lat, offsets):
        points = np.array([lon, lat]) + np.array(offsets)
        centre = Equirectangular(lon, lat)
        back = centre.to_lonlat(centre.to_xy_km(points[:, 0], points[:, 1]))
        np.testing.assert_allclose(back, points, rtol=0, atol=1e-9)

    def test_formula(self):
        centre = Equirectangular(10.0, 60.0)
        want = [6371 * np.cos(np.pi / 3) * np.radians(0.5), 6371 * np.radians(-0.25)]
        np.testing.assert_allclose(centre.to_xy_km([10.5], [59.75]), [want], rtol=1e-12)

    def test_close_to_great_circle_over_a_city(self):
        lon, lat = np.array([12.3, 12.7]), np.array([41.7, 42.05])
        xy = Equirectangular.for_box(lon, lat).to_xy_km(lon, lat)
        a, b = np.radians(lat)
        half = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(lon[1] - lon[0]) / 2) ** 2
        assert np.linalg.norm(xy[1] - xy[0]) == pytest.approx(2 * 6371 * np.arcsin(np.sqrt(half)), rel=1e-3)

    def test_worst_error_is_as_documented(self):
        north = 41.9 + np.degrees(25 / 6371)
        xy = Equirectangular(12.5, 41.9).to_xy_km([12.5, 12.51], [north, north])
        true = 6371 * np.cos(np.radians(north)) * np.radians(0.01)
        assert (xy[1, 0] - xy[0, 0]) / true - 1 == pytest.approx(0.0035, abs=1e-4)

    def test_centre_is_the_box_centre_not_the_mean(self):
        assert Equirectangular.for_box([0, 0, 0, 4], [10, 10, 10, 20]) == Equirectangular(2.0, 15.0)

    def test_json_round_trip(self):
        centre = Equirectangular(12.3456789, -41.1)
        assert Equirectangular.from_dict(json.loads(json.dumps(centre.to_dict()))) == centre

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"kind": "mercator"}, "`projection` must be 'equirectangular'"),
            ({"radius_km": 6378.137}, "radius_km 6371"),
            ({"lat_deg": 90}, "`lat_deg` must be strictly between"),
            ({"lat_deg": float("nan")}, "`lat_deg` must be between"),
            ({"lon_deg": "east"}, "`lon_deg` must be a number of degrees, got 'east'"),
        ],
    )
    def test_bad_dict(self, change, message):
        with pytest.raises(InvalidInputError, match=message):
            Equirectangular.from_dict({**Equirectangular(1.0, 2.0).to_dict(), **change})

    @pytest.mark.parametrize("values", [{"kind": "equirectangular"}, ["kind"]])
    def test_incomplete_dict(self, values):
        with pytest.raises(InvalidInputError, match="`projection` must be a mapping"):
            Equirectangular.from_dict(values)

    @pytest.mark.parametrize(
        ("lon", "lat", "message"),
        [
            ([181.0], [0.0], "`lon` must be between -180 and 180 degrees, got a value outside at index 0"),
            ([0.0, 0.0], [0.0, -90.5], "`lat` must be between -90 and 90 .* index 1"),
            ([np.nan], [0.0], "`lon` must be finite"),
            ([1.0, 2.0], [1.0], "`lat` must be as long as `lon`"),
        ],
    )
    def test_bad_points(self, lon, lat, message):
        with pytest.raises(InvalidInputError, match=message):
            Equirectangular(0.0, 0.0).to_xy_km(lon, lat)

    def test_half_a_world_and_nothing_are_refused(self):
        assert abs(Equirectangular.for_box([-179.9, 179.9], [0, 1]).lon_deg) == 180
        with pytest.raises(InvalidInputError, match="within 180 degrees"):
            Equirectangular.for_box([-120, 0, 120], [0, 1, 0])
        with pytest.raises(InvalidInputError, match="`lon` must be non-empty"):
            Equirectangular.for_box([], [])


class TestNetwork:
    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_distances_match_networkx(self, seed, directed):
        city = random_network(seed)
        want = naive_path(city, directed=directed)
        np.testing.assert_allclose(city.distances_km(range(40), directed=directed), want, rtol=1e-12)
        towards = city.distances_km([3, 5], directed=directed, reverse=True)
        np.testing.assert_allclose(towards, want[:, [3, 5]].T, rtol=1e-12)
        assert directed == (not np.allclose(want, want.T))

    def test_shortest_of_parallel_edges_and_zero_lengths(self):
        city = RoadNetwork("z", [1, 2, 3], [0, 1, 2], [0, 0, 1], [0, 0, 1, 1], [1, 1, 0, 2], [900, 700, 800, 0])
        assert city.graph(directed=True)[0, 1] == 0.7
        assert city.graph(directed=True)[1, 0] == 0.8
        assert city.graph()[1, 0] == 0.7
        assert city.distances_km([0]).tolist() == [[0, 0.7, 0.7]]

    def test_largest_component_keeps_order_and_edges(self):
        part = two_islands().largest_component()
        assert part.ids.tolist() == [0, 1, 2]
        assert list(zip(part.u.tolist(), part.v.tolist(), part.length_m.tolist(), strict=True)) == [
            (0, 1, 1),
            (1, 2, 2),
        ]
        assert part.projection == Equirectangular(1.0, 1.0)
        assert part.largest_component() is part

    def test_within_keeps_the_edges_between_nodes_inside(self):
        city = random_network(4)
        west, south, east, north = 24.93, 60.13, 24.97, 60.17
        part = city.within([[west, south], [east, north]])
        inside = [west <= lon <= east and south <= lat <= north for lon, lat in zip(city.lon, city.lat, strict=True)]
        assert part.ids.tolist() == city.ids[inside].tolist()
        assert 1 < part.n_nodes < city.n_nodes
        edges = [
            (city.ids[u], city.ids[v], length)
            for u, v, length in zip(city.u, city.v, city.length_m, strict=True)
            if inside[u] and inside[v]
        ]
        assert edges
        assert list(zip(part.ids[part.u], part.ids[part.v], part.length_m, strict=True)) == edges
        assert city.within([[-180, -90], [180, 90]]) is city

    def test_within_across_the_antimeridian(self):
        city = RoadNetwork("fiji", [1, 2, 3], [179.9, -179.9, 179.0], [0, 0, 0], [0, 1], [1, 2], [5, 7])
        assert city.within([[179.5, -1], [-179.5, 1]]).ids.tolist() == [1, 2]

    @pytest.mark.parametrize(
        "bounds",
        [
            [[1, 2], [1, 3]],
            [[1, 3], [2, 2]],
            [[1, 2]],
            [[1, 2, 3], [4, 5, 6]],
            [[10, 10], [11, 11]],
            [[0, np.nan], [1, 1]],
        ],
    )
    def test_boxes_that_are_none_or_elsewhere(self, bounds):
        with pytest.raises(InvalidInputError, match="`bounds` must be"):
            random_network(4).within(bounds)

    def test_nearest_nodes(self):
        city = random_network(4)
        points = np.random.default_rng(0).uniform([24.9, 60.1], [25.0, 60.2], (30, 2))
        xy = city.projection.to_xy_km(points[:, 0], points[:, 1])
        want = np.linalg.norm(xy[:, None] - city.xy, axis=2).argmin(axis=1)
        assert city.nearest_nodes(points).tolist() == want.tolist()

    def test_info_is_json(self):
        info = json.loads(json.dumps(two_islands().info()))
        assert (info["nodes"], info["edges"], info["components"]) == (5, 3, 2)
        assert info["box"] == {"lon": [0, 4], "lat": [0, 4]}
        assert info["extent_km"][1] == pytest.approx(6371 * np.radians(4))

    def test_immutable(self):
        city = two_islands()
        for array in (city.xy, city.lon, city.ids, city.u, city.length_m):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            city.name = "other"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"ids": [1, 2, 2]}, "`id` must be unique .*, got 2 at index 2"),
            ({"ids": []}, "`lon` must be as long as `ids`, 0, got 3"),
            ({"ids": [1.5, 2, 3]}, "`ids` must be a flat array of whole numbers, got float64"),
            ({"lon": [0, 1, 181]}, "`lon` must be between -180 and 180 degrees .*, got 181.0 at index 2"),
            ({"lat": [0, np.nan, 1]}, "`lat` must be between -90 and 90 degrees .*, got nan at index 1"),
            ({"lat": [0, 1]}, "`lat` must be as long as `ids`, 3, got 2"),
            ({"u": [0, 3]}, "`u` must be a node index from 0 to 2, got 3 at index 1"),
            ({"v": [-1, 2]}, "`v` must be a node index from 0 to 2, got -1 at index 0"),
            ({"length_m": [1, -2]}, "`length_m` must be a finite length .*, got -2.0 at index 1"),
            ({"length_m": [np.nan, -2]}, "`length_m` .* got nan at index 0, and 1 more rows like it"),
            ({"length_m": [1]}, "`length_m` must be as long as `u` and `v`, got 2, 2 and 1 values"),
            ({"length_m": "far"}, "`length_m` must be an array of numbers, got str"),
            ({"lon": [[0, 1, 2]]}, "`lon` must be a flat array"),
            ({"task": 0}, "`task` must be given together with `task_distance_m`"),
            ({"task_distance_m": [0, 1, 2]}, "`task` must be a node index from 0 to 2, got None"),
            ({"task": 1, "task_distance_m": [0, 1, 2]}, "`task_distance_m` must be zero at the task itself"),
            ({"task": 0, "task_distance_m": [0, 1]}, r"`task_distance_m` must be of shape \(3,\)"),
            ({"task": 0, "task_distance_m": [0, 1, -1]}, "`task_distance_m` must be a finite length"),
        ],
    )
    def test_bad_columns(self, change, message):
        good = {
            "ids": [1, 2, 3],
            "lon": [0, 1, 2],
            "lat": [0, 1, 2],
            "u": [0, 1],
            "v": [1, 2],
            "length_m": [1, 1],
        }
        RoadNetwork("good", **good)
        with pytest.raises(InvalidInputError, match=message):
            RoadNetwork("bad", **{**good, **change})

    def test_no_nodes(self):
        with pytest.raises(InvalidInputError, match="the network is empty"):
            RoadNetwork("none", [], [], [])

    @pytest.mark.parametrize(
        ("sources", "message"),
        [
            ([5], "`sources` must be node indices from 0 to 4, got 5"),
            ([], "non-empty"),
            ([0.5], "whole numbers"),
        ],
    )
    def test_bad_sources(self, sources, message):
        with pytest.raises(InvalidInputError, match=message):
            two_islands().distances_km(sources)


class TestProblem:
    @pytest.mark.parametrize("directed", [False, True])
    def test_loss_matches_brute_force(self, directed, monkeypatch):
        monkeypatch.setattr(design, "BLOCK_ROWS", 7)  # several blocks, the last one short
        city = random_network(7)
        rng = np.random.default_rng(5)
        outputs, tasks = rng.choice(40, 6, replace=False), rng.choice(40, 9, replace=False)
        weights = np.arange(1.0, 10.0)
        path = naive_path(city, directed=directed)
        want = np.array(
            [
                [
                    sum(w * abs(path[x, t] - path[y, t]) for w, t in zip(weights, tasks, strict=True)) / 45
                    for y in outputs
                ]
                for x in range(40)
            ]
        )
        problem = city.problem(6, 9, 5, p=1, task_weights=weights, directed=directed)
        np.testing.assert_allclose(problem.loss, want, rtol=1e-10, atol=1e-13)
        np.testing.assert_array_equal(problem.outputs, city.xy[outputs])
        np.testing.assert_array_equal(problem.records, city.xy)
        np.testing.assert_allclose(problem.prior, 1 / 40)
        assert problem.projection == city.projection
        assert problem.p == 1

    def test_explicit_nodes_and_coordinates(self):
        city = random_network(8)
        by_index = city.problem([4, 9, 4], [1, 2], bounds=[[-9, -9], [9, 9]])
        lonlat = np.column_stack([city.lon, city.lat])
        places = lonlat[[4, 9, 4]] + 1e-5
        by_place = city.problem(places, lonlat[[1, 2]])
        np.testing.assert_array_equal(by_index.loss, by_place.loss)
        # What is reported is the place itself; its nearest node only says what that costs.
        np.testing.assert_array_equal(by_place.outputs, city.projection.to_xy_km(*places.T))
        by_table = city.problem(pd.DataFrame({"lat": places[:, 1], "lon": places[:, 0]}), [1, 2])
        assert by_table == by_place
        assert by_index.bounds.tolist() == [[-9, -9], [9, 9]]

    def test_explicit_outputs_leave_the_first_draw_to_tasks(self):
        city = random_network(8)
        tasks = np.random.default_rng(3).choice(40, 5, replace=False)
        np.testing.assert_array_equal(city.problem([1, 2], 5, 3).loss, city.problem([1, 2], tasks).loss)

    def test_prior(self):
        prior = np.arange(40.0)
        problem = random_network(8).problem(3, 3, prior=prior)
        np.testing.assert_allclose(problem.prior, prior / prior.sum())

    def test_disconnected(self):
        message = (
            "2 of 2 tasks out of reach of some node and 5 of 5 nodes cut off from some task; "
            r"use `city.largest_component\(\)`"
        )
        with pytest.raises(InvalidInputError, match=message):
            two_islands().problem(2, [0, 4])
        assert two_islands().largest_component().problem(2, 2).n_records == 3

    def test_one_way_out_of_reach(self):
        with pytest.raises(InvalidInputError, match=r"1 of 1 tasks .* and 2 of 3 nodes .* pass `directed=False`"):
            two_islands().largest_component().problem(2, [0], directed=True)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"outputs": 41}, "`outputs` must be at most the number of nodes of 'toy', 40, got 41"),
            ({"tasks": 41}, "`tasks` must be at most the number of nodes of 'toy', 40, got 41"),
            ({"outputs": 0}, "`outputs` must be a whole number of at least 1, got 0"),
            ({"tasks": 2.5}, "`tasks` must be a whole number of at least 1, got 2.5"),
            ({"outputs": [1, 40]}, "`outputs` must be node indices from 0 to 39, got 40 at index 1"),
            ({"tasks": [-1]}, "`tasks` must be node indices from 0 to 39, got -1 at index 0"),
            ({"outputs": [1.0, 2.0]}, "`outputs` must be a number, a flat array of node indices or an"),
            ({"outputs": [[1, 2], [3]]}, "`outputs` must be a number or an array, got list"),
            ({"outputs": [[60.15, 24.95]]}, "`outputs` must be longitude, latitude pairs in or near 'toy'"),
            ({"tasks": [[24.95, 60.15, 0.0]]}, r"`tasks` must be an array of shape \(rows, 2\)"),
            ({"tasks": [[24.95, 95.0]]}, "`lat` must be between -90 and 90"),
            ({"seed": -1}, "`seed` must be a whole number of at least 0"),
            ({"p": 0.5}, "`p` must be a number in"),
            ({"prior": [1.0]}, r"`prior` must be of shape \(40,\)"),
            ({"task_weights": [1.0, 2.0]}, r"`task_weights` must be of shape \(3,\)"),
            ({"task_weights": [1.0, -2.0, 1.0]}, "`task_weights` must be non-negative"),
            ({"choose": "best"}, "`choose` must be one of 'random', 'medoids'"),
            ({"outputs": [1, 2], "choose": "medoids"}, "`choose` must be 'random' when `outputs` are given"),
        ],
    )
    def test_bad_arguments(self, arguments, message):
        with pytest.raises(InvalidInputError, match=message):
            random_network(1).problem(**{"outputs": 3, "tasks": 3, **arguments})

    def test_too_large_is_refused_before_it_is_made(self, monkeypatch):
        monkeypatch.setattr(design, "LARGEST_TABLE_BYTES", 8 * 40 * 10)
        city = random_network(1)
        assert city.problem(10, 10).n_outputs == 10
        for arguments in ({"outputs": 11}, {"tasks": 11}):
            with pytest.raises(ProblemTooLargeError, match="must be at most 10 for 40 nodes, got 11"):
                city.problem(**{"outputs": 3, "tasks": 3, **arguments})

    def test_no_edges_and_no_distances(self):
        with pytest.raises(InvalidInputError, match="`city` must have edges or distances"):
            RoadNetwork("bare", [1, 2], [0, 1], [0, 1]).problem(1, 1)


class TestMedoids:
    @pytest.mark.parametrize("seed", range(5))
    def test_no_single_swap_helps(self, seed):
        rng = np.random.default_rng(seed)
        place, weight = rng.normal(size=(60, 2)), rng.uniform(0, 1, 60)
        cost = np.linalg.norm(place[:, None] - place[:25], axis=2)
        chosen = medoids(cost, weight, 5).tolist()
        assert len(set(chosen)) == 5
        best = weight @ cost[:, chosen].min(axis=1)
        for slot in range(5):
            for other in range(25):
                swapped = [*chosen[:slot], other, *chosen[slot + 1 :]]
                assert weight @ cost[:, swapped].min(axis=1) >= best - 1e-9

    def test_one_medoid_is_exact(self):
        cost = np.random.default_rng(0).uniform(size=(30, 12))
        weight = np.linspace(1, 2, 30)
        assert medoids(cost, weight, 1).tolist() == [(weight @ cost).argmin()]

    def test_distinct_even_when_all_cost_the_same(self):
        assert len(set(medoids(np.zeros((4, 6)), np.ones(4), 3).tolist())) == 3

    def test_better_than_random_with_the_same_tasks(self):
        city = random_network(9)
        drawn, chosen, again = (city.problem(4, 5, 1, choose=how) for how in ("random", "medoids", "medoids"))
        assert chosen.floor < drawn.floor
        np.testing.assert_array_equal(chosen.loss, again.loss)
        nodes = city.nearest_nodes(city.projection.to_lonlat(chosen.outputs))
        np.testing.assert_array_equal(chosen.outputs, city.xy[nodes])
        rng = np.random.default_rng(1)
        rng.choice(40, 4, replace=False)  # the outputs that medoids replace
        tasks = rng.choice(40, 5, replace=False)
        np.testing.assert_allclose(chosen.loss, city.problem(nodes, tasks).loss)

    def test_every_node_can_be_an_output(self):
        city = random_network(9)
        assert city.problem(40, 5, choose="medoids").floor == 0


class TestRealCities:
    def test_rome(self, data_dir):
        rome = cities.load("rome")
        assert (rome.n_nodes, rome.n_edges, rome.name) == (43_160, 89_739, "rome")
        problem = rome.problem(20, 50, 0, 2)
        assert problem.uniform_loss == pytest.approx(8.85, rel=0.01)
        assert problem.floor == pytest.approx(2.534, rel=0.01)
        chosen = rome.problem(20, 50, 0, 2, choose="medoids")
        assert chosen.floor < 0.8 * problem.floor

    def test_rome_path_lengths_match_networkx(self, data_dir):
        rome = cities.load("rome")
        want = nx.single_source_dijkstra_path_length(networkx_graph(rome, directed=False), 17)
        np.testing.assert_allclose(rome.distances_km([17])[0], [want[i] for i in range(rome.n_nodes)], rtol=1e-9)

    @pytest.mark.slow
    def test_london(self, data_dir):
        london = cities.load("london")
        assert (london.n_nodes, london.n_edges) == (128_203, 299_524)
        assert london.info()["components"] == 1
        problem = london.problem()
        assert problem.loss.shape == (128_203, 20)
        assert 0 < problem.floor < problem.uniform_loss

    def test_new_york_city_has_one_task(self, data_dir):
        nyc = cities.load("nyc")
        assert (nyc.n_nodes, nyc.n_edges) == (55_353, 0)
        assert nyc.ids[nyc.task] == 1362838154
        problem = nyc.problem(20, 1)
        outputs = np.random.default_rng(0).choice(nyc.n_nodes, 20, replace=False)
        km = nyc.task_distance_m / 1000
        np.testing.assert_allclose(problem.loss, abs(km[:, None] - km[outputs]), rtol=1e-12)
        np.testing.assert_array_equal(problem.loss, nyc.problem(20, [nyc.task]).loss)
        for tasks in (50, [0], [nyc.task, 0]):
            with pytest.raises(InvalidInputError, match=rf"`tasks` must be 1 or \[{nyc.task}\], because 'nyc'"):
                nyc.problem(20, tasks)
        with pytest.raises(InvalidInputError, match="`distances_km` needs a network with edges"):
            nyc.distances_km([0])


def test_a_citys_outputs_have_ids_and_names_if_they_are_given_one_by_one():
    city = random_network(3)
    problem = city.problem(outputs=[5, 9], tasks=3, output_ids=["n/5", "n/9"], output_names=["Five", "Nine"])
    assert problem.output_ids == ("n/5", "n/9")
    assert problem.output_names == ("Five", "Nine")
    np.testing.assert_array_equal(problem.outputs, city.xy[[5, 9]])
    for more in ({"output_ids": ["a", "b"]}, {"output_names": ["a", "b"]}):
        with pytest.raises(
            InvalidInputError, match=f"`{next(iter(more))}` must be left out unless `outputs` are given"
        ):
            city.problem(outputs=2, tasks=3, **more)
