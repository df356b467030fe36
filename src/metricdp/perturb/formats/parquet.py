"""Parquet and GeoParquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import parquet

from metricdp.perturb.formats.base import Sink, Source, after, decoding
from metricdp.perturb.formats.json_text import as_text, text_schema
from metricdp.perturb.kernel import BATCH_ROWS

__all__ = ["GeoParquetSink", "ParquetSink", "ParquetSource"]

# Bytes of a column read at once, so that memory does not grow with the row groups of the file.
_BUFFER = 2**20

# Decoded, a batch has about so many bytes, unless it has few values many times over.
_BATCH_BYTES = 2**25


class ParquetSource(Source):
    """A Parquet file; checksums of its pages are checked where it has them."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        Path(path).open("rb").close()  # a missing or forbidden file says so itself
        with decoding(self.name):
            # Not `pre_buffer`: it would hold whole row groups.
            self._file = parquet.ParquetFile(
                path, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True
            )
            self.schema = self._file.schema_arrow
        self._rows, self._read = self._file.metadata.num_rows, 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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
        longest = 1.0
        for group in map(self._file.metadata.row_group, range(self._file.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            taken = sum(c.total_uncompressed_size for c in columns if c.path_in_schema.partition(".")[0] in names)
            longest = max(longest, taken / max(group.num_rows, 1))
        return max(1, min(BATCH_ROWS, int(_BATCH_BYTES / longest)))


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
