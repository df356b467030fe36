"""The kernel: an Arrow record batch of points in, a record batch of outputs out; no file is touched."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._validation import FloatArray, choice, reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import SLACK, Mechanism
from metricdp.perturb.columns import PointColumns, copied_columns, find_columns, reference_system
from metricdp.perturb.counts import Counts, Watch
from metricdp.perturb.geometry import NotPoints, read_points, wkb_points

__all__ = ["BATCH_ROWS", "JSON_TEXT", "Perturbation", "Sampler", "perturb_batch", "perturb_stream"]

# Rows drawn at once: enough for the sampler's threads, and a few megabytes.
BATCH_ROWS = 2**18

OUTPUT_ID, GEOMETRY, TRUE = "output_id", "geometry", "true_"

# Marks a column of texts that are JSON values.
JSON_TEXT = {b"metricdp": b"json"}

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
    copy : other columns to copy.
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
    copy: tuple[str, ...] = ()
    outside: str = "clamp"
    keep_input: bool = False
    as_geometry: bool = False
    user_column: str | None = None
    sampler: Sampler | None = None
    system: Any = None

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
    ) -> Perturbation:
        """Return the perturbation of batches of a schema; see `perturb_batch` for the parameters."""
        choice("outside", outside, ("clamp", "drop", "error"))
        points = find_columns(schema, mechanism, columns, coordinates)
        system = reference_system(schema, points.names[0]) if points.geometry else None
        return cls(
            mechanism,
            points,
            copy=copied_columns(schema, points, copy),
            outside=outside,
            keep_input=keep_input,
            as_geometry=points.geometry,
            system=system,
        )

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the outputs for a batch of points."""
        return self.place(self.draw(batch)[0])

    def schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the answer to batches of schema `given`."""
        drawn = self.drawn_schema(given)
        return pa.schema([drawn.field(0), *self._place_fields, *list(drawn)[1:]], metadata=self._metadata)

    def drawn_schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of what `draw` answers to batches of schema `given`."""
        kept = [(name, name) for name in self.copy]
        if self.keep_input:
            kept += [(name, TRUE + name) for name in self.columns.names]
        fields = [pa.field(OUTPUT_ID, pa.int32()), *(_plain_field(given.field(old), new) for old, new in kept)]
        names = [field.name for field in (*fields, *self._place_fields)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise reject("copy", "columns whose names are not those of the output", ", ".join(twice))
        return pa.schema(fields)

    def draw(self, batch: pa.RecordBatch, first_row: int = 0) -> tuple[pa.RecordBatch, Counts]:
        """Return output ids with the columns that are copied, and how many rows met which fate.

        `first_row` is the number of rows before the batch, for messages.
        """
        points, valid = self._read(batch, first_row)
        finite = np.isfinite(points).all(axis=1)
        unusable = valid & ~finite
        if self.outside != "drop":
            self._require_none(unusable, "finite (outside='drop' leaves such rows out)", "NaN or infinity", first_row)
        rows = np.flatnonzero(valid & finite)
        points = points[rows]
        plane = self._to_plane(points)
        beyond = self.mechanism.beyond(plane, SLACK)
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
        ids = np.full(len(batch), -1, dtype=np.int32)
        ids[rows] = self._sample(plane, batch, rows, first_row)
        answer = self._answer(batch, ids, None if not drop.any() else ~drop)
        return answer, replace(counts, rows_out=len(answer), refused=int((ids[rows] < 0).sum()))

    def place(self, drawn: pa.RecordBatch) -> pa.RecordBatch:
        """Add the outputs' coordinates to what `draw` returned."""
        ids = drawn.column(0)
        places = [values.take(ids) for values in self._places]
        fields = [drawn.schema.field(0), *self._place_fields, *list(drawn.schema)[1:]]
        schema = pa.schema(fields, metadata=self._metadata)
        return pa.RecordBatch.from_arrays([ids, *places, *drawn.columns[1:]], schema=schema)

    @cached_property
    def _places(self) -> list[pa.Array]:
        outputs = self.mechanism.outputs
        if self.columns.degrees:
            outputs = self.mechanism.projection.to_lonlat(outputs)
        return [wkb_points(outputs)] if self.as_geometry else [pa.array(axis) for axis in outputs.T.copy()]

    @cached_property
    def _place_fields(self) -> list[pa.Field]:
        if self.as_geometry:
            system = {} if self.system is None else {"crs": self.system}
            note = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": json.dumps(system)}
            return [pa.field(GEOMETRY, pa.binary(), metadata=note)]
        n_axes = self.mechanism.bounds.shape[1]
        letters = ("x", "y", "z") if n_axes <= 3 else tuple(f"x{axis}" for axis in range(n_axes))
        names = ("lon", "lat") if self.columns.degrees else letters[:n_axes]
        return [pa.field(name, pa.float64()) for name in names]

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
        # Beyond the world is outside the box too; clamping it first changes no output.
        lon, lat = np.clip(points[:, 0], -180, 180), np.clip(points[:, 1], -90, 90)
        return np.asarray(self.mechanism.projection.to_xy_km(lon, lat))

    def _count_swapped(self, points: FloatArray, beyond: Mask) -> int:
        if points.shape[1] != 2 or 2 * beyond.sum() <= len(points):
            return 0
        return int((~self.mechanism.beyond(self._to_plane(points[beyond][:, ::-1]), SLACK)).sum())

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
            column = _plain(_column(batch, self.user_column))
            missing = np.zeros(len(batch), dtype=np.bool_)
            missing[rows] = ~np.asarray(column.is_valid())[rows]
            if missing.any():
                got = f"null in {int(missing.sum()):,} rows, the first of them row {first_row + missing.argmax() + 1:,}"
                raise reject(self.user_column, "somebody in every row with a point", got)
            users = column.take(pa.array(rows)).to_numpy(zero_copy_only=False)
        return np.asarray(self.sampler(plane, users))

    def _answer(self, batch: pa.RecordBatch, ids: NDArray[np.int32], keep: Mask | None) -> pa.RecordBatch:
        schema = self.drawn_schema(batch.schema)
        kept = [*self.copy, *(self.columns.names if self.keep_input else ())]
        arrays = [pa.array(ids, mask=ids < 0), *(_plain(_column(batch, name)) for name in kept)]
        answer = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return answer if keep is None else answer.filter(pa.array(keep))


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
        Other columns to copy. "all" leaves out those whose names or types say that they hold a place.
    outside : "clamp", "drop" or "error"
        What becomes of points outside the box: taken to its nearest point, left out, or an error.
    keep_input : bool
        Copy the true coordinates, under names that begin with `true_`. The answer is then not private.

    Returns
    -------
    pyarrow.RecordBatch
        `output_id` (row of `mechanism.outputs`), its coordinates as `lon` and `lat`, or `x`, `y`, …, or `geometry`,
        and what was copied. Rows keep their order; where there was no point, there is no output.
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
        Outputs, drawn as they are read. Those libraries take it as it is.
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
    return pa.RecordBatchReader.from_batches(perturbation.schema(reader.schema), _perturbed(perturbation, reader))


def _perturbed(perturbation: Perturbation, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    watch = Watch(lambda words: warnings.warn(words, stacklevel=2))
    for batch in batches:
        for start in range(0, len(batch), BATCH_ROWS):
            drawn, counts = perturbation.draw(batch.slice(start, BATCH_ROWS), watch.total.rows_in)
            watch.add(counts)
            yield perturbation.place(drawn)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    place = batch.schema.get_field_index(name)
    if place < 0:
        raise reject("batch", f"one with a column {name!r}", "none of that name")
    return batch.column(place)


def _numbers(name: str, column: pa.Array) -> pa.Array:
    column = _plain(column)
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


def _plain(column: pa.Array) -> pa.Array:
    """Return values without dictionary or extension type; files differ in what they can say of those."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _plain_field(field: pa.Field, name: str) -> pa.Field:
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    metadata = JSON_TEXT if (field.metadata or {}).items() >= JSON_TEXT.items() else None
    return pa.field(name, kind, metadata=metadata)
