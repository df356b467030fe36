"""Every command and every line of Python of docs/start, run as printed, and its figures."""

import re
import shlex
import shutil
import subprocess
import tomllib

import pandas as pd
import pytest

import metricdp as mdp
from cli_tools import call
from docs_tools import DOCS, blocks, run_page

ROOT = DOCS.parent
START = DOCS / "start"


def test_five_minutes(tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    matplotlib.use("agg")
    run_page("start/five-minutes.md", tmp_path)
    private = pd.read_csv(tmp_path / "private.csv")
    assert list(private) == ["output_id", "lon", "lat", "who"]
    assert list(private["who"]) == ["ann", "bob", "eve"]
    shown = next(block for block in blocks("start/five-minutes.md") if block.text.startswith("output_id"))
    assert shown.text.splitlines()[0].split(",") == list(private)
    # The picture of the page is one that its code makes: the same size, and 20 places at the same coordinates.
    ours, theirs = (matplotlib.image.imread(folder / "helsinki.png") for folder in (tmp_path, START))
    assert ours.shape == theirs.shape
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    text = (START / "five-minutes.md").read_text(encoding="utf-8")
    assert f"wrong by {1000 * problem.floor:.0f} m already" in " ".join(text.split())
    assert f"chosen blindly by {1000 * problem.uniform_loss:.0f} m" in " ".join(text.split())


def test_own_places(tmp_path):
    found = run_page("start/own-places.md", tmp_path)
    private = pd.read_csv(tmp_path / "private.csv")
    stops = pd.read_csv(tmp_path / "stops.csv")
    assert len(private) == len(pd.read_csv(tmp_path / "addresses.csv"))
    assert set(private["output_id"]) <= set(stops["stop"])
    assert mdp.load(tmp_path / "stops.mdp").places["name"].tolist() == stops["name"].tolist()
    assert found.names["mechanism"].distance == "ground"
    assert re.search(r"^id +[ABC]\d$", found.said, flags=re.MULTILINE)


def test_choose_epsilon(tmp_path):
    run_page("start/choose-epsilon.md", tmp_path)
    private = pd.read_csv(tmp_path / "private.csv")
    assert len(private) == 3
    assert private["output_id"].notna().all()


def test_csv_to_phone(tmp_path):
    run_page("start/csv-to-phone.md", tmp_path)
    trips, stops = pd.read_csv(tmp_path / "trips.csv"), pd.read_csv(tmp_path / "stops.csv")
    private = pd.read_parquet(tmp_path / "private.parquet")
    shown = next(block for block in blocks("start/csv-to-phone.md") if block.text.startswith("output_id"))
    assert shown.text.splitlines()[0].split() == list(private)
    assert private[["who", "time"]].equals(trips[["who", "time"]])
    assert set(private["output_id"]) <= set(stops["stop"])
    assert private["output_id"][0] == private["output_id"][2]  # Ann, twice in a period
    truth = stops.set_index("stop").loc[private["output_id"]]
    assert (private[["lon", "lat"]].to_numpy() == truth[["lon", "lat"]].to_numpy()).all()
    with mdp.Ledger(tmp_path / "days.db") as ledger:
        assert (ledger.max_epsilon, ledger.window, ledger.every) == (14, "24h", "4h")
        assert ledger.budget("ann", time=1763452800).spent == 6
    assert (tmp_path / "page" / "index.html").exists()
    # A second run of the same file is refused as the page says.
    again = next(
        line
        for block in blocks("start/csv-to-phone.md")
        if block.kind == "sh"
        for line in block.commands
        if " perturb " in line
    )
    answer = call(*shlex.split(again)[1:], "--overwrite", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "because their time is before" in " ".join(answer.stdout.split())


def cells(line):
    return [float(cell.strip(" *").split()[0]) for cell in line.strip("|\n ").split("|")]


def test_the_table_of_epsilons():
    """It repeats that of docs/choosing-epsilon.md, whose figures are checked."""
    rows = [
        [
            cells(line)
            for line in (DOCS / page).read_text(encoding="utf-8").split(head)[1].split("\n\n")[0].splitlines()[2:]
        ]
        for page, head in (("start/choose-epsilon.md", "| ε per km |"), ("choosing-epsilon.md", "| ε |"))
    ]
    assert len(rows[0]) == 5
    for (epsilon, radius, distance, loss), (same, radius_e, _, distance_95, loss_km) in zip(*rows, strict=True):
        assert (epsilon, radius, distance) == (same, radius_e, distance_95)
        assert loss == round(1000 * loss_km)


def test_every_extra_is_listed():
    text = (START / "install.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| .* \| \+\d+ \|$", text, flags=re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(listed) == set(extras)


@pytest.mark.slow
def test_install(tmp_path):
    """The commands of the page, in a copy of the source."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "js" / "src", tmp_path / "js" / "src")
    (block,) = blocks("start/install.md")
    answer = subprocess.run(
        ["bash", "-e", "-c", block.text], cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False
    )
    if "No matching distribution" in answer.stderr:
        pytest.skip("needs a package index")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-1].startswith("metricdp ")


@pytest.mark.parametrize("page", sorted(START.glob("*.md")), ids=lambda path: path.name)
def test_links_exist(page):
    for target in re.findall(r"\]\((?!https:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (START / target).exists(), target
