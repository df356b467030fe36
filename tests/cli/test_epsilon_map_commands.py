"""Maps of ε on the command line: `fit --epsilon-map`, and what `info` and `certify` say of the mechanism."""

import json
import math

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.files.map_files import write_map
from problems import random_problem

CITY = ["--city", "helsinki", "--n-outputs", "5", "--n-tasks", "5"]


def halves(problem, west=3.0, east=6.0):
    """One ε for the western half of the box and one for the eastern half."""
    (left, south), (right, north) = problem.bounds
    return mdp.EpsilonMap([[left, (left + right) / 2, right], [south, north]], [[west], [east]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, problem = tmp_path_factory.mktemp("maps"), random_problem(0)
    np.savez(place / "problem.npz", records=problem.records, outputs=problem.outputs)
    write_map(place / "plain.json", halves(problem, 0.5, 1.0))
    (left, south), (right, north) = problem.bounds
    write_map(place / "small.json", mdp.EpsilonMap([[left, (left + right) / 2], [south, north]], [[0.5]]))
    write_map(place / "line.json", mdp.EpsilonMap([[left, right]], [0.5]))
    city = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)
    write_map(place / "city.json", halves(city), city.projection)
    mdp.fit(city, halves(city), "spline", cells=6).save(place / "city.mdp")
    (place / "zones.geojson").write_text('{"type": "FeatureCollection", "features": []}')
    return place


def words_of(answer):
    return " ".join(answer.stdout.split())


def test_fit_takes_a_map_instead_of_a_number(folder):
    answer = call(
        "fit", *CITY, "--epsilon-map", "city.json", "--method", "spline", "--cells", "6", "--out", "new.mdp", "--json",
        cwd=folder,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["epsilon"] == 6.0
    facts = found["card"]["epsilon_map"]
    assert facts == {"least": 3.0, "most": 6.0, "radius_least": 1 / 6, "radius_most": 1 / 3, "cells": [2, 1]}
    mechanism = mdp.load(folder / "new.mdp")
    # Degrees lose at most a fifth of a millimetre, and borders go to the lattice anyway.
    assert np.array_equal(mechanism.epsilon_map.values, [[3.0], [6.0]])
    assert mechanism.epsilon_map.breakpoints[0][1] == pytest.approx(0, abs=1e-6)
    assert mdp.certify(mechanism).holds


def test_methods_with_one_epsilon_say_that_they_take_the_least(folder):
    arguments = ["problem.npz", "--epsilon-map", "plain.json", "--method", "laplace", "--out", "noise.mdp"]
    answer = call("fit", *arguments, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert "note: laplace has one epsilon for the whole box: the map's least, 0.5." in " ".join(answer.stderr.split())
    assert mdp.load(folder / "noise.mdp").epsilon == 0.5
    facts = json.loads(call("info", "noise.mdp", "--json", cwd=folder).stdout)
    assert facts["epsilon_map"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["problem.npz", "--epsilon", "1", "--epsilon-map", "plain.json"], "`--epsilon` and `--epsilon-map` exclude each"),
        (["problem.npz"], "a number as `--epsilon`, or a file as `--epsilon-map`"),
        (["problem.npz", "--epsilon-map", "none.json"], "`--epsilon-map` must be a file, got 'none.json'"),
        (["problem.npz", "--epsilon-map", "."], "`--epsilon-map` must be a file, got '.'"),
        (["problem.npz", "--epsilon-map", "problem.npz"], "`--epsilon-map` problem.npz is not a map of ε"),
        (["problem.npz", "--epsilon-map", "small.json"], "`--epsilon-map` small.json does not cover the box. It reaches over ["),
        (["problem.npz", "--epsilon-map", "line.json"], "`--epsilon-map` line.json has 1 axes, and the problem 2"),
        (["problem.npz", "--epsilon-map", "city.json"], "in longitude and latitude, and the problem has no projection"),
        ([*CITY, "--epsilon-map", "plain.json"], "does not cover the box. It reaches over ["),
        (["problem.npz", "--epsilon-map", "zones.geojson"], "`--epsilon-map` zones.geojson"),
    ],
)  # fmt: skip
def test_errors_name_the_option_and_leave_nothing_behind(folder, arguments, words):
    answer = call("fit", *arguments, "--method", "em", "--out", "never.mdp", cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert not (folder / "never.mdp").exists()


def test_the_card_of_a_map(folder):
    said = words_of(call("info", "city.mdp", cwd=folder))
    assert "Mechanism spline, ε = 3 to 6" in said
    assert "Within 166 m no report is more than e (about 2.72) times likelier from one place than from another" in said
    assert "within 333 m where ε is 3 all the way between them" in said
    assert "from 166 m to 333 m, depending on the place, for a ratio of e, at least 115 m for a ratio of 2" in said
    assert "a map of 2 x 1 cells, and a ledger charges the largest" in said


def test_both_radii_of_the_card_are_kept(folder):
    """Pairs within the small radius anywhere, and within the large one inside the western half."""
    mechanism = mdp.load(folder / "city.mdp")
    facts = json.loads(call("info", "city.mdp", "--json", cwd=folder).stdout)["epsilon_map"]
    rng = np.random.default_rng(0)
    (left, south), (right, north) = mechanism.bounds
    worst = {}
    for name, east in (("radius_least", right), ("radius_most", 0.0)):
        here = rng.uniform([left, south], [east, north], (4000, 2))
        angle = rng.uniform(0, 2 * np.pi, 4000)
        away = facts[name] / mechanism.distortion.stretch
        there = np.clip(here + away * np.column_stack([np.cos(angle), np.sin(angle)]), [left, south], [east, north])
        worst[name] = (mechanism.probabilities(here) / mechanism.probabilities(there)).max()
    assert all(1.3 < ratio <= math.e for ratio in worst.values())


# certify


def test_certify_says_what_the_map_means(folder):
    said = words_of(call("certify", "city.mdp", cwd=folder))
    assert "Private by a map of epsilon, from 3.0 to 6.0" in said
    # e^(6/2) = 20.09, e^(3/2) = 4.48
    assert "Two people 500 m apart: no report is more than 20.1 times likelier from one than from the other" in said
    assert "and 4.49 times where ε is 3 all the way between them" in said


def test_certify_between_two_places(folder):
    mechanism = mdp.load(folder / "city.mdp")
    west, east = mechanism.bounds[:, 0]
    plane = np.array([[west + 0.05, 0.0], [east - 0.05, 0.1]])
    lonlat = mechanism.projection.to_lonlat(plane)
    places = [f"{lon!r},{lat!r}" for lon, lat in lonlat.tolist()]
    found = json.loads(call("certify", "city.mdp", "--between", *places, "--json", cwd=folder).stdout)["between"]
    certificate = mdp.certify(mechanism)
    assert found["exponent"] == certificate.between_lonlat(*lonlat)
    assert found["ratio"] == math.exp(found["exponent"])
    assert found["radii"] == certificate.radius_lonlat(lonlat).tolist()
    # Half of the way at 3, half at 6; and what is drawn there keeps to it.
    assert found["exponent"] == pytest.approx(4.5 * np.linalg.norm(plane[0] - plane[1]), rel=0.02)
    logs = np.log(mechanism.probabilities(plane))
    assert 0.3 * found["exponent"] < np.abs(logs[0] - logs[1]).max() <= found["exponent"]
    said = words_of(call("certify", "city.mdp", "--between", *places, cwd=folder))
    assert "Between these two places: no report is more than e^" in said
    assert "of the first at most e times, within 166 m of the second." in said


def test_between_is_for_every_mechanism_and_nothing_is_said_without_a_proof(folder):
    problem = random_problem(0)
    mdp.fit(problem, 0.5, "em").save(folder / "em.mdp")
    mdp.fit(problem, 0.5, "lp", cells=2, certify=False).save(folder / "lp.mdp")
    # A place may begin with a minus.
    found = json.loads(call("certify", "em.mdp", "--between", "-1,0", "3,4", "--json", cwd=folder).stdout)["between"]
    assert found["exponent"] == pytest.approx(0.5 * math.hypot(3, 4), rel=1e-6)
    assert found["distance_unit"] == ""
    answer = call("certify", "lp.mdp", "--between", "0,0", "3,4", "--json", cwd=folder)
    assert answer.returncode == 1
    assert json.loads(answer.stdout)["between"] is None
    far = json.loads(call("certify", "city.mdp", "--json", cwd=folder).stdout)
    assert far["between"] is None


@pytest.mark.parametrize(
    ("file", "places", "words"),
    [
        ("city.mdp", ["24.94", "24.94,60.17"], "`--between` must be two places of 2 numbers each, such as 24.94,60.17"),
        ("city.mdp", ["24.94,x", "24.94,60.17"], "`--between` must be two places"),
        ("city.mdp", ["24.94,nan", "24.94,60.17"], "`--between` must be two places"),
        ("city.mdp", ["24.94,160.17", "24.94,60.17"], "between -90 and 90 degrees"),
    ],
)
def test_places_that_are_none(folder, file, places, words):
    answer = call("certify", file, "--between", *places, cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "160.17" not in answer.stderr


# Polygons and rasters


def zones(folder, name, *epsilons, **changes):
    """Write GeoJSON with squares around the centre of Helsinki, of 400 m and more."""
    features = []
    for at, epsilon in enumerate(epsilons, start=1):
        east, north = 0.0036 * at, 0.0018 * at
        west, south = -east, -north
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        ring = [[24.9443 + lon, 60.1716 + lat] for lon, lat in ring]
        feature = {
            "type": "Feature",
            "properties": {"epsilon": epsilon},
            "geometry": {"type": "Polygon", "coordinates": [ring]},
        }
        features.append(feature | changes)
    (folder / name).write_text(json.dumps({"type": "FeatureCollection", "features": features}))


FIT = ["fit", *CITY, "--method", "spline", "--cells", "4", "--out", "zones.mdp", "--epsilon-map"]


def test_polygons_with_values(folder):
    pytest.importorskip("shapely", reason="needs the extra `maps`")
    zones(folder, "zones.json", 6.0)
    answer = call(*FIT, "zones.json", "--epsilon-elsewhere", "2", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    local = mdp.load(folder / "zones.mdp").epsilon_map
    assert set(local.values.ravel().tolist()) == {2.0, 6.0}
    assert local.at([[0.0, 0.0], local.bounds[0]]).tolist() == [6.0, 2.0]
    zones(folder, "two.json", 5.0, 3.0)
    answer = call(*FIT, "two.json", cwd=folder)
    assert "note: Where no polygon is, ε is the least of all, 3;" in " ".join(answer.stderr.split())
    assert mdp.load(folder / "zones.mdp").epsilon_map.min == 3.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"properties": {}}, "feature 0 must have a property 'epsilon' that is a positive number"),
        ({"properties": None}, "must have a property 'epsilon'"),
        ({"properties": {"epsilon": -1}}, "must have a property 'epsilon'"),
        ({"properties": {"epsilon": True}}, "must have a property 'epsilon'"),
        ({"properties": {"epsilon": "2"}}, "must have a property 'epsilon'"),
        ({"geometry": None}, "feature 0"),
        ({"geometry": {"type": "Point", "coordinates": [24.9, 60.1]}}, "must be a valid Polygon or MultiPolygon"),
        ({"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}}, "must be a valid Polygon"),
        ({"geometry": {"type": "Polygon", "coordinates": "here"}}, "has no geometry that can be read"),
        ({"geometry": {"type": "Blob"}}, "has no geometry that can be read"),
    ],
)  # fmt: skip
def test_polygons_that_are_none(folder, changes, words):
    pytest.importorskip("shapely", reason="needs the extra `maps`")
    zones(folder, "bad.json", 6.0, **changes)
    answer = call(*FIT, "bad.json", cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.startswith("error: `--epsilon-map` bad.json, feature 0")


def test_polygons_need_degrees_and_features(folder):
    answer = call("fit", "problem.npz", "--epsilon-map", "zones.geojson", cwd=folder)
    assert "GeoJSON, in longitude and latitude, and the problem has no projection" in answer.stderr
    answer = call(*FIT, "zones.geojson", cwd=folder)
    assert "`--epsilon-map` zones.geojson is GeoJSON without features" in answer.stderr
    answer = call(*FIT, "city.json", "--epsilon-elsewhere", "2", cwd=folder)
    assert "`--epsilon-elsewhere` is about polygons and rasters" in answer.stderr
    answer = call("fit", *CITY, "--epsilon", "1", "--epsilon-elsewhere", "2", cwd=folder)
    assert "`--epsilon-elsewhere` is about `--epsilon-map`" in answer.stderr


def test_a_raster(folder):
    rasterio = pytest.importorskip("rasterio", reason="needs the extra `maps`")
    pixels = np.array([[2.0, 4.0], [4.0, np.nan]])
    place = rasterio.Affine(0.045, 0, 24.90, 0, -0.03, 60.20)
    with rasterio.open(
        folder / "raster.bin", "w", driver="GTiff", width=2, height=2, count=1, dtype="float64", crs="EPSG:4326",
        transform=place, nodata=np.nan,
    ) as file:  # fmt: skip
        file.write(pixels, 1)
    answer = call(*FIT, "raster.bin", cwd=folder)
    assert answer.returncode == 2
    assert "`--epsilon-elsewhere`" in answer.stderr
    answer = call(*FIT, "raster.bin", "--epsilon-elsewhere", "1.5", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    local = mdp.load(folder / "zones.mdp").epsilon_map
    low, high = local.bounds
    assert local.at([[low[0], high[1]], high, low, [high[0], low[1]]]).tolist() == [2.0, 4.0, 4.0, 1.5]
    (folder / "cut.tif").write_bytes((folder / "raster.bin").read_bytes()[:100])
    answer = call(*FIT, "cut.tif", cwd=folder)
    assert answer.returncode == 2
    assert "`--epsilon-map` cut.tif is not a GeoTIFF that can be read" in answer.stderr


# epsilon --by-density

DENSITY = ["epsilon", *CITY, "--by-density", "people=40,least=2,most=8,cells=6"]


def test_a_map_by_density_is_written_drawn_and_fitted(folder):
    answer = call(*DENSITY, "--out", "density.json", "--figures", "density.png", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    said = words_of(answer)
    assert "A map of ε: among 40 people" in said
    assert "cells 6 x 6" in said
    assert "written to density.json drawn to density.png" in said
    assert (folder / "density.png").read_bytes()[:4] == b"\x89PNG"
    found = json.loads(call(*DENSITY, "--json", cwd=folder).stdout)
    assert found["map"] == json.loads((folder / "density.json").read_text())
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)
    local = mdp.EpsilonMap.by_density(problem, people=40, least=2, most=8, cells=6)
    assert (found["least"], found["most"]) == (local.min, local.max)
    assert found["radius_most"] == 1 / local.min
    assert found["out"] is None
    # The radius that at least half of all people have.
    radii = 1 / local.at(problem.records)
    half = found["radius_of_people"]["0.5"]
    assert problem.prior[radii >= half].sum() >= 0.5 - 1e-9
    assert problem.prior[radii > half].sum() < 0.5
    answer = call(*FIT, "density.json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert np.array_equal(mdp.load(folder / "zones.mdp").epsilon_map.values, local.values)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--by-density", "people=40"], "`--by-density` needs least and most too"),
        (["--by-density", "people=40,least=2,most=8,often=3"], "known are people, least, most, population, ratio, cells"),
        (["--by-density", "people=40,people=50,least=2,most=8"], "each once"),
        (["--by-density", "people=many,least=2,most=8"], "people is no number"),
        (["--by-density", "40"], "`--by-density` must be settings such as people=500,least=2,most=8"),
        (["--by-density", "people=40,least=8,most=2"], "`--by-density most` must be at least"),
        (["--by-density", "people=1e9,least=2,most=8"], "`--by-density people` must be at most the population"),
        (["--by-density", "people=40,least=nan,most=2"], "`--by-density least` must be a positive finite number"),
        (["--by-density", "people=40,least=2,most=8", "--radius", "100m"], "`--by-density` and `--radius` exclude each other"),
        (["--by-density", "people=40,least=2,most=8", "--out", "no/map.json"], "`--out` must be a file in a folder that exists"),
        (["--radius", "100m", "--out", "map.json"], "`--out` is about the map of `--by-density`"),
        ([], "or `--by-density`"),
    ],
)  # fmt: skip
def test_errors_of_by_density_name_options(folder, arguments, words):
    before = sorted(file.name for file in folder.iterdir())
    answer = call("epsilon", *CITY, *arguments, cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert sorted(file.name for file in folder.iterdir()) == before
