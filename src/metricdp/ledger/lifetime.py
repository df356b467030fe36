"""A ledger of lifetime sums: what each person has spent in all, and their last output of each mechanism."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp.ledger.batch import Batch, Near, Outcome, near, through

__all__ = ["CALLERS_TABLE", "LIFETIME_TABLES", "Lifetime", "Read", "Standing"]

Read = Callable[..., list[Any]]

LIFETIME_TABLES = """
CREATE TABLE reports (
    user TEXT NOT NULL,
    mechanism INTEGER NOT NULL REFERENCES mechanisms,
    spent INTEGER NOT NULL CHECK (spent > 0),
    count INTEGER NOT NULL CHECK (count > 0),
    output INTEGER NOT NULL,
    point BLOB,
    PRIMARY KEY (user, mechanism)
) WITHOUT ROWID;
"""
# Not in the files of earlier versions, which know nothing of it and can use a file that has it. The caller comes first
# in the key, so that looking up a person takes as long whether or not other callers have reported for them.
CALLERS_TABLE = """
CREATE TABLE IF NOT EXISTS callers (
    caller TEXT NOT NULL,
    user TEXT NOT NULL,
    spent INTEGER NOT NULL CHECK (spent > 0),
    count INTEGER NOT NULL CHECK (count > 0),
    PRIMARY KEY (caller, user)
) WITHOUT ROWID
"""

_STATE = """
SELECT IFNULL((SELECT SUM(spent) FROM reports WHERE user = batch.user), 0), IFNULL(own.output, -1), own.point
FROM temp.batch LEFT JOIN reports AS own ON own.user = batch.user AND own.mechanism = ? ORDER BY batch.code
"""
_CHARGE = """
INSERT INTO reports (user, mechanism, spent, count, output, point) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (user, mechanism) DO UPDATE SET spent = spent + excluded.spent, count = count + excluded.count,
    output = excluded.output, point = excluded.point
"""
_CHARGE_CALLER = """
INSERT INTO callers (caller, user, spent, count) VALUES (?, ?, ?, ?)
ON CONFLICT (caller, user) DO UPDATE SET spent = spent + excluded.spent, count = count + excluded.count
"""
_EVERYBODY = """
SELECT user, SUM(spent), SUM(count), NULL, MAX(CASE WHEN mechanism = ? THEN output END)
FROM reports GROUP BY user ORDER BY user
"""
_UNSOUND = """
SELECT 1 FROM reports WHERE typeof(user) != 'text' OR typeof(spent) != 'integer' OR typeof(count) != 'integer'
    OR typeof(output) != 'integer' OR spent <= 0 OR count <= 0 LIMIT 1
"""


@dataclass(frozen=True)
class Standing:
    """What a person was charged: units, reports, and when the first of them stops counting (None: never)."""

    units: int
    reports: int
    frees_at: int | None = None


class Lifetime:
    """Sums that only grow."""

    tables = frozenset({"terms", "mechanisms", "reports"})
    unsound = (_UNSOUND,)
    by_mechanism = "SELECT mechanism, COUNT(*), SUM(count), SUM(spent) FROM reports GROUP BY mechanism"

    def charge(self, database: sqlite3.Connection, mechanism: int, batch: Batch) -> Outcome:
        """Charge what can be afforded of a batch, whose persons are in `temp.batch`."""
        spent, stored, points = zip(*database.execute(_STATE, (mechanism,)), strict=True)
        affordable = (batch.limit - np.array(spent, dtype=np.int64)) // batch.cost
        who = batch.requests.who
        if batch.points is None:
            draws = free = batch.requests.rank < affordable[who]
        else:
            draws, free = _redrawn(who, affordable, near(batch, points))
        latest = batch.requests.latest(draws)
        people, counts, rows = batch.requests.totals(draws, latest)
        charges = (
            [batch.names[person] for person in people.tolist()],
            repeat(mechanism),
            (counts * batch.cost).tolist(),
            counts.tolist(),
            batch.drawn[rows].tolist(),
            batch.packed(rows),
        )
        database.executemany(_CHARGE, zip(*charges, strict=False))
        if batch.callers is not None:
            database.executemany(_CHARGE_CALLER, _by_caller(batch, draws))
        return Outcome(draws, free, np.zeros_like(draws), latest, np.array(stored, dtype=np.int64))

    def standing(self, read: Read, user: str, caller: str | None, now: int) -> Standing:  # noqa: ARG002 - never forgets
        """Return what a person was charged: in all, or through one caller."""
        if caller is None:
            rows = read("SELECT SUM(spent), SUM(count) FROM reports WHERE user = ?", user)
        else:
            rows = read("SELECT SUM(spent), SUM(count) FROM callers WHERE caller = ? AND user = ?", caller, user)
        ((units, reports),) = rows
        return Standing(units or 0, reports or 0)

    def everybody(self, mechanism: int | None, now: int) -> tuple[str, Sequence[object]]:  # noqa: ARG002 - never forgets
        """Return the query for (person, units, reports, when units are freed, last output of a mechanism)."""
        return _EVERYBODY, (mechanism,)


def _redrawn(
    who: NDArray[np.intp], affordable: NDArray[np.int64], is_near: Near
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return two masks of rows: drawn anew, and repeating the last output because its point is close."""
    left = affordable.tolist()
    draws, free = np.zeros(len(who), dtype=bool), np.zeros(len(who), dtype=bool)
    for row, person in enumerate(who.tolist()):
        if is_near(row, person):
            free[row] = True
        elif left[person] > 0:
            draws[row] = True
            left[person] -= 1
            is_near.drawn(row, person)
    return draws, free


def _by_caller(batch: Batch, draws: NDArray[np.bool_]) -> Iterator[tuple[str, str, int, int]]:
    """Yield (caller, person, spent, count) for the rows that were drawn, each pair once."""
    callers, codes = through(batch, draws)
    width = len(batch.names)
    pairs, counts = np.unique(codes * width + batch.requests.who[draws], return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        yield callers[pair // width], batch.names[pair % width], count * batch.cost, count
