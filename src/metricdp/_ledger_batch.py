"""The rows of a batch: whose they are, and which of them are drawn anew."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, reject

__all__ = ["Requests", "keyed", "moved", "numbered", "pack"]


def numbered(users: ArrayLike, count: int, key: bytes | None) -> tuple[NDArray[np.intp], list[str]]:
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
        names = [keyed(name or "", key) for name in names]
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


def moved(
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


def pack(points: FloatArray) -> list[bytes]:
    """Return each point as the file holds it."""
    return [point.tobytes() for point in points.astype("<f8")]
