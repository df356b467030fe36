"""Columns inside of other columns: `location.lon` is the field `lon` of the struct `location`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from metricdp.perturb.geometries import PART_OF_GEOMETRY, geometry_columns

__all__ = ["NESTED", "Leaf", "leaves_of", "reached", "with_leaves"]

# Key in the metadata of a column of JSON texts: "all" or "some" says how many of them are objects and arrays.
NESTED = b"nested"


@dataclass(frozen=True)
class Leaf:
    """A column inside of another one.

    root : the column of the table.
    path : at each level, the name of the field that leads further.
    field : name, type and metadata of the leaf.
    """

    root: str
    path: tuple[str, ...]
    field: pa.Field

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values, null where something on the way is null."""
        column = batch.column(self.root)
        for name in self.path:
            column = column.storage if isinstance(column, pa.ExtensionArray) else column
            column = pc.struct_field(column, [column.type.get_field_index(name)])
        return column


def leaves_of(schema: pa.Schema, names: Iterable[str]) -> dict[str, Leaf]:
    """Return the leaves that dotted names lead to; a column whose own name has the dots comes first."""
    found = {}
    for name in dict.fromkeys(names):
        if name not in schema.names and (leaf := _leaf(schema, name)) is not None:
            found[name] = leaf
    return found


def with_leaves(schema: pa.Schema, leaves: Mapping[str, Leaf]) -> pa.Schema:
    """Return the schema with a column for each leaf. A part of a geometry is marked, so that it is not copied."""
    geometries = geometry_columns(schema)
    fields = [
        leaf.field.with_metadata((leaf.field.metadata or {}) | (PART_OF_GEOMETRY if leaf.root in geometries else {}))
        for leaf in leaves.values()
    ]
    return pa.schema([*schema, *fields], schema.metadata)


def reached(batch: pa.RecordBatch, leaves: Mapping[str, Leaf]) -> pa.RecordBatch:
    """Return the batch with a column for each leaf."""
    arrays = [*batch.columns, *(leaf.of(batch) for leaf in leaves.values())]
    return pa.RecordBatch.from_arrays(arrays, schema=with_leaves(batch.schema, leaves))


def _leaf(schema: pa.Schema, name: str) -> Leaf | None:
    words = name.split(".")
    for count in range(1, len(words)):
        root = ".".join(words[:count])
        if schema.names.count(root) == 1:
            field = schema.field(root)
            for word in words[count:]:
                kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
                place = kind.get_field_index(word) if pa.types.is_struct(kind) else -1
                if place < 0:
                    break
                field = kind.field(place)
            else:
                return Leaf(root, tuple(words[count:]), pa.field(name, field.type, metadata=field.metadata))
    return None
