"""Points out of batches, and whole files of places read at once: the one reader of points for every command."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError
from metricdp.perturb.columns import PointColumns
from metricdp.perturb.copying import plain_values
from metricdp.perturb.geometries import Mask, NotPoints, read_points

__all__ = ["column_of", "points_of", "require_sound"]


def points_of(batch: pa.RecordBatch, columns: PointColumns, first_row: int = 0) -> tuple[FloatArray, Mask]:
    """Return (rows, axes) coordinates and which rows have any.

    `first_row` is the number of rows before the batch, for messages.
    """
    names = columns.names
    if not columns.geometry:
        axes = [_numbers(name, column_of(batch, name)) for name in names]
        valid = np.logical_and.reduce([np.asarray(axis.is_valid()) for axis in axes])
        return np.column_stack([axis.to_numpy(zero_copy_only=False) for axis in axes]), valid
    try:
        return read_points(column_of(batch, names[0]))
    except NotPoints as bad:
        got = f"{bad.count:,} others, the first in row {first_row + bad.first + 1:,}"
    raise reject(names[0], "points only", got)


def require_sound(batch: pa.RecordBatch, names: Iterable[str], first_row: int = 0) -> None:
    """Refuse columns that are not what their types say: offsets and indices may point anywhere in memory."""
    for name in names:
        try:
            column_of(batch, name).validate(full=True)
        except pa.ArrowException:
            damaged = name
        else:
            continue
        # pyarrow's message may quote a value, so it is not passed on.
        msg = f"Column {damaged!r} is damaged somewhere after row {first_row:,}: its values do not fit its type."
        raise InvalidInputError(msg)


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of a batch."""
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise reject("batch", f"one with a column {name!r}", "none of that name")
    return batch.column(place)


def _numbers(name: str, column: pa.Array) -> pa.Array:
    column = plain_values(column)
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        # A column of nothing but nulls has no type.
        if not pa.types.is_null(kind):
            raise reject(name, "a column of numbers", f"type {kind}")
        return column.cast(pa.float64())
    try:
        # Unsafe: a safe cast quotes the number that lost digits.
        return column.cast(pa.float64(), safe=False)
    except pa.ArrowException:
        pass
    msg = f"Column {name!r} of type {kind} could not be read as numbers."
    raise InvalidInputError(msg)
