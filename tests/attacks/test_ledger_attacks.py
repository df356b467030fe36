"""A ledger under attack: ids that others might confuse, one file under two names, claims that are not what they seem."""

import contextlib
import dataclasses
import itertools
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from metricdp.files import content_hash
from metricdp.geometry.projection import Equirectangular
from metricdp.ledger import batch as _ledger_batch
from metricdp.ledger import database as _ledger_file
from metricdp.ledger.exporting import export_ledger
from metricdp.ledger.reading import read_ledger
from metricdp.mechanisms.base import Mechanism
from oracles import stored_id
from problems import random_problem

TENTH = mdp.fit(random_problem(0), 0.1, "em")
KEY = b"sixteen bytes or more"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.db"


def places(count):
    return np.full((count, 2), 1.0)


def ask(ledger, users, mechanism=TENTH):
    """How many of the requests were answered."""
    return int((ledger.sample(mechanism, users, places(len(users))) >= 0).sum())


# Ids


def test_a_strangers_id_gives_nobody_free_draws(path):
    """Up to pandas 3.0 "ann" after "ann NUL i" was charged to the latter, however often she asked."""
    with mdp.Ledger(path, max_epsilon=0.5) as ledger:
        for users in (["ann\0i", "ann"], np.array(["ann\0i", "ann"], dtype=object), pd.Series(["ann\0i", "ann"])):
            for _ in range(10):
                with pytest.raises(mdp.InvalidInputError, match="without NUL"):
                    ledger.sample(TENTH, users, places(2))
        assert ledger.users().empty
        assert ask(ledger, ["ann"] * 10) == 5


def test_ids_are_not_numbered_by_pandas(path, monkeypatch):
    """What `pandas.factorize` takes for equal depends on its version; a sum of charges must not."""

    def refused(*_arguments, **_options):
        raise AssertionError

    for name in ("factorize", "unique", "Categorical"):
        monkeypatch.setattr(pd, name, refused)
    monkeypatch.setattr(pd.Series, "factorize", refused)
    monkeypatch.setattr(pd.Index, "factorize", refused)
    with mdp.Ledger(path, max_epsilon=0.5) as ledger:
        assert ask(ledger, pd.Series(["ann", "bob", "ann"])) == 3
        assert (ledger.spent("ann"), ledger.spent("bob")) == (0.2, 0.1)


TRICKY_TEXT = [
    "ann",
    "ann\0",
    "ann\0i",
    "Ann",
    "ann ",
    "é",
    "e\u0301",
    "7",
    "07",
    "1",
    "-1",
    "True",
    "",
    "nan",
    "\ufeff",
]
TRICKY_TEXT += ["' OR 1=1 --", "%", "?1", "\x7f", "\ud800", "\U0001f49a"]
tricky = st.sampled_from([*TRICKY_TEXT, 7, 7.0, True, 1, -1, 10**30, None, b"7", math.nan])
sound = st.text(min_size=1, max_size=4) | st.integers(-(10**20), 10**20)
ids = st.lists(tricky | sound | st.text(max_size=3, alphabet="aA\0é"), min_size=1, max_size=8)
mostly_sound = st.lists(sound | st.sampled_from(["ann", "Ann", "ann ", "7", 7, "07", 1, "1"]), min_size=1, max_size=8)
containers = st.sampled_from([list, tuple, lambda users: np.array([*users, None], dtype=object)[:-1]])


@hypothesis.given(ids | mostly_sound, containers, st.sampled_from([None, KEY]))
@hypothesis.settings(max_examples=200)
def test_charges_are_those_of_a_dictionary(users, container, key):
    names = [stored_id(user) for user in users]
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        mdp.Ledger(f"{folder}/x", max_epsilon=0.2, user_key=key) as ledger,
    ):
        for name in ("ann", "7"):
            ask(ledger, [name])
        before = Counter(["ann", "7"])
        if None in names:
            with pytest.raises(mdp.InvalidInputError, match=f"index {names.index(None)}"):
                ledger.sample(TENTH, container(users), places(len(users)))
            assert ledger.users()["reports"].sum() == 2
            return
        answers = ledger.sample(TENTH, container(users), places(len(users))) >= 0
        for name, answered in zip(names, answers.tolist(), strict=True):
            assert answered == (before[name] < 2)
            before[name] += answered
        assert {name: round(ledger.spent(name) / 0.1) for name in before} == before
        assert ledger.users()["reports"].sum() == before.total()
        if key is None:
            assert set(ledger.users()["user"]) == set(before)


def test_ids_come_back_as_they_went_in(path):
    strange = ["\x01", "a\nb", "ann' --", "\U0010ffff", "\ufffd", "\u2028", '"', "x" * 1024]
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ask(ledger, strange)
        assert ledger.users()["user"].tolist() == sorted(strange)
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert [row[0] for row in database.execute("SELECT user FROM reports")] == sorted(strange)


def test_long_ids_are_refused_quickly(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        for user in ("x" * 10**7, 10**100_000):
            with pytest.raises(mdp.InvalidInputError, match="1024 letters"):
                ledger.sample(TENTH, ["ann", user], places(2))
        assert ledger.users().empty


def test_a_million_rows_are_numbered_at_once():
    """Not a benchmark: numbering row by row in SQLite, or by comparing all pairs, would take minutes."""
    who = np.random.default_rng(0).integers(0, 10**5, 10**6)
    codes, names = _ledger_batch.numbered(who, 10**6, None)
    assert (np.array(names).astype(int)[codes] == who).all()


# One ledger under two names

OTHER = """
import os, sys
import numpy as np
import metricdp as mdp

mechanism = mdp.load(sys.argv[1], certify=False)

def answer(path, crash):
    try:
        with mdp.Ledger(path, max_epsilon=1) as ledger:
            answers = ledger.sample(mechanism, ["ann"] * 30, np.ones((30, 2)))
            if crash:
                os._exit(9)
            return (answers >= 0).sum()
    except (OSError, mdp.InvalidInputError) as error:
        return error

for path in sys.argv[2:] or iter(lambda: sys.stdin.readline().rstrip("\\n"), ""):
    print(answer(path.removeprefix("crash "), path.startswith("crash ")), flush=True)
"""


@pytest.fixture(scope="module")
def design(tmp_path_factory):
    file = tmp_path_factory.mktemp("design") / "m.mdp"
    TENTH.save(file)
    return file


@pytest.fixture(scope="module")
def elsewhere(design):
    """What another process is given for Ann, or why not. (In one process, SQLite itself would notice a second name.)"""
    command = [sys.executable, "-c", OTHER, design]
    with contextlib.ExitStack() as stack:

        def start():
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, **pipes))
            stack.callback(process.kill)
            return process

        process = start()

        def answer(path):
            nonlocal process
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            words = process.stdout.readline().strip()
            if not words:
                assert process.wait(60) == 9
                process = start()
            return words

        yield answer


def test_a_hard_link_is_no_second_limit(path, elsewhere):
    link = path.with_name("link.db")
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        assert ask(ledger, ["ann"] * 3) == 3
        link.hardlink_to(path)
        assert "has 2 names (hard links)" in elsewhere(link)
        assert "has 2 names (hard links)" in elsewhere(path)
        with pytest.raises(OSError, match="2 names"):
            ledger.sample(TENTH, ["ann"], places(1))
        assert ledger.spent("ann") == 0.3
        link.unlink()
        assert ask(ledger, ["ann"] * 10) == 7
    assert elsewhere(path) == "0"


def test_a_link_that_takes_the_place_of_the_file_is_refused(path, elsewhere):
    """The charges are in the log, which has the old name: under the new one they would be forgotten."""
    link = path.with_name("link.db")
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ask(ledger, ["ann"] * 10)
        link.hardlink_to(path)
        path.unlink()
        assert f"belongs at {str(path)!r}" in elsewhere(link)
        with pytest.raises(FileNotFoundError):
            ledger.sample(TENTH, ["ann"], places(1))


def test_a_copy_is_refused_until_somebody_answers_for_it(path, elsewhere):
    copy = path.with_name("copy.db")
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ask(ledger, ["ann"] * 10)
        shutil.copy(path, copy)  # without the log, which holds all charges
        assert "moved=True" in elsewhere(copy)
    shutil.copy(path, copy)
    with pytest.raises(mdp.InvalidInputError, match="as a copy, it would let everybody spend the limit again"):
        mdp.Ledger(copy)
    with mdp.Ledger(copy, moved=True) as ledger:
        assert ledger.spent("ann") == 1
    mdp.Ledger(copy).close()  # said once


def test_after_a_crash_the_log_is_not_left_behind(path, elsewhere):
    assert elsewhere(f"crash {path}") == ""
    log = path.with_name("budgets.db-wal")
    assert log.stat().st_size > 0
    moved = path.with_name("moved.db")
    path.rename(moved)
    assert "belongs at" in elsewhere(moved)
    moved.rename(path)
    assert elsewhere(path) == "0"


def test_names_that_lead_to_the_same_path_are_one(path, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real", target_is_directory=True)
    names = [tmp_path / "real" / "x.db", tmp_path / "alias" / "x.db", tmp_path / "alias" / ".." / "real" / "x.db"]
    with contextlib.ExitStack() as stack:
        ledgers = [stack.enter_context(mdp.Ledger(name, max_epsilon=1)) for name in names]
        if Path("/proc/self/fd").is_dir():
            number = os.open(tmp_path / "real", os.O_RDONLY)
            stack.callback(os.close, number)
            ledgers.append(stack.enter_context(mdp.Ledger(f"/proc/self/fd/{number}/x.db")))
        for ledger in ledgers:
            ask(ledger, ["ann"] * 2)
        assert {ledger.spent("ann") for ledger in ledgers} == {0.2 * len(ledgers)}


def mounted(script, *arguments):
    """Run a shell script that may mount things which nobody else sees, or skip."""
    unshare = shutil.which("unshare")
    command = [unshare, "--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh", *map(str, arguments)]
    if unshare is None or subprocess.run([*command[:4], "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts")
def test_a_file_that_is_mounted_by_itself_is_refused(path, design):
    """As `docker -v budgets.db:budgets.db` does it: the same path even, but the log stays on the other side."""
    mdp.Ledger(path, max_epsilon=1).close()
    away = path.with_name("away file.db")
    shutil.copy(path, away)
    script = 'mount --bind "$1" "$3"; mount --bind "$2" "$1"; "$4" -c "$5" "$6" "$2" "$1" "$3"'
    third = path.with_name("third.db")
    third.touch()
    answer = mounted(script, away, path, third, sys.executable, OTHER, design)
    lines = answer.stdout.splitlines()
    assert lines[0] == "10", answer.stderr
    assert all("mounted as a single file" in line for line in lines[1:])
    assert len(lines) == 3


def test_a_maker_that_was_stopped_leaves_a_usable_ledger(path):
    mdp.Ledger(path, max_epsilon=1).close()
    left = path.with_name(".budgets.db.0123456789abcdef.tmp")
    left.hardlink_to(path)  # linked into place, and killed before the first name was removed
    other = path.with_name(".budgets.db.fedcba9876543210.tmp")
    other.write_bytes(b"being made by another process")
    with mdp.Ledger(path) as ledger:
        assert ask(ledger, ["ann"]) == 1
    assert not left.exists()
    assert other.exists()


def test_a_maker_that_is_slow_does_not_keep_others_out(path, monkeypatch):
    """Between link and unlink the file has two names; whoever opens it then removes the first."""
    original, opened = Path.hardlink_to, []

    def hardlink_to(self, target):
        original(self, target)
        with mdp.Ledger(path) as other:
            opened.append(ask(other, ["ann"]))

    monkeypatch.setattr(Path, "hardlink_to", hardlink_to)
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        assert ledger.spent("ann") == 0.1
    assert opened == [1]


# Charges

CITY = Equirectangular(24.94, 60.17)
EQUATOR = Equirectangular(24.94, 0.0)


@pytest.mark.parametrize("centre", [CITY, EQUATOR])
def test_what_is_charged_is_what_is_claimed_on_the_ground(path, centre):
    plane = dataclasses.replace(TENTH, projection=centre)
    ground = dataclasses.replace(plane, distance="ground")
    kappa = plane.distortion.kappa
    assert kappa != 1
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ask(ledger, ["ann"], plane)
        ask(ledger, ["bob"], ground)
        assert ledger.spent("ann") == plane.claimed_epsilon
        assert math.isclose(ledger.spent("ann"), 0.1 * kappa, rel_tol=1e-12)
        assert ledger.spent("bob") == 0.1
        units = (
            Fraction(ledger._book.standing(ledger._file.read, "ann", None, 0).units)
            * Fraction(10) ** ledger._scale.exponent
        )
        assert units >= Fraction(0.1) * Fraction(kappa)  # never less than κε
        assert ask(ledger, ["ann"] * 20, plane) == (9 if kappa < 1 else 8)


def test_distances_on_the_ground_and_on_a_plane_have_no_sum(path):
    city, bare = dataclasses.replace(TENTH, projection=CITY), TENTH
    for first, second, message in (
        (city, bare, r"per true kilometre on the ground like the others.*per unit of its own coordinates"),
        (bare, city, r"per unit of its own coordinates .* like the others.*per true kilometre on the ground"),
    ):
        with mdp.Ledger(path, max_epsilon=1) as ledger:
            ask(ledger, ["ann"], first)
            with pytest.raises(mdp.InvalidInputError, match=message):
                ask(ledger, ["ann"], second)
            assert ledger.users()["reports"].tolist() == [1]
        path.unlink()


def test_a_box_without_a_claim_on_the_ground_is_refused(path):
    polar = dataclasses.replace(TENTH, projection=Equirectangular(0.0, 89.99))
    assert polar.claimed_epsilon == math.inf
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        with pytest.raises(mdp.InvalidInputError, match="positive, finite ε per km"):
            ask(ledger, ["ann"], polar)
        for wrong in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(mdp.InvalidInputError, match="positive, finite ε"):
                ask(ledger, ["ann"], dataclasses.replace(TENTH, epsilon=wrong))
        assert ledger.users().empty


def test_noise_without_outputs_is_refused(path):
    noise = mdp.noise(1.0, bounds=[[0, 0], [4, 4]])
    with (
        mdp.Ledger(path, max_epsilon=1) as ledger,
        pytest.raises(mdp.InvalidInputError, match="chooses among outputs, got 'noise', which reports coordinates"),
    ):
        ledger.sample(noise, ["ann"], places(1))


SCHEMA_1 = """
PRAGMA journal_mode = WAL;
PRAGMA application_id = 0x6D647031;
PRAGMA user_version = 1;
CREATE TABLE terms (max_epsilon TEXT NOT NULL, sticky_km TEXT, key_check TEXT);
CREATE TABLE mechanisms (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, epsilon TEXT NOT NULL, p TEXT NOT NULL);
CREATE TABLE reports (
    user TEXT NOT NULL,
    mechanism INTEGER NOT NULL REFERENCES mechanisms,
    spent INTEGER NOT NULL CHECK (spent > 0),
    count INTEGER NOT NULL CHECK (count > 0),
    output INTEGER NOT NULL,
    point BLOB,
    PRIMARY KEY (user, mechanism)
) WITHOUT ROWID;
INSERT INTO terms VALUES ('1.0', NULL, NULL);
INSERT INTO mechanisms (sha256, epsilon, p) VALUES ('{sha256}', '0.1', '2.0');
INSERT INTO reports VALUES ('ann', 1, {spent}, 7, 3, NULL);
"""


def made_by_an_earlier_version(path, sha256):
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript(SCHEMA_1.format(sha256=sha256, spent=7 * 10**16))


@pytest.mark.parametrize("known", [True, False])
def test_ledgers_of_an_earlier_version_keep_their_charges(path, known):
    made_by_an_earlier_version(path, content_hash(TENTH) if known else "0" * 64)
    with mdp.Ledger(path, max_epsilon=1) as ledger, mdp.Ledger(path) as same:
        assert ledger.spent("ann") == same.spent("ann") == 0.7
        assert ask(ledger, ["ann"] * 5) == 3
        # What distance the old mechanism measured is not known until it is used again.
        with pytest.raises(mdp.InvalidInputError, match="per unit of its own coordinates"):
            ask(ledger, ["bob"], dataclasses.replace(TENTH, projection=CITY))
        assert len(ledger._file.read("SELECT * FROM mechanisms")) == (1 if known else 2)
        assert ledger._file.read("SELECT COUNT(*) FROM mechanisms WHERE unit = 'own'") == [(1,)]
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with pytest.raises(mdp.InvalidInputError, match="belongs at"):
        mdp.Ledger(copy)


def test_an_unknown_schema_is_refused(path):
    mdp.Ledger(path, max_epsilon=1).close()
    for schema in (0, _ledger_file._SCHEMA + 1):
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(f"PRAGMA user_version = {schema}")
        with pytest.raises(mdp.InvalidInputError, match="ledger of format 3"):
            mdp.Ledger(path)


# Composition of two mechanisms, from the definition


@pytest.fixture(scope="module")
def pair():
    """Two outputs at ε = 0.5 and three at 0.3 on a line, by a method that uses up what it is allowed."""
    two = mdp.Problem([[0.0], [2.0]], [[0.0], [2.0]], "euclidean")
    three = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [1.0], [2.0]], "euclidean")
    return mdp.fit(two, 0.5, "spline", cells=16), mdp.fit(three, 0.3, "spline", cells=16)


def played(monkeypatch, mechanisms, script, points, **options):
    """The answers of a new ledger to a person's requests if the mechanisms draw what the script says."""
    words = iter(script)
    monkeypatch.setattr(Mechanism, "sample", lambda self, x, *_, **__: np.array([next(words) for _ in x]))
    with (
        tempfile.TemporaryDirectory(dir=MEMORY) as folder,
        mdp.Ledger(f"{folder}/x", max_epsilon=1.3, **options) as ledger,
    ):
        answers = [
            int(ledger.sample(mechanism, ["ann"], [point])[0])
            for mechanism, point in zip(mechanisms, points, strict=True)
        ]
        return tuple(answers), ledger.spent("ann")


def laws(monkeypatch, mechanisms, trajectories, **options):
    """Pr[answers | trajectory] for each trajectory, summed over everything that the mechanisms might draw."""
    rows = [
        [mechanism.probabilities([point])[0] for mechanism, point in zip(mechanisms, points, strict=True)]
        for points in trajectories
    ]
    found = [Counter() for _ in trajectories]
    for script in itertools.product(*(range(mechanism.n_outputs) for mechanism in mechanisms)):
        for law, points, row in zip(found, trajectories, rows, strict=True):
            answers, spent = played(monkeypatch, mechanisms, script, points, **options)
            assert spent <= 1.3
            law[answers] += math.prod(chances[output] for chances, output in zip(row, script, strict=True))
    return found


@pytest.mark.parametrize("beyond", ["refuse", "repeat-last"])
def test_two_mechanisms_together_keep_to_the_sum(pair, monkeypatch, beyond):
    """ε = 0.5, 0.5 and 0.3 are paid for; what is drawn after that must not show, however the answer is made up."""
    a, b = pair
    mechanisms = [a, a, b, a, b]
    trajectories = [[[0.0]] * 5, [[2.0]] * 5]
    here, there = laws(monkeypatch, mechanisms, trajectories, beyond=beyond)
    assert math.isclose(sum(here.values()), 1)
    worst = max(abs(math.log(here[answers] / there[answers])) for answers in here | there)
    distance, rounding = 2.0, max(a.claimed_rounding, b.claimed_rounding)
    assert worst <= 1.3 * (distance + rounding)
    # Not far from the bound, which all five draws together break.
    assert worst > 0.75 * 1.3 * distance
    everything = [mechanism.probabilities([point]) for point in ([0.0], [2.0]) for mechanism in mechanisms]
    apart = sum(np.abs(np.log(first / last)).max() for first, last in zip(everything[:5], everything[5:], strict=True))
    assert apart > 1.3 * (distance + rounding)


def test_a_repeated_output_belongs_to_its_own_mechanism(pair, path):
    a, b = pair
    with mdp.Ledger(path, max_epsilon=0.5, beyond="repeat-last") as ledger:
        (first,) = ledger.sample(a, ["ann"], [[0.0]])
        assert ledger.sample(b, ["ann"] * 3, [[2.0]] * 3).tolist() == [-1] * 3
        assert ledger.sample(a, ["ann"], [[2.0]]).tolist() == [first]


def test_stickiness_is_not_shared_by_lattices(pair, path):
    """Close to the last draw of one mechanism is nothing to another, which draws anew and charges."""
    a, _ = pair
    coarse = mdp.fit(mdp.Problem([[0.0], [2000.0]], [[0.0], [2000.0]], "euclidean"), 0.3, "em")
    with mdp.Ledger(path, max_epsilon=10, sticky_km=0.5) as ledger:
        for mechanism, spent in ((a, 0.5), (coarse, 0.8), (a, 0.8), (coarse, 0.8)):
            ledger.sample(mechanism, ["ann"], [[1.0]])
            assert ledger.spent("ann") == spent


def test_the_same_numbers_under_two_hashes_share_the_budget(path):
    twin = dataclasses.replace(TENTH, report={"loss": 0.0})
    assert content_hash(twin) != content_hash(TENTH)
    with mdp.Ledger(path, max_epsilon=1, beyond="repeat-last", sticky_km=5.0) as ledger:
        assert ask(ledger, ["ann"] * 3) == 3
        assert ask(ledger, ["ann"] * 3, twin) == 3
        assert ledger.spent("ann") == 0.2  # one draw of each; the rest are repetitions


@pytest.mark.filterwarnings("ignore:No report is affordable")
@pytest.mark.parametrize("epsilon", [0.30000000000000004, 1.0000000000000002, 0.1234567890123456, 1e-300])
def test_long_decimals_are_never_rounded_in_somebodys_favour(path, epsilon):
    mechanism = dataclasses.replace(TENTH, epsilon=epsilon)
    with mdp.Ledger(path, max_epsilon=0.9) as ledger:
        count = ask(ledger, ["ann"] * 40, mechanism)
        units = (
            Fraction(ledger._book.standing(ledger._file.read, "ann", None, 0).units)
            * Fraction(10) ** ledger._scale.exponent
        )
        assert Fraction(repr(epsilon)) * count <= units <= Fraction("0.9")
        assert count == min(40, int(Fraction("0.9") / Fraction(repr(epsilon))))


# Files of strangers that are only looked at


@pytest.mark.parametrize(
    "damage",
    [
        # Computed anew at every look, whatever it takes: a file of 20 kB took a minute and some GB.
        "ALTER TABLE reports ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))",
        # Would stand in a CSV file as it is, where a spreadsheet takes it for a formula.
        "UPDATE reports SET output = '=1+1'",
    ],
)
def test_a_strangers_ledger_computes_nothing_and_exports_no_formulas(path, tmp_path, damage):
    with mdp.Ledger(path, max_epsilon=1.0) as ledger:
        ask(ledger, ["ann"])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(damage)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with pytest.raises(mdp.InvalidInputError, match="not a metricdp ledger"):
        export_ledger(path, tmp_path / "out.csv", last_output_of=TENTH)
    assert not (tmp_path / "out.csv").exists()


def test_pages_that_are_used_twice_make_no_more_people(path):
    """A page above others that all lead to one another would have endless rows in a small file."""
    with mdp.Ledger(path, max_epsilon=1.0) as ledger:
        ask(ledger, [f"person {number:06}" for number in range(3000)])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = database.execute("PRAGMA page_size").fetchone()[0]
        root = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'reports'").fetchone()[0]
    content, start = bytearray(path.read_bytes()), (root - 1) * size
    assert content[start] == 2  # the page above others of an index
    first = start + int.from_bytes(content[start + 12 : start + 14], "big")
    content[start + 8 : start + 12] = content[first : first + 4]
    path.write_bytes(content)
    with pytest.raises(mdp.InvalidInputError, match="not a metricdp ledger"):
        read_ledger(path, lambda view: view.spent())
