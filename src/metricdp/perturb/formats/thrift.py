"""Thrift's compact protocol, as far as the numbers in Parquet's structs need it."""

from __future__ import annotations

from typing import Any

__all__ = ["INT32", "INT64", "LIST", "STRUCT", "Compact"]

# Numbers of the protocol's types.
_TRUE, _FALSE, _BYTE, _INT16, _DOUBLE, _BINARY = 1, 2, 3, 4, 7, 8
INT32, INT64, LIST, STRUCT = 5, 6, 9, 12

_DEEPEST = 16


class Compact:
    """Bytes in the compact protocol; raises IndexError where they end, and ValueError where they make no sense."""

    def __init__(self, content: bytes) -> None:
        self.bytes, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[tuple[int, int], Any]:
        """Return numbers, structs and lists by number and type of the field; of others only that they are there.

        The type belongs to the key because readers pass over a field of the wrong type. If the same number came twice,
        the second time with another type, they would keep the first value.
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
        if kind in (_INT16, INT32, INT64):
            return self._zigzag()
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind == LIST:
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
