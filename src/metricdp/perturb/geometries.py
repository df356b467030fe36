"""Columns of geometries: which ones a table says it has (GeoParquet's note, GeoArrow's types), and points in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.perturb import limits

__all__ = [
    "PART_OF_GEOMETRY",
    "Mask",
    "NotPoints",
    "extension_mark",
    "extension_name",
    "geometry_columns",
    "geometry_mark",
    "holds_points",
    "inside",
    "primary_geometry",
    "read_points",
    "reference_system",
    "wkb_points",
]

Mask = NDArray[np.bool_]

_EXTENSION = b"ARROW:extension:name"
_EXTENSION_METADATA = b"ARROW:extension:metadata"

# Metadata of a column that was taken out of a geometry, or out of the bounding box of one.
PART_OF_GEOMETRY = {b"metricdp.geometry": b"part"}

# GDAL wrote `ogc.wkb` before GeoArrow had names.
_GEOMETRY_TYPES = ("geoarrow.", "ogc.")

# Well-known binary has a head (byte order, type), perhaps the number of a reference system, and the coordinates. Its
# extended form marks height, measure and reference system by bits of the type.
_HEAD, _SYSTEM, _PAIR = 5, 4, 16
_TYPE_BITS, _HAS_SYSTEM = np.uint32(0x1FFFFFFF), np.uint32(0x20000000)


class NotPoints(ValueError):  # noqa: N818 - never leaves the kernel
    """Some geometries are no points; says how many and which comes first."""

    def __init__(self, count: int, first: int) -> None:
        super().__init__(count, first)
        self.count, self.first = count, first


def extension_name(field: pa.Field) -> str:
    """Return the name of the extension type, also of one that pyarrow does not know; "" if there is none."""
    noted = (field.metadata or {}).get(_EXTENSION, b"").decode(errors="replace")
    return str(noted or getattr(field.type, "extension_name", ""))


def extension_mark(kind: pa.BaseExtensionType) -> dict[bytes, bytes]:
    """Return the metadata by which a field says that it is of an extension type."""
    # Types of pyarrow itself have no such method; their text describes them.
    serialize = getattr(kind, "__arrow_ext_serialize__", None)
    described: bytes = str(kind).encode() if serialize is None else serialize()
    return {_EXTENSION: kind.extension_name.encode(), _EXTENSION_METADATA: described}


def geometry_mark(system: str | None) -> dict[bytes, bytes]:
    """Return the metadata of a column of well-known binary whose reference system is `system`, PROJJSON or a name."""
    known = {} if system is None else {"crs": _parsed(system.encode()) or system}
    return {_EXTENSION: b"geoarrow.wkb", _EXTENSION_METADATA: json.dumps(known).encode()}


def geometry_columns(schema: pa.Schema) -> frozenset[str]:
    """Return the columns that the table itself calls geometries, whatever their types are.

    These are the columns of GeoParquet's note, the bounding boxes that it says belong to them, and the columns with a
    GeoArrow type, also inside a list or a struct.
    """
    note = _geo_note(schema)
    described = note.get("columns")
    listed = set(described) if isinstance(described, dict) else set(_texts(described))
    boxes = {name for column in _values(described) for name in _covering(column)}
    marked = {field.name for field in schema if any(map(_is_called_geometry, inside(field)))}
    return frozenset(listed | boxes | marked | set(_texts([note.get("primary_column")])))


def primary_geometry(schema: pa.Schema) -> list[str]:
    """Return the geometries that could be the point: the one of GeoParquet's note, or all of GeoArrow's."""
    primary = _geo_note(schema).get("primary_column")
    fields = [field for field in schema if holds_points(field)]
    noted = [field.name for field in fields if field.name == primary]
    return noted or [field.name for field in fields if _is_geometry(field)]


def reference_system(schema: pa.Schema, name: str) -> Any:
    """Return what the schema says of a geometry column's coordinates: PROJJSON, text, or None."""
    described = _geo_note(schema).get("columns")
    if isinstance(described, dict) and isinstance(described.get(name), dict):
        return described[name].get("crs")
    return _parsed((schema.field(name).metadata or {}).get(_EXTENSION_METADATA, b"")).get("crs")


def holds_points(field: pa.Field) -> bool:
    """Whether the column has a type in which points are read: well-known binary, or a struct."""
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_struct(kind))


def inside(field: pa.Field) -> Iterator[pa.Field]:
    """Yield the field and all fields inside it."""
    waiting = [field]  # no recursion: a file may nest fields deeper than Python allows
    while waiting:
        yield (found := waiting.pop())
        waiting += _children(found.type)


def read_points(column: pa.Array) -> tuple[FloatArray, Mask]:
    """Return (n, 2) coordinates and which rows have any; nulls and empty points have none.

    Well-known binary is decoded here with numpy, not by `shapely.from_wkb` and `get_coordinates`. Of 2 million points
    these read 1.3 million per processor second where this function reads 2.2 to 4.0 million, they take 40 % more memory
    (an object per point), and shapely would become a dependency of everybody.
    """
    array = column.storage if isinstance(column, pa.ExtensionArray) else column
    if isinstance(array, pa.DictionaryArray):
        array = _beginnings(array)
    points, valid = _from_structs(array) if pa.types.is_struct(array.type) else _from_binary(array)
    # Well-known binary writes an empty point as one whose coordinates are NaN.
    valid &= ~np.isnan(points).all(axis=1)
    return points, valid


def wkb_points(points: FloatArray) -> pa.Array:
    """Return points as little-endian well-known binary."""
    record = np.dtype([("order", "u1"), ("code", "<u4"), ("pair", "<f8", 2)])
    written = np.empty(len(points), dtype=record)
    written["order"], written["code"], written["pair"] = 1, 1, points
    ends = np.arange(len(points) + 1, dtype=np.int32) * np.int32(record.itemsize)
    return pa.Array.from_buffers(pa.binary(), len(points), [None, pa.py_buffer(ends), pa.py_buffer(written.tobytes())])


def _geo_note(schema: pa.Schema) -> dict[str, Any]:
    return _parsed((schema.metadata or {}).get(b"geo", b""))


def _parsed(text: bytes) -> dict[str, Any]:
    """Return the JSON object that `text` is, or an empty one if it is none or too long to describe columns."""
    if not text or len(text) > limits.LONGEST_NOTE:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_called_geometry(field: pa.Field) -> bool:
    """Whether the column's type, be it any vendor's, speaks of geometry or geography, or it is a part of one."""
    if (field.metadata or {}).items() >= PART_OF_GEOMETRY.items():
        return True
    name = extension_name(field)
    own = extension_mark(field.type) if isinstance(field.type, pa.BaseExtensionType) else {}
    marks = (field.metadata or {}) | own
    # Only an opaque type is named in its description; others may speak of anything there.
    described = marks.get(_EXTENSION_METADATA, b"").decode(errors="replace") if name == "arrow.opaque" else ""
    words = f"{name} {described}".casefold()
    return _is_geometry(field) or "geom" in words or "geog" in words


def _is_geometry(field: pa.Field) -> bool:
    return extension_name(field).casefold().startswith(_GEOMETRY_TYPES)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if isinstance(kind, pa.BaseExtensionType):
        return [pa.field("", kind.storage_type)]
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return [pa.field("", kind.value_type)]
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_nested(kind) else []


def _covering(column: Any) -> Iterator[str]:
    """Yield the columns that GeoParquet's `covering` names: paths to the limits of each geometry's bounding box."""
    for box in _values(_member(column, "covering")):
        for path in _values(box):
            yield from _texts(path)[:1]


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _beginnings(column: pa.DictionaryArray) -> pa.Array:
    """Return the first bytes of a dictionary's values, as many as a point has: a long value may stand in every row."""
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
    """Decode the values that begin at `start`. `rows` are their row numbers, for the error."""
    _require(length >= _HEAD + _PAIR, rows)
    head = letters[start[:, None] + np.arange(_HEAD)]
    little = head[:, 0] == 1
    code = np.where(little, _view(head[:, 1:], "<u4"), _view(head[:, 1:], ">u4")).astype(np.uint32)
    skip = _HEAD + 4 * ((code & _HAS_SYSTEM) > 0)
    _require((head[:, 0] <= 1) & ((code & _TYPE_BITS) % 1000 == 1) & (length >= skip + _PAIR), rows)
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
