"""What a table's own types and metadata say of geometries: GeoParquet's note and GeoArrow's extension names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

__all__ = [
    "extension_name",
    "geometry_columns",
    "geometry_mark",
    "holds_points",
    "inside",
    "primary_geometry",
    "reference_system",
]

_EXTENSION = b"ARROW:extension:name"
_EXTENSION_METADATA = b"ARROW:extension:metadata"

# GDAL wrote `ogc.wkb` before GeoArrow had names.
_GEOMETRY_TYPES = ("geoarrow.", "ogc.")

# A note describes columns, not rows; what is longer is no note.
_LONGEST_NOTE = 2**20


def extension_name(field: pa.Field) -> str:
    """Return the name of the extension type, also of one that pyarrow does not know; "" if there is none."""
    noted = (field.metadata or {}).get(_EXTENSION, b"").decode(errors="replace")
    return str(noted or getattr(field.type, "extension_name", ""))


def geometry_mark(system: str | None) -> dict[bytes, bytes]:
    """Return what marks a column of well-known binary; `system` is its reference system, PROJJSON or a name."""
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
    marked = {field.name for field in schema if any(map(_is_geometry, inside(field)))}
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


def _geo_note(schema: pa.Schema) -> dict[str, Any]:
    return _parsed((schema.metadata or {}).get(b"geo", b""))


def _parsed(text: bytes) -> dict[str, Any]:
    """Return the JSON object that `text` is, or an empty one: a note that cannot be read says nothing."""
    if not text or len(text) > _LONGEST_NOTE:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_geometry(field: pa.Field) -> bool:
    return extension_name(field).casefold().startswith(_GEOMETRY_TYPES)


def inside(field: pa.Field) -> Iterator[pa.Field]:
    """Yield the field and all fields inside it."""
    waiting = [field]  # a file may have fields in fields deeper than functions may call each other
    while waiting:
        yield (found := waiting.pop())
        waiting += _children(found.type)


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
