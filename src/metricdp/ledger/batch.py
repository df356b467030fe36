"""The requests of a batch: the person of each row, and which rows are drawn anew."""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, reject

__all__ = ["LONGEST_ID", "Batch", "Outcome", "Requests", "keyed", "near", "numbered", "pack", "through"]

# Longest id in letters or digits: more than anybody needs, and a bound on what a stranger can make the file hold.
LONGEST_ID = 1024

# NUL is refused because other programs lose what follows it: numpy's arrays of text drop it at the end, pandas'
# categories (up to 3.0) and programs written in C stop at it.
_RULE = f"text of 1 to {LONGEST_ID} letters without NUL, or whole numbers"
_LARGEST = 10**LONGEST_ID


def numbered(users: ArrayLike, count: int, key: bytes | None) -> tuple[NDArray[np.intp], list[str]]:
    """Return the number of each row's person, and the persons' ids as the file holds them; messages show no id.

    Ids are compared as Python compares text, to the last letter. `pandas.factorize` up to pandas 3.0 compares text only
    up to the first NUL, so that two persons became one and the other was never charged.
    """
    rows = _rows(users, count)
    if not set(map(type, rows)) <= {str, int}:
        rows = [_plain(row) for row in rows]
    # Text and whole numbers only, so equal keys are one id: 7 is also equal to 7.0 and 1 to True, but not to "7".
    found: defaultdict[str | int | None, int] = defaultdict(itertools.count().__next__)
    codes = np.fromiter(map(found.__getitem__, rows), np.intp, count)
    texts = [_text(row) for row in found]
    wrong = np.array([text is None for text in texts])[codes]
    if wrong.any():
        raise reject("users", _RULE, f"something else at index {wrong.argmax()}")
    stored = [text if key is None else keyed(text, key) for text in texts if text is not None]
    # 7 and "7" become one person here. Sorted as in the file, neighbours are read and written together.
    names = sorted(set(stored))
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in stored], dtype=np.intp)[codes], names


def _rows(users: ArrayLike, count: int) -> list[Any]:
    """Return the ids as Python objects, one per point."""
    values: Any = users
    if not isinstance(users, (np.ndarray, pd.Series, pd.Index)):
        # A list that numpy may turn into an array of text would lose NULs at the ends of its ids.
        values = np.asarray(users, dtype=None if hasattr(users, "__array__") else object)
    if values.ndim != 1 or len(values) != count:
        raise reject("users", f"one id for each of {count} points", f"shape {values.shape}")
    if isinstance(values, np.ndarray) and values.dtype.kind in "mM":
        # As Python objects some times are whole numbers.
        raise reject("users", _RULE, "times")
    return list(values.tolist())


def _plain(value: object) -> str | int | None:
    """Return text or a whole number of any library as Python's own, None for everything else.

    A column of whole numbers with gaps holds 7.0, which must not pass for somebody else than 7.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, np.integer)):
        return None
    return int(value)


def _text(value: str | int | None) -> str | None:
    """Return an id as text, or None if it cannot be stored and compared without loss wherever it may pass."""
    if isinstance(value, int):
        return str(value) if -_LARGEST < value < _LARGEST else None
    if value is None or not 0 < len(value) <= LONGEST_ID or "\0" in value:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    return value


def keyed(name: str, key: bytes) -> str:
    """Return the hash of an id under a secret key, which takes its place in the file."""
    return hashlib.blake2b(name.encode(), key=key, digest_size=16).hexdigest()


class Requests:
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


@dataclass(frozen=True)
class Batch:
    """What is asked of a ledger at once, and what was drawn in case that it is paid for.

    names : the persons, as the file holds them.
    requests : whose each row is.
    drawn : an output for each row.
    cost : units that a draw costs.
    limit : units that a person may spend.
    points, radius, p : for answers that repeat while a person stays close; `points` is None without them.
    callers : through whom each row came, if that is to be known.
    ticks : moment of each row; None for the clock's.
    """

    names: list[str]
    requests: Requests
    drawn: NDArray[np.int64]
    cost: int
    limit: int
    points: FloatArray | None = None
    radius: float = 0.0
    p: float = 2.0
    callers: Sequence[str] | None = None
    ticks: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.callers is not None and len(self.callers) != len(self.drawn):
            raise reject("callers", f"one for each of {len(self.drawn)} points", f"{len(self.callers)} of them")

    def packed(self, rows: NDArray[np.intp]) -> Iterable[bytes | None]:
        """Return the points of some rows as the file holds them, which is None where it holds none."""
        return itertools.repeat(None) if self.points is None else pack(self.points[rows])


@dataclass(frozen=True)
class Outcome:
    """What became of a batch.

    draws : rows that were drawn anew, and charged.
    free : rows that repeat the person's last output by the ledger's rules, at no cost.
    late : rows that were refused because of their time.
    latest : for every row the last row up to it in which its person had a draw, or -1.
    outputs : each person's last output before the batch, or -1.
    """

    draws: NDArray[np.bool_]
    free: NDArray[np.bool_]
    late: NDArray[np.bool_]
    latest: NDArray[np.intp]
    outputs: NDArray[np.int64]

    def answers(self, batch: Batch, beyond: str) -> NDArray[np.int64]:
        """Return an output for every row, -1 where it is refused."""
        answers = np.where(self.latest >= 0, batch.drawn[self.latest], self.outputs[batch.requests.who])
        answers[self.late] = -1
        if beyond == "refuse":
            answers[~(self.draws | self.free)] = -1
        return answers


def through(batch: Batch, draws: NDArray[np.bool_]) -> tuple[list[str], NDArray[np.intp]]:
    """Return the callers, and for each drawn row the number of its caller."""
    found: defaultdict[str, int] = defaultdict(itertools.count().__next__)
    codes = np.fromiter(map(found.__getitem__, batch.callers or ()), np.intp, len(draws))
    return list(found), codes[draws]


def near(batch: Batch, last_points: Sequence[bytes | None]) -> Near:
    """Return who is close to the point of their last draw, if the ledger repeats answers for that (`sticky_km`)."""
    if batch.points is None:
        return Near([], [], 0.0, 2.0)
    unpack = struct.Struct(f"<{batch.points.shape[1]}d").unpack
    anchors: list[Sequence[float] | None] = [None if packed is None else unpack(packed) for packed in last_points]
    return Near(batch.points.tolist(), anchors, batch.radius, batch.p)


class Near:
    """Tells whether a row's point is close to that of its person's last draw. Rows are taken one by one, because every
    draw changes the point that the person's next rows are compared with.
    """  # noqa: D205 - one thought

    def __init__(
        self, points: list[list[float]], anchors: list[Sequence[float] | None], radius: float, p: float
    ) -> None:
        self._points, self._anchors, self._radius, self._p = points, anchors, radius, p

    def __call__(self, row: int, person: int) -> bool:
        """Tell whether the row's point is close."""
        if not self._points:
            return False
        anchor = self._anchors[person]
        return anchor is not None and _close(self._points[row], anchor, self._radius, self._p)

    def drawn(self, row: int, person: int) -> None:
        """Take note of a draw."""
        if self._points:
            self._anchors[person] = self._points[row]


def _close(point: Sequence[float], anchor: Sequence[float], radius: float, p: float) -> bool:
    """Tell whether two points are at most `radius` apart in the ℓ_p norm."""
    gaps = [abs(here - there) for here, there in zip(point, anchor, strict=True)]
    largest = max(gaps)
    if largest == 0 or largest > radius or math.isinf(p):
        return largest <= radius
    # Measured against the radius, so that powers cannot overflow.
    return sum((gap / radius) ** p for gap in gaps) <= 1


def pack(points: FloatArray) -> list[bytes]:
    """Return each point as the file holds it."""
    return [point.tobytes() for point in points.astype("<f8")]
