"""Own places on the command line: files of points, ids and names, cells, boxes, and what is said about them."""

import json

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.cli._problem import design_problem
from metricdp.perturb.points import read_places

RNG = np.random.default_rng(0)
PEOPLE = RNG.normal([12.5, 41.9], [0.03, 0.02], (80, 2))
STOPS = RNG.uniform([12.45, 41.87], [12.55, 41.93], (5, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("places")
    people = pd.DataFrame({"id": range(80), "Longitude": PEOPLE[:, 0], "Latitude": PEOPLE[:, 1]})
    people.to_csv(place / "people.csv", index=False)
    people.to_parquet(place / "people.parquet")
    gpd.GeoDataFrame(geometry=gpd.points_from_xy(*PEOPLE.T), crs=4326).to_parquet(place / "people.geoparquet")
    np.savetxt(place / "nameless.csv", PEOPLE, delimiter=",")
    np.savetxt(place / "xy.csv", PEOPLE, delimiter=",", header="x,y", comments="")
    np.savetxt(place / "plane.csv", RNG.uniform(0, 4, (30, 2)), delimiter=",", header="x,y", comments="")
    np.savetxt(place / "weights.csv", np.arange(1.0, 81.0))
    stops = pd.DataFrame(
        {"lat": STOPS[:, 1], "lon": STOPS[:, 0], "code": list("abcde"), "called": ["Ü", "", "b", "b", "c"]}
    )
    stops.to_csv(place / "stops.csv", index=False)
    features = gpd.GeoDataFrame(stops[["code", "called"]], geometry=gpd.points_from_xy(*STOPS.T), crs=4326)
    features.to_file(place / "stops.geojson", driver="GeoJSON")
    return place


def fit(folder, *arguments):
    answer = call("fit", *arguments, "--epsilon", "2", "--method", "em", "--out", "m.mdp", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return mdp.load(folder / "m.mdp"), answer.stderr


def problem(folder, monkeypatch, **options):
    """Return the problem that options describe."""
    monkeypatch.chdir(folder)
    settings = {"n_outputs": None, "n_tasks": None, "seed": None, "p": 2.0}
    return design_problem(None, options.pop("city", None), **settings, **options)[0]


@pytest.mark.parametrize("records", ["people.csv", "people.parquet", "people.geoparquet", "nameless.csv"])
@pytest.mark.parametrize("outputs", ["stops.csv", "stops.geojson"])
def test_every_format_gives_the_problem_of_the_same_degrees(folder, monkeypatch, records, outputs):
    read = problem(folder, monkeypatch, records=folder / records, outputs=outputs)
    wanted = mdp.Problem.from_lonlat(PEOPLE, STOPS)
    assert read.records == pytest.approx(wanted.records, abs=1e-9)
    assert read.loss == pytest.approx(wanted.loss, abs=1e-9)
    assert read.projection.lon_deg == pytest.approx(wanted.projection.lon_deg)


@pytest.mark.parametrize("outputs", ["stops.csv", "stops.geojson"])
def test_ids_and_names_flow_to_the_problem(folder, monkeypatch, outputs):
    read = problem(
        folder, monkeypatch, records=folder / "people.csv", outputs=outputs, id_column="code", name_column="called"
    )
    assert read.output_ids == tuple("abcde")
    assert read.output_names == ("Ü", "", "b", "b", "c")


def test_the_mechanism_has_a_projection_and_epsilon_is_per_true_km(folder):
    mechanism, said = fit(folder, "--records", "people.csv", "--outputs", "stops.csv")
    assert mechanism.projection is not None
    assert mechanism.distance == "ground"
    assert mechanism.places[["lon", "lat"]].to_numpy() == pytest.approx(STOPS, abs=1e-9)
    assert said == ""


def test_what_values_alone_suggest_is_said(folder):
    mechanism, said = fit(folder, "--records", "nameless.csv", "--outputs", "nameless.csv")
    assert mechanism.projection is not None
    assert "Going by their values, they were taken as longitude and latitude" in said
    mechanism, said = fit(
        folder, "--records", "nameless.csv", "--outputs", "nameless.csv", "--coordinates", "projected"
    )
    assert mechanism.projection is None
    assert said == ""
    mechanism, said = fit(folder, "--records", "xy.csv", "--outputs", "xy.csv")
    assert mechanism.projection is None
    assert "but their values look like degrees; if they are, pass `--coordinates` lonlat" in said
    mechanism, said = fit(folder, "--records", "xy.csv", "--outputs", "stops.csv", "--coordinates", "lonlat")
    assert mechanism.projection is not None
    mechanism, said = fit(folder, "--records", "plane.csv", "--outputs", "plane.csv")
    assert mechanism.projection is None
    assert said == ""


def test_rows_without_a_point_are_counted_and_their_weights_go_with_them(folder, monkeypatch, capsys):
    table = pd.read_csv(folder / "people.csv")
    table.loc[[0, 7], "Longitude"] = np.nan
    table.to_csv(folder / "gaps.csv", index=False)
    read = problem(folder, monkeypatch, records=folder / "gaps.csv", outputs="stops.csv", prior=folder / "weights.csv")
    assert "note: 2 of 80 rows of `--records` have no point and were left out" in " ".join(
        capsys.readouterr().err.split()
    )
    kept = np.delete(np.arange(1.0, 81.0), [0, 7])
    assert read.prior == pytest.approx(kept / kept.sum())
    assert read.n_records == 78


def test_bounds_are_degrees_and_leave_records_outside_out(folder, monkeypatch, capsys):
    table = pd.read_csv(folder / "people.csv")
    table.loc[3, ["Longitude", "Latitude"]] = 2.35, 48.85
    table.to_csv(folder / "outlier.csv", index=False)
    _, said = fit(folder, "--records", "outlier.csv", "--outputs", "stops.csv")
    assert "warning: 1 of 80 records lie far from the rest" in said
    assert "as `--bounds` west,south,east,north does" in said
    options = {"records": folder / "outlier.csv", "outputs": "stops.csv", "bounds": "12.3,41.7,12.7,42.1"}
    read = problem(folder, monkeypatch, prior=folder / "weights.csv", **options)
    assert "1 of 80 records lie outside `--bounds`" in " ".join(capsys.readouterr().err.split())
    assert read.projection.to_lonlat(read.bounds) == pytest.approx(np.array([[12.3, 41.7], [12.7, 42.1]]))
    kept = np.delete(np.arange(1.0, 81.0), 3)
    assert read.prior == pytest.approx(kept / kept.sum())


def test_bounds_of_plain_coordinates(folder, monkeypatch):
    read = problem(folder, monkeypatch, records=folder / "plane.csv", outputs="plane.csv", bounds="-1,-2,5,6")
    assert read.bounds.tolist() == [[-1, -2], [5, 6]]


@pytest.mark.parametrize("cells", ["h3:7", "geohash:5", "square:2km"])
def test_cells_over_the_records(folder, monkeypatch, cells):
    read = problem(folder, monkeypatch, records=folder / "people.csv", outputs=cells)
    assert read == mdp.Problem.from_lonlat(pd.read_csv(folder / "people.csv"), cells)


def test_compare_reads_the_same_places(folder):
    answer = call(
        "compare", "--records", "people.csv", "--outputs", "stops.csv", "--epsilons", "2", "--methods", "em",
        "--clusters", "5", "--workers", "1", "--cache", "cache", "--json", cwd=folder,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    wanted = mdp.Problem.from_lonlat(PEOPLE, STOPS)
    assert json.loads(answer.stdout)[0]["loss"] == pytest.approx(
        mdp.fit(wanted, 2.0, "em").expected_loss(wanted), rel=1e-6
    )


def test_arrays_are_degrees_if_an_option_says_so(folder):
    np.savez(folder / "degrees.npz", records=PEOPLE)
    mechanism, said = fit(folder, "degrees.npz", "--outputs", "stops.csv", "--coordinates", "lonlat")
    assert mechanism.distance == "ground"
    assert mechanism.places[["lon", "lat"]].to_numpy() == pytest.approx(STOPS, abs=1e-9)
    assert said == ""
    mechanism, _ = fit(folder, "degrees.npz", "--outputs", "h3:7", "--coordinates", "lonlat")
    assert mechanism.distance == "ground"


def test_a_file_may_be_at_a_url(folder):
    mechanism, _ = fit(
        folder, "--records", (folder / "people.csv").as_uri(), "--outputs", (folder / "stops.csv").as_uri()
    )
    assert mechanism.n_outputs == 5


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A folder of cities with a street of nodes a hundred metres apart."""
    place = tmp_path_factory.mktemp("data") / "town"
    place.mkdir()
    lon = 12.45 + 0.1 * np.linspace(0, 1, 60)
    lat = 41.87 + 0.06 * np.sin(np.linspace(0, 6, 60)) ** 2
    pd.DataFrame({"id": range(60), "lon": lon, "lat": lat}).to_csv(place / "nodes.csv", index=False)
    pd.DataFrame({"u": range(59), "v": range(1, 60), "length_m": 100.0}).to_csv(place / "edges.csv", index=False)
    return place.parent


def test_own_places_with_the_roads_of_a_city(folder, town, monkeypatch):
    monkeypatch.setenv("METRICDP_DATA", str(town))
    read = problem(folder, monkeypatch, city="town", outputs="stops.csv", id_column="code", name_column="called")
    city = mdp.cities.load("town")
    nodes = city.nearest_nodes(STOPS)
    wanted = city.problem(nodes)
    assert np.array_equal(read.loss, wanted.loss)
    assert read.outputs == pytest.approx(city.projection.to_xy_km(*STOPS.T), abs=1e-9)
    assert read.output_ids == tuple("abcde")
    cells = problem(folder, monkeypatch, city="town", outputs="geohash:6")
    assert np.array_equal(cells.loss, city.problem(city.nearest_nodes(city.projection.to_lonlat(cells.outputs))).loss)
    assert all(len(one) == 6 for one in cells.output_ids)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--records", "xy.csv", "--outputs", "stops.csv"], "`--outputs` holds longitude and latitude and `--records` does not"),
        (["--records", "plane.csv", "--outputs", "h3:8"], "Cells such as h3:8 need `--records` in longitude and latitude"),
        (["--records", "people.csv", "--outputs", "h3:77"], "`--outputs` must be h3 cells with a number from 0 to 15"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--id-column", "nr"], "`--id-column` must be among the columns lat, lon, code, called"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--id-column", "lat"], "`--id-column` must be a column of texts or numbers, got 'lat', which holds the point"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--id-column", "called"], "`--id-column` must be made of texts of 1 to 256 characters"),
        (["--records", "people.csv", "--outputs", "h3:8", "--id-column", "code"], "`--id-column` is about a file of `--outputs`"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--columns", "Longitude,lat"], "`--columns` must be among the columns"),
        (["--records", "stops.csv", "--outputs", "people.csv", "--output-columns", "id,lat"], "`--output-columns` must be among the columns"),
        (["--columns", "a,b", "--outputs", "stops.csv"], "`--columns` is about `--records`, which is not given"),
        (["--city", "helsinki", "--encoding", "latin-1"], "`--encoding` is about a file of `--records` or `--outputs`, which is not given"),
        (["--city", "helsinki", "--outputs", "square:500m", "--encoding", "latin-1"], "`--encoding` is about a file of"),
        (["--city", "helsinki", "--coordinates", "lonlat"], "`--coordinates` is about a file of `--outputs`, which is not given"),
        (["--city", "helsinki", "--id-column", "code"], "`--id-column` is about a file of `--outputs`, which is not given"),
        (["--city", "helsinki", "--outputs", "stops.csv", "--n-outputs", "5"], "`--n-outputs` is about places drawn from the city, and `--outputs` names yours"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--n-tasks", "5"], "`--n-tasks` is about a `--city`; leave it out"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--seed", "0"], "`--seed` is about a `--city`; leave it out"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--coordinates", "miles"], "`--coordinates` must be one of 'lonlat', 'projected'"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--bounds", "1,2,3"], "`--bounds` must be numbers: west,south,east,north"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--bounds", "1,2,3,4,5,6"], "`--bounds` must be 4 numbers"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--bounds", "13,41,12,42"], "`--bounds` must be west and south, then east and north"),
        (["--records", "people.csv", "--outputs", "stops.csv", "--bounds", "2,48,3,49"], "No record lies inside `--bounds`"),
        (["--records", "weights.txt", "--outputs", "stops.csv"], "`--records` must be '-' or a file that ends in"),
        (["--records", "missing.csv", "--outputs", "stops.csv"], "missing.csv"),
        (["--records", "odd.csv", "--outputs", "stops.csv"], "`--columns` must be named (looked for lon, lat or x, y, z or x, y or x)"),
        (["--records", "far.csv", "--outputs", "stops.csv"], "`--records` must be longitudes within ±180 and latitudes within ±90 degrees"),
        (["--city", "helsinki", "--outputs", "plane.csv"], "A city needs `--outputs` in longitude and latitude"),
        (["--city", "helsinki", "--outputs", "stops.csv"], "`--outputs` must be longitude, latitude pairs in or near 'helsinki'"),
        (["--city", "helsinki", "--bounds", "1,2,3,4"], "leave out `--bounds`"),
        (["--city", "helsinki", "--columns", "a,b"], "leave out `--columns`"),
        (["plane.npz", "--outputs", "stops.csv"], "`--outputs` holds longitude and latitude and `records of plane.npz` does not"),
    ],
)  # fmt: skip
def test_errors_name_options_and_no_coordinates(folder, arguments, words):
    (folder / "odd.csv").write_text("a,b\n1,2\n")
    np.savez(folder / "plane.npz", records=PEOPLE)
    (folder / "far.csv").write_text("lon,lat\n12.5,41.9\n41.9123,112.5123\n")
    answer = call("fit", *arguments, "--epsilon", "1", "--out", "new.mdp", cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "112.5123" not in answer.stderr
    assert not (folder / "new.mdp").exists()


@pytest.mark.parametrize(
    ("command", "option"),
    [(("fit", "--epsilon", "1"), "--out"), (("compare", "--epsilons", "1"), "--csv"), (("compare", "--epsilons", "1"), "--markdown")],
)  # fmt: skip
def test_a_folder_that_does_not_exist_is_noticed_before_the_work(folder, command, option):
    """Neither are the files of places looked for, which do not exist, nor is anything fitted."""
    answer = call(*command, "--records", "missing.csv", "--outputs", "missing.csv", option, "nowhere/new", cwd=folder)
    assert answer.returncode == 2
    assert f"`{option}` must be a file in a folder that exists, got 'nowhere/new'" in answer.stderr


def test_long_texts_are_refused_before_they_add_up(tmp_path):
    table = pd.DataFrame({"lon": [12.5, 12.6], "lat": [41.9, 41.8], "name": ["a" * 257, "b"]})
    table.to_parquet(tmp_path / "long.parquet")
    with pytest.raises(mdp.InvalidInputError, match="`name` must be texts of at most 256 characters"):
        read_places(tmp_path / "long.parquet", name_column="name")


def test_ids_of_numbers_stay_numbers_where_the_file_has_types(tmp_path):
    pd.DataFrame({"lon": [12.5, None], "lat": [41.9, 41.8], "id": [7, 8]}).to_parquet(tmp_path / "typed.parquet")
    found = read_places(tmp_path / "typed.parquet", id_column="id")
    assert (found.ids, found.skipped, found.kept.tolist()) == ([7], 1, [True, False])
    (tmp_path / "zeros.csv").write_text("lon,lat,id\n12.5,41.9,007\n")
    assert read_places(tmp_path / "zeros.csv", id_column="id").ids == ["007"]
    (tmp_path / "none.csv").write_text("lon,lat,id\n12.5,41.9,\n")
    pd.DataFrame({"lon": [12.5], "lat": [41.9], "id": [None]}, dtype=object).astype(
        {"lon": float, "lat": float}
    ).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(
        mdp.InvalidInputError, match="`id_column` must be a value for every place, got none in 1 of 1 rows"
    ):
        read_places(tmp_path / "none.parquet", id_column="id")


def test_places_in_another_encoding(folder, tmp_path):
    """Excel on many machines writes cp1252; the error of a command names the option that helps."""
    text = (folder / "stops.csv").read_text(encoding="utf-8")
    (tmp_path / "stops.csv").write_bytes(text.encode("cp1252"))
    (tmp_path / "people.csv").write_bytes((folder / "people.csv").read_bytes())
    named = ("--records", "people.csv", "--outputs", "stops.csv", "--name-column", "called")
    refused = call("fit", *named, "--epsilon", "2", "--method", "em", "--out", "m.mdp", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "text that is not UTF-8; say what it is with `--encoding`" in refused.stderr
    fitted, _ = fit(tmp_path, *named, "--encoding", "cp1252")
    assert fitted.output_names[0] == "Ü"
    wrong = call("fit", *named, "--encoding", "klingon", "--epsilon", "2", "--out", "n.mdp", cwd=tmp_path)
    assert "`--encoding` must be a text encoding that Python knows" in wrong.stderr


def test_errors_of_writing_name_the_file_and_not_the_one_that_is_written_aside(tmp_path):
    mechanism = mdp.fit(mdp.Problem([[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], "euclidean"), 1.0, "em")
    with pytest.raises(FileNotFoundError) as caught:
        mechanism.save(tmp_path / "nowhere" / "m.mdp")
    assert caught.value.filename == str(tmp_path / "nowhere" / "m.mdp")


def test_pictures_go_to_a_folder_which_is_noticed_before_the_work(folder):
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    asked = ("compare", "--records", "missing.csv", "--outputs", "missing.csv", "--epsilons", "1")
    answer = call(*asked, "--figures", "people.csv", cwd=folder)
    assert answer.returncode == 2
    assert "`--figures` must be a folder, got the file 'people.csv'" in answer.stderr
