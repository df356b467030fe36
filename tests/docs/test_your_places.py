"""Every command and every line of Python in docs/your-places.md, run as printed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from cli_tools import call

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "your-places.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
PICKUPS = 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("places")
    rng, city = np.random.default_rng(0), mdp.cities.load("helsinki")
    stops, starts = rng.choice(city.n_nodes, PICKUPS, replace=False), rng.choice(city.n_nodes, 300)
    pd.DataFrame(
        {
            "pickup_id": [f"P{number:03}" for number in range(PICKUPS)],
            "name": [f"Stop {number}" for number in range(PICKUPS)],
            "lat": city.lat[stops] + 1e-4,
            "lon": city.lon[stops],
        }
    ).to_csv(place / "pickups.csv", index=False)
    trips = pd.DataFrame({"pickup_longitude": city.lon[starts], "pickup_latitude": city.lat[starts]})
    trips.to_parquet(place / "trips.parquet")
    journeys = trips.set_axis(["start_lon", "start_lat"], axis=1)
    journeys[["end_lon", "end_lat"]] = journeys.to_numpy()[::-1]
    journeys.to_csv(place / "journeys.csv", index=False)
    return place


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(folder, line):
    program, *arguments = shlex.split(line)
    assert program == "metricdp"
    answer = call(*arguments, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    mechanism = mdp.load(
        folder / (arguments[arguments.index("--out") + 1] if "--out" in arguments else "mechanism.mdp")
    )
    assert mechanism.distance == "ground"
    if "pickups.csv" in arguments:
        pickups = pd.read_csv(folder / "pickups.csv")
        assert mechanism.places[["lon", "lat"]].to_numpy() == pytest.approx(
            pickups[["lon", "lat"]].to_numpy(), abs=1e-9
        )
    if "--id-column" in arguments:
        assert mechanism.places["id"].tolist() == pickups["pickup_id"].tolist()
        assert mechanism.places["name"].tolist() == pickups["name"].tolist()
    if "pickups.csv" not in arguments:
        assert mechanism.places["id"].map(type).eq(str).all()


def test_there_are_commands_of_every_kind():
    assert {line.split()[1] for line in COMMANDS} == {"fit"}
    for option in ("--city", "--columns", "--bounds", "h3:", "geohash:", "square:"):
        assert any(option in line for line in COMMANDS), option


def test_python(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {}
    for block in (block for kind, block in BLOCKS if kind == "python"):
        exec(block, names)
    assert re.search(r"^id +P\d{3}$", capsys.readouterr().out, flags=re.MULTILINE)
    assert names["near"].output_ids == ("kamppi", "kallio")
    assert names["hexagons"].n_outputs == len(set(names["hexagons"].output_ids)) > 5


def test_every_option_about_places_is_explained():
    for option in (
        "--id-column",
        "--name-column",
        "--columns",
        "--output-columns",
        "--coordinates",
        "--bounds",
        "--loss",
    ):
        assert f"`{option}`" in TEXT


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
