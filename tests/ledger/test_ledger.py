import contextlib
import decimal
import enum
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import metricdp as mdp
from metricdp.ledger import batch as _ledger_batch
from metricdp.ledger import database as _ledger_file
from metricdp.ledger.units import Scale
from oracles import NaiveLedger
from problems import random_problem

KEY = b"sixteen bytes or more"

# Hundreds of ledgers need not wait for a disk.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def designed(epsilon, seed=0, **changes):
    return mdp.fit(random_problem(seed, **changes), epsilon, "em")


TENTH, QUARTER = designed(0.1), designed(0.25, seed=1)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.db"


def places(count, seed=0):
    return np.random.default_rng(seed).uniform(0, 4, (count, 2))


def drawn(answers):
    return (answers >= 0).tolist()


# Budgets


def test_ten_times_a_tenth_is_one(path):
    with mdp.Ledger(path, max_epsilon=1.0) as ledger:
        for _ in range(10):
            assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [True]
        assert ledger.sample(TENTH, ["ann"], places(1)).tolist() == [-1]
        assert (ledger.spent("ann"), ledger.remaining("ann")) == (1.0, 0.0)


def test_a_batch_is_served_in_order_until_the_budget_ends(path):
    users = ["ann", "bob", "ann", "ann", "bob", "ann", "ann"]
    with mdp.Ledger(path, max_epsilon=0.5) as ledger:
        answers = ledger.sample(QUARTER, users, places(7))
        assert answers.dtype == np.int64
        assert drawn(answers) == [True, True, True, False, True, False, False]
        frame = ledger.users()
    assert frame.to_dict("list") == {
        "user": ["ann", "bob"],
        "reports": [2, 2],
        "spent": [0.5] * 2,
        "remaining": [0.0] * 2,
    }


def test_what_is_drawn_is_what_the_mechanism_draws(path):
    x = places(50)
    with mdp.Ledger(path, max_epsilon=100) as ledger:
        answers = ledger.sample(TENTH, ["ann"] * 50, x, mdp.InsecureSeed(3))
        assert answers.tolist() == TENTH.sample(x, mdp.InsecureSeed(3)).tolist()
        assert isinstance(answers, mdp.NotPrivate)
        assert type(ledger.sample(TENTH, ["ann"], x[:1])) is np.ndarray


def test_repeat_last_repeats_within_and_across_batches_at_no_cost(path):
    with mdp.Ledger(path, max_epsilon=0.2, beyond="repeat-last") as ledger:
        first = ledger.sample(TENTH, ["ann", "ann", "ann", "bob", "ann"], places(5), mdp.InsecureSeed(0)).tolist()
        assert first[2] == first[4] == first[1] >= 0
        assert ledger.sample(TENTH, ["ann"] * 3, places(3, seed=1)).tolist() == [first[1]] * 3
        assert ledger.spent("ann") == 0.2
        # Another mechanism has other outputs, so there is nothing to repeat.
        with pytest.warns(UserWarning, match="No report is affordable: each costs ε = 0.25"):
            assert ledger.sample(QUARTER, ["ann"], places(1)).tolist() == [-1]
    with mdp.Ledger(path, max_epsilon=0.2) as ledger:
        assert ledger.sample(TENTH, ["ann"], places(1)).tolist() == [-1]


def test_mechanisms_share_a_budget(path):
    with mdp.Ledger(path, max_epsilon=0.6) as ledger:
        assert drawn(ledger.sample(QUARTER, ["ann"] * 2, places(2))) == [True, True]
        assert drawn(ledger.sample(TENTH, ["ann"] * 2, places(2))) == [True, False]
        assert ledger.users().loc[0].tolist() == ["ann", 3, 0.6, 0.0]


@pytest.mark.parametrize(
    ("epsilon", "limit", "times"),
    [
        (1 / 3, 1 / 3, 1),
        (1 / 3, 1.0, 3),
        (0.1, 0.3, 3),  # 0.1 + 0.1 + 0.1 > 0.3 in floating point
        (0.7, 2.1, 3),
        (math.nextafter(0.5, 1), 1.0, 1),
        (1e-30, 1.0, 10),
        (1e300, 1.0, 0),
        (1e300, 3e300, 3),
        (3e-320, 6e-320, 2),
        (8.0, 20.0, 2),
    ],
)
def test_sums_are_exact_or_rounded_up(epsilon, limit, times, path):
    scale = Scale.of(limit)
    assert scale.epsilon(scale.limit) == limit
    assert 10**17 <= scale.limit < 10**18
    cost = scale.cost(epsilon)
    assert cost * Fraction(10) ** scale.exponent >= min(Fraction(repr(epsilon)), Fraction(repr(limit)))
    assert min(scale.limit // cost, 10) == times


@hypothesis.given(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300))
def test_a_charge_is_never_less_than_epsilon(epsilon, limit):
    scale = Scale.of(limit)
    unit = Fraction(10) ** scale.exponent
    assert scale.limit * unit == Fraction(repr(limit))
    if scale.cost(epsilon) <= scale.limit:
        assert 0 <= scale.cost(epsilon) * unit - Fraction(repr(epsilon)) < unit
    else:
        assert epsilon > limit


rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3)), max_size=12)
calls = st.lists(st.tuples(st.sampled_from([TENTH, QUARTER]), rows, st.integers(0, 99), st.booleans()), max_size=6)


@pytest.mark.filterwarnings("ignore:No report is affordable")
@hypothesis.given(
    calls,
    st.sampled_from([0.05, 0.3, 0.75]),
    st.sampled_from(["refuse", "repeat-last"]),
    st.sampled_from([None, 0, 1.0]),
)
@hypothesis.settings(max_examples=150)
def test_as_the_naive_ledger(calls, limit, beyond, radius):
    naive = NaiveLedger(limit, beyond, radius)
    options = {"max_epsilon": limit, "beyond": beyond, "sticky_km": radius}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, contextlib.ExitStack() as stack:
        ledger = stack.enter_context(mdp.Ledger(f"{folder}/x", **options))
        for mechanism, batch, seed, reopen in calls:
            users, x = [user for user, *_ in batch], np.array([point for _, *point in batch], dtype=float)
            outputs = mechanism.sample(x, mdp.InsecureSeed(seed)).tolist()
            wanted = [naive.ask(mechanism, *request) for request in zip(users, x.tolist(), outputs, strict=True)]
            assert ledger.sample(mechanism, users, x, mdp.InsecureSeed(seed)).tolist() == wanted
            assert [ledger.spent(user) for user in "abc"] == [float(naive.spent.get(user, 0)) for user in "abc"]
            if reopen:
                ledger.close()
                ledger = stack.enter_context(mdp.Ledger(f"{folder}/x", **options))
        spent = dict(ledger.users()[["user", "spent"]].itertuples(index=False))
        assert spent == {user: float(total) for user, total in naive.spent.items()}


# Stickiness


def test_sticky_repeats_near_the_last_draw_and_not_near_the_last_request(path):
    x = np.array([[1.0, 1.0], [1.0, 1.3], [1.0, 1.6], [1.0, 1.9], [1.0, 1.0]])
    with mdp.Ledger(path, max_epsilon=1, sticky_km=0.5) as ledger:
        answers = ledger.sample(TENTH, ["ann"] * 5, x, mdp.InsecureSeed(0))
        fresh = TENTH.sample(x, mdp.InsecureSeed(0))
        # The third is more than 0.5 from the first, the fourth within 0.5 of the third, the fifth is not.
        assert answers.tolist() == [fresh[0], fresh[0], fresh[2], fresh[2], fresh[4]]
        assert ledger.spent("ann") == 0.3
    with mdp.Ledger(path, max_epsilon=1, sticky_km=0.5) as ledger:
        assert ledger.sample(TENTH, ["ann"], [[1.4, 1.2]]).tolist() == [fresh[4]]
        assert ledger.spent("ann") == 0.3


def test_sticky_answers_outlast_the_budget(path):
    with mdp.Ledger(path, max_epsilon=0.1, sticky_km=0) as ledger:
        first = ledger.sample(TENTH, ["ann"] * 3, [[1, 1], [2, 2], [1, 1]]).tolist()
        assert first[1] == -1
        assert first[2] == first[0] >= 0


def test_sticky_at_zero_means_the_same_lattice_point(path):
    spline = mdp.fit(random_problem(0), 0.1, "spline", cells=2)
    step = spline.step
    x = [[1.0, 1.0], [1.0 + step / 4, 1.0 - step / 4], [1.0 + step, 1.0]]
    with mdp.Ledger(path, max_epsilon=1, sticky_km=0.0) as ledger:
        ledger.sample(spline, ["ann"] * 3, x)
        assert ledger.spent("ann") == 0.2
        # Points outside the box stand for its nearest point.
        ledger.sample(spline, ["bob"] * 2, [[9.0, 2.0], [4.0, 2.0]])
        assert ledger.spent("bob") == 0.1


@pytest.mark.parametrize("p", [1, 1.5, 2, 7, math.inf])
def test_closeness_is_the_mechanisms_distance(p):
    rng = np.random.default_rng(0)
    for point in rng.uniform(-2, 2, (200, 3)):
        assert _ledger_batch._close(point.tolist(), [0.0] * 3, 1.5, p) == (np.linalg.norm(point, p) <= 1.5)
    assert _ledger_batch._close([1e300, 0], [0, 0], 1e300, p)
    assert not _ledger_batch._close([1e-9], [0], 0.0, p)


# The file


def test_reopening_remembers(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"] * 3, places(3))
    with mdp.Ledger(str(path), max_epsilon=1.0) as ledger:
        assert ledger.spent("ann") == 0.3
    with mdp.Ledger(path) as ledger:
        assert (ledger.max_epsilon, ledger.spent("ann"), ledger.spent("nobody")) == (1.0, 0.3, 0.0)
    assert [file.name for file in path.parent.iterdir()] == ["budgets.db"]


def test_the_terms_cannot_change(path):
    mdp.Ledger(path, max_epsilon=1, sticky_km=0.2, user_key=KEY).close()
    for options, message in [
        ({"max_epsilon": 2, "sticky_km": 0.2}, "`max_epsilon` must be 1.0, which the ledger was made with, got 2.0."),
        ({"max_epsilon": 1}, "`sticky_km` must be 0.2, which the ledger was made with, got None."),
        ({"max_epsilon": 1, "sticky_km": 0}, "`sticky_km` must be 0.2, which the ledger was made with, got 0.0."),
        ({"sticky_km": 0.3}, "`sticky_km` must be 0.2, which the ledger was made with, got 0.3."),
        ({"user_key": KEY + b"."}, "`user_key` must be the one that the ledger was made with, got another."),
        ({"user_key": None}, "`user_key` must be the one that the ledger was made with, got none."),
    ]:
        with pytest.raises(mdp.InvalidInputError) as caught:
            mdp.Ledger(path, **{"user_key": KEY} | options)
        assert str(caught.value) == message
    with mdp.Ledger(path, user_key=KEY) as ledger:
        assert (ledger.max_epsilon, ledger.sticky_km) == (1.0, 0.2)
        assert repr(ledger) == f"Ledger({str(path)!r}, max_epsilon=1, beyond='refuse', sticky_km=0.2)"


def contents(folder):
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_owner_may_read(path):
    umask = os.umask(0)
    try:
        with mdp.Ledger(path, max_epsilon=1) as ledger:
            ledger.sample(TENTH, ["ann"], places(1))
            files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(umask)
    assert files == dict.fromkeys(["budgets.db", "budgets.db-wal", "budgets.db-shm"], 0o600)


@pytest.mark.parametrize("radius", [None, 0.0, 0.5])
def test_the_file_holds_points_only_for_stickiness(radius, path):
    x = places(1)
    with mdp.Ledger(path, max_epsilon=1, sticky_km=radius) as ledger:
        ledger.sample(TENTH, ["ann"], x)
        found = contents(path.parent)
    assert (x.tobytes() in found) == (radius is not None)
    assert b"ann" in found


def test_a_key_hides_who(path):
    with mdp.Ledger(path, max_epsilon=1, user_key=KEY) as ledger:
        ledger.sample(TENTH, ["ann the person", 7, "7"], places(3))
        assert (ledger.spent("ann the person"), ledger.spent(7)) == (0.1, 0.2)
        assert b"ann the" not in contents(path.parent)
        assert KEY not in contents(path.parent)
        assert ledger.users()["user"].str.fullmatch("[0-9a-f]{32}").all()


def test_charges_reach_the_disk_before_they_count(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        assert ledger._file.read("PRAGMA synchronous") == [(2,)]
        assert ledger._file.read("PRAGMA journal_mode") == [("wal",)]
        assert ledger._file.read("PRAGMA wal_autocheckpoint") == [(0,)]


def test_the_log_stays_short(path, monkeypatch):
    monkeypatch.setattr(_ledger_file, "_LONG_LOG", 2**16)
    log = path.with_name("budgets.db-wal")
    with mdp.Ledger(path, max_epsilon=100) as ledger:
        sizes = []
        for _ in range(100):
            ledger.sample(TENTH, ["ann", "bob"], places(2))
            sizes.append(log.stat().st_size)
        assert max(sizes) < 2**17
        assert sum(np.diff(sizes) < 0) > 3
        assert ledger.spent("ann") == 10
        # Everything but what came after the last move is in the database itself.
        copy = path.with_name("copy.db")
        copy.write_bytes(path.read_bytes())
        with mdp.Ledger(copy, moved=True) as earlier:
            assert 5 < earlier.spent("ann") < 10


def test_a_file_that_is_no_ledger_is_refused(path):
    path.write_bytes(b"name,epsilon\nann,1\n" * 500)
    with pytest.raises(mdp.InvalidInputError, match=r"budgets\.db' is not a metricdp ledger"):
        mdp.Ledger(path, max_epsilon=1)
    path.write_bytes(b"")
    with pytest.raises(mdp.InvalidInputError, match="another database"):
        mdp.Ledger(path, max_epsilon=1)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE terms (max_epsilon)")
    with pytest.raises(mdp.InvalidInputError, match="another database"):
        mdp.Ledger(path, max_epsilon=1)
    path.unlink()
    for change in ("DELETE FROM terms", "INSERT INTO terms VALUES ('much', NULL, NULL, NULL)", "DROP TABLE terms"):
        mdp.Ledger(path, max_epsilon=1).close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(change)
        with pytest.raises(mdp.InvalidInputError, match=r"is not a metricdp ledger.*terms"):
            mdp.Ledger(path, max_epsilon=1)
        path.unlink()
    with pytest.raises(FileNotFoundError):
        mdp.Ledger(path.parent / "no folder" / "x", max_epsilon=1)
    with pytest.raises(OSError, match="could not be used"):
        mdp.Ledger(path.parent, max_epsilon=1)


@pytest.mark.parametrize("where", ["head", "middle", "end"])
def test_a_damaged_file_is_refused(where, path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, range(3000), places(3000))
    whole = bytearray(path.read_bytes())
    if where == "head":
        whole[:4096] = bytes(4096)
    elif where == "middle":
        whole[4096:] = b"\xa5" * (len(whole) - 4096)
    else:
        del whole[len(whole) // 2 :]
    path.write_bytes(whole)
    with pytest.raises(mdp.InvalidInputError, match="is not a metricdp ledger"):
        mdp.Ledger(path, max_epsilon=1).sample(TENTH, range(3000), places(3000))


def test_a_full_disk_releases_and_charges_nothing(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
        pages = ledger._file.read("PRAGMA page_count")[0][0]
        ledger._file.read(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(OSError, match=r"full.*nothing was released"):
            ledger.sample(TENTH, ["ann", *range(5000)], places(5001))
        assert ledger.users()["user"].tolist() == ["ann"]
        assert ledger.spent("ann") == 0.1
        ledger._file.read(f"PRAGMA max_page_count = {2**30}")
        assert min(ledger.sample(TENTH, ["ann", *range(5000)], places(5001))) >= 0


def test_a_lock_that_stays_is_given_up(path, monkeypatch):
    monkeypatch.setattr(_ledger_file, "_PATIENCE_SECONDS", 0.1)
    with mdp.Ledger(path, max_epsilon=1) as ledger, contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError, match=r"locked for 0\.1 s; nothing was charged"):
            ledger.sample(TENTH, ["ann"], places(1))
        other.execute("ROLLBACK")
        assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [True]
        assert ledger.spent("ann") == 0.1


def test_a_file_replaced_under_way_is_noticed(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
        path.rename(path.with_suffix(".old"))
        with pytest.raises(FileNotFoundError):
            ledger.sample(TENTH, ["ann"], places(1))
        mdp.Ledger(path, max_epsilon=1).close()
        with pytest.raises(OSError, match="replaced by another file"):
            ledger.sample(TENTH, ["ann"], places(1))


def test_a_link_is_the_same_ledger(path):
    link = path.with_name("link.db")
    link.symlink_to(path)
    with mdp.Ledger(path, max_epsilon=1) as ledger, mdp.Ledger(link, max_epsilon=1) as same:
        ledger.sample(TENTH, ["ann"], places(1))
        same.sample(TENTH, ["ann"], places(1))
        assert ledger.spent("ann") == same.spent("ann") == 0.2


def test_a_closed_ledger_is_of_no_use(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        pass
    with pytest.raises(ValueError, match="closed"):
        ledger.sample(TENTH, ["ann"], places(1))
    ledger.close()


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "A new ledger needs `max_epsilon`, the budget of each person."),
        ({"max_epsilon": 0}, "`max_epsilon` must be a positive finite number, got 0."),
        ({"max_epsilon": math.inf}, "`max_epsilon` must be a positive finite number, got inf."),
        ({"max_epsilon": 1, "beyond": "raise"}, "`beyond` must be one of 'refuse', 'repeat-last', got 'raise'."),
        ({"max_epsilon": 1, "sticky_km": -1}, "`sticky_km` must be a finite number of at least 0, got -1."),
        ({"max_epsilon": 1, "sticky_km": math.nan}, "`sticky_km` must be a finite number of at least 0, got nan."),
        ({"max_epsilon": 1, "sticky_km": "far"}, "`sticky_km` must be a finite number of at least 0, got 'far'."),
        ({"max_epsilon": 1, "user_key": b"short"}, "`user_key` must be 16 to 64 bytes, got 5 bytes."),
        ({"max_epsilon": 1, "user_key": "my very secret password"}, "`user_key` must be 16 to 64 bytes, got str."),
    ],
)
def test_bad_terms(options, message, path):
    with pytest.raises(mdp.InvalidInputError) as caught:
        mdp.Ledger(path, **options)
    assert str(caught.value) == message
    assert not list(path.parent.iterdir())


IDS = "`users` must be text of 1 to 1024 letters without NUL, or whole numbers, got something else at index 1."


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["secret", None], IDS),
        (["secret", math.nan], IDS),
        (["secret", ""], IDS),
        (["secret", 7.0], IDS),
        (["secret", True], IDS),
        (["secret", b"secret"], IDS),
        (["secret", "\ud800"], IDS),
        (["secret", "\ud83d\ude00"], IDS),
        (["secret", "secret\0"], IDS),
        (["secret", "secret\0ly"], IDS),
        (["secret", "\0"], IDS),
        (["secret", "x" * 1025], IDS),
        (["secret", 10**1024], IDS),
        (["secret", -(10**5000)], IDS),
        ([1, True], IDS),  # equal to 1, and 7.0 to 7, wherever hashes are compared
        ([7, 7.0], IDS),
        ([7, np.float64(7)], IDS),
        ([7, np.bool_(True)], IDS),
        (["secret", decimal.Decimal(7)], IDS),
        (["secret", np.timedelta64(7, "s")], IDS),
        (["secret", pd.NA], IDS),
        (["secret", pd.Timestamp(7)], IDS),
        (np.array(["secret", "x"], dtype="S"), IDS.replace("1.", "0.")),
        (np.array([7, 8], dtype="M8[ns]"), IDS.replace("something else at index 1", "times")),
        (np.array([7, 8], dtype="m8[ns]"), IDS.replace("something else at index 1", "times")),
        (pa.array([7, 8], pa.timestamp("ns")), IDS.replace("something else at index 1", "times")),
        (pd.Series([7, 8], dtype="M8[ns]"), IDS.replace("1.", "0.")),
        (np.ma.array(["secret", "hidden"], mask=[False, True]), IDS),
        (pd.Series(["secret", None], dtype="category"), IDS),
        (pd.Series(["secret", None], dtype="string[pyarrow]"), IDS),
        (np.array([1.0, 2.0]), IDS.replace("1.", "0.")),
        (pd.Series(["secret", None]), IDS),
        (pd.Series([1, None], dtype="Int64"), IDS),
        ([["secret"], []], IDS.replace("1.", "0.")),
        (["secret"], "`users` must be one id for each of 2 points, got shape (1,)."),
        ("secret", "`users` must be one id for each of 2 points, got shape ()."),
        ([["a", "b"], ["c", "d"]], "`users` must be one id for each of 2 points, got shape (2, 2)."),
    ],
)
def test_bad_users(users, message, path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        with pytest.raises(mdp.InvalidInputError) as caught:
            ledger.sample(TENTH, users, places(2))
        assert str(caught.value) == message
        assert ledger.users().empty


@pytest.mark.parametrize("radius", [None, 0.5])
def test_bad_points_and_mechanisms_charge_nothing(radius, path):
    with mdp.Ledger(path, max_epsilon=1, sticky_km=radius) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
        for x, options in [([[1.234, math.nan]], {}), ([[1.234]], {}), ([[1.234, 9.876]], {"outside": "error"})]:
            with pytest.raises(mdp.InvalidInputError, match="`x` must be") as caught:
                ledger.sample(TENTH, ["ann"], x, **options)
            assert not any(secret in str(caught.value) for secret in ("1.234", "9.876", "ann"))
        with pytest.raises(mdp.InvalidInputError, match=r"`mechanism` must be a mechanism, got str\."):
            ledger.sample("em", ["ann"], places(1))
        other = designed(0.1, p=1)
        with pytest.raises(mdp.InvalidInputError, match=r"private with p = 2\.0 like the others.*got p = 1\.0"):
            ledger.sample(other, ["ann"], places(1))
        assert ledger.spent("ann") == 0.1
        assert ledger.sample(TENTH, [], np.empty((0, 2))).tolist() == []


class Name(str):
    __slots__ = ()

    def __str__(self):
        return "somebody else"

    __hash__ = str.__hash__

    def __eq__(self, other):
        return False


class Level(enum.IntEnum):
    SEVEN = 7


def test_every_way_to_name_a_person(path):
    ways = [
        ["7", 7, np.int8(7), np.str_("7")],
        np.full(4, 7),
        np.array(["7"] * 4),
        pd.Series(["7"] * 4, index=[3, 1, 2, 0]),
        pd.Series(["7"] * 4, dtype="category"),
        pd.Series(["7"] * 4, dtype="string"),
        pd.Series(["7"] * 4, dtype="string[pyarrow]"),
        pd.Series([7] * 4, dtype="Int64"),
        pd.Index([7] * 4),
        np.array([7] * 4, dtype=np.uint8),
        np.array(["7"] * 4, dtype=object),
        pa.array(["7"] * 4),
        pa.array(["7"] * 4).dictionary_encode(),
        pa.chunked_array([[7, 7], [7, 7]]),
        [Name("7"), Level.SEVEN, np.uint64(7), 7],
        ("7",) * 4,
    ]
    odd = ["zero", "ünïcödé", "é", "e\u0301", "' OR 1=1 --", " 7", "7 ", "007", "+7", "٧", "7.0", "True", "ann", "Ann"]
    odd += ["x" * 1024, "\x01", "\ufeff7", "nan", "None", "?", "%", "reports.user", 10**1024 - 1, -(2**63), 2**64]
    with mdp.Ledger(path, max_epsilon=100) as ledger:
        for users in ways:
            ledger.sample(TENTH, users, places(4))
        ledger.sample(TENTH, odd, places(len(odd)))
        assert ledger.users()["reports"].sum() == 4 * len(ways) + len(odd)
        assert ledger.spent("7") == ledger.spent(7) == 0.4 * len(ways)
        assert [ledger.spent(user) for user in odd] == [0.1] * len(odd)
        with pytest.raises(mdp.InvalidInputError, match="`users`"):
            ledger.spent(None)


# Threads, forks, crashes, processes


def test_threads_share_a_ledger(path):
    with mdp.Ledger(path, max_epsilon=5) as ledger:

        def work(seed):
            users = np.random.default_rng(seed).integers(0, 10, (20, 10))
            return sum(int((ledger.sample(TENTH, batch, places(10)) >= 0).sum()) for batch in users)

        with ThreadPoolExecutor(8) as pool:
            released = sum(pool.map(work, range(8)))
        assert ledger.users()["reports"].max() <= 50
        assert ledger.users()["reports"].sum() == released


def test_ledgers_made_at_once_are_one(path):
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        with mdp.Ledger(path, max_epsilon=5) as ledger:
            ledger.sample(TENTH, ["ann"], places(1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    with mdp.Ledger(path) as ledger:
        assert ledger.spent("ann") == 0.8
    assert [file.name for file in path.parent.iterdir()] == ["budgets.db"]


def run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


FORK = """
import os, sys, threading, time
import metricdp as mdp

path, mechanism = sys.argv[1], mdp.load(sys.argv[2], certify=False)
ledger = mdp.Ledger(path)

def ask(times):
    for _ in range(times):
        assert ledger.sample(mechanism, ["ann"], [[1, 1]])[0] >= 0

def charge():
    while not done.is_set():
        with ledger._file.transaction(["bob"]) as database:
            database.execute("INSERT INTO mechanisms (sha256, epsilon, p) VALUES (RANDOM(), '1', '2.0')")
        time.sleep(0.001)  # locks are not fair

ask(1)
done = threading.Event()
busy = threading.Thread(target=charge)  # forks come in the middle of its transactions
busy.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        assert ledger._file._connection is None  # nothing is inherited
        ask(2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
done.set()
busy.join()
ask(1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_ledger_may_be_used_on_both_sides_of_a_fork(path):
    TENTH.save(path.parent / "m.mdp")
    with mdp.Ledger(path, max_epsilon=10) as ledger:
        answer = run(FORK, path, path.parent / "m.mdp")
        assert answer.returncode == 0, answer.stderr
        assert ledger.spent("ann") == 1.2


CRASH = """
import contextlib, os, sys
import metricdp as mdp
from metricdp.ledger.database import LedgerFile

path, mechanism, moment = sys.argv[1:]
whole = LedgerFile.transaction

@contextlib.contextmanager
def cut(self, names):
    with whole(self, names) as database:
        yield database
        if moment == "before":
            os._exit(9)
    os._exit(9)

LedgerFile.transaction = cut
mdp.Ledger(path).sample(mdp.load(mechanism, certify=False), ["ann", "ann", "bob"], [[1, 1], [2, 2], [3, 3]])
"""


@pytest.mark.parametrize(("moment", "spent"), [("before", 0.1), ("after", 0.3)])
def test_a_crash_around_the_charge_never_undercounts(moment, spent, path):
    TENTH.save(path.parent / "m.mdp")
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
        # Nothing is released in either case; what was committed stays charged.
        assert run(CRASH, path, path.parent / "m.mdp", moment).returncode == 9
        assert ledger.spent("ann") == spent
        assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [True]


# Opens the ledger, then forks: every worker logs (person, output) of what it was given, and nothing else. Those that are
# to be killed wait for it before their last batch, however fast the machine is.
WORKERS = """
import os, signal, sys
import numpy as np
import metricdp as mdp
from metricdp.ledger import database as _ledger_file

_ledger_file._LONG_LOG = 2**17  # so that the log is moved often
folder, workers, batches, rows, killed = sys.argv[1], *map(int, sys.argv[2:])
mechanism = mdp.load(f"{folder}/m.mdp", certify=False)
ledger = mdp.Ledger(f"{folder}/budgets.db", max_epsilon=80)
ledger.spent(0)  # connected when the fork comes
mechanism.sample([[1, 1]])

def work(number):
    rng = np.random.default_rng(number)
    odds = np.random.default_rng(0).uniform(0.2, 1.8, 100)
    with open(f"{folder}/{number}.log", "wb", buffering=0) as log:
        for batch in range(batches):
            if number < killed and batch == batches - 1:
                signal.pause()
            users = rng.choice(100, rows, p=odds / odds.sum())
            answers = ledger.sample(mechanism, users, rng.uniform(0, 4, (rows, 2)))
            log.write(np.stack([users, answers], axis=1).astype(np.int32).tobytes())

for number in range(workers):
    pid = os.fork()
    if pid == 0:
        work(number)
        os._exit(0)
    with open(f"{folder}/{number}.pid", "w") as file:
        file.write(f"{pid} ")
failed = sum(os.wait()[1] != 0 for _ in range(workers))
print(failed)
"""


def released(folder, number):
    answers = np.frombuffer((folder / f"{number}.log").read_bytes(), dtype=np.int32).reshape(-1, 2)
    return answers, np.bincount(answers[answers[:, 1] >= 0, 0], minlength=100)


def kill_midway(folder, number, rows):
    log, pid = folder / f"{number}.log", folder / f"{number}.pid"
    deadline = time.monotonic() + 300
    while not (pid.exists() and pid.read_text().endswith(" ") and log.exists() and log.stat().st_size > 8 * rows):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    os.kill(int(pid.read_text()), signal.SIGKILL)


def share(folder, batches, rows, killed):
    """Run 8 processes, kill some midway; return requests and released reports by person, and the ledger's frame."""
    TENTH.save(folder / "m.mdp")
    command = [sys.executable, "-c", WORKERS, folder, 8, batches, rows, killed]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as workers:
        for number in range(killed):
            kill_midway(folder, number, rows * batches * (number + 1) // 4)
        assert workers.communicate(timeout=1200)[0] == f"{killed}\n"
    logs = [released(folder, number) for number in range(8)]
    for number, (answers, _) in enumerate(logs):
        assert len(answers) < batches * rows if number < killed else len(answers) == batches * rows
    asked = sum(np.bincount(answers[:, 0], minlength=100) for answers, _ in logs)
    with mdp.Ledger(folder / "budgets.db") as ledger:
        assert ledger._file.read("PRAGMA integrity_check") == [("ok",)]
        frame = ledger.users().astype({"user": int}).set_index("user").reindex(range(100))
    return asked, sum(given for _, given in logs), frame


def check(folder, batches, rows, killed):
    asked, given, frame = share(folder, batches, rows, killed)
    charged = frame["reports"].to_numpy()
    assert charged.max() == 800  # nobody is over budget; those who asked more often are at it
    assert frame["spent"].tolist() == [float(Fraction(int(count), 10)) for count in charged]
    assert (given <= charged).all()  # nobody is undercounted
    lost = charged - given
    assert lost.sum() <= killed * rows  # what was under way when it was killed
    assert (charged >= np.minimum(asked, 800)).all()
    if not killed:
        assert (charged == np.minimum(asked, 800)).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.parametrize("killed", [0, 2])
def test_8_processes_of_10_000_requests(killed, tmp_path):
    check(tmp_path, batches=100, rows=100, killed=killed)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_8_processes_of_10_000_single_requests(tmp_path):
    check(tmp_path, batches=10_000, rows=1, killed=2)
