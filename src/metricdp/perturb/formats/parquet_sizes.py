"""Sizes that the pages of a Parquet file claim to have once decompressed, read before pyarrow allocates.

pyarrow allocates what the header of each page says, and has no option to limit it: `thrift_string_size_limit` and
`thrift_container_size_limit` limit the metadata only. The totals in a file's footer need not agree with the headers. So
the headers are read here, and the footer too, because pyarrow ends the process when some of its numbers contradict each
other. Both are in Thrift's compact protocol, of which `Compact` reads as much as this needs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["Chunk", "Compact", "PageSizes", "RowGroup", "page_sizes", "row_groups"]

_DICTIONARY_PAGE = 2

# Length of the footer, and the magic word.
_TAIL = 8

# A header is some tens of bytes, unless it holds the least and the greatest of long texts.
_FIRST_READ, _LONGEST_HEADER = 2**9, 2**24

# Numbers of the types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _INT16, _DOUBLE, _BINARY = 1, 2, 3, 4, 7, 8
_INT32, _INT64, _LIST, _STRUCT = 5, 6, 9, 12

# Structs and lists inside each other.
_DEEPEST = 16

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
    return [_row_group(fields) for fields in _structs(footer.get((4, _LIST)))]


def page_sizes(file: BinaryIO, chunk: Chunk, rows: int) -> PageSizes:
    """Return the sizes of the pages of a chunk of so many rows.

    Raises
    ------
    ValueError
        If there is something else where a header should be.
    """
    found, total, values, start = PageSizes(), 0, 0, chunk.start
    # pyarrow stops after as many values, whatever comes after them.
    while start < chunk.end and values < chunk.values:
        header, length = _header(file, start)
        size, more = _size(header.get((2, _INT32))), _values(header)
        start += length + _size(header.get((3, _INT32)))
        # pyarrow allocates the size of a page before it finds that the page is not there.
        if start > chunk.end or _dictionary_values(header) > size:
            msg = "a page that is longer than its column, or that has more values than bytes"
            raise ValueError(msg)
        is_dictionary = header.get((1, _INT32)) == _DICTIONARY_PAGE
        found |= PageSizes(dictionary=size) if is_dictionary else PageSizes(data=size, per_row=size / max(1, more))
        total, values = total + size, values + more
    # Rows of lists have more than one value.
    return found | PageSizes(per_row=total / max(1, rows))


def _row_group(fields: Fields) -> RowGroup:
    described = [chunk.get((3, _STRUCT)) for chunk in _structs(fields.get((1, _LIST)))]
    return RowGroup(_natural(fields.get((3, _INT64))), [_chunk(found) for found in _structs(described)])


def _chunk(fields: Fields) -> Chunk:
    values, length, start = (_natural(fields.get((number, _INT64))) for number in (5, 7, 9))
    dictionary = _natural(fields.get((11, _INT64), 0))
    start = dictionary if 0 < dictionary < start else start
    return Chunk(start, start + length, values)


def _values(header: Fields) -> int:
    """Return how many values a data page of either version has; other pages have none."""
    described: Fields = next((header[place, _STRUCT] for place in (5, 8) if (place, _STRUCT) in header), {})
    return _size(described.get((1, _INT32), 0))


def _dictionary_values(header: Fields) -> int:
    return _size(header.get((7, _STRUCT), {}).get((1, _INT32), 0))


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
    # pyarrow keeps the last 32 bits of longer numbers.
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


class Compact:
    """Bytes in the compact protocol; raises IndexError where they end, and ValueError where they make no sense."""

    def __init__(self, content: bytes) -> None:
        self.bytes, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[tuple[int, int], Any]:
        """Return numbers, structs and lists by number and type of their field; other types have the value None.

        The type belongs to the key because pyarrow ignores a field of the wrong type: if the same number came twice,
        the second time with another type, it would keep the first value.
        """
        if depth > _DEEPEST:
            msg = "structs in structs without an end"
            raise ValueError(msg)
        fields: dict[tuple[int, int], Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            fields[number, kind] = None if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_INT16, _INT32, _INT64):
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _LIST:
            return self._list(depth + 1)
        if kind == _BINARY:
            self._skip(self._varint())
        elif kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
            self._skip(8 if kind == _DOUBLE else 1)
        else:
            msg = "a type that Parquet does not use"
            raise ValueError(msg)
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        # Every member has a byte at least, so a wrong count ends where the bytes do.
        return [self._value(head & 15, depth) for _ in range(count)]

    def _byte(self) -> int:
        self.place += 1
        return self.bytes[self.place - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        msg = "a number without an end"
        raise ValueError(msg)

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.bytes):
            raise IndexError
