"""Points as geometries: well-known binary and GeoArrow's structs, to coordinates and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metricdp._validation import FloatArray

__all__ = ["NotPoints", "read_points", "wkb_points"]

Mask = NDArray[np.bool_]

# Flags of extended well-known binary: height, measure, reference system.
_FLAGS, _HAS_SYSTEM = np.uint32(0x1FFFFFFF), np.uint32(0x20000000)
_HEAD, _SYSTEM, _PAIR = 5, 4, 16


class NotPoints(ValueError):  # noqa: N818 - never leaves the kernel
    """Some geometries are no points; says how many and which comes first."""

    def __init__(self, count: int, first: int) -> None:
        super().__init__(count, first)
        self.count, self.first = count, first


def read_points(column: pa.Array) -> tuple[FloatArray, Mask]:
    """Return (n, 2) coordinates and which rows have any; nulls and empty points have none."""
    array = column.storage if isinstance(column, pa.ExtensionArray) else column
    if isinstance(array, pa.DictionaryArray):
        array = _beginnings(array)
    points, valid = _from_structs(array) if pa.types.is_struct(array.type) else _from_binary(array)
    # An empty point is written as one of NaN.
    valid &= ~np.isnan(points).all(axis=1)
    return points, valid


def wkb_points(points: FloatArray) -> pa.Array:
    """Return points as little-endian well-known binary."""
    record = np.dtype([("order", "u1"), ("code", "<u4"), ("pair", "<f8", 2)])
    written = np.empty(len(points), dtype=record)
    written["order"], written["code"], written["pair"] = 1, 1, points
    ends = np.arange(len(points) + 1, dtype=np.int32) * np.int32(record.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(points), [None, pa.py_buffer(ends), pa.py_buffer(written.tobytes())])


def _beginnings(column: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary's column as far as a point reaches: a long one may stand in every row."""
    if pa.types.is_struct(column.type.value_type):
        return column.dictionary_decode()
    short = pc.binary_slice(column.dictionary.cast(pa.binary()), 0, _HEAD + _SYSTEM + _PAIR)
    return pa.DictionaryArray.from_arrays(column.indices, short).dictionary_decode()


def _from_structs(column: pa.Array) -> tuple[FloatArray, Mask]:
    fields = dict(zip([field.name for field in column.type], column.flatten(), strict=True))
    if not {"x", "y"} <= set(fields):
        raise NotPoints(len(column), 0)
    axes = [fields[name].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for name in ("x", "y")]
    return np.column_stack(axes), np.asarray(column.is_valid())


def _from_binary(column: pa.Array) -> tuple[FloatArray, Mask]:
    wide = column.cast(pa.large_binary())
    valid = np.asarray(wide.is_valid())
    points = np.full((len(wide), 2), np.nan)
    if not valid.any():
        return points, valid
    _, places, contents = wide.buffers()
    offsets = np.frombuffer(places, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    letters = np.frombuffer(contents, dtype=np.uint8) if contents is not None else np.empty(0, dtype=np.uint8)
    rows = np.flatnonzero(valid)
    points[rows] = _decoded(letters, offsets[rows], np.diff(offsets)[rows], rows)
    return points, valid


def _decoded(
    letters: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64], rows: NDArray[np.intp]
) -> FloatArray:
    """Decode the values that begin at `start`; of `rows` only the numbers of bad ones are told."""
    _require(length >= _HEAD + _PAIR, rows)
    head = letters[start[:, None] + np.arange(_HEAD)]
    little = head[:, 0] == 1
    code = np.where(little, _view(head[:, 1:], "<u4"), _view(head[:, 1:], ">u4")).astype(np.uint32)
    skip = _HEAD + 4 * ((code & _HAS_SYSTEM) > 0)
    _require((head[:, 0] <= 1) & ((code & _FLAGS) % 1000 == 1) & (length >= skip + _PAIR), rows)
    pair = letters[(start + skip)[:, None] + np.arange(_PAIR)]
    values = np.where(little[:, None], _view(pair, "<f8", 2), _view(pair, ">f8", 2))
    return np.asarray(values, dtype=np.float64)


def _view(letters: NDArray[np.uint8], kind: str, count: int = 1) -> NDArray[np.generic]:
    seen = np.ascontiguousarray(letters).view(kind)
    return seen if count > 1 else seen[:, 0]


def _require(good: Mask, rows: NDArray[np.intp]) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        raise NotPoints(len(bad), int(rows[bad[0]]))
