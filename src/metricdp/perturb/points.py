"""Points out of batches, and whole files of places read at once: the one reader of points for every command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metricdp._places import LONGEST_TEXT
from metricdp._validation import FloatArray, choice, reject
from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.chunks import pieces
from metricdp.perturb.columns import PointColumns, find_places, require_column
from metricdp.perturb.copying import plain_values, why_not_plain
from metricdp.perturb.formats import Source, open_source
from metricdp.perturb.formats.base import as_text
from metricdp.perturb.geometries import Mask, NotPoints, read_points
from metricdp.perturb.options import text_encoding
from metricdp.perturb.remote import located, shown

__all__ = ["PlacesFile", "column_of", "points_of", "read_places", "require_sound"]


@dataclass(frozen=True)
class PlacesFile:
    """The places of a file.

    points : (n, N) array, one row for each row of the file that has a point.
    columns : where they were found, and whether they are longitude and latitude.
    sure : whether names, types or the caller say so. Otherwise nothing is known but the values.
    kept : (rows,) mask, which rows of the file have a point.
    ids, names : values of the columns that were asked for, of the rows that have a point.
    """

    points: FloatArray
    columns: PointColumns
    sure: bool
    kept: Mask
    ids: list[Any] | None = None
    names: list[str] | None = None

    @property
    def skipped(self) -> int:
        """How many rows of the file have no point: null, empty or not a number."""
        return int(len(self.kept) - np.count_nonzero(self.kept))


def read_places(
    path: str | Path,
    columns: Sequence[str] | None = None,
    coordinates: str | None = None,
    *,
    encoding: str | None = None,
    id_column: str | None = None,
    name_column: str | None = None,
) -> PlacesFile:
    """Read all points of a file, of any format that `perturb_file` reads, with ids and names where they are asked for.

    Parameters
    ----------
    path : str or Path
        The file, or its URL; "-" is stdin, as CSV.
    columns : sequence of str, optional
        The columns of the point (longitude first), or one column of geometries. Guessed from names by default.
    coordinates : "lonlat" or "projected", optional
        What the numbers are: degrees, or plain coordinates such as kilometres.
    encoding : str, optional
        Of a text file, by default UTF-8; see `Options`.
    id_column, name_column : str, optional
        Columns that say what each place is called.
    """
    if coordinates is not None:
        choice("coordinates", coordinates, ("lonlat", "projected"))
    labels = {"id_column": id_column, "name_column": name_column}
    wanted = {parameter: name for parameter, name in labels.items() if name is not None}
    text_encoding(encoding)
    named = (*(columns or ()), *wanted.values())
    with open_source(located(path), with_others=bool(wanted), encoding=encoding, names=named) as source:
        found, sure = find_places(source.schema, columns, coordinates)
        for parameter, name in wanted.items():
            _require_label(parameter, source.schema, name, found)
        points, kept, texts = _read_all(source, found, list(dict.fromkeys(wanted.values())))
    if not kept.any():
        raise reject("source", "a file with points", f"{len(kept):,} rows without any in {shown(path)}")
    ids = None if id_column is None else _complete("id_column", texts[id_column])
    names = None if name_column is None else ["" if one is None else str(one) for one in texts[name_column]]
    return PlacesFile(points, found, sure, kept, ids, names)


def _read_all(
    source: Source, columns: PointColumns, others: list[str]
) -> tuple[FloatArray, Mask, dict[str, list[Any]]]:
    """Return all points, which rows have one, and for these rows the values of other columns."""
    points, kept, rows = [], [], 0
    texts: dict[str, list[Any]] = {name: [] for name in others}
    for batch in source.batches(columns.names, others):
        require_sound(batch, batch.schema.names, rows)
        values, valid = points_of(batch, columns, rows)
        valid = valid & np.isfinite(values).all(axis=1)
        points.append(values[valid])
        kept.append(valid)
        if others:
            chosen = batch.select(others).filter(pa.array(valid))
            for piece in pieces(chosen, others, limits.BATCH_ROWS, limits.BATCH_BYTES):
                for name in others:
                    texts[name] += _labels(piece, name)
        rows += len(batch)
    n_axes = 2 if columns.geometry else len(columns.names)
    return np.concatenate([np.empty((0, n_axes)), *points]), np.concatenate([np.empty(0, dtype=np.bool_), *kept]), texts


def _labels(batch: pa.RecordBatch, name: str) -> list[Any]:
    """Return the values of a column. Long texts, which may stand in every row, are refused before they add up."""
    values = as_text(pa.Table.from_batches([batch.select([name])]))
    labels = [one for chunk in values.column(0).chunks for one in plain_values(chunk).to_pylist()]
    if any(isinstance(one, str) and len(one) > LONGEST_TEXT for one in labels):
        raise reject(
            name, f"texts of at most {LONGEST_TEXT} characters where places are called by them", "a longer one"
        )
    return labels


def _require_label(parameter: str, schema: pa.Schema, name: str, points: PointColumns) -> None:
    require_column(parameter, schema.names, name)
    reason = "the point" if name in points.names else why_not_plain(schema.field(name))
    if reason is not None:
        raise reject(parameter, "a column of texts or numbers", f"{name!r}, which holds {reason}")


def _complete(parameter: str, values: list[Any]) -> list[Any]:
    missing = [row for row, one in enumerate(values) if one is None]
    if missing:
        got = f"none in {len(missing):,} of {len(values):,} rows with a point, the first of them row {missing[0] + 1:,}"
        raise reject(parameter, "a value for every place", got)
    return values


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
