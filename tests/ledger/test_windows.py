"""Windows and schedules: a ledger of charges with times, beside a naive model of the definition."""

import contextlib
import datetime as dt
import math
import sqlite3
import tempfile
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest

import metricdp as mdp
from metricdp.ledger import database as _ledger_file
from metricdp.ledger import times as _times
from metricdp.ledger.units import Budget
from oracles import NaiveTimedLedger
from problems import random_problem

KEY = b"sixteen bytes or more"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
DAY, T0 = 86_400, 1_700_000_000


def designed(epsilon, seed=0, **changes):
    return mdp.fit(random_problem(seed, **changes), epsilon, "em")


TENTH, QUARTER, THIRD = designed(0.1), designed(0.25, seed=1), designed(1 / 3, seed=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.db"


def places(count, seed=0):
    return np.random.default_rng(seed).uniform(0, 4, (count, 2))


def drawn(answers):
    return (answers >= 0).tolist()


def require_sums(ledger):
    """What is kept of each person's sum is the sum of what is kept."""
    sums = "SELECT user, SUM(spent), MAX(time) FROM charges GROUP BY user"
    assert ledger._file.read(sums) == ledger._file.read("SELECT user, spent, latest FROM people")


# What the rules say


def test_the_limit_is_for_each_window_ends_included(path):
    with mdp.Ledger(path, 0.2, window="24h") as ledger:
        asked = [T0, T0 + 10, T0 + 20, T0 + DAY, T0 + DAY + 1e-6, T0 + DAY + 1, T0 + DAY + 10.5]
        answers = ledger.sample(TENTH, ["ann"] * 7, places(7), times=asked)
        # The first draw counts for a day to the microsecond, and one microsecond later no more.
        assert drawn(answers) == [True, True, False, False, True, False, True]


def test_one_draw_per_period_and_mechanism(path):
    with mdp.Ledger(path, 1, window="24h", every="10min") as ledger:
        start = T0 - T0 % 600
        asked = [start + 5, start + 599.9, start + 599.999999, start + 600, start + 1199, start + 1801]
        answers = ledger.sample(TENTH, ["ann"] * 6, places(6), mdp.InsecureSeed(0), times=asked).tolist()
        fresh = TENTH.sample(places(6), mdp.InsecureSeed(0)).tolist()
        assert answers == [fresh[0], fresh[0], fresh[0], fresh[3], fresh[3], fresh[5]]
        assert ledger.spent("ann", time=start + 1801) == 0.3
        # Another mechanism has answers of its own, and another person too.
        assert drawn(ledger.sample(QUARTER, ["ann", "ann"], places(2), times=start + 1802)) == [True, True]
        assert ledger.spent("ann", time=start + 1802) == 0.55
        assert ledger.spent("bob") == 0


def test_a_schedule_without_a_window_keeps_a_lifetime_sum(path):
    with mdp.Ledger(path, 0.2, every="1h") as ledger:
        asked = [0, 3599, 3600, 7200, 10**9]
        assert drawn(ledger.sample(TENTH, ["ann"] * 5, places(5), times=asked)) == [True, True, True, False, False]
        assert ledger.budget("ann", TENTH) == Budget(0.2, 0.0, 2, 0, None)
        assert ledger._file.read("SELECT time, spent, count FROM charges") == [(0, ledger._scale.limit, 2)]
        assert "frees_at" not in ledger.users()


def test_a_time_before_the_last_draw_is_refused_and_not_moved(path):
    with mdp.Ledger(path, 1, window="1h", every="1min", beyond="repeat-last") as ledger:
        answers, late = ledger.answer(TENTH, ["ann", "ann", "bob", "ann"], places(4), times=[600, 599, 599, 600])
        assert drawn(answers) == [True, False, True, True]  # -1, although there is an answer to repeat
        assert late.tolist() == [False, True, False, False]
        assert ledger.sample(QUARTER, ["ann"], places(1), times=[599.99]).tolist() == [-1]
        assert (ledger.spent("ann", time=600), ledger.spent("bob", time=600)) == (0.1, 0.1)


def test_what_was_refused_does_not_move_the_persons_time(path):
    with mdp.Ledger(path, 0.1, window="1h") as ledger:
        assert drawn(ledger.sample(TENTH, ["ann"] * 3, places(3), times=[0, 3000, 100])) == [True, False, False]
        assert ledger.answer(TENTH, ["ann"], places(1), times=[50])[1].tolist() == [False]


def test_what_a_refused_request_saw_expire_still_counts_before_it(path):
    """A dear request later than a window after a charge is refused; a cheap one just before its end must see it."""
    dear = designed(0.6, seed=3)
    with mdp.Ledger(path, 1, window="100s") as ledger:
        ledger.sample(QUARTER, ["ann"] * 3, places(3), times=[0, 50, 50])
        assert drawn(ledger.sample(dear, ["ann"], places(1), times=[120])) == [False]
        assert ledger.spent("ann", time=100) == 0.75
        assert drawn(ledger.sample(QUARTER, ["ann", "ann"], places(2), times=[100, 100])) == [True, False]
        assert ledger._file.read("SELECT COUNT(*) FROM charges") == [(3,)]


@pytest.mark.parametrize("together", [True, False])
def test_a_charge_at_the_very_end_of_the_window_is_kept(together, path):
    """Drawn in the same batch or before it, and beside somebody whose time is later."""
    with mdp.Ledger(path, 0.2, window="100s") as ledger:
        one_by_one = [(["ann"], [0]), (["ann", "bob"], [100, 200])]
        for users, times in [(["ann", "ann", "bob"], [0, 100, 200])] if together else one_by_one:
            assert drawn(ledger.sample(TENTH, users, places(len(users)), times=times)) == [True] * len(users)
        assert drawn(ledger.sample(TENTH, ["ann"], places(1), times=[100])) == [False]
        require_sums(ledger)
        assert drawn(ledger.sample(TENTH, ["ann", "ann"], places(2), times=[100.000001] * 2)) == [True, False]
        require_sums(ledger)


def test_old_charges_are_deleted_by_the_persons_own_draws_only(path):
    with mdp.Ledger(path, 1, window="1h") as ledger:
        ledger.sample(TENTH, ["ann", "ann", "bob"], places(3), times=[0, 10, 10])
        ledger.sample(TENTH, ["bob"], places(1), times=[10**9])
        kept = "SELECT user, time FROM charges ORDER BY user, time"
        assert ledger._file.read(kept) == [("ann", 0), ("ann", 10**7), ("bob", 10**15)]
        assert drawn(ledger.sample(TENTH, ["ann"] * 9, places(9), times=[20] * 9)) == [True] * 8 + [False]


def test_a_long_file_in_one_batch(path):
    """Draws of a batch may expire in it; what is left is what would be left one by one."""
    asked = np.arange(0, 30 * DAY, 3600)
    with mdp.Ledger(path, 1, window="24h") as ledger:
        answers = ledger.sample(TENTH, ["ann"] * len(asked), places(len(asked)), times=asked)
        assert ledger.users(time=30 * DAY)["reports"].tolist() == [10]
        ((rows,),) = ledger._file.read("SELECT COUNT(*) FROM charges")
        ((held,),) = ledger._file.read("SELECT spent FROM people")
        assert rows == 10
        assert held == ledger._scale.limit
    when = asked[answers >= 0]
    assert max(sum((when >= t - DAY) & (when <= t)) for t in when) == 10
    assert len(when) > 280  # ten in 25 hours, whose ends are both included


def test_the_clock_says_when_if_nobody_does(path, monkeypatch):
    with mdp.Ledger(path, 0.1, window="1h") as ledger:
        now = [T0 * 10**6]
        monkeypatch.setattr(_times, "clock", lambda: now[0])
        assert drawn(ledger.sample(TENTH, ["ann", "ann"], places(2))) == [True, False]
        now[0] -= 1  # set back
        answers, late = ledger.answer(TENTH, ["ann", "bob"], places(2))
        assert (drawn(answers), late.tolist()) == ([False, True], [True, False])
        now[0] += 3600 * 10**6 + 1
        assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [False]
        now[0] += 1
        assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [True]


def test_the_systems_clock_is_read_while_the_file_is_locked(path, monkeypatch):
    with mdp.Ledger(path, 1, window="1h") as ledger:

        def clock():
            with (
                contextlib.closing(sqlite3.connect(path, timeout=0)) as other,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                other.execute("BEGIN IMMEDIATE")
            return T0 * 10**6

        monkeypatch.setattr(_times, "clock", clock)
        assert drawn(ledger.sample(TENTH, ["ann"], places(1))) == [True]


def test_budgets_are_those_of_the_window(path):
    with mdp.Ledger(path, 0.5, window="1h") as ledger:
        ledger.sample(TENTH, ["ann"] * 3, places(3), times=[T0, T0 + 60, T0 + 60])
        free = T0 + 3600 + 1e-6
        assert ledger.budget("ann", QUARTER, time=T0 + 61) == Budget(0.3, 0.2, 3, 0, free)
        assert ledger.budget("ann", time=0) == Budget(0.3, 0.2, 3, None, free)  # not before the last draw
        assert ledger.remaining("ann", time=T0 + 3600) == 0.2
        assert ledger.budget("ann", time=free) == Budget(0.2, 0.3, 2, None, free + 60)
        assert ledger.budget("ann") == Budget(0.0, 0.5, 0, None, None)  # years ago
        frame = ledger.users(time=T0 + 61)
        assert frame.to_dict("list") == {
            "user": ["ann"],
            "reports": [3],
            "spent": [0.3],
            "remaining": [0.2],
            "frees_at": [free],
        }
        # Who waits until then finds the budget that was promised.
        assert drawn(ledger.sample(QUARTER, ["ann"], places(1), times=free - 1e-6)) == [False]
        assert drawn(ledger.sample(QUARTER, ["ann"], places(1), times=free)) == [True]


def test_callers_see_their_own_window(path):
    with mdp.Ledger(path, 1, window="1h") as ledger:
        ledger.sample(TENTH, ["ann", "ann", "bob"], places(3), times=[T0, T0, T0], callers=["a", "b", "a"])
        ledger.sample(TENTH, ["ann"], places(1), times=[T0 + 1800], callers=["a"])
        seen = [ledger.budget("ann", time=time, caller="a").spent for time in (T0 + 1800, T0 + 3600.1, T0 + 7200.1)]
        assert seen == [0.2, 0.1, 0.0]
        assert ledger.budget("ann", time=T0 + 1800, caller="b") == Budget(0.1, 0.9, 1, None, T0 + 3600.000001)
        assert ledger.budget("ann", time=T0, caller="c") == Budget(0.0, 1.0, 0, None, None)
        ledger.sample(TENTH, ["ann"], places(1), times=[T0 + 9000], callers=["a"])
        rows = ledger._file.read("SELECT time FROM caller_charges WHERE caller = 'a' AND user = 'ann'")
        assert rows == [((T0 + 9000) * 10**6,)]


# Terms, times, files


def test_windows_are_terms_of_the_file(path):
    mdp.Ledger(path, 1, window="24h", every=600).close()
    for options, message in [
        ({"max_epsilon": 1}, "`window` must be 24h, which the ledger was made with, got None."),
        ({"max_epsilon": 1, "window": "1d"}, "`every` must be 10min, which the ledger was made with, got None."),
        ({"window": "12h"}, "`window` must be 24h, which the ledger was made with, got 12h."),
        ({"every": 601}, "`every` must be 10min, which the ledger was made with, got 601s."),
    ]:
        with pytest.raises(mdp.InvalidInputError) as caught:
            mdp.Ledger(path, **options)
        assert str(caught.value) == message
    with mdp.Ledger(path) as ledger:
        assert (ledger.max_epsilon, ledger.window, ledger.every) == (1.0, "24h", "10min")
        assert repr(ledger) == f"Ledger({str(path)!r}, max_epsilon=1, window='24h', every='10min', beyond='refuse')"
    mdp.Ledger(path, 1, window=dt.timedelta(days=1), every="10min").close()


def test_lifetime_ledgers_stay_what_they_were(path):
    with mdp.Ledger(path, max_epsilon=1) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))
        assert ledger._file.read("PRAGMA user_version") == [(2,)]
        with pytest.raises(mdp.InvalidInputError, match="`times` are for a ledger that was made with `window`"):
            ledger.sample(TENTH, ["ann"], places(1), times=[T0])
        assert ledger.spent("ann") == 0.1
        assert ledger.window is ledger.every is None
    with pytest.raises(mdp.InvalidInputError, match="`window` must be None, which the ledger was made with, got 24h"):
        mdp.Ledger(path, window="24h")


def test_earlier_versions_refuse_a_ledger_with_times(path):
    """They know no windows and take any file of schema 2."""
    mdp.Ledger(path, 1, window="24h").close()
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchall() == [(3,)]
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(mdp.InvalidInputError, match="not a metricdp ledger"), mdp.Ledger(path) as ledger:
        ledger.sample(TENTH, ["ann"], places(1))


@pytest.mark.parametrize("name", ["window", "every"])
@pytest.mark.parametrize(
    "value",
    [
        *("24", "", "h", "-1h", "1h30min", "24 hours", "1e3s", "inf s", "nan", "0.5s", "1.0000001s", "99999999999h"),
        *(0, -5, math.nan, math.inf, 1e-7, 1e300, True, [1], b"24h", "24h\0", "٢٤h", dt.timedelta(0)),
        pytest.param(10**400, id="huge"),
    ],
)
def test_bad_lengths_of_time(name, value, path):
    with pytest.raises(mdp.InvalidInputError, match=f"`{name}` must be a length of time from 1 s to 100 years"):
        mdp.Ledger(path, 1, **{name: value})
    assert not path.exists()


def test_lengths_of_time_are_exact():
    lengths = {"24h": DAY, "7d": 7 * DAY, "10min": 600, " 90 s ": 90, "1.5h": 5400, 0.1 + 1: None, 1.1: None, 60: 60}
    for given, wanted in lengths.items():
        found = _times.span("window", given)
        assert found == (Fraction(str(given)) if wanted is None else wanted) * 10**6
        assert _times.span("window", _times.span_text(found)) == found


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([T0, math.nan], "got nan at index 1."),
        ([T0, math.inf], "got inf at index 1."),
        ([T0, -math.inf], "got -inf at index 1."),
        ([T0, -1], "got -1 at index 1."),
        ([T0, -1e-9], "got -1e-09 at index 1."),
        ([T0, 253_402_300_800], "got 253402300800 at index 1, which may be milliseconds or less: divide by 1000."),
        ([T0, T0 * 1000], f"got {T0}000 at index 1, which may be milliseconds or less: divide by 1000."),
        (np.array([0, 2**64 - 1], dtype=np.uint64), f"got {2**64 - 1} at index 1, which"),
        ([T0, 10**400], "got inf at index 1."),
        ([T0, None], "got nan at index 1."),
        ([T0, "noon"], "got an array of <U"),
        ([True, False], "got an array of bool."),
        ([T0, 1j], "got an array of complex128."),
        (np.array(["2026-01-01", "NaT"], dtype="M8[s]"), "got NaT at index 1."),
        (np.array(["2026-01-01", "1969-12-31"], dtype="M8[D]"), "got 1969-12-31 at index 1."),
        (np.array([2026 - 1970, 10**14], dtype="M8[Y]"), "at index 1."),
        (np.array([5, 10**15]).astype("M8[ps]"), "got an array of datetime64[ps]; convert it to datetime64[us]."),
    ],
)
def test_bad_times(times, message, path):
    with mdp.Ledger(path, 1, window="24h") as ledger:
        with pytest.raises(mdp.InvalidInputError) as caught:
            ledger.sample(TENTH, ["ann", "bob"], places(2), times=times)
        assert str(caught.value).startswith("`times` must be unix seconds from 0 to 253402300799 (the year 9999), got")
        assert message in str(caught.value)
        assert ledger.users().empty


@pytest.mark.parametrize("times", [[T0], [[T0, T0]], [[T0], [T0, T0]], np.full((2, 1), T0)])
def test_times_of_another_shape(times, path):
    with mdp.Ledger(path, 1, window="24h") as ledger:
        with pytest.raises(mdp.InvalidInputError, match="`times` must be one moment for each of 2 points"):
            ledger.sample(TENTH, ["ann", "bob"], places(2), times=times)
        assert ledger.users().empty


def test_every_way_to_say_when(path):
    ways = [
        [T0],
        T0,
        float(T0),
        np.array([T0], dtype=np.uint32),
        np.array([T0 * 10**9], dtype="M8[ns]"),
        np.array([T0], dtype="M8[s]"),
        pd.Series(pd.to_datetime([T0], unit="s")),
        pd.Series([T0], index=[7]),
        [Fraction(T0)],
        np.float64(T0),
    ]
    with mdp.Ledger(path, 10, window="24h") as ledger:
        for times in ways:
            assert drawn(ledger.sample(TENTH, ["ann"], places(1), times=times)) == [True]
        assert ledger._file.read("SELECT time, count FROM charges") == [(T0 * 10**6, len(ways))]


@hypothesis.given(st.floats(2.0**20, 253_402_300_799) | st.floats(1.6e9, 1.8e9))
def test_floats_are_rounded_exactly(time):
    assert _times.ticks([time], 1)[0] == math.floor(Fraction(time) * 10**6 + Fraction(1, 2))


@hypothesis.given(st.floats(0, 253_402_300_799), st.floats(0, 253_402_300_799) | st.floats(0, 2))
def test_rounding_keeps_the_order(one, other):
    for pair in ((one, other), (one, math.nextafter(one, 0))):
        first, second = _times.ticks(sorted(pair), 2).tolist()
        assert first <= second
        assert abs(first - Fraction(min(pair)) * 10**6) <= Fraction(1, 2) + Fraction(1, 10**9)


@hypothesis.given(st.integers(0, 2**52))
def test_a_moment_survives_as_a_float(tick):
    assert _times.ticks([_times.seconds(tick)], 1)[0] == tick


# Beside the naive model

moments = st.integers(0, 60) | st.sampled_from([0.5, 9.999999, 10.000001, 29.9999995, 30.0000005, 1e6])
rows = st.lists(
    st.tuples(st.sampled_from("abc"), moments, st.integers(0, 2), st.integers(0, 2)), max_size=12, min_size=0
)
calls = st.lists(
    st.tuples(st.sampled_from([TENTH, QUARTER, THIRD]), rows, st.integers(0, 99), st.booleans(), st.booleans()),
    max_size=8,
)


def same(ledger, naive, mechanism, batch, seed):
    """Ask both for a batch of (user, time, *point); return whether they agree, and when the last request was."""
    users, times = [user for user, *_ in batch], [time for _, time, *_ in batch]
    x = np.array([point for _, _, *point in batch], dtype=float).reshape(-1, 2)
    outputs = mechanism.sample(x, mdp.InsecureSeed(seed)).tolist()
    asked = zip(users, times, x.tolist(), outputs, strict=True)
    wanted = [naive.ask(mechanism, *request) for request in asked]
    answers, late = ledger.answer(mechanism, users, x, mdp.InsecureSeed(seed), times=times)
    assert answers.tolist() == [answer for answer, _ in wanted]
    assert late.tolist() == [refused for _, refused in wanted]


@pytest.mark.filterwarnings("ignore:No report is affordable")
@hypothesis.given(
    calls,
    st.sampled_from([0.2, 0.6, 1.0]),
    st.sampled_from([(10, None), (30, 7), (None, 7), (10, 20), (30, None)]),
    st.sampled_from(["refuse", "repeat-last"]),
    st.sampled_from([None, None, 0, 1.0]),
)
@hypothesis.settings(max_examples=150)
def test_as_the_naive_ledger(calls, limit, spans, beyond, radius):
    window, every = spans
    naive = NaiveTimedLedger(limit, window, every, beyond, radius)
    options = {"max_epsilon": limit, "window": window, "every": every, "beyond": beyond, "sticky_km": radius}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, contextlib.ExitStack() as stack:
        ledger = stack.enter_context(mdp.Ledger(f"{folder}/x", **options))
        for mechanism, batch, seed, in_order, reopen in calls:
            same(ledger, naive, mechanism, sorted(batch, key=lambda row: row[1]) if in_order else batch, seed)
            for now in (0, 20.5, 40, 1e6):
                spent = [ledger.spent(user, time=now) for user in "abc"]
                assert spent == [float(naive.spent(user, now)) for user in "abc"]
            if window is not None:
                require_sums(ledger)
            if reopen:
                ledger.close()
                ledger = stack.enter_context(mdp.Ledger(f"{folder}/x", **options))
        if window is not None:
            assert naive.most() <= naive.limit


def long_run(folder, operations, seed):
    """Random operations of several people on a ledger and on the naive model, which must agree at every one."""
    rng = np.random.default_rng(seed)
    window, every = int(rng.integers(20, 400)), [None, int(rng.integers(1, 60))][int(rng.integers(2))]
    limit, beyond = float(rng.choice([0.5, 1.0, 1.7])), str(rng.choice(["refuse", "repeat-last"]))
    options = {"max_epsilon": limit, "window": window, "every": every, "beyond": beyond}
    naive, past, done, now = NaiveTimedLedger(limit, window, every, beyond), defaultdict(list), 0, 1000.0
    with contextlib.ExitStack() as stack:
        ledger = stack.enter_context(mdp.Ledger(folder / f"{seed}", **options))
        while done < operations:
            count = int(rng.choice([1, 1, 7, 60]))
            now += float(rng.exponential(3.0)) * count / 7
            jump = rng.choice([0, 0, 0, 0, 0, -100, 50])  # the clock is set back, and ahead
            times = now + jump + rng.choice([0, 1, 5]) * rng.standard_normal(count).cumsum()
            times = np.abs(times).round(int(rng.integers(0, 8)))
            batch = list(zip(rng.choice(list("abcdefgh"), count).tolist(), times.tolist(), strict=True))
            mechanism = [TENTH, QUARTER, THIRD][int(rng.integers(3))]
            same(ledger, naive, mechanism, [(*row, 1.0, 1.0) for row in batch], int(rng.integers(100)))
            done += count
            if rng.random() < 0.02:
                ledger.close()
                ledger = stack.enter_context(mdp.Ledger(folder / f"{seed}", **options))
            for user, own in naive.charges.items():  # what is long past costs the model time and matters no more
                past[user] += own[:-200]
                del own[:-200]
        naive.charges = {user: past[user] + own for user, own in naive.charges.items()}
        assert naive.most() <= naive.limit
        require_sums(ledger)
        return sum(len(own) for own in naive.charges.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_operations(seed, tmp_path):
    assert long_run(tmp_path, 1000, seed) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_quarter_of_a_million_operations(seed):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        assert long_run(Path(folder), 21_000, seed + 100) > 200


def test_mechanisms_of_a_ledger_are_known_with_times(path):
    with mdp.Ledger(path, 1, window="24h") as ledger:
        ledger.sample(TENTH, ["ann"], places(1), times=[T0])
        with pytest.raises(mdp.InvalidInputError, match="private with p = 2"):
            ledger.sample(designed(0.1, p=1), ["ann"], places(1), times=[T0])
        assert ledger._file.read("PRAGMA synchronous") == [(2,)]
    assert _ledger_file._SCHEMA == 3


# What docs/budgets.md says


PAGE = Path(__file__).parents[2] / "docs" / "budgets.md"


def test_the_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block.partition("```")[0] for block in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]]
    (example,) = [block for block in blocks if "window=" in block]
    exec(example, {"mdp": mdp, "mechanism": TENTH, "points": places(2)})
    with mdp.Ledger("days.db") as ledger:
        assert (ledger.window, ledger.every, ledger.max_epsilon) == ("24h", "10min", 14.5)
        assert ledger._file.read("SELECT user, count FROM answers") == [("ann", 2), ("bob", 2)]
        assert ledger.users()["reports"].tolist() == [1, 1]  # by the clock; the other time of the example is long ago


@pytest.mark.parametrize(("limit", "enough"), [(14.5, True), (14.4, False)])
def test_what_a_day_costs(limit, enough, path):
    """One report per ten minutes, at any moment of them, for four days: 145 periods are never refused, 144 may be."""
    rng = np.random.default_rng(0)
    times = 600 * np.arange(4 * 144) + rng.uniform(0, 600, 4 * 144).round(6) + T0 - T0 % 600
    with mdp.Ledger(path, limit, window="24h", every="10min") as ledger:
        answers = ledger.sample(TENTH, ["ann"] * len(times), places(len(times)), times=times)
    assert bool((answers >= 0).all()) == enough
