"""Sizes that the batches of an Arrow file or stream claim to have once decompressed, read before pyarrow allocates.

A compressed buffer begins with its decompressed length, and pyarrow allocates as much. Up to pyarrow 26 there is no
option to limit it, and no way to ask for the lengths, so they are read here. Messages are FlatBuffers (Arrow's
`Message.fbs`); only what leads to the buffers is read.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa

__all__ = ["decompressed_sizes"]

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3

# Numbers of fields in the tables of `Message.fbs`.
_HEADER_TYPE, _HEADER = 1, 2
_BUFFERS, _COMPRESSION = 2, 3
_ID, _DATA, _IS_DELTA = 0, 1, 2

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_WIDE = (pa.types.is_decimal, pa.types.is_fixed_size_binary, pa.types.is_dictionary)

_BUFFER = struct.Struct("<qq")  # where it begins in the body, and its length


def decompressed_sizes(stream: pa.NativeFile, schema: pa.Schema, fields: Collection[int]) -> Iterator[int]:
    """Yield for each batch of a stream how many bytes some of its fields have once decompressed, with all dictionaries.

    Buffers that are not compressed take no memory, since the file is mapped into it, and count as none.

    Raises
    ------
    ValueError, struct.error, pyarrow.ArrowException
        If the messages are damaged.
    """
    wanted = _buffers_of(schema, fields)
    dictionaries: dict[int, int] = {}
    for message in pa.ipc.MessageReader.open_stream(stream):
        table = _Table.root(message.metadata)
        kind, header = table.number(_HEADER_TYPE, "<B"), table.table(_HEADER)
        if header is None:
            continue
        if kind == _RECORD_BATCH:
            yield _size(header, message.body, wanted) + sum(dictionaries.values())
        elif kind == _DICTIONARY_BATCH and (data := header.table(_DATA)) is not None:
            key, size = header.number(_ID, "<q"), _size(data, message.body, None)
            dictionaries[key] = size + (dictionaries.get(key, 0) if header.number(_IS_DELTA, "<B") else 0)
            yield sum(dictionaries.values())


def _size(batch: _Table, body: Any, wanted: Collection[int] | None) -> int:
    if batch.table(_COMPRESSION) is None:
        return 0
    total = 0
    for number, (start, length) in enumerate(batch.structs(_BUFFERS, _BUFFER)):
        if length >= 8 and (wanted is None or number in wanted):
            # -1 stands for a buffer that was not worth compressing.
            total += max(length - 8, *struct.unpack_from("<q", body, start))
    return total


def _buffers_of(schema: pa.Schema, fields: Collection[int]) -> Collection[int] | None:
    """Return which buffers of a batch belong to some fields; None where types do not tell how many they have."""
    counts = [_buffer_count(field.type) for field in schema]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    starts = [0, *itertools.accumulate(known)]
    return {number for field in fields for number in range(starts[field], starts[field + 1])}


def _buffer_count(kind: pa.DataType) -> int | None:
    """Return the number of buffers of a column, those of the columns inside it included."""
    if isinstance(kind, pa.BaseExtensionType):
        return _buffer_count(kind.storage_type)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_struct(kind):
        inside = [_buffer_count(kind.field(place).type) for place in range(kind.num_fields)]
        return None if None in inside else 1 + sum(count for count in inside if count is not None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _buffer_count(kind.value_type)
        return None if inner is None else inner + (1 if pa.types.is_fixed_size_list(kind) else 2)
    if any(is_kind(kind) for is_kind in _TEXTS):
        return 3
    return 2 if pa.types.is_primitive(kind) or any(is_kind(kind) for is_kind in _WIDE) else None


class _Table:
    """A table of FlatBuffers: its fields are found through a list of offsets."""

    def __init__(self, content: Any, place: int) -> None:
        self._content, self._place = content, place
        self._offsets = place - self._read("<i", place)
        self._count = (self._read("<H", self._offsets) - 4) // 2

    @classmethod
    def root(cls, content: Any) -> _Table:
        return cls(content, struct.unpack_from("<I", content, 0)[0])

    def number(self, field: int, form: str) -> int:
        """Return a number, 0 if it is left out."""
        place = self._field(field)
        return 0 if place is None else self._read(form, place)

    def table(self, field: int) -> _Table | None:
        place = self._field(field)
        return None if place is None else _Table(self._content, place + self._read("<I", place))

    def structs(self, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        place = self._field(field)
        if place is None:
            return
        start = place + self._read("<I", place)
        for number in range(self._read("<I", start)):
            yield form.unpack_from(self._content, start + 4 + number * form.size)

    def _field(self, field: int) -> int | None:
        offset = self._read("<H", self._offsets + 4 + 2 * field) if field < self._count else 0
        return self._place + offset if offset else None

    def _read(self, form: str, place: int) -> int:
        if place < 0:
            msg = "an offset to before the beginning"
            raise ValueError(msg)
        return int(struct.unpack_from(form, self._content, place)[0])
