"""The kernel: an Arrow record batch of points in, a record batch of outputs out, without files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._point_names import listed
from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.outside import ROUNDING_MARGIN, mostly_outside
from metricdp.perturb import limits
from metricdp.perturb.chunks import pieces, rechunked
from metricdp.perturb.columns import PointColumns, find_columns, require_column
from metricdp.perturb.copying import (
    JSON_TEXT,
    Copying,
    copied_columns,
    is_json,
    is_partition,
    plain_values,
    suspicion,
    value_type,
    without_nested,
)
from metricdp.perturb.geometries import Mask, reference_system
from metricdp.perturb.moments import moments_of
from metricdp.perturb.nested import leaves_of, reached, with_leaves
from metricdp.perturb.options import Options
from metricdp.perturb.points import column_of, points_of, require_sound
from metricdp.perturb.reports import GEOMETRY, CoordinateColumns, Reports, reports_of
from metricdp.perturb.summary import Counts, Watch, python_warning

__all__ = ["LATE", "Perturbation", "Sampler", "perturb_batch", "perturb_stream"]

TRUE = "true_"

# What a sampler answers where a row's time lies before that of its user's last draw.
LATE = -2


class Sampler(Protocol):
    """Draws in the mechanism's place and keeps people within their budgets, as a ledger does."""

    def __call__(
        self, points: FloatArray, users: NDArray[Any], times: NDArray[Any] | None = None
    ) -> NDArray[np.integer[Any]]:
        """Return the number of an output for each point, -1 where its user's budget is spent, `LATE` for its time."""


@dataclass(frozen=True)
class Perturbation:
    """What is done to every batch. Called with a batch of points, it returns a batch of outputs.

    mechanism : draws the outputs.
    columns : where the points are.
    options : what the caller chose.
    copying : the other columns that are copied.
    as_geometry : give outputs as geometries (well-known binary) instead of one column per axis.
    system : reference system of geometries, copied to the output's.
    sampler : draws in the mechanism's place for the people in `options.user_column`.

    Guarantee
    ---------
    Each output is an independent exact draw of the mechanism (`Mechanism.sample`) at the point of its row. Nothing else
    in the answer depends on the coordinates, except which rows are null and, with `outside="drop"`, which rows are
    left; and, with `keep_input`, the copy of the coordinates. Other columns are copied unchanged.
    """

    mechanism: Mechanism
    columns: PointColumns
    options: Options = field(default_factory=Options)
    copying: Copying = field(default_factory=Copying)
    as_geometry: bool = False
    system: Any = None
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        if self.sampler is not None and not self.mechanism.has_outputs:
            # A ledger stores and repeats numbers of outputs.
            msg = f"A ledger keeps budgets only for mechanisms with outputs, and {self.mechanism.method} has none."
            raise InvalidInputError(msg)
        if self.sampler is None and self.options.user_column is not None:
            raise InvalidInputError("`user_column` says whose budget is spent, which needs a `ledger`.")
        if self.sampler is not None and self.options.user_column is None:
            raise InvalidInputError("A `ledger` needs `user_column`, the column that says whose point it is.")
        if self.sampler is None and self.options.time_column is not None:
            raise InvalidInputError("`time_column` says when a budget is spent, which needs a `ledger`.")

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        schema: pa.Schema,
        options: Options | None = None,
        *,
        as_geometry: bool | None = None,
        sampler: Sampler | None = None,
    ) -> Perturbation:
        """Return the perturbation of batches of a schema.

        `as_geometry` says whether outputs are geometries; by default they are if the points came as such.
        """
        chosen = options or Options()
        in_file = pa.schema([column for column in schema if not is_partition(column)], schema.metadata)
        points = find_columns(in_file, mechanism, chosen.columns, chosen.coordinates)
        general = cls(
            mechanism,
            points,
            chosen,
            as_geometry=points.geometry if as_geometry is None else as_geometry,
            system=reference_system(schema, points.names[0]) if points.geometry else None,
            sampler=sampler,
        )
        for parameter in ("user_column", "time_column"):
            if (name := getattr(chosen, parameter)) is not None:
                require_column(parameter, schema.names, name)
        return replace(general, copying=copied_columns(schema, points, chosen.copy, taken=general._own_names))

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
        if self.options.keep_input:
            kept += [(name, TRUE + name) for name in self.columns.names]
        return pa.schema([*self._reports.drawn_fields, *(_plain_field(given.field(old), new) for old, new in kept)])

    def drawn(self, batch: pa.RecordBatch, first_row: int = 0) -> Iterator[tuple[pa.RecordBatch, Counts]]:
        """Check a batch, and yield what `draw` answers to it in pieces of bounded memory."""
        self._require_sound(batch, first_row)
        for piece in pieces(batch, self._others(batch.schema), limits.BATCH_ROWS, limits.BATCH_BYTES):
            yield self.draw(piece, first_row)
            first_row += len(piece)

    def draw(self, batch: pa.RecordBatch, first_row: int = 0) -> tuple[pa.RecordBatch, Counts]:
        """Return indices of outputs with the columns that are copied, and counts of what became of the rows.

        `first_row` is the number of rows before the batch, for messages.
        """
        points, valid = points_of(batch, self.columns, first_row)
        # Axis by axis takes a quarter of the time that `isfinite(points).all(axis=1)` takes.
        finite = np.logical_and.reduce([np.isfinite(axis) for axis in points.T])
        unusable = valid & ~finite
        if self.options.outside != "drop":
            self._require_none(unusable, "finite (`outside` drop leaves such rows out)", "NaN or infinity", first_row)
        rows = np.flatnonzero(valid & finite)
        points = points[rows]
        plane = self._to_plane(points)
        outside = self._outside(points, plane)
        counts = Counts(
            rows_in=len(batch),
            nulls=int(len(batch) - valid.sum()),
            outside=int(outside.sum()),
            not_finite=int(unusable.sum()),
            swapped=self._count_swapped(points, outside),
        )
        self._require_inside(counts)
        drop = np.zeros(len(batch), dtype=np.bool_)
        if self.options.outside == "drop":
            drop[rows[outside]] = True
            drop |= unusable
            rows, plane = rows[~outside], plane[~outside]
        # Clamped here, so that `sample` does not warn besides: `Watch` does so once for all batches.
        plane = self.mechanism.clamp(plane)
        sampled = self._sample(plane, batch, rows, first_row)
        late = 0 if self.options.time_column is None else int((sampled == LATE).sum())
        kept, refused = self._reports.keep(sampled, rows, len(batch))
        answer = self._answer(batch, kept, None if not drop.any() else ~drop)
        return answer, replace(counts, rows_out=len(answer), refused=refused - late, late=late)

    def place(self, drawn: pa.RecordBatch) -> pa.RecordBatch:
        """Replace the indices that `draw` returned by ids, names and coordinates of the outputs."""
        count = len(self._reports.drawn_fields)
        schema = pa.schema([*self._reports.shown_fields, *list(drawn.schema)[count:]], metadata=self._metadata)
        shown = self._reports.show(drawn.columns[:count])
        return pa.RecordBatch.from_arrays([*shown, *drawn.columns[count:]], schema=schema)

    @cached_property
    def _reports(self) -> Reports:
        return reports_of(CoordinateColumns(self.mechanism, self.columns.degrees, self.as_geometry, self.system))

    @property
    def _own_names(self) -> list[str]:
        """Names of the answer's columns that are not copied."""
        own = [column.name for column in self._reports.shown_fields]
        return own + ([TRUE + name for name in self.columns.names] if self.options.keep_input else [])

    def _others(self, schema: pa.Schema) -> list[str]:
        """Return the columns whose values are needed and may be long."""
        points = self.columns.names if self.options.keep_input else ()
        return [
            name
            for name in dict.fromkeys((*self.copy, *self.options.charged, *points))
            if schema.get_field_index(name) >= 0
        ]

    @cached_property
    def _metadata(self) -> dict[str, str] | None:
        """GeoParquet's note, without the optional bounding box, which would be that of the true points."""
        if not self.as_geometry:
            return None
        column: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Point"]}
        if self.system is not None:
            column["crs"] = self.system
        return {"geo": json.dumps({"version": "1.0.0", "primary_column": GEOMETRY, "columns": {GEOMETRY: column}})}

    def _to_plane(self, points: FloatArray) -> FloatArray:
        if not (self.columns.degrees and len(points)):
            return points
        # Longitudes go round: 180.0001° east is clamped as 179.9999° west, which is the same place, and not to the
        # other edge of a box across the antimeridian. Latitudes end at the poles.
        lon = points[:, 0]
        if (too_far := np.abs(lon) > 180).any():
            lon = np.where(too_far, _turned(lon), lon)
        return np.asarray(self.mechanism.projection.to_xy_km(lon, np.clip(points[:, 1], -90, 90)))

    def _outside(self, points: FloatArray, plane: FloatArray) -> Mask:
        """Return which points are outside the box, or no longitude and latitude."""
        outside = self.mechanism.outside_box(plane, ROUNDING_MARGIN)
        if self.columns.degrees:
            outside |= np.abs(points[:, 0]) > 180
            outside |= np.abs(points[:, 1]) > 90
        return outside

    def _count_swapped(self, points: FloatArray, outside: Mask) -> int:
        if points.shape[1] != 2 or not mostly_outside(int(outside.sum()), len(points)):
            return 0
        swapped = points[outside][:, ::-1]
        return int((~self._outside(swapped, self._to_plane(swapped))).sum())

    def _require_sound(self, batch: pa.RecordBatch, first_row: int) -> None:
        require_sound(batch, dict.fromkeys((*self.columns.names, *self._others(batch.schema))), first_row)

    def _require_none(self, bad: Mask, rule: str, what: str, first_row: int) -> None:
        count = int(bad.sum())
        if count:
            # How many and which row: the numbers themselves are secret.
            got = f"{what} in {count:,} rows, the first of them row {first_row + int(bad.argmax()) + 1:,}"
            raise reject(", ".join(self.columns.names), rule, got)

    def _require_inside(self, counts: Counts) -> None:
        if self.options.outside != "error" or not counts.outside:
            return
        hint = f" ({counts.suspicion})" if counts.suspicion else ""
        got = f"{counts.outside:,} of {counts.points:,} points outside{hint}"
        raise reject(", ".join(self.columns.names), "inside the box of the mechanism", got)

    def _sample(
        self, plane: FloatArray, batch: pa.RecordBatch, rows: NDArray[np.intp], first_row: int
    ) -> NDArray[np.integer[Any]]:
        if self.sampler is None:
            return np.asarray(self.mechanism.sample(plane))
        name = self.options.user_column
        assert name is not None  # checked when the sampler was given
        column = plain_values(column_of(batch, name))
        missing = np.zeros(len(batch), dtype=np.bool_)
        missing[rows] = ~np.asarray(column.is_valid())[rows]
        if missing.any():
            got = f"null in {int(missing.sum()):,} rows, the first of them row {first_row + missing.argmax() + 1:,}"
            raise reject(name, "somebody in every row with a point", got)
        users = column.take(pa.array(rows)).to_numpy(zero_copy_only=False)
        if self.options.time_column is None:
            return np.asarray(self.sampler(plane, users))
        return np.asarray(self.sampler(plane, users, moments_of(batch, self.options.time_column, rows, first_row)))

    def _answer(self, batch: pa.RecordBatch, drawn: list[pa.Array], keep: Mask | None) -> pa.RecordBatch:
        arrays = [*drawn, *(self._copied(batch, name) for name in self.copy)]
        if self.options.keep_input:
            arrays += [plain_values(column_of(batch, name)) for name in self.columns.names]
        answer = pa.RecordBatch.from_arrays(arrays, schema=self.drawn_schema(batch.schema))
        return answer if keep is None else answer.filter(pa.array(keep))

    def _copied(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        values = plain_values(column_of(batch, name))
        return without_nested(values) if self.copying.plain_only and is_json(batch.schema.field(name)) else values


def perturb_batch(
    mechanism: Mechanism, batch: pa.RecordBatch, columns: Sequence[str] | None = None, **options: Any
) -> pa.RecordBatch:
    """Draw an output for every row of a record batch.

    Parameters
    ----------
    mechanism : Mechanism
        One that was fitted from a city takes longitude and latitude.
    batch : pyarrow.RecordBatch
        Points, as numbers or as geometries, and other columns.
    columns, **options :
        The fields of `Options`: `coordinates`, `copy`, `outside`, `keep_input`.

    Returns
    -------
    pyarrow.RecordBatch
        `output_id` (the output's own id where `mechanism` has ids, otherwise its index; not for noise, which has no
        list of outputs), `output_name` where there are names, its coordinates as `lon` and `lat`, or `x`, `y`, …, or
        `geometry`, and what was copied. Rows keep their order; where there was no point, there is no output.
    """
    chosen = _chosen(columns, options)
    whole = reached(batch, leaves_of(batch.schema, chosen.names))
    return Perturbation.of(mechanism, whole.schema, chosen)(whole)


def perturb_stream(
    mechanism: Mechanism, data: Any, columns: Sequence[str] | None = None, **options: Any
) -> pa.RecordBatchReader:
    """Draw an output for every row of a table of any library that speaks Arrow, in bounded memory.

    Parameters
    ----------
    data : any object with an Arrow stream
        A table of pandas (2.2 or newer), polars or DuckDB, `GeoDataFrame.to_arrow()`, a pyarrow table or reader.
    mechanism, columns, **options :
        As in `perturb_batch`.

    Returns
    -------
    pyarrow.RecordBatchReader
        Outputs, drawn as they are read. Those libraries take it as it is. Batches have 131,072 rows each, but for the
        last, whatever the batches of `data` are.
    """
    reader = pa.RecordBatchReader.from_stream(data)
    chosen = _chosen(columns, options)
    leaves = leaves_of(reader.schema, chosen.names)
    given = with_leaves(reader.schema, leaves)
    perturbation = Perturbation.of(mechanism, given, chosen)
    schema = perturbation.schema(given)
    batches = (reached(batch, leaves) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, _perturbed(perturbation, batches, schema))


def _chosen(columns: Sequence[str] | None, options: Mapping[str, Any]) -> Options:
    chosen = Options(columns, **options)
    if chosen.encoding is not None:
        raise reject("encoding", "given for text files only", "a table in memory")
    return chosen


def _perturbed(
    perturbation: Perturbation, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if perturbation.copying.plain_only and (words := suspicion(perturbation.copy)) is not None:
        python_warning(words)
    for table in rechunked(_placed(perturbation, batches), schema, limits.CHUNK_ROWS):
        yield from table.to_batches()


def _placed(perturbation: Perturbation, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    watch = Watch(python_warning)
    for batch in batches:
        for drawn, counts in perturbation.drawn(batch, watch.total.rows_in):
            watch.add(counts)
            yield perturbation.place(drawn)


def _turned(lon: FloatArray) -> FloatArray:
    """Return longitudes within ±180 degrees."""
    turned = np.fmod(lon, 360)  # exact, unlike the product of a rounded quotient
    return np.asarray(turned - 360 * np.rint(turned / 360))


def _plain_field(given: pa.Field, name: str) -> pa.Field:
    return pa.field(name, value_type(given.type), metadata=JSON_TEXT if is_json(given) else None)
