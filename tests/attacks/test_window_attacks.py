"""Windows and schedules under attack: clocks, ends of windows, roundings, points, and the bound from its definition."""

import itertools
import math
import tempfile
from fractions import Fraction
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp.ledger import times as _times
from metricdp.ledger.reading import read_ledger
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.job import perturb_file
from metricdp.perturb.options import Options
from problems import random_problem

TENTH, QUARTER = (mdp.fit(random_problem(seed), epsilon, "em") for seed, epsilon in enumerate((0.1, 0.25)))
KEY = b"sixteen bytes or more"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
T0, DAY = 1_700_000_000, 86_400
MICRO = Fraction(1, 10**6)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budgets.db"


def places(count):
    return np.full((count, 2), 1.0)


def asked(ledger, times, user="ann", mechanism=TENTH):
    """The moments of the requests that were drawn (there is no schedule)."""
    answers = ledger.sample(mechanism, [user] * len(times), places(len(times)), times=times)
    return [time for time, answer in zip(times, answers.tolist(), strict=True) if answer >= 0]


def worst(moments, window):
    """The most draws in any closed interval of the window's length, in the numbers that were given, exactly."""
    exact = sorted(map(Fraction, moments))
    return max((sum(start <= when <= start + window for when in exact) for start in exact), default=0)


# Ends of windows


@pytest.mark.parametrize("nudge", [0, 1e-7, 2.4e-7, 5e-7, 6e-7, 1e-6, 1e-3, 1])
def test_no_two_budgets_at_the_ends_of_a_window(nudge, path):
    """All of it at the end of one window and all of it at the beginning of the next: the old trick with calendar days."""
    with mdp.Ledger(path, 1, window="24h") as ledger:
        drawn = asked(ledger, [T0] * 15)
        for later in (DAY - nudge, DAY, DAY + nudge):
            drawn += asked(ledger, [T0 + later] * 15)
        assert worst(drawn, DAY) == 10
        if nudge >= 1e-6:
            assert len(drawn) == 20  # and whoever waits for longer gets what is due


def test_midnight_is_no_new_budget(path):
    midnight = T0 - T0 % DAY + DAY
    with mdp.Ledger(path, 1, window="24h", every="24h") as ledger:
        assert len(asked(ledger, [midnight - 1e-6] * 3)) == 3  # one draw, told three times
        ledger.sample(TENTH, ["ann"], places(1), times=[midnight])
        assert ledger.spent("ann", time=midnight) == 0.2


gaps = st.sampled_from([0, 1, 9, 10, 11, 19, 20]) | st.integers(0, 25)
nudges = st.sampled_from([0, 1e-7, -1e-7, 4.9e-7, 5e-7, 5.1e-7, 1e-6, -1e-6]) | st.floats(-2e-6, 2e-6)


@hypothesis.given(
    st.lists(st.tuples(gaps, nudges, st.integers(1, 4)), max_size=25), st.sampled_from([T0, 1.5e6, 2**31])
)
@hypothesis.settings(max_examples=150)
def test_in_the_floats_themselves_no_window_holds_more(steps, start):
    """Moments are rounded to microseconds; the bound holds for the numbers that were given all the same."""
    moments = np.array([gap for gap, _, _ in steps]).cumsum()
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, mdp.Ledger(f"{folder}/x", 0.3, window=20) as ledger:
        drawn = []
        for moment, (_, nudge, count) in zip(moments.tolist(), steps, strict=True):
            drawn += asked(ledger, [start + moment + nudge] * count)
    assert worst(drawn, 20) <= 3


@hypothesis.given(st.lists(st.floats(0, 60), max_size=60), st.integers(1, 8))
def test_a_greedy_attacker_who_may_choose_all_times(moments, rows):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, mdp.Ledger(f"{folder}/x", 0.3, window=10) as ledger:
        drawn = []
        for start in range(0, len(moments), rows):
            drawn += asked(ledger, moments[start : start + rows])
        # The ends of all windows so far, and what floats there are around them.
        for moment in sorted(drawn):
            for end in (moment + 10, math.nextafter(moment + 10, 99), math.nextafter(moment + 10, 0)):
                drawn += asked(ledger, [end] * 4)
    ticks = [int(_times.ticks([moment], 1)[0]) for moment in drawn]
    assert worst(ticks, 10 * 10**6) <= 3


# Clocks


def test_a_clock_that_jumps_ahead_and_back_forgets_nothing(path):
    with mdp.Ledger(path, 1, window="1h") as ledger:
        drawn = asked(ledger, [T0] * 12)
        # Refused far ahead, or looked at from there: neither deletes what counts here.
        assert ledger.spent("ann", time=T0 + 10**9) == 0
        ledger.users(time=T0 + 10**9)
        dear = mdp.fit(random_problem(2), 2.0, "em")
        with pytest.warns(UserWarning, match="No report is affordable"):
            assert asked(ledger, [T0 + 10**9], mechanism=dear) == []
        assert asked(ledger, [T0 + 1] * 3) == []
        # Drawn far ahead: from then on nobody comes back.
        drawn += asked(ledger, [T0 + 10**8] * 3)
        for back in (T0, T0 + 1, T0 + 3601, T0 + 10**8 - 1e-6):
            assert asked(ledger, [back] * 3) == []
        drawn += asked(ledger, [T0 + 10**8] * 20)
        assert worst(drawn, 3600) == 10
        assert len(drawn) == 20


def test_somebody_elses_clock_is_not_mine(path):
    """Eve's time far ahead neither refuses Ann nor deletes her charges."""
    with mdp.Ledger(path, 1, window="1h") as ledger:
        answers = ledger.sample(TENTH, ["ann"] * 9 + ["eve"], places(10), times=[T0] * 9 + [T0 + 10**9])
        assert (answers >= 0).all()
        assert asked(ledger, [T0 + 5] * 4) == [T0 + 5]
        assert ledger.spent("ann", time=T0 + 5) == 1


@hypothesis.given(st.integers(0, 10**6), st.lists(st.integers(0, 3000), min_size=5, max_size=80))
@hypothesis.settings(max_examples=60)
def test_a_trusted_skew_shortens_the_window_by_twice_as_much(seed, waits):
    """The client's time is within s of ours: in our time, any interval of w − 2s has at most one budget."""
    rng, skew, window = np.random.default_rng(seed), 2000, 10_000
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, mdp.Ledger(f"{folder}/x", 0.3, window=window) as ledger:
        ours, now = [], T0
        for wait in waits:
            now += wait
            claimed = [now - skew, now + skew, now + int(rng.integers(-skew, skew + 1))][int(rng.integers(3))]
            ours += [now] * len(asked(ledger, [claimed] * 2))
    assert worst(ours, window - 2 * skew) <= 3


# Numbers that wrap


@pytest.mark.parametrize(
    "times",
    [
        np.array([2**63], dtype=np.uint64),
        np.array([2**64 - 1], dtype=np.uint64),
        np.array([-1], dtype=np.int8),
        np.array([np.iinfo(np.int64).max]),
        np.array([np.iinfo(np.int64).min]),
        np.array([2**63 // 10**6 + 1]),  # overflows in microseconds
        np.array([1e19]),
        np.array([np.finfo(np.float64).max]),
        np.array([np.float32(1e30)]),
        np.array(["292277026596-12-04"], dtype="M8[D]"),
        np.array([np.iinfo(np.int64).max], dtype="M8[us]"),
        np.array([np.iinfo(np.int64).max], dtype="M8[s]"),
        np.array([-1], dtype="M8[ns]"),
        [2**200],
        [Fraction(10**30)],
    ],
)
def test_no_time_wraps_into_another(times, path):
    with mdp.Ledger(path, 1, window="24h") as ledger:
        with pytest.raises(mdp.InvalidInputError, match="`times` must be unix seconds from 0 to 253402300799"):
            ledger.sample(TENTH, ["ann"], places(1), times=times)
        assert ledger.users().empty
        # The last second of all still counts for a whole window.
        assert asked(ledger, [253_402_300_799] * 12) == [253_402_300_799] * 10
        budget = ledger.budget("ann", time=0)
        assert (budget.spent, budget.frees_at) == (1.0, 253_402_300_799 + DAY + 1e-6)


def test_small_integers_do_not_overflow(path):
    with mdp.Ledger(path, 1, window="24h") as ledger:
        ledger.sample(TENTH, ["ann"] * 2, places(2), times=np.array([100, 127], dtype=np.int8))
        ledger.sample(TENTH, ["ann"], places(1), times=np.array([4_000_000_000], dtype=np.uint32))
        assert ledger._file.read("SELECT latest FROM people") == [(4_000_000_000 * 10**6,)]


@pytest.mark.parametrize("command", ["python", "cli"])
def test_a_longitude_in_place_of_a_time_is_not_told(command, path, tmp_path):
    """West of Greenwich every longitude is a wrong time; an error that quoted it would put it into logs."""
    city = [[-73.9857, 40.7484], [-73.98, 40.75], [-73.97, 40.76]]
    mechanism = mdp.fit(mdp.Problem.from_lonlat(city, city), 5.0, "laplace-remap")
    source = tmp_path / "people.csv"
    source.write_text("who,lon,lat\nann,-73.981234,40.751234\n")
    with mdp.Ledger(path, 100, window="24h") as ledger:
        if command == "python":
            options = Options(user_column="who", time_column="lon")
            with pytest.raises(mdp.InvalidInputError) as caught:
                perturb_file(mechanism, source, tmp_path / "out.csv", options, ledger=ledger)
            told = str(caught.value)
    if command == "cli":
        mechanism.save(tmp_path / "m.mdp")
        given = ("m.mdp", "people.csv", "out.csv", "--user-column", "who", "--ledger", path, "--time-column", "lon")
        done = call("perturb", *given, "--json", cwd=tmp_path)
        assert done.returncode == 2
        told = done.stdout + done.stderr
    assert "in row 1" in told
    assert "73.98" not in told


# Ids


@pytest.mark.parametrize("key", [None, KEY])
def test_ids_are_the_same_in_time_as_without(key, path):
    """Neither window nor schedule tells "7" from 7 or takes Ann for ann; somebody else's answer is nobody's."""
    with mdp.Ledger(path, 0.2, window="1h", every="1min", user_key=key) as ledger:
        users = ["7", 7, "07", "Ann", "ann", "ann ", np.str_("ann")]
        mechanism = mdp.fit(random_problem(3), 0.1, "em")
        ledger.sample(mechanism, users, places(7), times=[T0, T0 + 100, T0, T0, T0, T0, T0 + 100])
        spent = {user: ledger.spent(user, time=T0 + 100) for user in ("7", "07", "Ann", "ann", "ann ", "eve")}
        assert spent == {"7": 0.2, "07": 0.1, "Ann": 0.1, "ann": 0.2, "ann ": 0.1, "eve": 0.0}
        for table in ("people", "charges", "answers"):
            names = {row[0] for row in ledger._file.read(f"SELECT user FROM {table}")}
            assert len(names) == 5
            assert ("ann" in names) == (key is None)
        with pytest.raises(mdp.InvalidInputError, match="without NUL"):
            ledger.sample(mechanism, ["ann\0"], places(1), times=[T0 + 200])


def test_looking_at_a_stranger_says_nothing(path):
    with mdp.Ledger(path, 1, window="1h") as ledger:
        ledger.sample(TENTH, ["ann"], places(1), times=[T0 + 10**6], callers=["a"])
        # Through another key: as of somebody who never asked, although her last draw is ahead of this clock.
        others = [ledger.budget(user, TENTH, time=T0, caller="b") for user in ("ann", "nobody")]
        assert others[0] == others[1]
    assert read_ledger(path, lambda view: view.budget("nobody")).frees_at is None


# Points


@hypothesis.given(st.integers(0, 10**6), st.sampled_from(["refuse", "repeat-last"]))
@hypothesis.settings(max_examples=40)
def test_what_is_drawn_does_not_depend_on_the_points(seed, beyond):
    """Twice the same requests from other places: the same rows are drawn, repeated and refused."""
    rng = np.random.default_rng(seed)
    count = 60
    users, times = rng.integers(0, 4, count), rng.integers(0, 300, count).cumsum() // 4 + rng.integers(0, 9, count)
    patterns = []
    for _ in range(2):
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
            numbers = itertools.count()
            patch.setattr(Mechanism, "sample", lambda _, x, *__, n=numbers, **___: np.array([next(n) for _ in x]))
            with mdp.Ledger(f"{folder}/x", 0.6, window="200s", every="30s", beyond=beyond) as ledger:
                x = rng.uniform(0, 4, (count, 2))
                parts = zip(*(np.array_split(part, 5) for part in (users, x, times)), strict=True)
                told = [
                    ledger.answer((TENTH, QUARTER)[number % 2], who, where, times=when)
                    for number, (who, where, when) in enumerate(parts)
                ]
        patterns.append([[column.tolist() for column in one] for one in told])
    assert patterns[0] == patterns[1]


@pytest.mark.parametrize("every", [None, "7s"])
def test_the_bound_from_its_definition(every, monkeypatch):
    """Trajectories that differ within one window, by at most D: all answers together are within e^(E·D).

    Outputs are numbered by the row that drew them, so that the ledger itself says which points an answer depends on.
    The largest ratio of all answers is the product of the draws' largest ratios, since these are independent.
    """
    line = [[0.0], [1.0], [2.0]]
    problem = mdp.Problem(line, line, "euclidean")
    mechanism = mdp.fit(problem, 0.5, "spline", cells=16)
    rng, window, limit = np.random.default_rng(0), 40, 2.0
    seconds = np.sort(rng.uniform(0, 400, 300)).round(3)
    monkeypatch.setattr(Mechanism, "sample", lambda _, x, *__, **___: np.arange(len(x)))
    terms = {"window": window, "every": every, "beyond": "repeat-last"}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, mdp.Ledger(f"{folder}/x", limit, **terms) as ledger:
        told = ledger.sample(mechanism, ["ann"] * 300, np.ones((300, 1)), times=seconds)
    drawn = np.unique(told[told >= 0])
    assert len(drawn) > 30
    ratios = []
    for start in seconds:
        inside = (seconds >= start) & (seconds <= start + window)
        here = rng.uniform(0, 2, 300)
        there = np.where(inside, (here + rng.choice([-0.3, 0.3], 300)).clip(0, 2), here)
        logs = [np.log(mechanism.probabilities(x[drawn][:, None])) for x in (here, there)]
        ratios.append(np.abs(logs[0] - logs[1]).max(axis=1).sum())
    assert max(ratios) <= limit * (0.3 + mechanism.claimed_rounding) * (1 + 1e-9)
    assert max(ratios) > 0.5 * limit * 0.3  # not for want of trying
