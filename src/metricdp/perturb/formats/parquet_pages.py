"""Sizes of a Parquet column's pages, read from their headers before anything is decompressed.

The totals in a file's footer are its maker's word. What a decoder allocates is what the header of each page says, so
that is what must be bounded. Headers are Thrift structs in the compact protocol; only the fields that hold sizes are
kept, all others are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["PageSizes", "page_sizes"]

_DICTIONARY_PAGE = 2

# Numbers of Thrift's compact types.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_NUMBERS = (4, 5, 6)

# A header is some tens of bytes, unless it holds the least and the greatest of long texts.
_FIRST_READ, _LONGEST_HEADER, _DEEPEST = 2**9, 2**24, 16


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


def page_sizes(file: BinaryIO, column: Any, rows: int) -> PageSizes:
    """Return the sizes of the pages of a column chunk of so many rows; `column` is its metadata.

    Raises
    ------
    ValueError
        If there is something else where a header should be.
    """
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    if start < 0:
        msg = "a column outside of the file"
        raise ValueError(msg)
    found, total, values = PageSizes(), 0, 0
    # Readers stop at as many values too, whatever comes after them.
    while start < end and values < column.num_values:
        header, length = _header(file, start)
        size, more = _natural(header.get(2)), _values(header)
        is_dictionary = header.get(1) == _DICTIONARY_PAGE
        found |= PageSizes(dictionary=size) if is_dictionary else PageSizes(data=size, per_row=size / max(1, more))
        total, values = total + size, values + more
        start += length + _natural(header.get(3))
    # Rows of lists have more than one value.
    return found | PageSizes(per_row=total / max(1, rows))


def _values(header: dict[int, Any]) -> int:
    """Return how many values a data page of either version has; other pages have none."""
    described: dict[int, Any] = next((header[place] for place in (5, 8) if isinstance(header.get(place), dict)), {})
    return _natural(described.get(1, 0))


def _natural(number: Any) -> int:
    if not isinstance(number, int) or number < 0:
        msg = "a page without a size"
        raise ValueError(msg)
    return number


def _header(file: BinaryIO, start: int) -> tuple[dict[int, Any], int]:
    """Return the header that begins at `start`, and its length."""
    wanted = _FIRST_READ
    while True:
        file.seek(start)
        text = _Compact(file.read(wanted))
        try:
            return text.struct(), text.place
        except IndexError:
            if len(text.bytes) < wanted or wanted >= _LONGEST_HEADER:
                msg = "a header without an end"
                raise ValueError(msg) from None
        wanted *= 8


class _Compact:
    """Thrift's compact protocol, as far as numbers in structs; raises IndexError where the bytes end."""

    def __init__(self, content: bytes) -> None:
        self.bytes, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct: numbers and structs; of all others only that they are there."""
        if depth > _DEEPEST:
            msg = "structs in structs without an end"
            raise ValueError(msg)
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind == _BINARY:
            self._skip(self._varint())
        elif kind in (_BYTE, _DOUBLE):
            self._skip(1 if kind == _BYTE else 8)
        elif kind not in (_TRUE, _FALSE):
            # No page header has lists or maps.
            msg = "an unknown type"
            raise ValueError(msg)
        return None

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
