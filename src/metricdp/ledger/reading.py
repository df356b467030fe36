"""A ledger that is only looked at: nothing is written, nobody has to wait, and a hostile file is an error."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import norm_order, positive
from metricdp.errors import InvalidInputError
from metricdp.files.reading import content_hash
from metricdp.ledger.batch import keyed, numbered
from metricdp.ledger.database import (
    LedgerFile,
    explained,
    identity,
    refuse_mounted,
    refuse_other_distance,
    schema_of,
    terms_query,
)
from metricdp.ledger.terms import Terms, parsed_terms
from metricdp.ledger.times import clock, seconds
from metricdp.ledger.units import Budget, Scale
from metricdp.ledger.windows import book_of
from metricdp.mechanisms.base import Mechanism

__all__ = ["Enrolled", "LedgerView", "declare_moved", "read_ledger"]

T = TypeVar("T")

# How often a file is read again that somebody else changed meanwhile.
_TRIES = 8

# Foreign schemas must not run functions of their own making; damaged pages are noticed.
_SETUP = """
PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; PRAGMA ignore_check_constraints = ON;
PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;
"""

# Columns that are computed whenever they are read, from whatever the maker of the file liked.
_COMPUTED = """
SELECT 1 FROM sqlite_master AS found, pragma_table_xinfo(found.name) AS col
WHERE found.type = 'table' AND col.hidden != 0 LIMIT 1
"""


_FOREIGN = "it does not hold the tables of a ledger and nothing else"


@dataclass(frozen=True)
class Enrolled:
    """A mechanism that people have had reports from.

    sha256 : hash of its contents.
    epsilon : what a report costs.
    p : order of its norm.
    unit : "ground" if ε is per true kilometre, "own" if per unit of its coordinates, None if not known.
    people, reports, spent : how many people had how many reports, and what these cost in all.
    """

    sha256: str
    epsilon: float
    p: float
    unit: str | None
    people: int
    reports: int
    spent: float


class LedgerView:
    """A ledger at one moment; use it through `read_ledger`.

    path : the file.
    terms : what it was made with.
    home : the path at which it belongs; None if it does not say.
    now : the moment at which windows end, in ticks.
    """

    def __init__(self, path: Path, now: int | None = None) -> None:
        self.path = path
        self.now = clock() if now is None else now
        refuse_mounted(path)
        self._before = _state(path)
        # Without a log nobody has the file open. A connection that knows of the log would make one and leave it there.
        quiet = not path.with_name(f"{path.name}-wal").exists()
        self._quiet = quiet
        how = "immutable=1" if quiet else "mode=ro"
        with explained(path):
            self._database = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, isolation_level=None)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        # The error of SQLite's own decoder quotes the text, which may be an id.
        self._database.text_factory = _text
        with explained(self.path):
            self._database.executescript(_SETUP)
            self._database.execute("BEGIN")  # all that is read is of one moment
            self._schema = schema_of(self.path, self._database)
            self._refuse_foreign_objects()
        self.terms = parsed_terms(self.path, self._read(terms_query(self._schema)))
        self._book = book_of(self.terms)
        self._refuse_missing_tables()
        home = None if self._schema == 1 else self._read("SELECT home FROM terms")[0][0]
        self.home = os.fsdecode(home) if isinstance(home, bytes) else None
        assert self.terms.max_epsilon is not None
        self._scale = Scale.of(self.terms.max_epsilon)

    @property
    def moved(self) -> bool:
        """Whether the file is not where it belongs, so that it is refused until somebody says that it was moved."""
        return self._schema > 1 and self.home != str(self.path)

    def unchanged(self) -> bool:
        """Return whether what was read is of one moment."""
        return not self._quiet or _state(self.path) == self._before

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def budget(self, user: str | int, mechanism: Mechanism | None = None, user_key: bytes | None = None) -> Budget:
        """Return where a person stands; see `Ledger.budget`."""
        self.terms.refuse_others(Terms(None, None, None if user_key is None else keyed("", user_key)))
        if mechanism is not None:
            refuse_other_distance(mechanism, ((repr(one.p), one.unit) for one in self.mechanisms()))
        _, (name,) = numbered([user], 1, user_key)
        found = self._book.standing(self._read, name, None, self.now)
        frees_at = None if found.frees_at is None else self._whole(found.frees_at)
        return self._scale.budget(self._whole(found.units), self._whole(found.reports), frees_at, mechanism)

    def mechanisms(self) -> list[Enrolled]:
        """Return the mechanisms that people have had reports from."""
        self._require_sound()
        unit = "NULL" if self._schema == 1 else "unit"
        known = self._read(f"SELECT id, sha256, epsilon, p, {unit} FROM mechanisms ORDER BY id")  # noqa: S608 - our own words
        charged = self._read(self._book.by_mechanism)
        sums = {number: rest for number, *rest in charged}
        return [self._enrolled(row[1:], sums.get(row[0], (0, 0, 0))) for row in known]

    def spent(self) -> NDArray[np.float64]:
        """Return what each person has spent that counts, in increasing order."""
        self._require_sound()
        query, values = self._book.everybody(None, self.now)
        rows = self._read(query, *values)
        units = np.sort(np.fromiter((row[1] for row in rows), np.int64, len(rows)))
        different, places = np.unique(units, return_inverse=True)
        epsilons = np.array([self._scale.epsilon(value) for value in different.tolist()], dtype=np.float64)
        return epsilons[places]

    def frees_at(self) -> float | None:
        """Return when the first of all charges that count stops counting, in unix seconds."""
        query, values = self._book.everybody(None, self.now)
        return seconds(min((row[3] for row in self._read(query, *values) if row[3] is not None), default=None))

    def people(
        self, rows_at_once: int, last_output_of: Mechanism | None = None
    ) -> Iterator[list[tuple[str, float, float, int, float | None, int | None]]]:
        """Yield lists of (person as stored, spent, remaining, reports, frees at, last output), in the order of ids.

        The last output is that of the mechanism `last_output_of`, None for people who had none from it.
        """
        self._require_sound()
        sha256 = None if last_output_of is None else content_hash(last_output_of)
        numbers = self._read("SELECT id FROM mechanisms WHERE sha256 = ?", sha256)
        query, values = self._book.everybody(numbers[0][0] if numbers else None, self.now)
        epsilon, remaining = self._scale.epsilon, self._scale.remaining
        with explained(self.path), closing(self._database.cursor()) as cursor:
            cursor.execute(query, values)
            while rows := cursor.fetchmany(rows_at_once):
                yield [
                    (user, epsilon(units), remaining(units), count, seconds(frees_at), last)
                    for user, units, count, frees_at, last in rows
                ]

    def _read(self, query: str, *values: object) -> list[Any]:
        with explained(self.path):
            return self._database.execute(query, values).fetchall()

    def _refuse_foreign_objects(self) -> None:
        """Raise if the file holds other things than tables of stored numbers and texts: a view may compute for ever."""
        found = self._database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name for kind, name, sql in found if kind == "table" and str(sql).startswith("CREATE TABLE")}
        others = [kind for kind, name, _ in found if kind != "index" and name not in tables]
        if others or "terms" not in tables or self._database.execute(_COMPUTED).fetchone():
            raise self._damaged(_FOREIGN)
        self._tables = tables

    def _refuse_missing_tables(self) -> None:
        if not self._tables >= self._book.tables:
            raise self._damaged(_FOREIGN)

    def _require_sound(self) -> None:
        # Finds pages that are used twice, by which a small file would have endless rows.
        if self._read("PRAGMA quick_check(1)") != [("ok",)]:
            raise self._damaged("its pages are damaged")
        if any(self._read(query) for query in self._book.unsound):
            raise self._damaged("there are charges that no ledger writes")

    def _enrolled(self, row: tuple[Any, ...], sums: Sequence[Any]) -> Enrolled:
        sha256, epsilon, p, unit = row
        try:
            cost, order = positive("epsilon", epsilon), norm_order(p)
        except InvalidInputError:
            raise self._damaged("one of its mechanisms is none") from None
        people, reports = map(self._whole, sums[:2])
        # With windows there is no sum: it would not fit into 64 bits some day.
        units = reports * self._scale.cost(cost) if self.terms.timed else self._whole(sums[2])
        hexadecimal = isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256) is not None
        if not (hexadecimal and unit in (None, "own", "ground")):
            raise self._damaged("one of its mechanisms is none")
        return Enrolled(
            str(sha256), cost, order, None if unit is None else str(unit), people, reports, self._scale.epsilon(units)
        )

    def _whole(self, value: object) -> int:
        if not isinstance(value, int) or value < 0:
            raise self._damaged("there are charges that no ledger writes")
        return value

    def _damaged(self, reason: str) -> InvalidInputError:
        return InvalidInputError(f"{str(self.path)!r} is not a metricdp ledger that can be read: {reason}.")


def read_ledger(path: str | os.PathLike[str], work: Callable[[LedgerView], T], *, now: int | None = None) -> T:
    """Return what `work` makes of a ledger, which is not changed, locked or claimed by being looked at.

    `now` is the moment at which windows end, in ticks; by default the clock's.

    A ledger that is in use is read through its log, as of one moment, while others go on writing. One that nobody uses
    is read as it lies there, without making a log, and once more if it turns out that somebody began to write. `work`
    may therefore be called several times; if it publishes anything, it asks `LedgerView.unchanged` first.

    Raises
    ------
    InvalidInputError
        If the file is not a ledger.
    OSError
        If it cannot be read, or has a second name.
    """
    resolved = Path(path).resolve(strict=True)
    for _ in range(_TRIES):
        with closing(LedgerView(resolved, now)) as view:
            try:
                answer = work(view)
            except (InvalidInputError, OSError):
                if view.unchanged():
                    raise
                continue
            if view.unchanged():
                return answer
    msg = f"the ledger {str(resolved)!r} changed {_TRIES} times while it was read"
    raise OSError(msg)


def declare_moved(path: str | os.PathLike[str]) -> str | None:
    """Let a ledger that was moved or restored belong where it is now; return where it belonged before.

    Raises
    ------
    InvalidInputError
        If there is still a file at the old path, or the log of one: then there are two limits, or charges would be
        forgotten.
    """
    here = Path(path).resolve(strict=True)
    home, check = read_ledger(here, lambda view: (view.home if view.moved else None, view.terms.key_check))
    if home is not None:
        _refuse_left_behind(here, Path(home))
    LedgerFile(here, Terms(None, None, check), moved=True).close()
    return home


def _refuse_left_behind(here: Path, home: Path) -> None:
    if home.exists() and not home.samefile(here):
        msg = (
            f"There is still a file at {str(home)!r}, where the ledger {str(here)!r} belongs. Everybody could spend "
            "the limit in both; delete the one that is no longer in use first."
        )
        raise InvalidInputError(msg)
    log = home.with_name(f"{home.name}-wal")
    if not home.exists() and log.exists() and log.stat().st_size:
        msg = (
            f"The ledger {str(here)!r} was moved without its log {str(log)!r}, which may hold charges that the file "
            f"does not. Move the log too, to {here.name + '-wal'!r} beside the ledger, or delete it if it is another's."
        )
        raise InvalidInputError(msg)


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return (*identity(path), status.st_size, status.st_mtime_ns)


def _text(raw: bytes) -> str:
    """Decode text; what is no UTF-8 is marked, and so no text that a ledger writes."""
    return raw.decode("utf-8", "replace")
