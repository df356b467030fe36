"""Parquet and GeoParquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import parquet

from metricdp.errors import InvalidInputError
from metricdp.perturb.copying import value_type
from metricdp.perturb.formats.base import Sink, Source, after, decoding, unmarked
from metricdp.perturb.formats.json_text import as_text, text_schema
from metricdp.perturb.formats.parquet_pages import PageSizes, page_sizes
from metricdp.perturb.kernel import BATCH_ROWS

__all__ = ["GeoParquetSink", "ParquetSink", "ParquetSource"]

# Bytes of a column read at once, so that memory does not grow with the row groups of the file.
_BUFFER = 2**20

# A batch has about so many bytes, texts that a dictionary has once counted once.
_BATCH_BYTES = 2**25

# A page of each column is decompressed as a whole, a dictionary beside it; together they may have so many bytes.
_PAGE_BYTES = 2**30


class ParquetSource(Source):
    """A Parquet file; checksums of its pages are checked where it has them.

    Texts are read as dictionaries: a file of a few kilobytes can hold a megabyte of text once and say that it stands
    in every row.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._raw = Path(path).open("rb")  # noqa: SIM115 - closed below; a missing or forbidden file says so itself
        try:
            with decoding(self.name):
                texts = _text_columns(parquet.read_schema(self._raw))
                # Not `pre_buffer`: it would hold whole row groups.
                self._file = parquet.ParquetFile(
                    path,
                    pre_buffer=False,
                    buffer_size=_BUFFER,
                    page_checksum_verification=True,
                    read_dictionary=texts,
                )
                self.schema = unmarked(self._file.schema_arrow)
        except BaseException:
            self._raw.close()
            raise
        self._rows, self._read = self._file.metadata.num_rows, 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def fraction(self) -> float | None:
        """Return the share of the rows that were read."""
        return self._read / self._rows if self._rows else None

    def _batches(self, points: Sequence[str], others: Sequence[str], skip: int) -> Iterator[pa.RecordBatch]:
        self._read, groups = skip, list(range(self._file.num_row_groups))
        while groups and skip >= (rows := self._file.metadata.row_group(groups[0]).num_rows):
            skip -= rows
            del groups[0]
        if not groups:
            return
        names = [*points, *others]
        for batch in after(skip, self._file.iter_batches(self._rows_at_once(names), groups, names)):
            self._read += len(batch)
            yield batch

    def _rows_at_once(self, names: Sequence[str]) -> int:
        """Return how many rows make a batch of bounded size, by the file's longest rows."""
        longest = float(sum(_width(self.schema.field(name)) for name in names))
        pages = [sizes for name in names for sizes in self._columns(name)]
        held = sum(sizes.dictionary + sizes.data for sizes in pages)
        if held > _PAGE_BYTES:
            msg = (
                f"`{self.name}` must have pages that can be read in bounded memory, got {held:,} bytes at a time; "
                "write it with pages of about a megabyte."
            )
            raise InvalidInputError(msg)
        longest += sum(sizes.per_row for sizes in pages)
        return max(1, min(BATCH_ROWS, int(_BATCH_BYTES / max(longest, 1.0))))

    def _columns(self, name: str) -> list[PageSizes]:
        """Return the largest pages of every column of numbers or texts that the column `name` consists of."""
        found: dict[str, PageSizes] = {}
        for number in range(self._file.num_row_groups):
            group = self._file.metadata.row_group(number)
            for place in self._leaves(name):
                column = group.column(place)
                sizes = page_sizes(self._raw, column, group.num_rows)
                found[column.path_in_schema] = found.get(column.path_in_schema, PageSizes()) | sizes
        return list(found.values())

    def _leaves(self, name: str) -> list[int]:
        described = self._file.metadata.schema
        paths = [described.column(place).path for place in range(len(described))]
        return [place for place, path in enumerate(paths) if path == name or path.startswith(name + ".")]


class ParquetSink(Sink):
    """A Parquet file; every table that is written becomes a row group."""

    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

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


def _text_columns(schema: pa.Schema) -> list[str]:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return [field.name for field in schema if any(is_kind(value_type(field.type)) for is_kind in kinds)]


def _width(field: pa.Field) -> int:
    """Return the bytes of a value whose type says how many it has; a dictionary may repeat a long one."""
    kind = value_type(field.type)
    return int(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 0
