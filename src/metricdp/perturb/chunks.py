"""Cut batches: inputs into pieces of bounded memory, outputs into chunks whose lengths do not depend on coordinates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metricdp.perturb import limits
from metricdp.perturb.geometries import inside

__all__ = ["pieces", "rechunked", "row_bytes", "rows_within"]

# Bytes that every value takes: those of a number, or those that tell where a text begins.
_VALUE = 8

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)

Sizes = NDArray[np.int64]


def rechunked(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int, most_bytes: int | None = None
) -> Iterator[pa.Table]:
    """Yield the rows of `batches` as tables of exactly `rows` rows each, but for the last.

    An input file's batches end after so many bytes, and the texts of coordinates are among these bytes; so the batches
    of an output are cut anew. Tables are shorter in two cases, which depend only on what the output shows anyway. With
    more than about a hundred columns, `schema` determines a smaller number of rows. And where texts are so long that a
    table would have more than `most_bytes` (by default `limits.CHUNK_BYTES`), it ends before the row that exceeds them.
    """
    limit = limits.CHUNK_BYTES if most_bytes is None else most_bytes
    rows = rows_within(schema, rows, limit)
    held: list[pa.RecordBatch] = []
    count, size = 0, 0
    for batch in batches:
        ends, start = np.cumsum(_batch_bytes(batch)), 0
        while start < len(batch):
            taken = _fitting(ends, start, rows - count, limit - size)
            if taken == 0 and count == 0:
                taken = 1  # a row longer than a chunk is a chunk of its own
            if taken:
                held.append(batch.slice(start, taken))
                count, size, start = count + taken, size + _between(ends, start, start + taken), start + taken
            if count == rows or start < len(batch):
                yield _together(held, schema)
                held, count, size = [], 0, 0
    if held:
        yield _together(held, schema)


def rows_within(schema: pa.Schema, rows: int, most_bytes: int) -> int:
    """Return how many rows, at most `rows`, have at most `most_bytes` if texts and lists are empty."""
    width = _VALUE * sum(1 for field in schema for _ in inside(field))
    return max(1, min(rows, most_bytes // max(1, width)))


def pieces(batch: pa.RecordBatch, names: Collection[str], rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of at most `rows` rows, whose columns `names` have at most `most_bytes` once decoded.

    A dictionary holds a value once, and its column may repeat it a million times.
    """
    # First by rows: a column of nulls takes no memory, but the array of its rows' sizes would.
    for first in range(0, len(batch), rows):
        part = batch.slice(first, rows)
        ends = np.cumsum(sum((row_bytes(part.column(name)) for name in names), np.zeros(len(part), dtype=np.int64)))
        start = 0
        while start < len(part):
            taken = max(1, _fitting(ends, start, rows, most_bytes))
            yield part.slice(start, taken)
            start += taken


def row_bytes(column: pa.Array) -> Sizes:
    """Return the bytes of each row's value beyond the fixed ones; 0 for numbers."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return row_bytes(column.storage)
    if pa.types.is_dictionary(kind):
        return _whole(pa.array(row_bytes(column.dictionary)).take(column.indices))
    if pa.types.is_run_end_encoded(kind):
        runs = pa.RunEndEncodedArray.from_arrays(column.run_ends, pa.array(row_bytes(column.values)))
        return _whole(pc.run_end_decode(runs.slice(column.offset, len(column))))
    return _nested_bytes(column) if pa.types.is_nested(kind) else _flat_bytes(column)


def _flat_bytes(column: pa.Array) -> Sizes:
    kind = column.type
    if pa.types.is_fixed_size_binary(kind):
        return np.full(len(column), kind.byte_width, dtype=np.int64)
    if str(kind).endswith("_view"):
        # A view is four numbers, the length first. A million views may refer to the same long text.
        lengths = np.frombuffer(column.buffers()[1] or b"", np.int32)[4 * column.offset :: 4][: len(column)]
        return np.where(column.is_valid(), lengths, 0).astype(np.int64)
    if any(is_text(column.type) for is_text in _TEXTS):
        return _whole(pc.binary_length(column))
    return np.zeros(len(column), dtype=np.int64)


def _nested_bytes(column: pa.Array) -> Sizes:
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(map(row_bytes, column.flatten()), np.zeros(len(column), dtype=np.int64))
    if pa.types.is_fixed_size_list(kind):
        ends = (np.arange(len(column) + 1, dtype=np.int64) + column.offset) * kind.list_size
    else:
        ends = column.offsets.to_numpy()
    # This may be a slice, and `values` are those of the whole column.
    members = column.values.slice(ends[0], ends[-1] - ends[0])
    totals = np.concatenate([[0], np.cumsum(row_bytes(members) + _VALUE)])
    return np.asarray(np.diff(totals[ends - ends[0]]), dtype=np.int64)


def _whole(lengths: pa.Array) -> Sizes:
    return np.asarray(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), dtype=np.int64)


def _batch_bytes(batch: pa.RecordBatch) -> Sizes:
    varying = [column for column in batch.columns if not pa.types.is_primitive(column.type)]
    return sum(map(row_bytes, varying), np.zeros(len(batch), dtype=np.int64))


def _fitting(ends: Sizes, start: int, rows: int, room: int) -> int:
    """Return how many rows from `start` on are at most `rows` rows and at most `room` bytes."""
    before = _between(ends, 0, start)
    return max(0, min(rows, int(np.searchsorted(ends, before + room, side="right")) - start))


def _between(ends: Sizes, start: int, stop: int) -> int:
    return int(ends[stop - 1] if stop else 0) - int(ends[start - 1] if start else 0)


def _together(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return one table of one Arrow chunk: a page of Parquet would end where an Arrow chunk does."""
    return pa.Table.from_batches(batches, schema).combine_chunks()
