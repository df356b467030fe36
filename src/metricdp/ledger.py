"""What each person has spent: a ledger of privacy budgets that processes share and crashes do not falsify."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import sqlite3
import struct
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, choice, positive, reject, table
from metricdp.errors import InvalidInputError
from metricdp.files import content_hash
from metricdp.mechanisms.base import Mechanism
from metricdp.randomness import RandomSource

__all__ = ["Ledger"]

_APPLICATION, _SCHEMA = 0x6D647031, 1  # "mdp1" in the file's header tells a ledger from other databases
_CREATE = f"""
PRAGMA journal_mode = WAL;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_SCHEMA};
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
"""
# FULL: a charge is on the disk before its output is released, so a power cut cannot undo it. When the log is moved into
# the database is up to `_File`; once it was, the next transaction cuts it short. 64 MB of cache.
_SETUP = """
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 0;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -65536;
CREATE TEMP TABLE batch (code INTEGER PRIMARY KEY, user TEXT NOT NULL);
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

# How long a process waits for others that write.
_PATIENCE_SECONDS = 60.0

# Bytes in the log from which on it is moved into the database.
_LONG_LOG = 2**22

# ε is counted in units of the 18th digit of the limit: a float has at most 17, and sums fit in 64 bits.
_DIGITS = 18

_SHORTEST_KEY, _LONGEST_KEY = 16, 64


class Ledger:
    """Draws outputs for persons and knows what each has spent; a SQLite file that processes and threads may share.

    Parameters
    ----------
    path : str or Path
        The file, on a local disk; made with mode 0600 if there is none. SQLite keeps two more beside it (`-wal`,
        `-shm`) while it is open, which belong to it.
    max_epsilon : float, optional
        What every person may spend in all, in the unit of the mechanisms' ε. Fixed when the file is made: another
        number is refused later on, none takes the file's (and its `sticky_km`).
    beyond : "refuse" or "repeat-last"
        The answer to who cannot pay for another draw: -1, or the person's last output from the same mechanism (-1 if
        there is none) at no cost.
    sticky_km : float, optional
        If given, whoever is within this distance of the true point of the last draw, as the mechanism measures it,
        gets the same output again at no cost; 0 asks for the same lattice point. Fixed like `max_epsilon`.
    user_key : bytes, optional
        16 to 64 secret bytes, kept elsewhere. If given, the file holds keyed hashes (BLAKE2b) of the persons' ids
        instead of the ids.

    Guarantee
    ---------
    *Composition.* Let one person's n requests have true points x_1, …, x_n, and let x'_1, …, x'_n be others with
    d(x_i, x'_i) ≤ D for all i. If every mechanism is (ε_i, d)-mDP, all the answers together are at most e^{E·D} times
    likelier from one than from the other, where E is the sum of the ε_i that were charged, at most `max_epsilon`.
    Without `sticky_km`, whether a request is charged, refused or repeated depends on how many there were and not on
    the points, and a repeated output tells nothing new. When and how often a person asks is not hidden.

    *Sums are exact.* ε is the decimal number that its shortest text says, as in mechanism files (within 2^-53 of the
    float), charged in whole units of the 18th digit of `max_epsilon`, rounded up. Ten times 0.1 is 1.

    *Crashes.* Charges are on the disk before `sample` returns. A process killed in between has charged for outputs that
    nobody saw; none is ever seen that was not charged. This holds for one file: a copy restored from a backup has
    forgotten what came after, and budgets of several ledgers add up.

    *Stickiness leaks.* It keeps observers from averaging many draws for one place. But which requests were drawn anew
    depends on the true points and can be seen: two different outputs are impossible for a person who did not move,
    so no e^{E·D} bounds their ratio. What holds is the bound above for trajectories with the same pattern of draws;
    the pattern itself, "moved farther than `sticky_km` since the last draw" or not, is given away. Whoever
    knows where a person was learns from a repetition that they are still there, and whoever may ask on another's behalf
    can find that person by trying points. The file then holds, for each person and mechanism, the true point of the
    last draw (and traces of earlier ones); without `sticky_km` it holds no points.

    Mechanisms that share a ledger must have the same p and unit of distance. Their ε is taken at their word: certify
    them first.

    Examples
    --------
    >>> import tempfile, metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=0.5, method="em")
    >>> with tempfile.TemporaryDirectory() as folder, mdp.Ledger(f"{folder}/budgets.db", max_epsilon=1) as ledger:
    ...     answers = ledger.sample(mechanism, ["ann", "ann", "bob", "ann"], [[2.0], [2.5], [1.0], [2.0]])
    ...     print((answers >= 0).tolist(), ledger.spent("ann"), ledger.remaining("bob"))
    [True, True, True, False] 1.0 0.5
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_epsilon: float | None = None,
        beyond: str = "refuse",
        sticky_km: float | None = None,
        user_key: bytes | None = None,
    ) -> None:
        self.beyond = choice("beyond", beyond, ("refuse", "repeat-last"))
        self._key = _checked_key(user_key)
        wanted = _Terms(
            None if max_epsilon is None else positive("max_epsilon", max_epsilon),
            None if sticky_km is None else _radius(sticky_km),
            None if self._key is None else _keyed("", self._key),
        )
        self._file = _File(Path(path).resolve(), wanted)
        self.path = self._file.path
        self.max_epsilon, self.sticky_km = self._file.max_epsilon, self._file.sticky_km
        self._scale = _Scale.of(self.max_epsilon)

    def sample(
        self,
        mechanism: Mechanism,
        users: ArrayLike,
        x: ArrayLike,
        rng: RandomSource | None = None,
        *,
        outside: str = "clamp",
    ) -> NDArray[np.int64]:
        """Return an output for every request, in order; -1 where it is refused.

        Parameters
        ----------
        mechanism : Mechanism
            Charges its ε for every draw.
        users : (m,) array of text or whole numbers
            Who asks. 7 and "7" are the same person; otherwise ids are compared letter for letter.
        x : (m, N) array
            Where they are, in the coordinates of the mechanism.
        rng, outside
            As in `Mechanism.sample`. What an `InsecureSeed` drew may be repeated later on, so a ledger that has seen
            one is good for tests only.

        Raises
        ------
        InvalidInputError
            If an argument breaks a rule or the file is damaged.
        TimeoutError
            If others keep the file locked for a minute.
        OSError
            If the file cannot be written. Whatever the error, no output was released.
        """
        if not isinstance(mechanism, Mechanism):
            raise reject("mechanism", "a mechanism", type(mechanism).__name__)
        # Drawn before the file is locked, to keep others waiting less; what turns out not to be paid for is dropped.
        drawn = mechanism.sample(x, rng, outside=outside).astype(np.int64)
        who, names = _people(users, len(drawn), self._key)
        if not names:
            return drawn
        requests, sha256, cost = _Requests(who, len(names)), _hash_of(mechanism), self._scale.cost(mechanism.epsilon)
        points = None if self.sticky_km is None else _snapped(mechanism, x)
        with self._file.transaction(names) as database:
            number = _enrolled(database, mechanism, sha256)
            state = _State.read(database, number)
            affordable = (self._scale.limit - state.spent) // cost
            if points is None:
                draws = held = requests.rank < affordable[who]
            else:
                draws, held = _moved(who, points, affordable, state.points, self.sticky_km or 0.0, mechanism.p)
            latest = requests.latest(draws)
            people, counts, rows = requests.totals(draws, latest)
            ids = [names[person] for person in people.tolist()]
            packed = repeat(None) if points is None else _packed(points[rows])
            charges = (ids, repeat(number), (counts * cost).tolist(), counts.tolist(), drawn[rows].tolist(), packed)
            database.executemany(_CHARGE, zip(*charges, strict=False))
        # The transaction has ended: from here on, what is returned is paid for.
        answers = np.where(latest >= 0, drawn[latest], state.outputs[who])
        if self.beyond == "refuse":
            answers[~(draws | held)] = -1
        return answers.view(type(drawn))

    def spent(self, user: str | int) -> float:
        """Return the sum of a person's charges, as the nearest float; 0 for who never asked."""
        return self._scale.epsilon(self._units(user))

    def remaining(self, user: str | int) -> float:
        """Return what a person may still spend, as the nearest float."""
        return self._scale.epsilon(self._scale.limit - self._units(user))

    def users(self) -> pd.DataFrame:
        """Return one row per person who was charged: `user` (as stored), `reports`, `spent` and `remaining`."""
        rows = self._file.read("SELECT user, SUM(count), SUM(spent) FROM reports GROUP BY user ORDER BY user")
        epsilon, limit = self._scale.epsilon, self._scale.limit
        return pd.DataFrame(
            {
                "user": pd.Series([user for user, _, _ in rows], dtype=object),
                "reports": pd.Series([count for _, count, _ in rows], dtype=np.int64),
                "spent": pd.Series([epsilon(units) for _, _, units in rows], dtype=np.float64),
                "remaining": pd.Series([epsilon(limit - units) for _, _, units in rows], dtype=np.float64),
            }
        )

    def close(self) -> None:
        """Close the file; the ledger cannot be used afterwards."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        sticky = "" if self.sticky_km is None else f", sticky_km={self.sticky_km:g}"
        return f"Ledger({str(self.path)!r}, max_epsilon={self.max_epsilon:g}, beyond={self.beyond!r}{sticky})"

    def _units(self, user: str | int) -> int:
        _, (name,) = _people([user], 1, self._key)
        ((total,),) = self._file.read("SELECT SUM(spent) FROM reports WHERE user = ?", name)
        return total or 0


@dataclass(frozen=True)
class _Scale:
    """ε in whole units of 10^exponent; the limit is a whole number of them."""

    exponent: int
    limit: int

    @classmethod
    def of(cls, max_epsilon: float) -> _Scale:
        exponent = Decimal(repr(max_epsilon)).adjusted() + 1 - _DIGITS
        return cls(exponent, math.floor(Fraction(repr(max_epsilon)) / Fraction(10) ** exponent))

    def cost(self, epsilon: float) -> int:
        """Return ε in units, rounded up; whatever exceeds the limit comes to the same."""
        return min(math.ceil(Fraction(repr(float(epsilon))) / Fraction(10) ** self.exponent), self.limit + 1)

    def epsilon(self, units: int) -> float:
        return float(units * Fraction(10) ** self.exponent)


@dataclass(frozen=True)
class _State:
    """Where the persons of a batch stand: units spent in all; last output (-1: none) and point from one mechanism."""

    spent: NDArray[np.int64]
    outputs: NDArray[np.int64]
    points: Sequence[bytes | None]

    @classmethod
    def read(cls, database: sqlite3.Connection, mechanism: int) -> _State:
        spent, outputs, points = zip(*database.execute(_STATE, (mechanism,)), strict=True)
        return cls(np.array(spent, dtype=np.int64), np.array(outputs, dtype=np.int64), points)


class _Requests:
    """The rows of a batch, grouped by person without losing their order.

    who : number of each row's person.
    rank : how many rows of the same person come before.
    """

    def __init__(self, who: NDArray[np.intp], n_people: int) -> None:
        self.who = who
        self._order = np.argsort(who, kind="stable")
        self._ends = np.searchsorted(who[self._order], np.arange(n_people), side="right")
        self._starts = np.concatenate([[0], self._ends[:-1]])[who[self._order]]
        self.rank = np.empty(len(who), dtype=np.intp)
        self.rank[self._order] = np.arange(len(who)) - self._starts

    def latest(self, draws: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return for every row the last row up to it in which its person had a draw, or -1."""
        place = np.maximum.accumulate(np.where(draws[self._order], np.arange(len(draws)), -1))
        rows = np.empty(len(draws), dtype=np.intp)
        rows[self._order] = np.where(place >= self._starts, self._order[place], -1)
        return rows

    def totals(
        self, draws: NDArray[np.bool_], latest: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Return the persons who had draws, how many, and the row of the last."""
        last = latest[self._order[self._ends - 1]]
        persons = np.flatnonzero(last >= 0)
        return persons, np.bincount(self.who[draws], minlength=len(last))[persons], last[persons]


def _moved(
    who: NDArray[np.intp],
    points: FloatArray,
    affordable: NDArray[np.int64],
    last_points: Sequence[bytes | None],
    radius: float,
    p: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows are drawn anew, and which hold on to the last output because they are close to its point.

    Row by row, because every draw moves the point that the person's next rows are compared with.
    """
    unpack = struct.Struct(f"<{points.shape[1]}d").unpack
    anchors: list[Sequence[float] | None] = [None if packed is None else unpack(packed) for packed in last_points]
    left = affordable.tolist()
    draws, held = np.zeros(len(who), dtype=bool), np.zeros(len(who), dtype=bool)
    for row, (person, point) in enumerate(zip(who.tolist(), points.tolist(), strict=True)):
        anchor = anchors[person]
        if anchor is not None and _close(point, anchor, radius, p):
            held[row] = True
        elif left[person] > 0:
            draws[row] = True
            left[person] -= 1
            anchors[person] = point
    return draws, held


def _close(point: Sequence[float], anchor: Sequence[float], radius: float, p: float) -> bool:
    """Tell whether two points are at most `radius` apart in the ℓ_p norm."""
    gaps = [abs(here - there) for here, there in zip(point, anchor, strict=True)]
    largest = max(gaps)
    if largest == 0 or largest > radius or math.isinf(p):
        return largest <= radius
    # Measured against the radius, so that powers cannot overflow.
    return sum((gap / radius) ** p for gap in gaps) <= 1


def _snapped(mechanism: Mechanism, x: ArrayLike) -> FloatArray:
    """Return the points that stand for `x` in the mechanism."""
    return mechanism.snap(np.clip(table("x", x, columns=mechanism.bounds.shape[1]), *mechanism.bounds))


def _packed(points: FloatArray) -> list[bytes]:
    return [point.tobytes() for point in points.astype("<f8")]


_HASHES: weakref.WeakKeyDictionary[Mechanism, str] = weakref.WeakKeyDictionary()


def _hash_of(mechanism: Mechanism) -> str:
    """Return `content_hash`, computed once: output 3 of one mechanism is not output 3 of another."""
    if mechanism not in _HASHES:
        _HASHES[mechanism] = content_hash(mechanism)
    return _HASHES[mechanism]


def _enrolled(database: sqlite3.Connection, mechanism: Mechanism, sha256: str) -> int:
    """Return the ledger's number for a mechanism, a new one if need be."""
    found = database.execute("SELECT id FROM mechanisms WHERE sha256 = ?", (sha256,)).fetchone()
    if found is not None:
        return int(found[0])
    p = repr(float(mechanism.p))
    other = database.execute("SELECT p FROM mechanisms WHERE p != ?", (p,)).fetchone()
    if other is not None:
        # Budgets for different distances have no sum.
        raise reject("mechanism", f"private with p = {other[0]} like the others in the ledger", f"p = {p}")
    values = (sha256, repr(float(mechanism.epsilon)), p)
    return database.execute("INSERT INTO mechanisms (sha256, epsilon, p) VALUES (?, ?, ?)", values).lastrowid or 0


def _people(users: ArrayLike, count: int, key: bytes | None) -> tuple[NDArray[np.intp], list[str]]:
    """Return the number of each row's person, and the persons' ids as the file holds them; messages show no id."""
    values = users if isinstance(users, (np.ndarray, pd.Series, pd.Index)) else np.asarray(users, dtype=object)
    if values.ndim != 1 or len(values) != count:
        raise reject("users", f"one id for each of {count} points", f"shape {values.shape}")
    try:
        codes, distinct = pd.factorize(values)
    except TypeError:
        raise reject("users", "non-empty text or whole numbers", "other objects") from None
    names = [_name(value) for value in distinct]
    bad = np.array([name is None for name in names] + [True])[codes]  # missing ids have code -1
    if bad.any():
        raise reject("users", "non-empty text or whole numbers", f"something else at index {bad.argmax()}")
    if key is not None:
        names = [_keyed(name or "", key) for name in names]
    # 7 and "7" become one person here. Sorted as in the file, neighbours are read and written together.
    merged, stored = pd.factorize(np.array(names, dtype=object), sort=True)
    return merged[codes], stored.tolist()


def _name(value: object) -> str | None:
    """Return an id as text, or None if it is neither text nor a whole number.

    A column of whole numbers with gaps holds 7.0, which must not pass for somebody else than 7.
    """
    if isinstance(value, str):
        try:
            return value.encode().decode() or None
        except UnicodeEncodeError:  # half a surrogate pair cannot be stored
            return None
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return str(value) if whole else None


def _radius(value: Any) -> float:
    rule = "a finite number of at least 0"
    try:
        radius = float(value)
    except (TypeError, ValueError):
        raise reject("sticky_km", rule, repr(value)) from None
    if not 0 <= radius < math.inf:
        raise reject("sticky_km", rule, repr(value))
    return radius


def _checked_key(key: object) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes) or not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        # How long it is, never what it is.
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise reject("user_key", f"{_SHORTEST_KEY} to {_LONGEST_KEY} bytes", got)
    return key


def _keyed(name: str, key: bytes) -> str:
    return hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Terms:
    """What a ledger is made with and cannot change; `key_check` is the hash of nothing under the key for ids."""

    max_epsilon: float | None
    sticky_km: float | None
    key_check: str | None

    def refuse_others(self, wanted: _Terms) -> None:
        if wanted.key_check != self.key_check:
            rule = "left out" if self.key_check is None else "the one that the ledger was made with"
            raise reject("user_key", rule, "none" if wanted.key_check is None else "another")
        for name in ("max_epsilon", "sticky_km"):
            made, want = getattr(self, name), getattr(wanted, name)
            as_made = want is None and wanted.max_epsilon is None
            if want != made and not as_made:
                raise reject(name, f"{made}, which the ledger was made with", want)


class _File:
    """The SQLite file: one connection, which threads use in turn and which does not cross a fork."""

    def __init__(self, path: Path, wanted: _Terms) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        if not path.exists():
            _make(path, wanted)
        self._identity = self._found()
        try:
            terms = self._terms()
            terms.refuse_others(wanted)
        except BaseException:
            self.close()
            raise
        assert terms.max_epsilon is not None
        self.max_epsilon, self.sticky_km = terms.max_epsilon, terms.sticky_km
        _FILES.add(self)

    def read(self, query: str, *values: str) -> list[Any]:
        with self.lock, _explained(self.path):
            return self._connected().execute(query, values).fetchall()

    @contextmanager
    def transaction(self, names: list[str]) -> Iterator[sqlite3.Connection]:
        """Lock the file for writing, with the persons of a batch at hand; at the end all is on the disk."""
        with self.lock, _explained(self.path):
            database = self._connected()
            self._move_long_log(database)
            with _begun(database, "BEGIN"):  # touches the temporary table only, so nobody has to wait
                database.execute("DELETE FROM temp.batch")
                database.executemany("INSERT INTO temp.batch VALUES (?, ?)", enumerate(names))
            with _begun(database, "BEGIN IMMEDIATE"):
                # What is charged to a file that was deleted or replaced would be forgotten.
                if self._found() != self._identity:
                    msg = f"the ledger {str(self.path)!r} was replaced by another file while it was open"
                    raise OSError(msg)
                yield database

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self.disconnect()

    def disconnect(self) -> None:
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

    def _terms(self) -> _Terms:
        marks = self.read("SELECT application_id, user_version FROM pragma_application_id, pragma_user_version")
        if marks != [(_APPLICATION, _SCHEMA)]:
            msg = f"`path` must be a metricdp ledger of format {_SCHEMA}, got {str(self.path)!r}, another database"
            raise InvalidInputError(msg)
        rows = self.read("SELECT max_epsilon, sticky_km, key_check FROM terms")
        try:
            ((limit, radius, check),) = rows
            return _Terms(float(limit), None if radius is None else float(radius), check)
        except (TypeError, ValueError) as error:
            msg = f"`path` must be a metricdp ledger, got {str(self.path)!r}: its terms are damaged"
            raise InvalidInputError(msg) from error

    def _found(self) -> tuple[int, int]:
        status = self.path.stat()
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


def _make(path: Path, terms: _Terms) -> None:
    """Make an empty ledger; of several processes that do so at once, one succeeds and all will use its file."""
    if terms.max_epsilon is None:
        raise reject("max_epsilon", "given for a new ledger", None)
    # Made aside and linked, so that the file appears whole. SQLite gives the files beside it the same mode.
    aside = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with _explained(path), closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(_CREATE)
            radius = None if terms.sticky_km is None else repr(terms.sticky_km)
            values = (repr(terms.max_epsilon), radius, terms.key_check)
            database.execute("INSERT INTO terms VALUES (?, ?, ?)", values)
        with suppress(FileExistsError):
            path.hardlink_to(aside)
    finally:
        aside.unlink()


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
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into those that a caller can tell apart; none of them names a person."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            msg = f"`path` must be a metricdp ledger, got {str(path)!r}: {error}"
            raise InvalidInputError(msg) from error
        if code == sqlite3.SQLITE_BUSY:
            msg = f"the ledger {str(path)!r} was locked for {_PATIENCE_SECONDS:g} s; nothing was charged or released"
            raise TimeoutError(msg) from error
        msg = f"the ledger {str(path)!r} could not be used ({error}); nothing was released"
        raise OSError(msg) from error


# SQLite's locks belong to a process, and its bookkeeping of them would be inherited without the locks. So connections
# end before a fork, and both sides connect again when they need to.
_FILES: weakref.WeakSet[_File] = weakref.WeakSet()
_FORKING: list[_File] = []


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
