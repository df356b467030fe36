"""Three new users who know README.md, docs/ and `--help` alone, with messy data of their own, find what they expect.

An engineer with pings and pick-up points, a researcher with methods of her own, a data engineer with odd files.
"""

import contextlib
import gzip
import json
import os
import random
import re
import runpy
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metricdp as mdp
from cli_tools import call
from install_tools import build_wheel

ROOT = Path(__file__).parents[2]

# Inside the box of central Helsinki.
SOUTH_WEST, NORTH_EAST = (24.937, 60.166), (24.951, 60.177)

# Pings without a point, written in different ways.
NULLS = (3, 4, 5)


def places(count, seed):
    return np.random.default_rng(seed).uniform(SOUTH_WEST, NORTH_EAST, (count, 2))


def fine(*arguments, cwd):
    """Run a command that must succeed."""
    answer = call(*arguments, cwd=cwd)
    assert answer.returncode == 0, answer.stderr
    return answer


def refused(*arguments, cwd):
    """Run a command that must end with one line that says what to do, and return that line."""
    answer = call(*arguments, cwd=cwd)
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = (line for line in answer.stderr.splitlines() if not line.startswith(("note: ", "warning: ")))
    return line


def assert_no_true_point(folder, points):
    """No output holds a coordinate of the input."""
    for path in folder.rglob("private*"):
        text = pd.read_parquet(path).to_csv() if path.suffix == ".parquet" else path.read_text(encoding="utf-8")
        assert not [lon for lon in points[:, 0] if str(lon) in text], path


# The engineer


PINGS = places(400, seed=7)
PICKUPS = places(150, seed=8)
PICKUP_FIT = (
    "fit", "--city", "helsinki", "--outputs", "pickups.csv", "--id-column", "pickup_id", "--name-column", "name",
    "--epsilon", "8", "--time-limit", "3", "--out", "pickups.mdp",
)  # fmt: skip


@pytest.fixture(scope="module")
def engineer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engineer")
    pickups = {
        "pickup_id": [f"{number:03d}" for number in range(150)],
        "name": [f'Stop "{number}", Länsi\u2019' for number in range(150)],
        "Longitude": PICKUPS[:, 0],
        "pickup_lat": PICKUPS[:, 1],
    }
    pd.DataFrame(pickups).to_csv(folder / "pickups.csv", index=False)
    table = messy_pings()
    table.to_csv(folder / "pings.csv", index=False)
    table.to_csv(folder / "excel.csv", index=False, encoding="utf-16")
    table.to_csv(folder / "old.csv", index=False, encoding="cp1252")
    table.to_csv(folder / "pings.tsv", index=False, sep="\t")
    with gzip.open(folder / "pings.jsonl.gz", "wt") as lines:
        for number, (lon, lat) in enumerate(PINGS):
            where = {} if number in NULLS else {"where": {"lon": lon, "lat": lat}}
            lines.write(json.dumps({"ping_id": f"{number:05d}", "device": f"dev{number % 7}", **where}) + "\n")
    said = fine(*PICKUP_FIT, cwd=folder)
    return SimpleNamespace(folder=folder, said=said)


def messy_pings():
    table = pd.DataFrame(PINGS.astype(str), columns=["Longitude", "pickup_lat"])
    table.insert(0, "ping_id", [f"{number:05d}" for number in range(400)])
    table["device"] = [f"dev{number % 7}" for number in range(400)]
    table["note"] = "Töölö; ja"
    for number, null in zip(NULLS, ("", "\\N", "NA"), strict=True):
        table.loc[number, ["Longitude", "pickup_lat"]] = null
    return table


def test_the_engineer_has_named_pickups_with_a_city_in_one_command(engineer):
    assert "Within 125 m no report is more than e" in " ".join(engineer.said.stdout.split())
    assert "written to pickups.mdp" in engineer.said.stdout
    known = mdp.load(engineer.folder / "pickups.mdp").places
    assert list(known["id"]) == [f"{number:03d}" for number in range(150)]
    assert known["name"][7] == 'Stop "7", Länsi’'
    assert known[["lon", "lat"]].to_numpy() == pytest.approx(PICKUPS, abs=1e-9)


def test_the_engineer_proves_it_reads_its_card_and_chooses_epsilon(engineer):
    proved = fine("certify", "pickups.mdp", cwd=engineer.folder).stdout
    assert proved.startswith("holds: ")
    assert "Two people 500 m apart: no report is more than 54.6 times likelier" in proved
    claimed = " ".join(fine("info", "pickups.mdp", cwd=engineer.folder).stdout.split())
    assert "not proved here" in claimed
    card = json.loads(fine("info", "pickups.mdp", "--certify", "--json", cwd=engineer.folder).stdout)
    assert card["proof"]["holds"]
    assert (card["outputs"], card["protection_radius_e"]) == (150, pytest.approx(0.125, rel=1e-3))
    which = ["epsilon", "--city", "helsinki", "--outputs", "pickups.csv", "--method", "em"]
    chosen = json.loads(fine(*which, "--radius", "125m", "--json", cwd=engineer.folder).stdout)
    assert chosen["epsilon"] == 8
    assert "500m, 0.5km" in refused(*which, "--radius", "125", cwd=engineer.folder)


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("pings.csv", "private.csv", ()),
        ("excel.csv", "private-excel.parquet", ()),
        ("old.csv", "private-old.parquet", ("--encoding", "cp1252")),
        ("pings.tsv", "private.tsv", ()),
        ("pings.jsonl.gz", "private-lines.csv", ("--columns", "where.lon,where.lat")),
    ],
)
def test_the_engineers_messy_files_have_an_output_for_every_ping(engineer, source, target, options):
    said = fine("perturb", "pickups.mdp", source, target, "--copy", "ping_id", *options, cwd=engineer.folder)
    assert f"400 rows written to {target}" in said.stdout
    assert "3 had no point and have no output" in said.stdout
    assert said.stderr == ""
    check_pings(engineer.folder / target)
    assert_no_true_point(engineer.folder, PINGS)


def check_pings(path):
    separator = "\t" if path.suffix == ".tsv" else ","
    private = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, sep=separator, dtype=str)
    assert list(private["ping_id"]) == [f"{number:05d}" for number in range(400)]
    assert list(np.flatnonzero(private["output_id"].isna())) == list(NULLS)
    drawn = private.dropna(subset=["output_id"])
    assert set(drawn["output_id"]) <= {f"{number:03d}" for number in range(150)}
    assert all(drawn["output_name"] == [f'Stop "{int(one)}", Länsi’' for one in drawn["output_id"]])
    numbers = drawn["output_id"].astype(int)
    assert drawn[["lon", "lat"]].astype(float).to_numpy() == pytest.approx(PICKUPS[numbers], abs=1e-9)


def test_the_engineer_is_told_what_to_do_about_files_that_cannot_be_read_as_they_are(engineer):
    folder = engineer.folder
    asked = ("perturb", "pickups.mdp")
    assert "may lead into objects: where.NAME" in refused(*asked, "pings.jsonl.gz", "x.csv", cwd=folder)
    assert "not UTF-8; say what it is with `--encoding`" in refused(
        *asked, "old.csv", "x.csv", "--copy", "note", cwd=folder
    )
    assert "text that is not UTF-16" in refused(*asked, "pings.csv", "x.csv", "--encoding", "utf-16", cwd=folder)
    assert refused(*asked, "none.csv", "x.csv", cwd=folder) == "error: No such file or directory: 'none.csv'"
    (folder / "commas.csv").write_text("lon;lat\n24,94;60,17\n")
    assert "decimals have a point" in refused(*asked, "commas.csv", "x.csv", cwd=folder)
    assert not (folder / "x.csv").exists()


def test_the_engineers_urls(engineer):
    fsspec = pytest.importorskip("fsspec", reason="needs the extra `remote`")
    memory = fsspec.filesystem("memory")
    memory.pipe("/users/pings.csv", (engineer.folder / "pings.csv").read_bytes())
    url = "memory://users/pings.csv"
    fine("perturb", "pickups.mdp", url, "private-url.csv", "--copy", "ping_id", cwd=engineer.folder)
    check_pings(engineer.folder / "private-url.csv")
    memory.rm("/users", recursive=True)
    asked = ("perturb", "pickups.mdp", "s3://bucket/secret-key/pings.csv", "x.csv")
    with mock.patch.dict(sys.modules, {"s3fs": None}):
        line = refused(*asked, cwd=engineer.folder)
    assert "s3fs" in line
    assert "secret-key" not in line
    absent = {name: None for name in sys.modules if name.split(".")[0] == "fsspec"}
    with mock.patch.dict(sys.modules, absent):
        assert "pip install 'metricdp[remote]'" in refused(*asked, cwd=engineer.folder)


def test_the_engineers_swapped_columns_are_noticed_in_files_and_over_http(engineer, tmp_path):
    swapped = messy_pings().rename(columns={"Longitude": "pickup_lat", "pickup_lat": "Longitude"})
    swapped.to_csv(engineer.folder / "swapped.csv", index=False)
    said = fine("perturb", "pickups.mdp", "swapped.csv", "private-swapped.csv", cwd=engineer.folder)
    assert "100 % of points fall outside the box; are columns swapped?" in said.stderr
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from service_tools import running

    for option, value in (("--city", "helsinki"), ("--tiles", "https://example.org/{z}/{x}/{y}.png")):
        line = refused("serve", "pickups.mdp", option, value, cwd=engineer.folder)
        assert f"`{option}` is about the page; give `--page` too" in line
    with running(tmp_path, engineer.folder / "pickups.mdp") as service, service.client() as client:
        points = PINGS[:25].tolist()
        right = client.post("/v1/perturb", json={"points": points}).json()
        assert (right["outside"], right["hint"]) == (0, None)
        assert {one["id"] for one in right["outputs"]} <= {f"{number:03d}" for number in range(150)}
        wrong = client.post("/v1/perturb", json={"points": [point[::-1] for point in points]}).json()
        assert wrong["outside"] == 25
        assert "exchanged: are they swapped?" in wrong["hint"]
        # A guess at the API is answered with the names that there are, without what was sent.
        guess = client.post("/v1/perturb", json={"lon": 24.94123, "lat": 60.17})
        assert guess.status_code == 422
        assert re.search(r"a field that is not known; known are .*\bpoints\b", guess.text)
        assert "24.94123" not in guess.text


def test_the_engineers_budget_below_one_report_is_noticed(engineer):
    folder = engineer.folder
    asked = ("perturb", "pickups.mdp", "pings.csv")
    assert "needs `--user-column`" in refused(*asked, "x.csv", "--ledger", "a.db", "--max-epsilon", "9", cwd=folder)
    assert "needs a `--ledger`" in refused(*asked, "x.csv", "--user-column", "device", cwd=folder)
    assert "needs `--max-epsilon`" in refused(
        *asked, "x.csv", "--ledger", "b.db", "--user-column", "device", cwd=folder
    )
    budget = ("--user-column", "device", "--ledger")
    said = fine(*asked, "private-none.csv", *budget, "low.db", "--max-epsilon", "4", cwd=folder)
    assert "No report is affordable: each costs ε = 8, and nobody may spend more than 4 in all" in said.stderr
    assert "397 were refused, because their budget was spent" in said.stdout
    assert pd.read_csv(folder / "private-none.csv")["output_id"].isna().all()
    said = fine(*asked, "private-some.csv", *budget, "some.db", "--max-epsilon", "40", cwd=folder)
    assert said.stderr == ""
    assert pd.read_csv(folder / "private-some.csv")["output_id"].notna().sum() == 7 * 5
    shown = fine("ledger", "show", "some.db", cwd=folder).stdout
    assert "7 people had 35 reports and spent 280 in all" in shown
    assert "dev" not in shown
    person = json.loads(fine("ledger", "user", "some.db", "dev1", "--json", cwd=folder).stdout)
    assert (person["spent"], person["remaining"], person["reports"]) == (40, 0, 5)


# The researcher


RESEARCH = '''
"""Own methods beside the library's, as docs/compare.md and docs/your-places.md say."""

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

import metricdp as mdp

Array = npt.NDArray[np.float64]

generator = np.random.default_rng(1)
homes = pd.DataFrame(generator.uniform([24.935, 60.165], [24.953, 60.179], (120, 2)), columns=["Longitude", "home_lat"])
homes["income"] = 1.0
shops = pd.DataFrame(generator.uniform([24.935, 60.165], [24.953, 60.179], (6, 2)), columns=["lon", "lat"])
shops["id"] = [f"s{number}" for number in range(6)]
problem = mdp.Problem.from_lonlat(homes, shops, id_column="id")
again = mdp.Problem.from_lonlat(homes.copy(), shops.copy(), id_column="id")
other = mdp.Problem.from_lonlat(homes, shops)
same = (problem == again, hash(problem) == hash(again), problem == other)

mechanism = mdp.fit(problem, epsilon=4.0, method="em")
degrees = homes[["Longitude", "home_lat"]].to_numpy()
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    mechanism.sample(degrees)
    warned = [str(one.message) for one in heard]
    heard.clear()
    reports = mechanism.places["id"].iloc[mechanism.sample_lonlat(degrees)]
    silent = not heard


def nearest(problem: mdp.Problem, epsilon: float) -> Callable[[Array], Array]:
    """Report the nearest shop, which hides nothing."""

    def probabilities(points: Array) -> Array:
        distance = np.linalg.norm(points[:, None] - problem.outputs[None], axis=2)
        return np.asarray(distance == distance.min(axis=1, keepdims=True), dtype=np.float64)

    return probabilities


def broken(problem: mdp.Problem, epsilon: float) -> Callable[[Array], Array]:
    """Fail, as code that is being written does."""
    raise RuntimeError("not written yet")


table = mdp.compare(problem, [2.0, 4.0], ["em", nearest, broken, ("mine", mechanism)], clusters=10)
table.to_parquet("table.parquet")
latex: str = table.to_latex()

try:
    mdp.fit(problem, epsilon=4.0, method="lp", cells=4)
    refused = None
except mdp.NotCertified as error:
    refused = error.certificate

cards = [one._repr_html_() for one in (problem, mechanism, mdp.certify(mechanism), table)]
'''


@pytest.fixture(scope="module")
def research(tmp_path_factory):
    folder = tmp_path_factory.mktemp("research")
    (folder / "research.py").write_text(RESEARCH, encoding="utf-8")
    with contextlib.chdir(folder):
        found = runpy.run_path("research.py")
    return SimpleNamespace(folder=folder, **{name: found[name] for name in found if not name.startswith("__")})


def test_the_researcher_is_told_of_degrees_and_the_method_that_takes_them(research):
    assert research.same == (True, True, False)
    (warned,) = research.warned
    assert "they look like longitude and latitude, which `sample_lonlat`" in warned
    assert research.silent
    assert set(research.reports) <= set(research.shops["id"])


def test_the_researchers_own_methods_end_no_comparison(research):
    rows = research.table.set_index(["method", "epsilon"])
    assert len(rows) == 8
    assert rows["certified"].to_dict() == {
        ("em", 2.0): True, ("em", 4.0): True, ("nearest", 2.0): False, ("nearest", 4.0): False,
        ("broken", 2.0): False, ("broken", 4.0): False, ("mine", 2.0): False, ("mine", 4.0): True,
    }  # fmt: skip
    assert rows.loc[("nearest", 2.0), "max_ratio"] == np.inf
    assert rows.loc[("nearest", 2.0), "violation_ratio"] > 0
    assert rows.loc[("nearest", 2.0), "loss"] < rows.loc[("nearest", 2.0), "lower_bound"]
    assert "not written yet" in rows.loc[("broken", 2.0), "error"]
    assert 1 < rows.loc[("mine", 2.0), "max_ratio"] <= 2
    assert not research.table.certificates["nearest", 2.0].holds
    read = pd.read_parquet(research.folder / "table.parquet")
    pd.testing.assert_frame_equal(read, pd.DataFrame(research.table), check_frame_type=False)
    assert research.latex.count(r"\\") == 1 + 8


def test_the_researcher_sees_why_something_is_not_private_and_cards_of_everything(research):
    assert not research.refused.holds
    assert research.refused.worst_ratio > 1
    assert len(research.refused.worst_where["points"]) == 2
    for card, title in zip(
        research.cards, ("Problem", "Mechanism em", "Certificate: proved", "Expected loss"), strict=True
    ):
        assert card.startswith(f"<table><caption>{title}")
    assert "not proved" in research.cards[-1]


@pytest.mark.slow
def test_the_researchers_script_is_strictly_typed(research):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(research.folder / "cache"), "research.py"]
    said = subprocess.run(command, cwd=research.folder, capture_output=True, text=True, timeout=600, check=False)
    assert said.returncode == 0, said.stdout


# The data engineer


LAKE_COLUMNS = ("--columns", "location.lon,location.lat")


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    mdp.fit(problem, 8, "laplace").save(folder / "h.mdp")
    for number, (day, hour) in enumerate([("2024-01-01", "00"), ("2024-01-01", "07"), ("2024-01-02", "07")]):
        place = folder / "trips" / f"day={day}" / f"hour={hour}"
        place.mkdir(parents=True)
        pq.write_table(odd_table(number), place / "part-0.parquet")
    (folder / "odd.csv").write_text("id,lon,lat,note\n007,24.94,60.17,\\N\n008,\\N,\\N,1.10\n009,24.95,60.17,\n")
    (folder / "short.csv").write_text("id,lon,lat\n1,24.94123,60.17\n2,24.94123\n")
    (folder / "points.csv").write_text("lon,lat\n" + "24.94,60.17\n" * 1_000_000)
    return folder


def odd_table(seed):
    points = places(50, seed)
    location = pa.StructArray.from_arrays(list(map(pa.array, points.T)), ["lon", "lat"])
    device = pa.StructArray.from_arrays([pa.array([f"{number:03d}" for number in range(50)])], ["id"])
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    columns = {
        "device": device,
        "location": location,
        "n": pa.array(range(50), pa.int32()),
        "fare": pa.array([Decimal("1.10")] * 50, pa.decimal128(8, 2)),
        "time": pa.array([moment] * 50, pa.timestamp("ms", "Europe/Helsinki")),
        "kind": pa.array(["a", "b"] * 25).dictionary_encode(),
        "ok": pa.array([True, None] * 25),
    }
    return pa.table(columns)


def test_the_data_engineers_lake_keeps_folders_and_types(lake):
    copied = "device.id,n,fare,time,kind,ok,day"
    said = fine("perturb", "h.mdp", "trips", "private", *LAKE_COLUMNS, "--copy", copied, cwd=lake)
    assert "150 rows in 3 files" in said.stdout
    written = sorted((lake / "private").rglob("*.parquet"))
    assert [path.relative_to(lake / "private").parent.as_posix() for path in written] == [
        "day=2024-01-01/hour=00", "day=2024-01-01/hour=07", "day=2024-01-02/hour=07",
    ]  # fmt: skip
    for number, path in enumerate(written):
        private, given = pq.ParquetFile(path).read(), odd_table(number)
        for name in ("n", "fare", "time", "kind", "ok"):
            assert private[name].combine_chunks().equals(given[name].combine_chunks()), name
        assert private["device.id"].to_pylist() == [f"{row:03d}" for row in range(50)]
        assert set(private["day"].to_pylist()) == {path.parts[-3].removeprefix("day=")}
        assert private["output_id"].null_count == 0
    again = fine("perturb", "h.mdp", "trips", "private", *LAKE_COLUMNS, "--copy", copied, "--resume", cwd=lake)
    assert again.stdout == "private is complete; nothing was done\n"
    assert "a new or an empty folder" in refused("perturb", "h.mdp", "trips", "private", *LAKE_COLUMNS, cwd=lake)


def test_the_data_engineer_who_forgets_an_option_is_told_it_and_can_add_it(lake):
    """A run of which nothing came leaves nothing in the way of the next one."""
    line = refused("perturb", "h.mdp", "trips", "second", cwd=lake)
    assert "3 of 3 files failed; mend them and try again." in line
    assert line.count("`--columns` may be location.lon,location.lat") == 1
    fine("perturb", "h.mdp", "trips", "second", *LAKE_COLUMNS, cwd=lake)
    assert "must be a folder, because `IN` is one" in refused("perturb", "h.mdp", "trips", "odd.csv", cwd=lake)


def test_the_data_engineers_texts_stay_what_they_are(lake):
    fine("perturb", "h.mdp", "odd.csv", "odd-out.csv", "--copy", "id,note", cwd=lake)
    private = pd.read_csv(lake / "odd-out.csv", dtype=str, keep_default_na=False)
    assert private[["id", "note"]].to_numpy().tolist() == [["007", "\\N"], ["008", "1.10"], ["009", ""]]
    assert list(private["output_id"] == "") == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["perturb", "h.mdp", "none.csv", "x.csv"], "FileNotFoundError", "No such file or directory: 'none.csv'"),
        (["perturb", "h.mdp", "short.csv", "x.csv"], "InvalidInputError", "row 2"),
        (["perturb", "odd.csv", "h.mdp", "x.csv"], "InvalidInputError", "'odd.csv' is not a mechanism file"),
        (["perturb", "h.mdp", "odd.csv", "x.csv", "--overwrit"], "UsageError", "--overwrite"),
        (["fit", "--city", "helsinki", "--epsilon", "0"], "InvalidInputError", "`--epsilon` must be a positive"),
        (["fit", "--city", "helsinki", "--epsilon", "4", "--method", "emm"], "InvalidInputError", "'em-remap'"),
        (
            ["fit", "--city", "helsinki", "--epsilon", "4", "--out", "no/x.mdp"],
            "InvalidInputError",
            "folder that exists",
        ),
        (["certify", "none.mdp"], "FileNotFoundError", "none.mdp"),
    ],
)
def test_the_data_engineers_errors_are_documents(lake, arguments, kind, words):
    answer = call(*arguments, "--json", cwd=lake)
    assert answer.returncode == 2
    error = json.loads(answer.stdout)["error"]
    assert (error["type"], error["exit_code"]) == (kind, 2)
    assert words in error["message"]
    assert "24.94123" not in answer.stdout + answer.stderr
    assert not (lake / "x.csv").exists()


def test_the_data_engineer_gets_results_without_warnings_with_q(lake):
    (lake / "far.csv").write_text("lon,lat\n2.35,48.85\n2.36,48.86\n")
    assert "outside the box" in fine("perturb", "h.mdp", "far.csv", "far-out.csv", cwd=lake).stderr
    quiet = fine("perturb", "h.mdp", "far.csv", "far-quiet.csv", "-q", "--json", cwd=lake)
    assert quiet.stderr == ""
    assert json.loads(quiet.stdout)["outside"] == 2


def test_exit_code_1_says_that_a_mechanism_is_not_private(lake):
    problem = mdp.cities.load("helsinki").problem(outputs=3, tasks=3, seed=0)
    mdp.fit(problem, 4, "lp", cells=3, certify=False).save(lake / "lp.mdp")
    assert call("certify", "lp.mdp", cwd=lake).returncode == 1
    assert call("perturb", "lp.mdp", "odd.csv", "x.csv", cwd=lake).returncode == 2
    assert not (lake / "x.csv").exists()


# Ctrl-C


INTERRUPTED = (
    ("perturb", "h.mdp", "points.csv", "out.csv"),
    ("fit", "--city", "helsinki", "--epsilon", "4", "--out", "new.mdp"),
    ("compare", "--city", "helsinki", "--epsilons", "2,4", "--methods", "spline,aipo-e", "--cache", "cache"),
    ("epsilon", "--city", "helsinki", "--radius", "100m", "--json"),
    ("demo", "--out", "demo"),
)


def session(leader):
    """Return the living processes of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def interrupt(process):
    """Send Ctrl-C as a terminal does, and return the exit code and what was said; nothing may be left behind."""
    try:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        out, words = process.communicate(timeout=30)
        deadline = time.monotonic() + 10
        while (left := session(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, "processes were left behind"
        # A command that had just ended by itself is killed while Python ends; a shell shows the same code for that.
        return abs(process.returncode) + 128 if process.returncode < 0 else process.returncode, out, words
    finally:
        for one in session(process.pid):
            one.kill()
        process.wait()


def started(arguments, cwd):
    command = [sys.executable, "-m", "metricdp", *arguments]
    process = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    # Until Python has started nothing can be said about Ctrl-C; metricdp has taken over once it looks after SIGTERM.
    while process.poll() is None and not catches(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    return process


def catches(pid, number):
    with contextlib.suppress(FileNotFoundError):
        mask = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def ctrl_c(number, lake, cwd):
    """Interrupt a command at a random moment and return whether it was still running."""
    for name in ("h.mdp", "points.csv"):
        (cwd / name).symlink_to(lake / name)
    arguments = INTERRUPTED[number % len(INTERRUPTED)]
    process = started(arguments, cwd)
    time.sleep(random.Random(number).uniform(0, 4))
    ended = process.poll()
    code, out, words = interrupt(process)
    assert code in ((0,) if ended is not None else (0, 130)), words
    assert "Traceback" not in words
    assert not [path for path in cwd.rglob(".*.tmp") if path.is_file()]
    if "--json" in arguments:
        json.loads(out)
    if (cwd / "out.csv").exists():  # the file was done, and the process about to end
        assert len((cwd / "out.csv").read_text().splitlines()) == 1 + 1_000_000
    if (cwd / "new.mdp").exists():
        mdp.load(cwd / "new.mdp")
    return code == 130


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@needs_proc
@pytest.mark.parametrize("number", range(3))
def test_ctrl_c_at_a_random_moment(number, lake, tmp_path):
    ctrl_c(number, lake, tmp_path)


@needs_proc
@pytest.mark.slow
def test_ctrl_c_at_thirty_random_moments(lake, tmp_path):
    stopped = 0
    for number in range(30):
        (tmp_path / str(number)).mkdir()
        stopped += ctrl_c(number, lake, tmp_path / str(number))
    assert stopped >= 15, "too few were interrupted"


@needs_proc
@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on(lake, tmp_path):
    rows = 4_000_000
    (tmp_path / "h.mdp").symlink_to(lake / "h.mdp")
    with (tmp_path / "many.csv").open("w") as lines:
        lines.write("id,lon,lat\n")
        for start in range(0, rows, 100_000):
            lines.writelines(f"{number},24.94,60.17\n" for number in range(start, start + 100_000))
    asked = ("perturb", "h.mdp", "many.csv", "out.parquet", "--copy", "id")
    process = started(asked, tmp_path)
    while process.poll() is None and not list((tmp_path / ".out.parquet.parts").glob("part-*")):
        time.sleep(0.02)
    code, _, words = interrupt(process)
    assert code == 130, "it ended before Ctrl-C came"
    assert "--resume" in words
    assert "go on with `--resume`" in refused(*asked, cwd=tmp_path)
    went_on = json.loads(fine(*asked, "--resume", "--json", cwd=tmp_path).stdout)
    assert 0 < went_on["resumed"] < rows
    ids = pd.read_parquet(tmp_path / "out.parquet", columns=["id"])["id"]
    assert (ids.astype(int) == np.arange(rows)).all()


# The minimal install


@pytest.mark.slow
def test_the_wheel_alone_does_what_the_readme_says(tmp_path):
    """A fresh environment with the dependencies of the wheel and no extra: the five lines, fit, certify and perturb."""
    built = build_wheel(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "fresh"], cwd=tmp_path, check=True, timeout=300)
    python = tmp_path / "fresh" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments):
        return subprocess.run(
            [python, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )

    installed = run("-m", "pip", "install", "--quiet", built)
    if installed.returncode != 0 and "No matching distribution" in installed.stderr:
        pytest.skip("needs a package index")
    assert installed.returncode == 0, installed.stderr
    absent = run("-c", "import matplotlib, fastapi, distributed, osmnx, h3")
    assert "ModuleNotFoundError" in absent.stderr
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"## Five lines of Python\n\n```python\n(.*?)```", text, re.DOTALL)
    said = run("-c", program)
    assert said.returncode == 0, said.stderr
    assert "(8.0, d_2)-mDP on the whole box" in said.stdout
    (tmp_path / "points.csv").write_text("lon,lat\n24.94,60.17\n24.95,60.16\n")
    for arguments in (
        ["fit", "--city", "helsinki", "--epsilon", "8", "--time-limit", "5", "--out", "helsinki.mdp"],
        ["certify", "helsinki.mdp"],
        ["perturb", "helsinki.mdp", "points.csv", "out.parquet"],
    ):
        said = run("-m", "metricdp", *arguments)
        assert said.returncode == 0, said.stderr
        assert said.stderr == ""
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 2
