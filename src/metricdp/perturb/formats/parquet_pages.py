"""Sizes of a Parquet column's pages, read from their headers before anything is decompressed.

The totals in a file's footer are its maker's word. What a decoder allocates is what the header of each page says, so
that is what must be bounded. The footer is read here too, because pyarrow ends the process when some of its numbers
contradict each other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from metricdp.perturb.formats.thrift import INT32, INT64, LIST, STRUCT, Compact

__all__ = ["Chunk", "PageSizes", "RowGroup", "page_sizes", "row_groups"]

_DICTIONARY_PAGE = 2

# Length of the footer, and the magic word.
_TAIL = 8

# A header is some tens of bytes, unless it holds the least and the greatest of long texts.
_FIRST_READ, _LONGEST_HEADER = 2**9, 2**24

Fields = dict[tuple[int, int], Any]


@dataclass(frozen=True)
class Chunk:
    """Where the pages of a column are, in one row group, and how many values it has."""

    start: int
    end: int
    values: int


@dataclass(frozen=True)
class RowGroup:
    """Some rows, and a chunk for every column of numbers or texts."""

    rows: int
    chunks: list[Chunk]


@dataclass(frozen=True)
class PageSizes:
    """The largest pages of a column, in bytes once decompressed.

    dictionary, data : of its dictionaries, and of its other pages.
    per_row : of a row, on average over the page where that is most.
    """

    dictionary: int = 0
    data: int = 0
    per_row: float = 0.0

    def __or__(self, other: PageSizes) -> PageSizes:
        return PageSizes(
            max(self.dictionary, other.dictionary), max(self.data, other.data), max(self.per_row, other.per_row)
        )


def row_groups(file: BinaryIO) -> list[RowGroup]:
    """Return what a file's footer says of its row groups.

    Raises
    ------
    ValueError
        If there is something else where the footer should be.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - _TAIL - length))
    try:
        footer = Compact(file.read(length)).struct()
    except IndexError:
        msg = "a footer without an end"
        raise ValueError(msg) from None
    return [_row_group(fields) for fields in _structs(footer.get((4, LIST)))]


def page_sizes(file: BinaryIO, chunk: Chunk, rows: int) -> PageSizes:
    """Return the sizes of the pages of a chunk of so many rows.

    Raises
    ------
    ValueError
        If there is something else where a header should be.
    """
    found, total, values, start = PageSizes(), 0, 0, chunk.start
    # Readers stop at as many values too, whatever comes after them.
    while start < chunk.end and values < chunk.values:
        header, length = _header(file, start)
        size, more = _size(header.get((2, INT32))), _values(header)
        start += length + _size(header.get((3, INT32)))
        # Before they find that a page is not there, readers allocate as much as it should have.
        if start > chunk.end or _dictionary_values(header) > size:
            msg = "a page that is longer than its column, or that has more values than bytes"
            raise ValueError(msg)
        is_dictionary = header.get((1, INT32)) == _DICTIONARY_PAGE
        found |= PageSizes(dictionary=size) if is_dictionary else PageSizes(data=size, per_row=size / max(1, more))
        total, values = total + size, values + more
    # Rows of lists have more than one value.
    return found | PageSizes(per_row=total / max(1, rows))


def _row_group(fields: Fields) -> RowGroup:
    described = [chunk.get((3, STRUCT)) for chunk in _structs(fields.get((1, LIST)))]
    return RowGroup(_natural(fields.get((3, INT64))), [_chunk(found) for found in _structs(described)])


def _chunk(fields: Fields) -> Chunk:
    values, length, start = (_natural(fields.get((number, INT64))) for number in (5, 7, 9))
    dictionary = _natural(fields.get((11, INT64), 0))
    start = dictionary if 0 < dictionary < start else start
    return Chunk(start, start + length, values)


def _values(header: Fields) -> int:
    """Return how many values a data page of either version has; other pages have none."""
    described: Fields = next((header[place, STRUCT] for place in (5, 8) if (place, STRUCT) in header), {})
    return _size(described.get((1, INT32), 0))


def _dictionary_values(header: Fields) -> int:
    return _size(header.get((7, STRUCT), {}).get((1, INT32), 0))


def _structs(members: Any) -> list[Fields]:
    if not isinstance(members, list) or not all(isinstance(fields, dict) for fields in members):
        msg = "something else than a list of structs"
        raise ValueError(msg)
    return members


def _natural(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        msg = "a size that is none"
        raise ValueError(msg)
    return number


def _size(number: Any) -> int:
    # Readers keep the last 32 bits of longer numbers.
    if _natural(number) >= 2**31:
        msg = "a size of more than 32 bits"
        raise ValueError(msg)
    return int(number)


def _header(file: BinaryIO, start: int) -> tuple[Fields, int]:
    """Return the header that begins at `start`, and its length."""
    wanted = _FIRST_READ
    while True:
        file.seek(start)
        text = Compact(file.read(wanted))
        try:
            return text.struct(), text.place
        except IndexError:
            if len(text.bytes) < wanted or wanted >= _LONGEST_HEADER:
                msg = "a header without an end"
                raise ValueError(msg) from None
        wanted *= 8
