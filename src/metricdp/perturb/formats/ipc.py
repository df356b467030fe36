"""Arrow's own files (Feather's second version among them) and streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metricdp.perturb.formats.base import Sink, Source, after, decoding, sliced
from metricdp.perturb.formats.json_text import as_text, text_schema
from metricdp.perturb.kernel import BATCH_ROWS

__all__ = ["IpcSink", "IpcSource"]

_MAGIC = b"ARROW1"


class IpcSource(Source):
    """An Arrow file or stream. Mapped into memory: of files that are not compressed, only what is used is read."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._share: float | None = None
        with Path(path).open("rb") as file:
            self._is_file = file.read(len(_MAGIC)) == _MAGIC
        with decoding(self.name):
            self._bytes = pa.memory_map(self.name)
            self.schema = self._reader().schema

    def close(self) -> None:
        """Close the file."""
        self._bytes.close()

    def fraction(self) -> float | None:
        """Return the share of the file's batches that were read; a stream does not say how many it has."""
        return self._share

    def _reader(self, fields: list[int] | None = None) -> Any:
        options = pa.ipc.IpcReadOptions(included_fields=fields or [])
        self._bytes.seek(0)
        if self._is_file:
            return pa.ipc.open_file(self._bytes, options=options)
        return pa.ipc.open_stream(self._bytes, options=options)

    def _batches(self, points: Sequence[str], others: Sequence[str], skip: int) -> Iterator[pa.RecordBatch]:
        reader = self._reader([self.schema.get_field_index(name) for name in (*points, *others)])
        count = reader.num_record_batches if self._is_file else 0
        batches = map(reader.get_batch, range(count)) if self._is_file else iter(reader)
        for batch in after(skip, self._checked(batches, count)):
            yield from sliced(batch, BATCH_ROWS)

    def _checked(self, batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches, start=1):
            self._share = number / count if count else None
            # Offsets from a damaged file could point anywhere in memory.
            batch.validate(full=True)
            yield batch


class IpcSink(Sink):
    """An Arrow file."""

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(stream, text_schema(schema))

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        self._writer.write_table(as_text(table))

    def close(self) -> None:
        """End the file."""
        self._writer.close()
