"""The SQLite file of a ledger: its tables, its transactions, and its connection when a process forks."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.ledger.lifetime import CALLERS_TABLE, LIFETIME_TABLES
from metricdp.ledger.terms import Terms, parsed_terms
from metricdp.ledger.windows import WINDOW_TABLES
from metricdp.mechanisms.base import Mechanism

__all__ = [
    "LedgerFile",
    "enrolled",
    "explained",
    "identity",
    "refuse_mounted",
    "refuse_other_distance",
    "schema_of",
    "terms_query",
]

# "mdp1" in the file's header tells a ledger from other databases. Ledgers of lifetime sums stay files of schema 2,
# which earlier versions can use. Those with times have another number, since earlier versions would not keep to them.
_APPLICATION, _LIFETIME, _SCHEMA = 0x6D647031, 2, 3
_CREATE = f"""
PRAGMA journal_mode = WAL;
PRAGMA application_id = {_APPLICATION};
CREATE TABLE mechanisms (
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL UNIQUE, epsilon TEXT NOT NULL, p TEXT NOT NULL, unit TEXT
);
"""
_CREATE_LIFETIME = f"""
PRAGMA user_version = {_LIFETIME};
CREATE TABLE terms (max_epsilon TEXT NOT NULL, sticky_km TEXT, key_check TEXT, home BLOB);
{LIFETIME_TABLES}
{CALLERS_TABLE};
"""
_CREATE_TIMED = f"""
PRAGMA user_version = {_SCHEMA};
CREATE TABLE terms (
    max_epsilon TEXT NOT NULL, sticky_km TEXT, key_check TEXT, home BLOB, window_us INTEGER, every_us INTEGER
);
{WINDOW_TABLES}
"""
# What the terms of each schema are read by.
_TERMS = "SELECT max_epsilon, sticky_km, key_check FROM terms"
_TIMED_TERMS = "SELECT max_epsilon, sticky_km, key_check, window_us, every_us FROM terms"
# From schema 1, which knew neither where the file belongs nor what distance a mechanism's ε is per.
_UPGRADE = (
    "ALTER TABLE terms ADD COLUMN home BLOB",
    "ALTER TABLE mechanisms ADD COLUMN unit TEXT",
    f"PRAGMA user_version = {_LIFETIME}",
)
# FULL: a charge is on the disk before its output is released, so a power cut cannot undo it. When the log is moved into
# the database is up to `LedgerFile`; once it was, the next transaction cuts it short. 64 MB of cache.
_SETUP = """
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 0;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -65536;
CREATE TEMP TABLE batch (code INTEGER PRIMARY KEY, user TEXT NOT NULL);
"""

# What the file's header says of it: whose it is, and its schema.
_MARKS = "SELECT * FROM pragma_application_id, pragma_user_version"

# What a mechanism's ε is per, by the mark in the file.
_UNITS = {"ground": "true kilometre on the ground", "own": "unit of its own coordinates (it has no projection)"}

# How long a process waits for others to finish writing.
_PATIENCE_SECONDS = 60.0

# The log is moved into the database once it is longer than this, in bytes.
_LONG_LOG = 2**22


class LedgerFile:
    """The SQLite file, through one connection that threads use in turn and that is closed before a fork."""

    def __init__(self, path: Path, wanted: Terms, *, moved: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        if not path.exists():
            _make(path, wanted)
        _forget_temporary_names(path)
        refuse_mounted(path)
        self._identity = identity(path)
        try:
            self._upgrade()
            terms = self._terms()
            terms.refuse_others(wanted)
            self._come_home(moved=moved)
            self._add_callers()
        except BaseException:
            self.close()
            raise
        self.terms = terms
        _FILES.add(self)

    def read(self, query: str, *values: object) -> list[Any]:
        """Return the rows that a query finds."""
        with self.lock, explained(self.path):
            return self._connected().execute(query, values).fetchall()

    @contextmanager
    def transaction(self, names: list[str]) -> Iterator[sqlite3.Connection]:
        """Lock the file for writing, with the persons of a batch at hand; at the end all is on the disk."""
        with self.lock, explained(self.path):
            database = self._connected()
            self._move_long_log(database)
            with _begun(database, "BEGIN"):  # touches the temporary table only, so nobody has to wait
                database.execute("DELETE FROM temp.batch")
                database.executemany("INSERT INTO temp.batch VALUES (?, ?)", enumerate(names))
            with self._writing() as writable:
                yield writable

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Lock the file for writing; raise if another file has taken its place."""
        with self.lock, explained(self.path):
            database = self._connected()
            with _begun(database, "BEGIN IMMEDIATE"):
                # What is charged to a file that was deleted or replaced would be forgotten.
                if identity(self.path) != self._identity:
                    msg = f"the ledger {str(self.path)!r} was replaced by another file while it was open"
                    raise OSError(msg)
                yield database

    def close(self) -> None:
        """Close the file for good."""
        with self.lock:
            self._closed = True
            self.disconnect()

    def disconnect(self) -> None:
        """End the connection; the next use makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            msg = "the ledger is closed"
            raise ValueError(msg)
        if self._connection is None:
            self._connection = _connection(self.path)
        return self._connection

    def _move_long_log(self, database: sqlite3.Connection) -> None:
        """Move what the log holds into the database, if it is much, while nobody can write.

        Left alone, SQLite does this while others write, and versions before 3.51.3 may then lose what was written
        (https://sqlite.org/wal.html, "The WAL-Reset Bug").
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists() and log.stat().st_size > _LONG_LOG:
            with _begun(database, "BEGIN IMMEDIATE"), closing(_connection(self.path)) as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _upgrade(self) -> None:
        """Add what an earlier schema lacks; the file is taken to be where it belongs."""
        if self._marks() != (_APPLICATION, 1):
            return
        with self._writing() as database:
            if self._marks() == (_APPLICATION, 1):  # others may have been faster
                for change in _UPGRADE:
                    database.execute(change)
                database.execute("UPDATE terms SET home = ?", (os.fsencode(self.path),))

    def _come_home(self, *, moved: bool) -> None:
        """Refuse a file that is not where it belongs, unless it was moved on purpose.

        Whatever was in the log under the old name is not in the file under the new one, and a copy is a second limit.
        """
        here = os.fsencode(self.path)
        ((home,),) = self.read("SELECT home FROM terms")
        if home == here:
            return
        if not moved:
            made = os.fsdecode(home) if isinstance(home, bytes) else "another file"
            msg = (
                f"the ledger {str(self.path)!r} belongs at {made!r}. Under a second name, or as a copy, it would let "
                "everybody spend the limit again. If it was moved or restored on purpose, and the old one is not in "
                "use any more, say so once: `metricdp ledger moved FILE`, or `metricdp.Ledger(path, moved=True)`."
            )
            raise InvalidInputError(msg)
        with self._writing() as database:
            database.execute("UPDATE terms SET home = ?", (here,))

    def _add_callers(self) -> None:
        """Add the table of callers to a file of an earlier version."""
        if self._marks() == (_APPLICATION, _LIFETIME) and not self.read(
            "SELECT 1 FROM sqlite_master WHERE name = 'callers'"
        ):
            with self._writing() as database:
                database.execute(CALLERS_TABLE)

    def _marks(self) -> tuple[int, int]:
        ((application, schema),) = self.read(_MARKS)
        return application, schema

    def _terms(self) -> Terms:
        application, schema = self._marks()
        if application != _APPLICATION or schema not in (_LIFETIME, _SCHEMA):
            raise _not_a_ledger(self.path)
        return parsed_terms(self.path, self.read(terms_query(schema)))


def schema_of(path: Path, database: sqlite3.Connection) -> int:
    """Return the number of a ledger's schema; raise if the file is none that this version knows."""
    ((application, schema),) = database.execute(_MARKS).fetchall()
    if application != _APPLICATION or schema not in range(1, _SCHEMA + 1):
        raise _not_a_ledger(path)
    return int(schema)


def terms_query(schema: int) -> str:
    """Return the query for the terms of a ledger."""
    return _TIMED_TERMS if schema == _SCHEMA else _TERMS


def _not_a_ledger(path: Path) -> InvalidInputError:
    msg = f"{str(path)!r} is not a metricdp ledger of format {_SCHEMA} or earlier; it is another database."
    return InvalidInputError(msg)


def identity(path: Path) -> tuple[int, int]:
    """Return what identifies the file; raise if it has a second name.

    SQLite keeps its log under the name that a file was opened with, so under two names there would be two logs and
    neither would know of the other's charges.
    """
    status = path.stat()
    if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
        msg = (
            f"the ledger {str(path)!r} has {status.st_nlink} names (hard links), and charges under one are "
            "not seen under the others. Remove all names but one; nothing was released"
        )
        raise OSError(msg)
    return status.st_dev, status.st_ino


def _connection(path: Path) -> sqlite3.Connection:
    # "rw" opens what is there and makes nothing new; threads take turns by a lock.
    address, patience = f"{path.as_uri()}?mode=rw", _PATIENCE_SECONDS
    database = sqlite3.connect(address, uri=True, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        database.executescript(_SETUP)
    except BaseException:
        database.close()
        raise
    return database


def _make(path: Path, terms: Terms) -> None:
    """Make an empty ledger; of several processes that do so at once, one succeeds and all will use its file."""
    if terms.max_epsilon is None:
        raise InvalidInputError("A new ledger needs `max_epsilon`, the budget of each person.")
    # Made aside and linked, so that the file appears whole. SQLite gives the files beside it the same mode.
    begin, end = _aside(path)
    aside = path.parent / f"{begin}{secrets.token_hex(8)}{end}"
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with explained(path), closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(_CREATE + (_CREATE_TIMED if terms.timed else _CREATE_LIFETIME))
            radius = None if terms.sticky_km is None else repr(terms.sticky_km)
            values = (repr(terms.max_epsilon), radius, terms.key_check, os.fsencode(path))
            spans = (terms.window, terms.every) if terms.timed else ()
            marks = ", ".join("?" * len(values + spans))
            database.execute(f"INSERT INTO terms VALUES ({marks})", values + spans)  # noqa: S608 - marks only
        with suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink(missing_ok=True)


def _aside(path: Path) -> tuple[str, str]:
    """Return how the names begin and end under which a ledger is made."""
    return f".{path.name}.", ".tmp"


def _forget_temporary_names(path: Path) -> None:
    """Remove the name under which the file was made, if its maker has not yet, or was stopped in between."""
    if path.stat().st_nlink == 1:
        return
    begin, end = _aside(path)
    with os.scandir(path.parent) as entries:
        names = [Path(entry) for entry in entries if entry.name.startswith(begin) and entry.name.endswith(end)]
    for name in names:
        with suppress(FileNotFoundError):  # its maker was faster
            if name.samefile(path):
                name.unlink()


def refuse_mounted(path: Path) -> None:
    """Raise if the file itself was mounted where it is, as into a container: its log would stay on this side only."""
    mounts = Path("/proc/self/mountinfo")  # Linux; elsewhere it cannot be told
    if not mounts.exists():
        return
    escaped = re.sub(rb"[\\ \t\n]", lambda found: b"\\%03o" % found[0][0], os.fsencode(path))
    if any(line.split(b" ", 5)[4] == escaped for line in mounts.read_bytes().splitlines()):
        msg = f"the ledger {str(path)!r} was mounted as a single file, without its log; mount its folder instead"
        raise OSError(msg)


@contextmanager
def _begun(database: sqlite3.Connection, how: str) -> Iterator[None]:
    database.execute(how)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into those that a caller can tell apart; none of them names a person."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            msg = f"{str(path)!r} is not a metricdp ledger that can be read: {error}."
            raise InvalidInputError(msg) from error
        if code == sqlite3.SQLITE_BUSY:
            msg = f"the ledger {str(path)!r} was locked for {_PATIENCE_SECONDS:g} s; nothing was charged or released"
            raise TimeoutError(msg) from error
        msg = f"the ledger {str(path)!r} could not be used ({error}); nothing was released"
        raise OSError(msg) from error


def enrolled(database: sqlite3.Connection, mechanism: Mechanism, sha256: str) -> int:
    """Return the ledger's number for a mechanism, a new one if need be.

    Budgets for different distances have no sum, so all mechanisms must measure alike.
    """
    found = database.execute("SELECT id, unit FROM mechanisms WHERE sha256 = ?", (sha256,)).fetchone()
    if found is not None and found[1] is not None:
        return int(found[0])
    p, unit = _measure(mechanism)
    # Mechanisms that an earlier version enrolled, and nobody has used since, have no unit.
    refuse_other_distance(mechanism, database.execute("SELECT p, unit FROM mechanisms"))
    epsilon = repr(float(mechanism.claimed_epsilon))
    if found is not None:
        database.execute("UPDATE mechanisms SET unit = ?, epsilon = ? WHERE id = ?", (unit, epsilon, found[0]))
        return int(found[0])
    values = (sha256, epsilon, p, unit)
    added = database.execute("INSERT INTO mechanisms (sha256, epsilon, p, unit) VALUES (?, ?, ?, ?)", values)
    return added.lastrowid or 0


def refuse_other_distance(mechanism: Mechanism, others: Iterable[tuple[str, str | None]]) -> None:
    """Raise if the mechanism does not measure as those of which (p, unit) are given; None is a unit not known."""
    p, unit = _measure(mechanism)
    for other_p, other_unit in others:
        if other_p != p:
            raise reject("mechanism", f"private with p = {other_p} like the others in the ledger", f"p = {p}")
        if other_unit not in (None, unit):
            rule = f"private per {_UNITS[other_unit]} like the others in the ledger"
            raise reject("mechanism", rule, f"one that is private per {_UNITS[unit]}")


def _measure(mechanism: Mechanism) -> tuple[str, str]:
    """Return p, and what ε is per, as a ledger writes them."""
    return repr(float(mechanism.p)), "own" if mechanism.projection is None else "ground"


# SQLite's locks belong to a process, and its bookkeeping of them would be inherited without the locks. So connections
# end before a fork, and both sides connect again when they need to.
_FILES: weakref.WeakSet[LedgerFile] = weakref.WeakSet()
_FORKING: list[LedgerFile] = []


def _before_fork() -> None:
    for file in sorted(_FILES, key=id):
        file.lock.acquire()  # waits for other threads' transactions
        _FORKING.append(file)
        file.disconnect()


def _after_fork_in_parent() -> None:
    while _FORKING:
        _FORKING.pop().lock.release()


def _after_fork_in_child() -> None:
    while _FORKING:
        _FORKING.pop().lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
