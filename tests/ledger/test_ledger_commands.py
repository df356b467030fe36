"""`metricdp ledger`: looking at a ledger changes nothing, hostile files and ids do no harm, and moves are said once."""

import contextlib
import csv
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.ledger import reading
from metricdp.ledger.exporting import export_ledger, harmless_in_spreadsheets
from metricdp.ledger.reading import declare_moved, read_ledger
from problems import random_problem

TENTH, QUARTER = mdp.fit(random_problem(0), 0.1, "em"), mdp.fit(random_problem(1), 0.25, "em")
KEY = b"sixteen bytes or more"
HOSTILE = [
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b2J",
    "=cmd|'/c calc'!A0",
    "+1",
    "-1+2",
    "@SUM(1)",
    "\t=1",
    " =1",
    "'x",
    "a;=1",
]
HOSTILE += ['a","=1', "a\nb", "＝1", "-7", "ann"]


def places(count):
    return np.random.default_rng(0).uniform(0, 4, (count, 2))


def filled(path, users, max_epsilon=1.0, mechanism=TENTH, **options):
    with mdp.Ledger(path, max_epsilon=max_epsilon, **options) as ledger:
        ledger.sample(mechanism, users, places(len(users)))
    return path


def answer(folder, *arguments):
    said = call("ledger", *arguments, "--json", cwd=folder)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def files_of(folder):
    return {one.name: (one.stat().st_mtime_ns, one.read_bytes()) for one in folder.iterdir() if one.is_file()}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "books").mkdir()
    return tmp_path / "books" / "budgets.db"


# Show


def test_show_adds_up_what_was_spent(path, tmp_path):
    with mdp.Ledger(path, max_epsilon=1.0) as ledger:
        ledger.sample(TENTH, ["ann"] * 12 + ["bob"] * 3, places(15))
        ledger.sample(QUARTER, ["bob", "cy"], places(2))
    before = files_of(path.parent)
    facts = answer(tmp_path, "show", path)
    assert files_of(path.parent) == before
    assert (facts["max_epsilon"], facts["people"], facts["reports"], facts["p"]) == (1.0, 3, 15, 2.0)
    assert facts["spent"] == pytest.approx(1.0 + 0.55 + 0.25)
    assert facts["spent_quantiles"] == {"0%": 0.25, "25%": 0.25, "50%": 0.55, "75%": 1.0, "95%": 1.0, "100%": 1.0}
    assert (facts["people_who_spent_all"], facts["moved"], facts["hashed_ids"]) == (1, False, False)
    assert [(one["epsilon"], one["people"], one["reports"]) for one in facts["mechanisms"]] == [
        (0.1, 2, 13),
        (0.25, 2, 2),
    ]
    text = call("ledger", "show", path, cwd=tmp_path).stdout
    assert "3 people had 15 reports and spent 1.8 in all" in text
    assert "ann" not in text


def test_show_of_an_empty_ledger(path, tmp_path):
    mdp.Ledger(path, max_epsilon=2, sticky_km=0.1, user_key=KEY).close()
    facts = answer(tmp_path, "show", path)
    assert (facts["people"], facts["spent"], facts["p"], facts["sticky_km"], facts["hashed_ids"]) == (
        0,
        0,
        None,
        0.1,
        True,
    )
    assert "0 people had 0 reports" in call("ledger", "show", path, cwd=tmp_path).stdout


def test_show_says_that_a_ledger_was_moved(path, tmp_path):
    filled(path, ["ann"])
    path.rename(path.with_name("moved.db"))
    facts = answer(tmp_path, "show", path.with_name("moved.db"))
    assert (facts["moved"], facts["belongs_at"], facts["people"]) == (True, str(path), 1)
    assert "see `metricdp ledger moved`" in call("ledger", "show", path.with_name("moved.db"), cwd=tmp_path).stderr


# A person


def test_a_person_has_spent_and_can_afford(path, tmp_path):
    filled(path, ["ann"] * 3)
    QUARTER.save(tmp_path / "quarter.mdp")
    told = answer(tmp_path, "user", path, "ann", "--mechanism", tmp_path / "quarter.mdp")
    assert told == {"spent": 0.3, "remaining": 0.7, "reports": 3, "affordable": 2, "frees_at": None}
    # Somebody who never asked.
    nothing = {"spent": 0.0, "remaining": 1.0, "reports": 0, "affordable": None, "frees_at": None}
    assert answer(tmp_path, "user", path, "eve") == nothing
    text = call("ledger", "user", path, "ann", "--mechanism", tmp_path / "quarter.mdp", cwd=tmp_path).stdout
    assert "spent ε = 0.3 on 3 reports; " in text
    assert "that pays for 2 more reports of " in text
    filled(path, ["ann"] * 3)
    text = call("ledger", "user", path, "ann", "--mechanism", tmp_path / "quarter.mdp", cwd=tmp_path).stdout
    assert "that pays for 1 more report of " in text


def test_a_mechanism_of_another_norm_has_no_place_in_the_sum(path, tmp_path):
    filled(path, ["ann"])
    mdp.fit(random_problem(0, p=1.0), 0.1, "em").save(tmp_path / "other.mdp")
    said = call("ledger", "user", path, "ann", "--mechanism", tmp_path / "other.mdp", cwd=tmp_path)
    assert said.returncode == 2
    assert "`--mechanism` must be private with p = 2.0" in said.stderr


def test_hashed_ids_need_their_key(path, tmp_path):
    filled(path, ["ann"] * 2, user_key=KEY)
    (tmp_path / "key").write_bytes(KEY)
    assert answer(tmp_path, "user", path, "ann", "--user-key-file", tmp_path / "key")["reports"] == 2
    said = call("ledger", "user", path, "ann", cwd=tmp_path)
    assert said.returncode == 2
    assert "`--user-key-file` must be the one that the ledger was made with" in said.stderr
    assert answer(tmp_path, "export", path, tmp_path / "out.json") == {"out": str(tmp_path / "out.json"), "people": 1}
    assert "ann" not in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize("user", ["", "x" * 2000])
def test_ids_that_no_ledger_holds_are_refused(path, tmp_path, user):
    filled(path, ["ann"])
    said = call("ledger", "user", path, user, cwd=tmp_path)
    assert said.returncode == 2
    assert "xxx" not in said.stderr


def test_hostile_ids_do_not_reach_the_terminal(path, tmp_path):
    filled(path, HOSTILE)
    for arguments in (["show", path], *(["user", path, "--", one] for one in HOSTILE)):
        said = call("ledger", *arguments, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert not {"\x1b", "\x9b", "\x07"} & set(said.stdout + said.stderr)


# Export


def test_exports_hold_one_row_per_person(path, tmp_path):
    filled(path, HOSTILE * 2)
    for ending in ("csv", "parquet", "json"):
        assert answer(tmp_path, "export", path, tmp_path / f"out.{ending}")["people"] == len(HOSTILE)
        assert stat.S_IMODE((tmp_path / f"out.{ending}").stat().st_mode) == 0o600
    expected = sorted((user, 0.2, 0.8, 2) for user in HOSTILE)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["user", "spent", "remaining", "reports"]
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == expected
    raw = (tmp_path / "out.json").read_text()
    assert raw.isascii()
    assert "\x1b" not in raw
    assert sorted(tuple(row.values()) for row in json.loads(raw)["people"]) == expected
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["user", "spent", "remaining", "reports"]
    assert sorted(row[0].removeprefix("'") for row in rows[1:]) == sorted(HOSTILE)
    for row in rows[1:]:
        assert not row[0].lstrip().startswith(("=", "+", "@", "＝")), row
        assert row[0] == "-7" or not row[0].startswith("-")
    for line in (tmp_path / "out.csv").read_text().splitlines()[1:]:
        assert line.startswith(('"', 'b",'))  # the id with a line break


def test_ids_survive_their_apostrophe():
    kept = {harmless_in_spreadsheets(user) for user in [*HOSTILE, *(f"'{user}" for user in HOSTILE)]}
    assert len(kept) == 2 * len(HOSTILE)


def test_the_last_output_is_exported_only_if_asked_for(path, tmp_path):
    with mdp.Ledger(path, max_epsilon=1.0, sticky_km=0.5) as ledger:
        (last,) = ledger.sample(TENTH, ["ann"], places(1)).tolist()
        ledger.sample(QUARTER, ["bob"], places(1))
    TENTH.save(tmp_path / "m.mdp")
    answer(tmp_path, "export", path, tmp_path / "plain.json")
    assert set(json.loads((tmp_path / "plain.json").read_text())["people"][0]) == {
        "user",
        "spent",
        "remaining",
        "reports",
    }
    answer(tmp_path, "export", path, tmp_path / "asked.json", "--last-output", tmp_path / "m.mdp")
    people = json.loads((tmp_path / "asked.json").read_text())["people"]
    assert [(one["user"], one["last_output"]) for one in people] == [("ann", last), ("bob", None)]


def test_an_export_replaces_nothing_by_accident(path, tmp_path):
    filled(path, ["ann"])
    (tmp_path / "out.csv").write_text("precious")
    said = call("ledger", "export", path, tmp_path / "out.csv", cwd=tmp_path)
    assert said.returncode == 2
    assert "replace it with `--overwrite`" in said.stderr
    assert (tmp_path / "out.csv").read_text() == "precious"
    assert answer(tmp_path, "export", path, tmp_path / "out.csv", "--overwrite")["people"] == 1
    shutil.copy(path, tmp_path / "ledger.csv")
    assert (
        call(
            "ledger", "export", tmp_path / "ledger.csv", tmp_path / "ledger.csv", "--overwrite", cwd=tmp_path
        ).returncode
        == 2
    )
    assert "`OUT` must be a file that ends in" in call("ledger", "export", path, "out.txt", cwd=tmp_path).stderr


# A ledger that is in use


def test_readers_do_not_disturb_a_writer(path, tmp_path):
    """The writer never waits for a reader: one that holds the file open, as an export of millions does."""
    with mdp.Ledger(path, max_epsilon=1000) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))

        def slowly(view):
            first = view.budget("ann").reports
            for _ in range(5):
                ledger.sample(TENTH, ["ann"], places(1))
            return first, view.budget("ann").reports

        started = time.process_time()
        assert read_ledger(path, slowly) == (1, 1)  # of one moment
        assert time.process_time() - started < 30  # a writer that had to wait would wait for a minute and fail
        assert ledger.budget("ann").reports == 6


def test_a_writer_goes_on_while_others_look(path, tmp_path):
    done, seen = threading.Event(), []
    with mdp.Ledger(path, max_epsilon=1000) as ledger:

        def look():
            while not done.is_set():
                seen.append(read_ledger(path, lambda view: view.budget("ann").reports))

        reader = threading.Thread(target=look)
        reader.start()
        try:
            for _ in range(30):
                ledger.sample(TENTH, ["ann", "bob"], places(2))
        finally:
            done.set()
            reader.join()
    assert seen == sorted(seen)
    assert read_ledger(path, lambda view: view.budget("ann").reports) == 30


def test_a_file_that_changes_while_it_lies_still_is_read_again(path):
    filled(path, ["ann"])
    calls = []

    def work(view):
        calls.append(view.budget("ann").reports)
        if len(calls) == 1:
            filled(path, ["ann"])
        return calls[-1]

    assert read_ledger(path, work) == 2
    assert calls == [1, 2]


def test_an_export_of_a_changing_file_is_never_published(path, tmp_path, monkeypatch):
    filled(path, ["ann"])
    monkeypatch.setattr(reading.LedgerView, "unchanged", lambda _: False)
    with pytest.raises(OSError, match="changed 8 times"):
        export_ledger(path, tmp_path / "out.csv")
    assert [one.name for one in tmp_path.iterdir()] == ["books"]


def test_what_is_only_in_the_log_is_seen(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"] * 4, places(4))
        assert path.with_name("budgets.db-wal").stat().st_size > 0
        assert read_ledger(path, lambda view: view.budget("ann").spent) == 0.4


def test_a_ledger_that_only_others_may_write_can_be_read(path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    filled(path, ["ann"])
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert read_ledger(path, lambda view: view.budget("ann").reports) == 1
    finally:
        path.parent.chmod(0o700)


# Hostile files


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
        "UPDATE reports SET spent = 'much'",
        "UPDATE reports SET spent = -5",
        "UPDATE reports SET spent = 9223372036854775807",
        "UPDATE reports SET count = 1.5",
        "UPDATE terms SET max_epsilon = 'nan'",
        "UPDATE terms SET max_epsilon = '-1'",
        "UPDATE terms SET max_epsilon = x'00'",
        "UPDATE terms SET sticky_km = 'inf'",
        "DELETE FROM terms",
        "UPDATE mechanisms SET sha256 = char(27) || id",
        "UPDATE mechanisms SET epsilon = 'x'",
        "UPDATE mechanisms SET p = '0'",
        "UPDATE mechanisms SET unit = char(27)",
        f"DROP TABLE reports; CREATE VIEW reports AS {FOR_EVER} i AS user, i AS spent, i AS count, 1 AS mechanism FROM n",
        "CREATE TRIGGER t AFTER UPDATE ON terms BEGIN DELETE FROM reports; END",
        "DROP TABLE mechanisms",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 1",
    ],
)
def test_hostile_ledgers_are_errors(path, tmp_path, statement):
    filled(path, ["ann", "bob"])
    with mdp.Ledger(path) as ledger:
        ledger.sample(QUARTER, ["ann"], places(1))
    edited(path, statement)
    for arguments in (["show", path], ["export", path, tmp_path / "out.csv"]):
        said = call("ledger", *arguments, cwd=tmp_path)
        if "mechanisms SET" in statement and arguments[0] == "export":
            continue  # has no need of them
        assert said.returncode == 2, said.stdout
        assert "ledger" in said.stderr
        assert "\x1b" not in said.stderr
        assert "ann" not in said.stderr
        assert not (tmp_path / "out.csv").exists()


def test_text_that_is_no_text_is_quoted_nowhere(path, tmp_path):
    filled(path, ["ann"])
    edited(path, "UPDATE reports SET user = CAST(x'616e6eff1b5b324a' AS TEXT)")
    said = call("ledger", "export", path, tmp_path / "out.json", cwd=tmp_path)
    assert said.returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["people"][0]["user"] == "ann\ufffd\x1b[2J"


@pytest.mark.parametrize("contents", [b"", b"SQLite format 3\0" + b"\xff" * 4096, b"hello" * 100])
def test_files_that_are_no_ledgers_are_errors(tmp_path, contents):
    (tmp_path / "x.db").write_bytes(contents)
    digest = hashlib.sha256(contents).digest()
    for name in ("show", "moved"):
        said = call("ledger", name, "x.db", cwd=tmp_path)
        assert said.returncode == 2
        assert "not a metricdp ledger" in said.stderr
    assert hashlib.sha256((tmp_path / "x.db").read_bytes()).digest() == digest
    assert [one.name for one in tmp_path.iterdir()] == ["x.db"]
    assert call("ledger", "show", "nothing.db", cwd=tmp_path).returncode == 2


def test_a_second_name_is_refused_for_looking_too(path, tmp_path):
    filled(path, ["ann"])
    path.with_name("link.db").hardlink_to(path)
    assert "2 names (hard links)" in call("ledger", "show", path, cwd=tmp_path).stderr


# Moves


def test_a_move_is_said_once(path, tmp_path):
    filled(path, ["ann"] * 4, user_key=KEY)
    new = path.with_name("new.db")
    path.rename(new)
    with pytest.raises(mdp.InvalidInputError, match="metricdp ledger moved FILE"):
        mdp.Ledger(new, user_key=KEY)
    assert answer(tmp_path, "moved", new) == {"file": str(new), "belonged_at": str(path)}
    with mdp.Ledger(new, user_key=KEY) as ledger:
        assert ledger.spent("ann") == 0.4
    assert answer(tmp_path, "moved", new)["belonged_at"] is None
    assert "nothing was changed" in call("ledger", "moved", new, cwd=tmp_path).stdout


def test_a_copy_beside_the_old_file_is_no_move(path, tmp_path):
    filled(path, ["ann"])
    shutil.copy(path, path.with_name("copy.db"))
    said = call("ledger", "moved", path.with_name("copy.db"), cwd=tmp_path)
    assert said.returncode == 2
    assert "There is still a file at" in said.stderr
    with pytest.raises(mdp.InvalidInputError, match="belongs at"):
        mdp.Ledger(path.with_name("copy.db"))


def test_a_ledger_that_left_its_log_behind_has_not_moved(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"] * 4, places(4))
        shutil.copytree(path.parent, path.parent.with_name("crashed"))  # as after a crash: the charges are in the log
    crashed = path.parent.with_name("crashed") / path.name
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    crashed.rename(path.with_name("new.db"))
    crashed.with_name("budgets.db-wal").rename(path.with_name("budgets.db-wal"))
    with pytest.raises(mdp.InvalidInputError, match="was moved without its log"):
        declare_moved(path.with_name("new.db"))
    path.with_name("budgets.db-wal").rename(path.with_name("new.db-wal"))
    declare_moved(path.with_name("new.db"))
    with mdp.Ledger(path.with_name("new.db")) as ledger:
        assert ledger.spent("ann") == 0.4


def test_ledgers_of_an_earlier_version_are_read_as_they_are(path):
    filled(path, ["ann"] * 2)
    edited(
        path,
        "DROP TABLE callers",
        "ALTER TABLE terms DROP COLUMN home",
        "ALTER TABLE mechanisms DROP COLUMN unit",
        "PRAGMA user_version = 1",
    )
    before = path.read_bytes()
    assert read_ledger(path, lambda view: (view.budget("ann").reports, view.moved, view.mechanisms()[0].unit)) == (
        2,
        False,
        None,
    )
    assert path.read_bytes() == before
    with mdp.Ledger(path) as ledger:
        assert ledger.budget("ann", caller="gateway").reports == 0


# Callers


def test_callers_see_what_went_through_them(path):
    with mdp.Ledger(path, max_epsilon=0.5) as ledger:
        users, callers = ["ann", "ann", "bob", "ann"], ["one", "two", "two", "two"]
        ledger.sample(TENTH, users, places(4), callers=callers)
        ledger.sample(TENTH, ["ann"] * 5, places(5), callers=["two"] * 5)  # two of them are affordable
        seen = {
            (who, one): ledger.budget(who, TENTH, caller=one)
            for who in ("ann", "bob")
            for one in ("one", "two", "none")
        }
        assert ledger.budget("ann", TENTH) == mdp.ledger.Budget(0.5, 0.0, 5, 0)
        unspent = ledger.budget("nobody", TENTH)
    assert seen["ann", "one"] == mdp.ledger.Budget(0.1, 0.4, 1, 4)
    assert seen["ann", "two"] == mdp.ledger.Budget(0.4, 0.1, 4, 1)
    assert seen["bob", "two"].reports == 1
    assert seen["bob", "one"] == seen["ann", "none"] == unspent
    with mdp.Ledger(path) as ledger, pytest.raises(mdp.InvalidInputError, match="`callers` must be one for each of 2"):
        ledger.sample(TENTH, ["ann", "bob"], places(2), callers=["one"])


# Nothing is affordable


@pytest.mark.parametrize("options", [{}, {"beyond": "repeat-last"}, {"sticky_km": 0.1}])
def test_a_warning_if_nobody_can_afford_a_report(path, options):
    with mdp.Ledger(path, max_epsilon=0.2, **options) as ledger:
        assert (ledger.affordable(TENTH), ledger.affordable(QUARTER)) == (2, 0)
        with pytest.warns(UserWarning, match="each costs ε = 0.25, and nobody may spend more than 0.2"):
            assert ledger.sample(QUARTER, ["ann"], places(1)).tolist() == [-1]
        ledger.sample(QUARTER, ["ann"], places(1))  # said once
        ledger.sample(TENTH, ["ann"], places(1))


@pytest.mark.parametrize("more", [(), ("--beyond", "repeat-last"), ("--sticky-km", 0.1)])
def test_perturb_warns_before_it_draws(tmp_path, more):
    QUARTER.save(tmp_path / "m.mdp")
    (tmp_path / "in.csv").write_text("id,x,y\nann,1,1\nbob,2,2\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in.csv").write_text("id,x,y\nann,1,1\n")
    book = ("--user-column", "id", "--ledger", "b.db", "--max-epsilon", 0.2, *more)
    for source, target in (("in.csv", "out.csv"), ("folder", "private")):
        said = call("perturb", "m.mdp", source, target, *book, cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert said.stderr.count("No report is affordable") == 1
        assert "refused, because their budget was spent" in said.stdout
    cheap = call(
        "perturb",
        "m.mdp",
        "in.csv",
        "b.csv",
        "--user-column",
        "id",
        "--ledger",
        "c.db",
        "--max-epsilon",
        0.25,
        cwd=tmp_path,
    )
    assert "affordable" not in cheap.stderr


def test_perturb_takes_a_key_for_ids(tmp_path):
    TENTH.save(tmp_path / "m.mdp")
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "in.csv").write_text("id,x,y\nann,1,1\n")
    book = ("--user-column", "id", "--ledger", "b.db", "--max-epsilon", 1)
    assert call("perturb", "m.mdp", "in.csv", "out.csv", *book, "--user-key-file", "key", cwd=tmp_path).returncode == 0
    with mdp.Ledger(tmp_path / "b.db", user_key=KEY) as ledger:
        assert ledger.spent("ann") == 0.1
    for option, value in (
        ("--user-key-file", "key"),
        ("--max-epsilon", 1),
        ("--sticky-km", 1),
        ("--beyond", "repeat-last"),
    ):
        said = call("perturb", "m.mdp", "in.csv", "c.csv", option, value, cwd=tmp_path)
        assert f"`{option}` must be given together with --ledger" in said.stderr
