"""Windows and schedules where people meet them: `metricdp ledger`, `metricdp perturb`, files of strangers."""

import contextlib
import csv
import json
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.ledger.exporting import export_ledger
from metricdp.ledger.reading import declare_moved, read_ledger
from metricdp.perturb.job import perturb_file
from metricdp.perturb.options import Options
from perturb_tools import CENTRE, city, nearest, points
from problems import random_problem

TENTH, QUARTER = (mdp.fit(random_problem(seed), epsilon, "em") for seed, epsilon in enumerate((0.1, 0.25)))
T0 = 1_700_000_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.db"


def places(count):
    return np.full((count, 2), 1.0)


def answer(folder, *arguments):
    said = call("ledger", *arguments, "--json", cwd=folder)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def filled(path, **options):
    with mdp.Ledger(path, 1, window="24h", every="10min", **options) as ledger:
        users = ["ann", "ann", "bob", "ann"]
        ledger.sample(TENTH, users, places(4), times=[T0, T0 + 3600, T0 + 7200, T0 + 90_000])
        ledger.sample(QUARTER, ["bob"], places(1), times=T0 + 7201)


# Looking


def test_show_knows_the_window(path, tmp_path):
    filled(path)
    facts = answer(tmp_path, "show", path, "--time", T0 + 90_000)
    assert (facts["window_seconds"], facts["every_seconds"], facts["time"]) == (86_400, 600, T0 + 90_000)
    # Ann's first draw no longer counts, her second counts to the microsecond; reports are those of all times.
    assert (facts["people"], facts["reports"], facts["spent"]) == (2, 5, pytest.approx(0.55))
    assert facts["frees_at"] == T0 + 90_000.000001
    assert [(one["people"], one["reports"], one["spent"]) for one in facts["mechanisms"]] == [(2, 4, 0.4), (1, 1, 0.25)]
    text = call("ledger", "show", path, "--time", T0 + 90_000, cwd=tmp_path).stdout
    assert "everybody may spend ε = 1 in 24h" in text
    assert "one draw per 10min" in text
    assert "2 people had 5 reports and spent 0.55 in the 24h before 2023-11-15T23:13:20Z" in text
    later = answer(tmp_path, "show", path)  # years later
    assert (later["spent"], later["frees_at"], later["people_who_spent_all"]) == (0.0, None, 0)
    said = call("ledger", "show", path, "--time", "nan", cwd=tmp_path)
    assert said.returncode == 2
    assert "`--time` must be unix seconds from 0" in said.stderr


def test_a_lifetime_ledger_has_no_window_to_show(path, tmp_path):
    with mdp.Ledger(path, 1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
    facts = answer(tmp_path, "show", path)
    assert all(facts[name] is None for name in ("window_seconds", "every_seconds", "time", "frees_at"))
    assert "spent 0.1 in all" in call("ledger", "show", path, cwd=tmp_path).stdout


def test_a_persons_window(path, tmp_path):
    filled(path)
    TENTH.save(tmp_path / "m.mdp")
    told = answer(tmp_path, "user", path, "ann", "--time", T0 + 90_000, "--mechanism", tmp_path / "m.mdp")
    assert told == {"spent": 0.2, "remaining": 0.8, "reports": 2, "affordable": 8, "frees_at": T0 + 90_000.000001}
    text = call("ledger", "user", path, "bob", "--time", T0 + 7200, cwd=tmp_path).stdout
    assert "spent ε = 0.35 on 2 reports in the last 24h; 0.65 remains" in text
    assert "stops counting at 2023-11-16T00:13:20Z" in text


def test_exports_say_when_budget_is_freed(path, tmp_path):
    filled(path)
    for ending in ("csv", "parquet", "json"):
        assert answer(tmp_path, "export", path, f"out.{ending}", "--time", T0 + 90_000)["people"] == 2
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == {
        "user": "ann",
        "spent": "0.2",
        "remaining": "0.8",
        "reports": "2",
        "frees_at": f"{T0 + 90_000}.000001",
    }
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert (table["user"], table["frees_at"]) == (["ann", "bob"], [T0 + 90_000.000001, T0 + 93_600.000001])
    assert json.loads((tmp_path / "out.json").read_text())["people"][1]["spent"] == 0.35
    export_ledger(path, tmp_path / "last.csv", last_output_of=QUARTER)
    rows = list(csv.DictReader((tmp_path / "last.csv").read_text().splitlines()))
    assert [(row["spent"], row["frees_at"], row["last_output"] != "") for row in rows] == [
        ("0.0", "", False),
        ("0.0", "", True),
    ]
    filled(tmp_path / "hashed.db", user_key=b"sixteen bytes or more")
    export_ledger(tmp_path / "hashed.db", tmp_path / "hashed.csv")
    assert "ann" not in (tmp_path / "hashed.csv").read_text()


def test_a_timed_ledger_may_be_moved(path):
    filled(path)
    moved = path.rename(path.with_name("moved.db"))
    with pytest.raises(mdp.InvalidInputError, match="belongs at"):
        mdp.Ledger(moved)
    assert declare_moved(moved) == str(path)
    with mdp.Ledger(moved) as ledger:
        assert (ledger.window, ledger.spent("bob", time=T0 + 7201)) == ("24h", 0.35)


def edited(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(
            "PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON;" + ";".join(statements)
        )
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE terms SET window_us = 'long'",
        "UPDATE terms SET window_us = -1",
        "UPDATE terms SET window_us = 1e300",
        "UPDATE terms SET window_us = 9223372036854775807",
        "UPDATE terms SET window_us = NULL, every_us = NULL",
        "UPDATE terms SET every_us = 0",
        "UPDATE charges SET time = -5 WHERE time = 1700003600000000",
        "UPDATE charges SET time = 9223372036854775807 WHERE time = 1700003600000000",
        "UPDATE charges SET time = 'noon' WHERE time = 1700003600000000",
        "UPDATE charges SET spent = 9223372036854775807",
        "UPDATE charges SET spent = 1",
        "UPDATE charges SET count = 0",
        "UPDATE charges SET count = 1.5",
        "DELETE FROM charges WHERE user = 'ann'",
        "DELETE FROM people WHERE user = 'ann'",
        "UPDATE people SET latest = 0",
        "UPDATE people SET latest = 9223372036854775807",
        "UPDATE people SET spent = -1",
        "UPDATE answers SET output = '=1+1'",
        "UPDATE answers SET time = x'00'",
        "ALTER TABLE charges ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))",
        f"DROP TABLE people; CREATE VIEW people AS {FOR_EVER} i AS user, i AS latest, i AS spent FROM n",
        "DROP TABLE caller_charges",
        "DROP TABLE answers",
        "PRAGMA user_version = 2",
        "PRAGMA user_version = 4",
    ],
)
def test_hostile_ledgers_are_errors(path, tmp_path, statement):
    filled(path)
    edited(path, statement)
    for work in (lambda view: view.spent(), lambda view: list(view.people(10))):
        with pytest.raises(mdp.InvalidInputError, match="ledger") as caught:
            read_ledger(path, work)
        assert "ann" not in str(caught.value)
    with pytest.raises(mdp.InvalidInputError):
        export_ledger(path, tmp_path / "out.csv", last_output_of=TENTH)
    assert not (tmp_path / "out.csv").exists()


def test_a_lifetime_file_is_no_timed_one(path):
    with mdp.Ledger(path, 1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
    edited(path, "PRAGMA user_version = 3")
    with pytest.raises(mdp.InvalidInputError, match="not a metricdp ledger"):
        read_ledger(path, lambda view: view.spent())
    with pytest.raises(mdp.InvalidInputError, match="not a metricdp ledger"):
        mdp.Ledger(path)


# Perturb


def file_of(path, times, users, kind=None):
    xy = points(len(times))
    lon, lat = CENTRE.to_lonlat(xy).T
    table = pa.table({"lon": lon, "lat": lat, "who": users, "t": pa.array(times, kind)})
    if path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(table, path)
    return xy


@pytest.mark.parametrize(
    ("name", "times", "kind"),
    [
        ("in.parquet", [T0, T0 + 1, T0 + 59.5, T0, T0 - 0.5, T0 + 60], pa.float64()),
        ("in.csv", [T0, T0 + 1, T0 + 59.5, T0, T0 - 0.5, T0 + 60], pa.float64()),
        ("in.csv", [f"2023-11-14T22:{m}:{s}Z" for m, s in ((13, 20), (13, 21), ("14", "19.5"), (13, 20), (13, 19), (14, 20))], None),
        ("in.csv", [f"2023-11-14 22:{m}:{s}" for m, s in ((13, 20), (13, 21), ("14", "19.500000001"), (13, 20), (13, 19), (14, 20))], None),
        ("in.parquet", [int(1e3 * t) for t in (T0, T0 + 1, T0 + 59.5, T0, T0 - 0.5, T0 + 60)], pa.timestamp("ms")),
        ("in.parquet", [int(1e3 * t) for t in (T0, T0 + 1, T0 + 59.5, T0, T0 - 0.5, T0 + 60)], pa.timestamp("ms", "Europe/Rome")),
    ],
)  # fmt: skip
def test_perturb_takes_times_from_a_column(name, times, kind, tmp_path):
    xy = file_of(tmp_path / name, times, ["ann", "ann", "ann", "bob", "ann", "ann"], kind)
    with mdp.Ledger(tmp_path / "b.db", 400 * 2.5, window="40s") as ledger:
        options = Options(user_column="who", time_column="t")
        summary = perturb_file(city(), tmp_path / name, tmp_path / "out.parquet", options, ledger=ledger)
        assert (summary.counts.refused, summary.counts.late) == (0, 1)
        assert ledger.spent("ann", time=T0 + 60) == pytest.approx(2 * 400, rel=1e-2)
    found = pd.read_parquet(tmp_path / "out.parquet")["output_id"]
    wanted = nearest(xy)
    wanted[4] = -1
    assert found.fillna(-1).astype(int).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("times", "kind", "message"),
    [
        ([T0, None], pa.int64(), "`t` must be a time in every row with a point, got null in 1 rows, the first of them row 2."),
        ([T0, float("nan")], None, "`t` must be unix seconds from 0 to 253402300799 (the year 9999), got something else in row 2."),
        ([T0, T0 * 1000], None, "in row 2, which may be milliseconds or less: divide by 1000."),
        ([T0, -1], None, "got something else in row 2."),
        (["noon", "later"], None, "`t` must be a column of unix seconds or of timestamps"),
        ([True, False], None, "got type bool."),
        ([[T0], [T0]], None, "got type list"),
        ([T0, T0 + 1], pa.duration("s"), "got type duration[s]."),
    ],
)  # fmt: skip
def test_bad_columns_of_times(times, kind, message, tmp_path):
    file_of(tmp_path / "in.parquet", times, ["secret", "person"], kind)
    with mdp.Ledger(tmp_path / "b.db", 1e6, window="24h") as ledger:
        options = Options(user_column="who", time_column="t")
        with pytest.raises(mdp.InvalidInputError) as caught:
            perturb_file(city(), tmp_path / "in.parquet", tmp_path / "out.parquet", options, ledger=ledger)
        assert message in str(caught.value)
        assert "secret" not in str(caught.value)
        assert "noon" not in str(caught.value)
        assert ledger.users().empty
    assert not (tmp_path / "out.parquet").exists()


def test_a_ledger_with_times_and_a_column_of_times_need_each_other(tmp_path):
    file_of(tmp_path / "in.parquet", [T0, T0], ["ann", "bob"])
    places_ = (city(), tmp_path / "in.parquet", tmp_path / "out.parquet")
    with mdp.Ledger(tmp_path / "b.db", 1e6, every="1h") as ledger:
        with pytest.raises(mdp.InvalidInputError, match="with a window or a schedule needs `time_column`"):
            perturb_file(*places_, Options(user_column="who"), ledger=ledger)
        with pytest.raises(mdp.InvalidInputError, match="`time_column` must be among the columns"):
            perturb_file(*places_, Options(user_column="who", time_column="when"), ledger=ledger)
    with mdp.Ledger(tmp_path / "c.db", 1e6) as ledger, pytest.raises(mdp.InvalidInputError, match="this one counts"):
        perturb_file(*places_, Options(user_column="who", time_column="t"), ledger=ledger)
    with pytest.raises(mdp.InvalidInputError, match="`time_column` says when a budget is spent, which needs"):
        perturb_file(*places_, Options(time_column="t"))


def test_perturb_on_the_command_line(tmp_path):
    file_of(tmp_path / "in.csv", [T0, T0 + 1, T0 + 599, T0 + 1200, T0 + 600], ["ann"] * 5)
    city().save(tmp_path / "m.mdp")
    command = ("perturb", "m.mdp", "in.csv", "out.csv", "--user-column", "who", "--ledger", "b.db")
    said = call(*command, "--max-epsilon", 1300, "--window", "24h", "--every", "10min", cwd=tmp_path)
    assert "needs `--time-column`" in said.stderr
    said = call(
        *command, "--max-epsilon", 1300, "--window", "24h", "--every", "10min", "--time-column", "t", cwd=tmp_path
    )
    assert said.returncode == 0, said.stderr
    assert "1 were refused, because their time is before that of their person's last draw" in said.stdout
    assert answer(tmp_path, "show", "b.db", "--time", T0)["window_seconds"] == 86_400
    said = call(*command, "--window", "12h", "--overwrite", "--time-column", "t", cwd=tmp_path)
    assert "`--window` must be 24h, which the ledger was made with, got 12h." in said.stderr
    said = call(*command[:-2], "--window", "12h", cwd=tmp_path)
    assert "`--window` must be given together with --ledger" in said.stderr
