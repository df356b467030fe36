"""The kernel: an Arrow record batch of points in, a record batch of outputs out; no file is touched."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._validation import FloatArray, choice, reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import SLACK, Mechanism
from metricdp.perturb.chunks import CHUNK_ROWS, pieces, rechunked
from metricdp.perturb.columns import PointColumns, find_columns, listed
from metricdp.perturb.copying import (
    JSON_TEXT,
    Copying,
    copied_columns,
    is_json,
    plain_values,
    suspicion,
    value_type,
    without_nested,
)
from metricdp.perturb.counts import Counts, Watch
from metricdp.perturb.geo_notes import reference_system
from metricdp.perturb.geometry import NotPoints, read_points
from metricdp.perturb.reports import GEOMETRY, NOISE, Places, Reports, reports_of

__all__ = ["BATCH_ROWS", "Perturbation", "Sampler", "perturb_batch", "perturb_stream"]

# Rows drawn at once: enough for the sampler's threads, and a few megabytes.
BATCH_ROWS = 2**18

# Bytes of texts that are decoded at once.
_PIECE_BYTES = 2**25

TRUE = "true_"

Mask = NDArray[np.bool_]


class Sampler(Protocol):
    """Draws outputs for points, perhaps with an eye on each person's budget; -1 where it refuses."""

    def __call__(self, points: FloatArray, users: NDArray[Any] | None) -> NDArray[np.integer[Any]]:
        """Return one output per point."""


@dataclass(frozen=True)
class Perturbation:
    """What is done to every batch. Called with a batch of points, it returns a batch of outputs.

    mechanism : draws the outputs.
    columns : where the points are.
    copying : the other columns that are copied.
    outside : "clamp", "drop" or "error": what becomes of points outside the mechanism's box.
    keep_input : copy the true coordinates too, under names that begin with `true_`.
    as_geometry : give outputs as geometries (well-known binary) instead of one column per axis.
    user_column : who each point belongs to, for the sampler.
    sampler : draws in the mechanism's place.
    system : reference system of geometries, copied to the output's.

    Guarantee
    ---------
    Each output is an independent exact draw of the mechanism (`Mechanism.sample`) at the point of its row. Nothing else
    that depends on the coordinates reaches the answer, unless `keep_input` says so, but for which rows are null
    and, with `outside="drop"`, which are there. Columns that are copied are copied as they are.
    """

    mechanism: Mechanism
    columns: PointColumns
    copying: Copying = field(default_factory=Copying)
    outside: str = "clamp"
    keep_input: bool = False
    as_geometry: bool = False
    user_column: str | None = None
    sampler: Sampler | None = None
    system: Any = None

    def __post_init__(self) -> None:
        if self.sampler is not None and self.mechanism.kind == NOISE:
            # A ledger stores and repeats numbers of outputs.
            msg = "A ledger keeps budgets for mechanisms with a list of outputs only, and noise has none."
            raise InvalidInputError(msg)

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        *,
        coordinates: str | None = None,
        copy: Sequence[str] | str = (),
        outside: str = "clamp",
        keep_input: bool = False,
        as_geometry: bool | None = None,
    ) -> Perturbation:
        """Return the perturbation of batches of a schema; see `perturb_batch` for the parameters.

        `as_geometry` says whether outputs are geometries; by default they are if the points came as such.
        """
        choice("outside", outside, ("clamp", "drop", "error"))
        points = find_columns(schema, mechanism, columns, coordinates)
        general = cls(
            mechanism,
            points,
            outside=outside,
            keep_input=keep_input,
            as_geometry=points.geometry if as_geometry is None else as_geometry,
            system=reference_system(schema, points.names[0]) if points.geometry else None,
        )
        return replace(general, copying=copied_columns(schema, points, copy, taken=general._own_names))

    @property
    def copy(self) -> tuple[str, ...]:
        """The other columns that are copied."""
        return self.copying.names

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the outputs for a batch of points."""
        self._require_sound(batch, 0)
        return self.place(self.draw(batch)[0])

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the answer to batches of schema `given`."""
        drawn = list(self.drawn_schema(given))
        copied = drawn[len(self._reports.drawn_fields) :]
        return pa.schema([*self._reports.shown_fields, *copied], metadata=self._metadata)

    def drawn_schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of what `draw` answers to batches of schema `given`."""
        kept = [(name, name) for name in self.copy]
        if twice := sorted(set(self.copy).intersection(self._own_names)):
            raise reject("copy", "columns whose names are not those of the output", listed(twice))
        if self.keep_input:
            kept += [(name, TRUE + name) for name in self.columns.names]
        return pa.schema([*self._reports.drawn_fields, *(_plain_field(given.field(old), new) for old, new in kept)])

    def drawn(self, batch: pa.RecordBatch, first_row: int = 0) -> Iterator[tuple[pa.RecordBatch, Counts]]:
        """Yield what `draw` answers to a batch from anywhere, checked first, in pieces that take little memory."""
        self._require_sound(batch, first_row)
        for piece in pieces(batch, self._others(batch.schema), BATCH_ROWS, _PIECE_BYTES):
            yield self.draw(piece, first_row)
            first_row += len(piece)

    def draw(self, batch: pa.RecordBatch, first_row: int = 0) -> tuple[pa.RecordBatch, Counts]:
        """Return output ids with the columns that are copied, and how many rows met which fate.

        `first_row` is the number of rows before the batch, for messages.
        """
        points, valid = self._read(batch, first_row)
        # Axis by axis, which takes a quarter of the time of row by row.
        finite = np.logical_and.reduce([np.isfinite(axis) for axis in points.T])
        unusable = valid & ~finite
        if self.outside != "drop":
            self._require_none(unusable, "finite (outside='drop' leaves such rows out)", "NaN or infinity", first_row)
        rows = np.flatnonzero(valid & finite)
        points = points[rows]
        plane = self._to_plane(points)
        beyond = self._beyond(points, plane)
        counts = Counts(
            rows_in=len(batch),
            nulls=int(len(batch) - valid.sum()),
            outside=int(beyond.sum()),
            not_finite=int(unusable.sum()),
            swapped=self._count_swapped(points, beyond),
        )
        self._require_inside(counts)
        drop = np.zeros(len(batch), dtype=np.bool_)
        if self.outside == "drop":
            drop[rows[beyond]] = True
            drop |= unusable
            rows, plane = rows[~beyond], plane[~beyond]
        kept, refused = self._reports.keep(self._sample(plane, batch, rows, first_row), rows, len(batch))
        answer = self._answer(batch, kept, None if not drop.any() else ~drop)
        return answer, replace(counts, rows_out=len(answer), refused=refused)

    def place(self, drawn: pa.RecordBatch) -> pa.RecordBatch:
        """Add the outputs' coordinates to what `draw` returned."""
        count = len(self._reports.drawn_fields)
        schema = pa.schema([*self._reports.shown_fields, *list(drawn.schema)[count:]], metadata=self._metadata)
        shown = self._reports.show(drawn.columns[:count])
        return pa.RecordBatch.from_arrays([*shown, *drawn.columns[count:]], schema=schema)

    @cached_property
    def _reports(self) -> Reports:
        return reports_of(Places(self.mechanism, self.columns.degrees, self.as_geometry, self.system))

    @property
    def _own_names(self) -> list[str]:
        """Names of the answer's columns that are not copied."""
        own = [column.name for column in self._reports.shown_fields]
        return own + ([TRUE + name for name in self.columns.names] if self.keep_input else [])

    def _others(self, schema: pa.Schema) -> list[str]:
        """Return the columns whose values are needed and may be long."""
        users = () if self.user_column is None else (self.user_column,)
        points = self.columns.names if self.keep_input else ()
        return [name for name in dict.fromkeys((*self.copy, *users, *points)) if schema.get_field_index(name) >= 0]

    @cached_property
    def _metadata(self) -> dict[str, str] | None:
        """GeoParquet's note; the bounding box that it may hold would be that of the true points, and is left out."""
        if not self.as_geometry:
            return None
        column: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Point"]}
        if self.system is not None:
            column["crs"] = self.system
        return {"geo": json.dumps({"version": "1.0.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})}

    def _read(self, batch: pa.RecordBatch, first_row: int) -> tuple[FloatArray, Mask]:
        names = self.columns.names
        if not self.columns.geometry:
            axes = [_numbers(name, _column(batch, name)) for name in names]
            valid = np.logical_and.reduce([np.asarray(axis.is_valid()) for axis in axes])
            return np.column_stack([axis.to_numpy(zero_copy_only=False) for axis in axes]), valid
        try:
            return read_points(_column(batch, names[0]))
        except NotPoints as bad:
            got = f"{bad.count:,} others, the first in row {first_row + bad.first + 1:,}"
        raise reject(names[0], "points only", got)

    def _to_plane(self, points: FloatArray) -> FloatArray:
        if not (self.columns.degrees and len(points)):
            return points
        # What is beyond the world is outside, and clamped. 180.0001 degrees east are clamped as 179.9999 degrees west,
        # where they are, and not as the other edge of a box across the antimeridian.
        lon = points[:, 0]
        if (beyond := np.abs(lon) > 180).any():
            lon = np.where(beyond, _turned(lon), lon)
        return np.asarray(self.mechanism.projection.to_xy_km(lon, np.clip(points[:, 1], -90, 90)))

    def _beyond(self, points: FloatArray, plane: FloatArray) -> Mask:
        """Return which points are outside the box, or outside the world."""
        beyond = self.mechanism.beyond(plane, SLACK)
        if self.columns.degrees:
            beyond |= np.abs(points[:, 0]) > 180
            beyond |= np.abs(points[:, 1]) > 90
        return beyond

    def _count_swapped(self, points: FloatArray, beyond: Mask) -> int:
        if points.shape[1] != 2 or 2 * beyond.sum() <= len(points):
            return 0
        swapped = points[beyond][:, ::-1]
        return int((~self._beyond(swapped, self._to_plane(swapped))).sum())

    def _require_sound(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Refuse columns that are not what their types say: offsets and indices may point anywhere in memory."""
        for name in dict.fromkeys((*self.columns.names, *self._others(batch.schema))):
            try:
                _column(batch, name).validate(full=True)
            except pa.ArrowException:
                damaged = name
            else:
                continue
            # The decoder's words may quote a value.
            msg = f"Column {damaged!r} is damaged somewhere after row {first_row:,}: its values do not fit its type."
            raise InvalidInputError(msg)

    def _require_none(self, bad: Mask, rule: str, what: str, first_row: int) -> None:
        count = int(bad.sum())
        if count:
            # How many and which row: the numbers themselves are secret.
            got = f"{what} in {count:,} rows, the first of them row {first_row + int(bad.argmax()) + 1:,}"
            raise reject(", ".join(self.columns.names), rule, got)

    def _require_inside(self, counts: Counts) -> None:
        if self.outside != "error" or not counts.outside:
            return
        hint = f" ({counts.suspicion})" if counts.suspicion else ""
        got = f"{counts.outside:,} of {counts.points:,} points outside{hint}"
        raise reject(", ".join(self.columns.names), "inside the box of the mechanism", got)

    def _sample(
        self, plane: FloatArray, batch: pa.RecordBatch, rows: NDArray[np.intp], first_row: int
    ) -> NDArray[np.integer[Any]]:
        if self.sampler is None:
            return np.asarray(self.mechanism.sample(plane))
        users = None
        if self.user_column is not None:
            column = plain_values(_column(batch, self.user_column))
            missing = np.zeros(len(batch), dtype=np.bool_)
            missing[rows] = ~np.asarray(column.is_valid())[rows]
            if missing.any():
                got = f"null in {int(missing.sum()):,} rows, the first of them row {first_row + missing.argmax() + 1:,}"
                raise reject(self.user_column, "somebody in every row with a point", got)
            users = column.take(pa.array(rows)).to_numpy(zero_copy_only=False)
        return np.asarray(self.sampler(plane, users))

    def _answer(self, batch: pa.RecordBatch, drawn: list[pa.Array], keep: Mask | None) -> pa.RecordBatch:
        arrays = [*drawn, *(self._copied(batch, name) for name in self.copy)]
        if self.keep_input:
            arrays += [plain_values(_column(batch, name)) for name in self.columns.names]
        answer = pa.RecordBatch.from_arrays(arrays, schema=self.drawn_schema(batch.schema))
        return answer if keep is None else answer.filter(pa.array(keep))

    def _copied(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        values = plain_values(_column(batch, name))
        return without_nested(values) if self.copying.plain_only and is_json(batch.schema.field(name)) else values


def perturb_batch(
    mechanism: Mechanism,
    batch: pa.RecordBatch,
    columns: Sequence[str] | None = None,
    *,
    coordinates: str | None = None,
    copy: Sequence[str] | str = (),
    outside: str = "clamp",
    keep_input: bool = False,
) -> pa.RecordBatch:
    """Draw an output for every row of a record batch.

    Parameters
    ----------
    mechanism : Mechanism
        One that was fitted from a city takes longitude and latitude.
    batch : pyarrow.RecordBatch
        Points, as numbers or as geometries, and other columns.
    columns : sequence of str, optional
        The columns of the point (longitude first), or one column of geometries. Guessed from names by default.
    coordinates : "lonlat" or "projected", optional
        What the numbers are: degrees, or the mechanism's own coordinates (kilometres). Guessed from names by default.
    copy : sequence of str or "all"
        Other columns to copy. "all" copies every column of plain values, whatever is in it, and leaves out the point's,
        geometries, structs, lists and bytes; see `copied_columns`. A geometry cannot be named.
    outside : "clamp", "drop" or "error"
        What becomes of points outside the box: taken to its nearest point, left out, or an error.
    keep_input : bool
        Copy the true coordinates, under names that begin with `true_`. The answer is then not private.

    Returns
    -------
    pyarrow.RecordBatch
        `output_id` (row of `mechanism.outputs`; not for noise, which has no list of outputs), its coordinates as `lon`
        and `lat`, or `x`, `y`, …, or `geometry`, and what was copied. Rows keep their order; where there was no point,
        there is no output.
    """
    return Perturbation.of(
        mechanism,
        batch.schema,
        columns,
        coordinates=coordinates,
        copy=copy,
        outside=outside,
        keep_input=keep_input,
    )(batch)


def perturb_stream(
    mechanism: Mechanism,
    data: Any,
    columns: Sequence[str] | None = None,
    *,
    coordinates: str | None = None,
    copy: Sequence[str] | str = (),
    outside: str = "clamp",
    keep_input: bool = False,
) -> pa.RecordBatchReader:
    """Draw an output for every row of a table of any library that speaks Arrow, in bounded memory.

    Parameters
    ----------
    data : any object with an Arrow stream
        A table of pandas (2.2 or newer), polars or DuckDB, `GeoDataFrame.to_arrow()`, a pyarrow table or reader.
    mechanism, columns, coordinates, copy, outside, keep_input :
        As in `perturb_batch`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Outputs, drawn as they are read. Those libraries take it as it is. Batches have 131,072 rows each, but for the
        last, whatever the batches of `data` are.
    """
    reader = pa.RecordBatchReader.from_stream(data)
    perturbation = Perturbation.of(
        mechanism,
        reader.schema,
        columns,
        coordinates=coordinates,
        copy=copy,
        outside=outside,
        keep_input=keep_input,
    )
    schema = perturbation.schema(reader.schema)
    return pa.RecordBatchReader.from_batches(schema, _perturbed(perturbation, reader, schema))


def _perturbed(
    perturbation: Perturbation, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if perturbation.copying.plain_only and (words := suspicion(perturbation.copy)) is not None:
        _warn(words)
    for table in rechunked(_placed(perturbation, batches), schema, CHUNK_ROWS):
        yield from table.to_batches()


def _placed(perturbation: Perturbation, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    watch = Watch(_warn)
    for batch in batches:
        for drawn, counts in perturbation.drawn(batch, watch.total.rows_in):
            watch.add(counts)
            yield perturbation.place(drawn)


def _warn(words: str) -> None:
    warnings.warn(words, stacklevel=2)


def _turned(lon: FloatArray) -> FloatArray:
    """Return longitudes within ±180 degrees."""
    turned = np.fmod(lon, 360)  # exact, unlike the product of a rounded quotient
    return np.asarray(turned - 360 * np.rint(turned / 360))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
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


def _plain_field(given: pa.Field, name: str) -> pa.Field:
    return pa.field(name, value_type(given.type), metadata=JSON_TEXT if is_json(given) else None)
