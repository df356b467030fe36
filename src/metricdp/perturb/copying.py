"""Which columns beside the point's are copied, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from metricdp._point_names import listed, point_names
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.perturb.columns import PointColumns, require_column
from metricdp.perturb.geometries import extension_name, geometry_columns, inside
from metricdp.perturb.nested import NESTED

__all__ = [
    "JSON_TEXT",
    "PARTITION",
    "Copying",
    "copied_columns",
    "is_json",
    "is_partition",
    "plain_values",
    "suspicion",
    "value_type",
    "why_not_plain",
    "without_nested",
]

# Metadata of a column of JSON texts; see also `NESTED`.
JSON_TEXT = {b"metricdp": b"json"}

# Metadata of a column that the names of folders give, such as `day` of `day=2024-01-01`.
PARTITION = {b"metricdp.folder": b"name"}

_PLAIN = (
    pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_temporal,
)  # fmt: skip
# A vendor's type may be a place whatever its name is, so only those that are known to be none are plain.
_PLAIN_EXTENSIONS = ("", "arrow.bool8", "arrow.uuid")
_OTHERS = {
    "binary": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    "struct": (pa.types.is_struct,),
    "map": (pa.types.is_map,),
    "list": (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    "union": (pa.types.is_union,),
}
# Older versions of pyarrow that are supported lack these.
_TEXT_VIEW = getattr(pa.types, "is_string_view", lambda _: False)
_BINARY_VIEW = getattr(pa.types, "is_binary_view", lambda _: False)


@dataclass(frozen=True)
class Copying:
    """What is copied.

    names : columns that are copied.
    left_out : for `copy="all"`, the columns that are not copied, each with the reason.
    plain_only : whether JSON objects and arrays inside copied columns become null, as they do for `copy="all"`.
    """

    names: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    plain_only: bool = False


def copied_columns(
    schema: pa.Schema, points: PointColumns, copy: Sequence[str] | str, taken: Collection[str] = ()
) -> Copying:
    """Return what is copied.

    "all" copies columns of plain values (numbers, texts, truth values, dates and times) and never a geometry, a struct,
    a list or bytes, because these are the types that files keep places in. Names are not judged: a number or a text
    may be a place too, and then it is copied.

    Parameters
    ----------
    schema : pyarrow.Schema
        All columns.
    points : PointColumns
        Those of the point, which only `keep_input` copies.
    copy : sequence of str or "all"
        What the caller asks for. Structs, lists and bytes are copied if they are named; geometries never.
    taken : collection of str
        Names of the output's own columns. "all" leaves out columns of these names.
    """
    if copy == "all":
        return _all_plain(schema, points, taken)
    geometries = geometry_columns(schema)
    for name in copy:
        require_column("copy", schema.names, name)
        if name in points.names:
            raise reject("copy", "columns other than those of the point (`keep_input` copies these)", repr(name))
        if name in geometries:
            rule = "columns that hold no geometries (`keep_input` copies the true coordinates)"
            raise reject("copy", rule, repr(name))
        if not _can_be_plain(schema.field(name)):
            raise reject("copy", "columns of types that files can hold", f"{name!r} of type {schema.field(name).type}")
    return Copying(tuple(dict.fromkeys(copy)))


def suspicion(copied: Iterable[str]) -> str | None:
    """Return a warning if columns copied by `copy="all"` are called like a point's axes."""
    names = point_names(copied)
    if not names:
        return None
    return f"the columns {listed(names)} were copied as they are; going by their names, they may hold true points"


def why_not_plain(field: pa.Field) -> str | None:
    """Return None for a column of plain values, otherwise what it holds instead."""
    if extension_name(field) == "arrow.json" or (field.metadata or {}).get(NESTED) == b"all":
        return "nested JSON"
    if extension_name(field) not in _PLAIN_EXTENSIONS:
        return "an extension type"
    kind = _unwrapped(field.type)
    if any(is_kind(kind) for is_kind in _PLAIN):
        return None
    return next((words for words, kinds in _OTHERS.items() if any(is_kind(kind) for is_kind in kinds)), "another type")


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, without extension types and encodings, also inside lists and structs."""
    kind = _unwrapped(kind)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_inside(kind.field(place)) for place in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_plain_inside(kind.key_field), _plain_inside(kind.item_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_inside(kind.value_field), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_plain_inside(kind.value_field))
    return pa.large_list(_plain_inside(kind.value_field)) if pa.types.is_large_list(kind) else kind


def plain_values(column: pa.Array) -> pa.Array:
    """Return values without encodings and extension types, which not every file format can store."""
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        elif isinstance(column, pa.RunEndEncodedArray):
            column = pc.run_end_decode(column)
        else:
            break
    kind = value_type(column.type)
    if kind.equals(column.type):
        return column
    if pa.types.is_nested(kind):
        # pyarrow casts the members of all lists of which this is a slice, so the slice is copied first.
        column = column.take(pa.array(range(len(column)), pa.int64()))
    return column.cast(kind)


def is_json(field: pa.Field) -> bool:
    """Whether the column holds JSON texts."""
    return bool((field.metadata or {}).items() >= JSON_TEXT.items())


def is_partition(field: pa.Field) -> bool:
    """Whether the column comes from the names of folders."""
    return bool((field.metadata or {}).items() >= PARTITION.items())


def without_nested(texts: pa.Array) -> pa.Array:
    """Return JSON texts with null in place of objects and arrays."""
    nested = pc.or_(pc.starts_with(texts, "{"), pc.starts_with(texts, "["))
    return pc.if_else(pc.fill_null(nested, False), pa.scalar(None, texts.type), texts)  # noqa: FBT003


def _plain_inside(field: pa.Field) -> pa.Field:
    return field.with_type(value_type(field.type))


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column that may have an extension type or an encoding."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        elif _TEXT_VIEW(kind) or _BINARY_VIEW(kind):
            kind = pa.string() if _TEXT_VIEW(kind) else pa.binary()
        else:
            return kind


def _can_be_plain(field: pa.Field) -> bool:
    """Whether files can hold the values, and pyarrow can decode them."""
    if any(why_not_plain(inner) in ("union", "another type") for inner in inside(field)):
        return False
    try:
        plain_values(pa.array([], _unwrapped(field.type)))
    except (pa.ArrowException, RecursionError):
        return False
    return True


def _all_plain(schema: pa.Schema, points: PointColumns, taken: Collection[str]) -> Copying:
    geometries = geometry_columns(schema)
    names, left_out = [], {}
    for column in schema:
        reason = _why_not(column, points, geometries, taken)
        if reason is None:
            names.append(column.name)
        else:
            left_out[column.name] = reason
        if reason is None and (column.metadata or {}).get(NESTED) == b"some":
            left_out[column.name] = "its objects and arrays"
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        msg = f"Column {twice[0]!r} appears more than once; `copy` needs unique names."
        raise InvalidInputError(msg)
    return Copying(tuple(names), left_out, plain_only=True)


def _why_not(column: pa.Field, points: PointColumns, geometries: Collection[str], taken: Collection[str]) -> str | None:
    if column.name in points.names:
        return "the point"
    if column.name in geometries:
        return "geometry"
    if is_partition(column):
        return "in the names of folders"
    if column.name in taken:
        return "the output has a column of this name"
    return why_not_plain(column)
