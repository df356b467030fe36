"""Parquet and GeoParquet."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import parquet

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.chunks import rows_within
from metricdp.perturb.copying import value_type
from metricdp.perturb.formats.base import Sink, Source, after, as_text, decoding, text_schema, unmarked
from metricdp.perturb.formats.parquet_sizes import PageSizes, page_sizes, row_groups
from metricdp.perturb.formats.streams import open_raw
from metricdp.perturb.geometries import extension_mark, geometry_mark
from metricdp.perturb.nested import Leaf, leaves_of, with_leaves
from metricdp.perturb.remote import is_url, shown

__all__ = ["GeoParquetSink", "ParquetSink", "ParquetSource"]


class ParquetSource(Source):
    """A Parquet file; checksums of its pages are checked where it has them.

    Texts are read as dictionaries, because a file of a few kilobytes can hold a long text once and refer to it from
    every row.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = shown(path)
        self._raw = open_raw(path)  # a missing or forbidden file says so itself
        try:
            with decoding(self.name):
                texts = _text_columns(parquet.read_metadata(self._raw).schema)
                # Not `pre_buffer`: it would hold whole row groups.
                self._file = parquet.ParquetFile(
                    self._raw if is_url(path) else path,
                    pre_buffer=False,
                    buffer_size=limits.READ_BYTES,
                    page_checksum_verification=True,
                    read_dictionary=texts,
                )
                self._groups = row_groups(self._raw)
                self._stored = parquet.read_schema(self._raw)
                named = _extension_marks(self._stored)
                self.schema = _marked(unmarked(self._file.schema_arrow), named, self._file.schema)
        except BaseException:
            self._raw.close()
            raise
        self._inner: dict[str, Leaf] = {}
        self._rows, self._read = sum(group.rows for group in self._groups), 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def reaching(self, names: Iterable[str]) -> Source:
        """Let dotted names lead into structs, of which only what is named is then read."""
        wanted = tuple(names)
        self._inner = leaves_of(self.schema, wanted)
        self.schema = with_leaves(self.schema, self._inner)
        self._stored = with_leaves(self._stored, leaves_of(self._stored, wanted))
        return self

    def file_type(self, name: str) -> pa.DataType:
        """Return the type that a column has in the file; texts are read as dictionaries."""
        return self._stored.field(name).type

    def fraction(self) -> float | None:
        """Return the share of the rows that were read."""
        return self._read / self._rows if self._rows else None

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        self._read, groups = skip, list(range(len(self._groups)))
        while groups and skip >= self._groups[groups[0]].rows:
            skip -= self._groups[groups.pop(0)].rows
        if not groups:
            return
        schema = self.selected(points, others)
        for batch in after(skip, self._in_pieces(schema, groups)):
            self._read += len(batch)
            arrays = [
                self._inner[name].of(batch) if name in self._inner else batch.column(name) for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _in_pieces(self, schema: pa.Schema, groups: list[int]) -> Iterator[pa.RecordBatch]:
        """Yield batches. Where texts are inside of structs and lists, none has rows of two row groups.

        pyarrow cannot put the dictionaries of two row groups together inside of a struct.
        """
        nested = any(pa.types.is_nested(field.type) for field in schema) or bool(self._inner)
        rows = self._rows_at_once(schema.names)
        for some in [[group] for group in groups] if nested else [groups]:
            yield from self._file.iter_batches(rows, some, schema.names)

    def _rows_at_once(self, names: Sequence[str]) -> int:
        """Return how many rows make a batch of bounded size, going by the page with the longest rows.

        Pages are decompressed as a whole, one of each column at a time with the column's dictionary.
        """
        fields = [self.schema.field(name) for name in names]
        longest = float(sum(map(_width, fields)))
        pages = [sizes for name in names for sizes in self._columns(name)]
        held = sum(sizes.dictionary + sizes.data for sizes in pages)
        if held > limits.LARGEST_PIECE:
            msg = (
                f"`{self.name}` must have pages that can be read in bounded memory, got {held:,} bytes at a time; "
                "write it with pages of about a megabyte."
            )
            raise InvalidInputError(msg)
        longest += sum(sizes.per_row for sizes in pages)
        most = rows_within(pa.schema(fields), limits.BATCH_ROWS, limits.BATCH_BYTES)
        return max(1, min(most, int(limits.BATCH_BYTES / max(longest, 1.0))))

    def _columns(self, name: str) -> list[PageSizes]:
        """Return the largest pages of every column of numbers or texts that the column `name` consists of."""
        found = dict.fromkeys(self._leaves[name], PageSizes())
        for group in self._groups:
            if len(group.chunks) != len(self._file.schema):
                msg = "a row group without some of the columns"
                raise ValueError(msg)
            for place in found:
                found[place] |= page_sizes(self._raw, group.chunks[place], group.rows)
        return list(found.values())

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """By name of a column, the places of the columns of numbers or texts that it consists of."""
        found: dict[str, list[int]] = defaultdict(list)
        for place, column in enumerate(_leaf_columns(self._file.metadata.schema)):
            for name in _roots(column.path):
                found[name].append(place)
        return found


class ParquetSink(Sink):
    """A Parquet file; every table that is written becomes a row group."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    keeps_dictionaries: ClassVar[bool] = True

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = parquet.ParquetWriter(stream, text_schema(schema))

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        self._writer.write_table(as_text(table), row_group_size=max(1, len(table)))

    def close(self) -> None:
        """End the file."""
        self._writer.close()

    def abandon(self) -> None:
        """Keep the writer from ending the file when it is collected, by then without a stream."""
        self._writer.is_open = False


class GeoParquetSink(ParquetSink):
    """The same, with points as geometries wherever they came from."""

    suffixes: ClassVar[tuple[str, ...]] = (".geoparquet",)
    geometries: ClassVar[bool | None] = True
    needs_plane: ClassVar[bool] = True


def _leaf_columns(schema: Any) -> Iterator[Any]:
    return (schema.column(place) for place in range(len(schema)))


def _roots(path: str) -> list[str]:
    """Return the names that the column to which a path leads may have: names may have dots too."""
    words = path.split(".")
    return [".".join(words[:count]) for count in range(1, len(words) + 1)]


def _text_columns(schema: Any) -> list[str]:
    return [column.path for column in _leaf_columns(schema) if column.physical_type == "BYTE_ARRAY"]


def _extension_marks(schema: pa.Schema) -> dict[str, dict[bytes, bytes]]:
    """Return the marks of columns with an extension type that pyarrow knows; texts read as dictionaries lose them."""
    return {field.name: extension_mark(field.type) for field in schema if isinstance(field.type, pa.BaseExtensionType)}


def _marked(schema: pa.Schema, named: dict[str, dict[bytes, bytes]], described: Any) -> pa.Schema:
    """Return the schema with marks of extension types, and GeoArrow's on columns of Parquet's own geometries."""
    marks = dict(named)
    for column in _leaf_columns(described):
        if column.logical_type.type in ("GEOMETRY", "GEOGRAPHY"):
            mark = geometry_mark(json.loads(column.logical_type.to_json()).get("crs"))
            marks |= dict.fromkeys(_roots(column.path), mark)
    fields = [field.with_metadata((field.metadata or {}) | marks.get(field.name, {})) for field in schema]
    return pa.schema(fields, schema.metadata)


def _width(field: pa.Field) -> int:
    """Return the bytes of a value whose type says how many it has; a dictionary may repeat a long one."""
    kind = value_type(field.type)
    return int(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 0
