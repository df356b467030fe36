"""Checks of a road network's columns; errors name the file, the column and the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError

__all__ = ["IntArray", "Origin", "check_edges", "check_lengths", "check_nodes", "index_of_ids", "shown"]

IntArray = NDArray[np.int64]

# A million kilometres: longer than any road, and short enough that no sum of lengths overflows.
LONGEST_M = 1e9

# What an error quotes of a value; a file may hold one of many megabytes.
MOST_LETTERS = 60


def shown(value: object) -> str:
    r"""Return a value as an error may quote it: short, on one line, without characters that control a terminal.

    Examples
    --------
    >>> shown("ten"), shown(chr(27) + "[2J"), shown("1" * 1000)[-22:]
    ('ten', "'\\x1b[2J'", '11… (1,000 characters)')
    """
    text = str(value)
    short = text[:MOST_LETTERS]
    more = f"… ({len(text):,} characters)" if len(text) > MOST_LETTERS else ""
    return (short if short.isprintable() else repr(short)) + more


def _at_index(row: int) -> str:
    return f"at index {row}"


@dataclass(frozen=True)
class Origin:
    """Where a table came from, so that an error can point there.

    `place` turns a row number into words, such as "on line 7".
    """

    name: str = ""
    place: Callable[[int], str] = _at_index

    def broken(self, column: str, rule: str, value: object) -> InvalidInputError:
        """Build the error for `column`, which broke `rule` with `value`."""
        prefix = f"{self.name}: " if self.name else ""
        return InvalidInputError(f"{prefix}{reject(column, rule, value)}")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Put the name of the origin before the message of an error that its columns cause."""
        try:
            yield
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from error

    def forbid(self, bad: NDArray[np.bool_], column: str, rule: str, values: NDArray[Any]) -> None:
        """Raise for the first row where `bad` holds; say how many more there are."""
        rows = np.flatnonzero(bad)
        if len(rows) == 0:
            return
        row = int(rows[0])
        more = f", and {len(rows) - 1} more rows like it" if len(rows) > 1 else ""
        raise self.broken(column, rule, f"{shown(values[row])} {self.place(row)}{more}")


def check_nodes(origin: Origin, ids: IntArray, lon: FloatArray, lat: FloatArray) -> None:
    """Raise unless there are nodes, their ids differ and they lie on the globe."""
    if len(ids) == 0:
        raise origin.broken("id", "present for at least one node (the network is empty)", "no nodes")
    for column, values, limit in (("lon", lon, 180), ("lat", lat, 90)):
        # Written so that NaN fails too.
        bad = ~(np.abs(values) <= limit)
        rule = f"between -{limit} and {limit} degrees (WGS 84; a projected network is not)"
        origin.forbid(bad, column, rule, values)
    order = np.argsort(ids, kind="stable")
    repeats = np.zeros(len(ids), dtype=bool)
    # The stable sort keeps file order among equals, so the first mention of an id is never the one blamed.
    repeats[order[1:]] = ids[order[1:]] == ids[order[:-1]]
    origin.forbid(repeats, "id", "unique (one row per node)", ids)


def check_lengths(origin: Origin, length_m: FloatArray, column: str = "length_m") -> None:
    """Raise unless every length is a number of metres, zero or more and at most a million kilometres."""
    # Written so that NaN fails too.
    bad = ~((length_m >= 0) & (length_m <= LONGEST_M))
    origin.forbid(bad, column, f"a finite length in metres, zero or more and at most {LONGEST_M:.0e}", length_m)


def check_edges(origin: Origin, n_nodes: int, u: IntArray, v: IntArray, length_m: FloatArray) -> None:
    """Raise unless both ends are node indices and the lengths are fit to add up."""
    if not len(u) == len(v) == len(length_m):
        got = f"{len(u)}, {len(v)} and {len(length_m)} values"
        raise origin.broken("length_m", "as long as `u` and `v`", got)
    for column, ends in (("u", u), ("v", v)):
        origin.forbid((ends < 0) | (ends >= n_nodes), column, f"a node index from 0 to {n_nodes - 1}", ends)
    check_lengths(origin, length_m)


def index_of_ids(origin: Origin, column: str, wanted: IntArray, ids: IntArray) -> IntArray:
    """Return where each of `wanted` stands in `ids`; raise for the first that is missing."""
    order = np.argsort(ids, kind="stable")
    slot = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
    found = order[slot]
    origin.forbid(ids[found] != wanted, column, "the id of a node in the node table", wanted)
    return found.astype(np.int64)
