"""A ledger of charges with their times: what each person has spent in the last window, and one draw per period.

Who keeps to the rule "a draw at time t is made only if the charges of [t − window, t] leave enough" at every draw, and
takes no time before that of the last draw, has at most the limit in *every* closed interval of the window's length: let
t be the last draw in the interval; all others in it are in [t − window, t] and were known at t.

A charge that lies more than a window before its person's last draw can never count again, and only such charges are
deleted. What a clock says is not enough to forget anything: it may jump ahead and back again.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from metricdp.ledger import times
from metricdp.ledger.batch import Batch, Near, Outcome, near, through
from metricdp.ledger.lifetime import Lifetime, Read, Standing
from metricdp.ledger.terms import Terms
from metricdp.ledger.times import Ticks

__all__ = ["WINDOW_TABLES", "Windows", "book_of"]

# `people.spent` is the sum of a person's rows in `charges`, so that these are read only when they expire. The caller
# comes first in the key of `caller_charges`, so that looking up a person takes as long whether or not other callers
# have reported for them.
WINDOW_TABLES = """
CREATE TABLE people (
    user TEXT NOT NULL PRIMARY KEY,
    latest INTEGER NOT NULL CHECK (latest >= 0),
    spent INTEGER NOT NULL CHECK (spent > 0)
) WITHOUT ROWID;
CREATE TABLE charges (
    user TEXT NOT NULL,
    time INTEGER NOT NULL CHECK (time >= 0),
    spent INTEGER NOT NULL CHECK (spent > 0),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (user, time)
) WITHOUT ROWID;
CREATE TABLE answers (
    user TEXT NOT NULL,
    mechanism INTEGER NOT NULL REFERENCES mechanisms,
    time INTEGER NOT NULL CHECK (time >= 0),
    count INTEGER NOT NULL CHECK (count > 0),
    output INTEGER NOT NULL,
    point BLOB,
    PRIMARY KEY (user, mechanism)
) WITHOUT ROWID;
CREATE TABLE caller_charges (
    caller TEXT NOT NULL,
    user TEXT NOT NULL,
    time INTEGER NOT NULL CHECK (time >= 0),
    spent INTEGER NOT NULL CHECK (spent > 0),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (caller, user, time)
) WITHOUT ROWID;
"""

_STATE = """
SELECT IFNULL(person.latest, -1), IFNULL(person.spent, 0), IFNULL(own.output, -1), IFNULL(own.time, -1), own.point
FROM temp.batch LEFT JOIN people AS person ON person.user = batch.user
LEFT JOIN answers AS own ON own.user = batch.user AND own.mechanism = ? ORDER BY batch.code
"""
_EXPIRING = """
SELECT batch.code, charges.time, charges.spent FROM temp.batch CROSS JOIN charges
ON charges.user = batch.user AND charges.time < ? ORDER BY batch.code, charges.time
"""
_FORGET = "DELETE FROM charges WHERE user = ? AND time < ?"
_FORGET_CALLER = "DELETE FROM caller_charges WHERE caller = ? AND user = ? AND time < ?"
_CHARGE = """
INSERT INTO charges (user, time, spent, count) VALUES (?, ?, ?, ?)
ON CONFLICT (user, time) DO UPDATE SET spent = spent + excluded.spent, count = count + excluded.count
"""
_CHARGE_CALLER = """
INSERT INTO caller_charges (caller, user, time, spent, count) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (caller, user, time) DO UPDATE SET spent = spent + excluded.spent, count = count + excluded.count
"""
_ADVANCE = """
INSERT INTO people (user, latest, spent) VALUES (?, ?, ?)
ON CONFLICT (user) DO UPDATE SET latest = excluded.latest, spent = excluded.spent
"""
_ANSWER = """
INSERT INTO answers (user, mechanism, time, count, output, point) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (user, mechanism) DO UPDATE SET time = excluded.time, count = count + excluded.count,
    output = excluded.output, point = excluded.point
"""

# Nobody is looked at before their last draw: until then they are refused. A caller must not learn of other callers'
# draws, so for a caller only the clock counts.
_STANDING = """
SELECT SUM(spent), SUM(count), MIN(time) FROM charges
WHERE user = ?1 AND time >= MAX(?2, IFNULL((SELECT latest FROM people WHERE user = ?1), 0)) - ?3
"""
_STANDING_CALLER = """
SELECT SUM(spent), SUM(count), MIN(time) FROM caller_charges WHERE caller = ? AND user = ? AND time >= ?
"""
_EVERYBODY = """
SELECT people.user, IFNULL(SUM(charges.spent), 0), IFNULL(SUM(charges.count), 0), MIN(charges.time) + ?4,
    (SELECT output FROM answers WHERE answers.user = people.user AND mechanism = ?1)
FROM people LEFT JOIN charges ON charges.user = people.user AND charges.time >= MAX(?2, people.latest) - ?3
GROUP BY people.user ORDER BY people.user
"""
# What no ledger writes, by table.
_UNSOUND = (
    """
SELECT 1 FROM people WHERE typeof(user) != 'text' OR typeof(latest) != 'integer' OR typeof(spent) != 'integer'
    OR latest NOT BETWEEN 0 AND 253402300800000000 OR spent <= 0 LIMIT 1
""",
    """
SELECT 1 FROM charges WHERE typeof(user) != 'text' OR typeof(time) != 'integer' OR typeof(spent) != 'integer'
    OR typeof(count) != 'integer' OR time NOT BETWEEN 0 AND 253402300800000000 OR spent <= 0 OR count <= 0 LIMIT 1
""",
    """
SELECT 1 FROM answers WHERE typeof(user) != 'text' OR typeof(time) != 'integer' OR typeof(count) != 'integer'
    OR typeof(output) != 'integer' OR time NOT BETWEEN 0 AND 253402300800000000 OR count <= 0 LIMIT 1
""",
    """
SELECT 1 FROM people LEFT JOIN (SELECT user, SUM(spent) AS units, MAX(time) AS last FROM charges GROUP BY user) AS own
ON own.user = people.user WHERE own.units IS NOT people.spent OR own.last > people.latest LIMIT 1
""",
    "SELECT 1 FROM charges WHERE user NOT IN (SELECT user FROM people) LIMIT 1",
)

# In place of the window of a ledger that never forgets.
_FOREVER = 2**62


def book_of(terms: Terms) -> Lifetime | Windows:
    """Return how a ledger of these terms keeps its charges."""
    return Windows(terms.window, terms.every) if terms.timed else Lifetime()


@dataclass(frozen=True)
class _State:
    """Where the persons of a batch stand.

    latest : time of the last draw, -1 if there was none.
    spent : units in `charges`.
    outputs, times, points : of the last draw from the mechanism that is asked; -1 and None if there was none.
    expiring : numbers of persons, times and units of charges that may expire in the batch, in order.
    """

    latest: Ticks
    spent: NDArray[np.int64]
    outputs: NDArray[np.int64]
    times: Ticks
    points: Sequence[bytes | None]
    expiring: tuple[NDArray[np.int64], Ticks, NDArray[np.int64]]

    @classmethod
    def read(cls, database: sqlite3.Connection, mechanism: int, horizon: int) -> _State:
        latest, spent, outputs, answered, points = zip(*database.execute(_STATE, (mechanism,)), strict=True)
        rows = np.array(database.execute(_EXPIRING, (horizon,)).fetchall(), dtype=np.int64).reshape(-1, 3)
        return cls(
            np.array(latest, dtype=np.int64),
            np.array(spent, dtype=np.int64),
            np.array(outputs, dtype=np.int64),
            np.array(answered, dtype=np.int64),
            points,
            (rows[:, 0], rows[:, 1], rows[:, 2]),
        )


class Windows:
    """Charges that count for as long as a window, and one draw per period.

    window : its length in ticks; None if charges count for ever.
    every : length of a period in ticks, the first of which began with 1970; None if every request is drawn.
    """

    tables = frozenset({"terms", "mechanisms", "people", "charges", "answers", "caller_charges"})
    unsound = _UNSOUND
    by_mechanism = "SELECT mechanism, COUNT(*), SUM(count), NULL FROM answers GROUP BY mechanism"

    def __init__(self, window: int | None, every: int | None) -> None:
        self._window, self._every = window, every
        self._length = _FOREVER if window is None else window

    def charge(self, database: sqlite3.Connection, mechanism: int, batch: Batch) -> Outcome:
        """Charge what can be afforded of a batch, whose persons are in `temp.batch`."""
        # The file is locked by now, so that of two processes the one that writes later has the later time.
        ticks = np.full(len(batch.drawn), times.clock()) if batch.ticks is None else batch.ticks
        state = _State.read(database, mechanism, int(ticks.max()) - self._length)
        draws, free, late = self._decided(batch, ticks, state, near(batch, state.points))
        latest = batch.requests.latest(draws)
        people, counts, rows = batch.requests.totals(draws, latest)
        if len(people):
            self._write(database, batch, ticks, state, draws, people, rows)
            ids = [batch.names[person] for person in people.tolist()]
            answers = (
                ids,
                repeat(mechanism),
                ticks[rows].tolist(),
                counts.tolist(),
                batch.drawn[rows].tolist(),
                batch.packed(rows),
            )
            database.executemany(_ANSWER, zip(*answers, strict=False))
        return Outcome(draws, free, late, latest, state.outputs)

    def standing(self, read: Read, user: str, caller: str | None, now: int) -> Standing:
        """Return what a person was charged in the window that ends now: in all, or through one caller."""
        if caller is None:
            rows = read(_STANDING, user, now, self._length)
        else:
            rows = read(_STANDING_CALLER, caller, user, now - self._length)
        ((units, reports, oldest),) = rows
        frees_at = None if oldest is None or self._window is None else oldest + self._window + 1
        return Standing(units or 0, reports or 0, frees_at)

    def everybody(self, mechanism: int | None, now: int) -> tuple[str, Sequence[object]]:
        """Return the query for (person, units, reports, when units are freed, last output of a mechanism)."""
        return _EVERYBODY, (mechanism, now, self._length, None if self._window is None else self._window + 1)

    def _decided(
        self, batch: Batch, ticks: Ticks, state: _State, is_near: Near
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return three masks of rows: drawn anew, repeating the last output at no cost, and refused for their time.

        Rows are taken one by one, because every draw changes what the person's next rows find.
        """
        who, cost, most = batch.requests.who, batch.cost, batch.limit - batch.cost
        latest, spent = state.latest.tolist(), state.spent.tolist()
        periods, last_period = self._periods(ticks, state.times)
        ends = (ticks - self._length).tolist()
        queues = _queues(*state.expiring)
        draws, free, late = (np.zeros(len(who), dtype=bool) for _ in range(3))
        rows = zip(who.tolist(), ticks.tolist(), periods, ends, strict=True)
        for row, (person, moment, period, end) in enumerate(rows):
            if moment < latest[person]:
                late[row] = True
            elif period == last_period[person] or is_near(row, person):
                free[row] = True
            else:
                queue = queues[person]
                while queue and queue[0][0] < end:
                    spent[person] -= queue.popleft()[1]
                if spent[person] <= most:
                    draws[row] = True
                    spent[person] += cost
                    latest[person], last_period[person] = moment, period
                    queue.append((moment, cost))
                    is_near.drawn(row, person)
        return draws, free, late

    def _periods(self, ticks: Ticks, answered: Ticks) -> tuple[list[int], list[int]]:
        """Return the period of each row, and that of each person's last draw; without a schedule all differ."""
        if self._every is None:
            return list(range(len(ticks))), [-1] * len(answered)
        return (ticks // self._every).tolist(), np.where(answered < 0, -1, answered // self._every).tolist()

    def _write(
        self,
        database: sqlite3.Connection,
        batch: Batch,
        ticks: Ticks,
        state: _State,
        draws: NDArray[np.bool_],
        people: NDArray[np.intp],
        rows: NDArray[np.intp],
    ) -> None:
        """Write what was charged to `people`, whose last draws are in `rows`, and forget what cannot count again."""
        ends = np.full(len(batch.names), -1)
        ends[people] = ticks[rows] - self._length
        whose, moments, units = state.expiring
        gone = moments < ends[whose]
        forgotten = np.zeros(len(batch.names), dtype=np.int64)
        np.add.at(forgotten, whose[gone], units[gone])
        stale = np.unique(whose[gone])
        database.executemany(_FORGET, ((batch.names[one], int(ends[one])) for one in stale.tolist()))
        # Of a batch longer than the window, some draws have expired already.
        kept = draws & (ticks >= ends[batch.requests.who])
        where = batch.requests.who[kept]
        # Without a window all charges of a person are one, since none is ever forgotten alone.
        moments = np.zeros(len(where), dtype=np.int64) if self._window is None else ticks[kept]
        database.executemany(_CHARGE, _charges(batch, where, moments))
        added = np.bincount(where, minlength=len(batch.names)) * batch.cost
        spent = state.spent - forgotten + added
        ids = (batch.names[person] for person in people.tolist())
        database.executemany(_ADVANCE, zip(ids, ticks[rows].tolist(), spent[people].tolist(), strict=True))
        if batch.callers is not None:
            database.executemany(_FORGET_CALLER, _stale_callers(batch, draws, ends))
            database.executemany(_CHARGE_CALLER, _by_caller(batch, kept, moments))


def _queues(
    whose: NDArray[np.int64], moments: Ticks, units: NDArray[np.int64]
) -> defaultdict[int, deque[tuple[int, int]]]:
    """Return the charges of each person that may expire, the oldest first."""
    queues: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
    for person, moment, spent in zip(whose.tolist(), moments.tolist(), units.tolist(), strict=True):
        queues[person].append((moment, spent))
    return queues


def _charges(batch: Batch, where: NDArray[np.intp], moments: Ticks) -> Iterator[tuple[str, int, int, int]]:
    """Yield (person, time, spent, count) for charges that are kept, each person and moment once."""
    order = np.lexsort((moments, where))
    whose, when = where[order], moments[order]
    firsts = np.flatnonzero(np.r_[True, (whose[1:] != whose[:-1]) | (when[1:] != when[:-1])])
    counts = np.diff(np.r_[firsts, len(order)]).tolist()
    for person, moment, count in zip(whose[firsts].tolist(), when[firsts].tolist(), counts, strict=True):
        yield batch.names[person], moment, count * batch.cost, count


def _stale_callers(batch: Batch, draws: NDArray[np.bool_], ends: Ticks) -> Iterator[tuple[str, str, int]]:
    """Yield (caller, person, time) before which charges can be forgotten, each pair once."""
    callers, codes = through(batch, draws)
    width = len(batch.names)
    for pair in np.unique(codes * width + batch.requests.who[draws]).tolist():
        yield callers[pair // width], batch.names[pair % width], int(ends[pair % width])


def _by_caller(batch: Batch, kept: NDArray[np.bool_], moments: Ticks) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield (caller, person, time, spent, count) for charges that are kept."""
    callers, codes = through(batch, kept)
    rows = zip(codes.tolist(), batch.requests.who[kept].tolist(), moments.tolist(), strict=True)
    for caller, person, moment in rows:
        yield callers[caller], batch.names[person], moment, batch.cost, 1
