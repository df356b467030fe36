"""Arrow's own files (Feather's second version among them) and streams."""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.formats.base import Sink, Source, after, as_text, decoding, text_schema, unmarked
from metricdp.perturb.formats.ipc_sizes import decompressed_sizes
from metricdp.perturb.remote import is_url, shown

__all__ = ["IpcSink", "IpcSource"]

_MAGIC, _PADDED = b"ARROW1", b"ARROW1\0\0"


class IpcSource(Source):
    """An Arrow file or stream, mapped into memory: of a file that is not compressed, only what is used is read.

    A file is a stream between two magic words, followed by a table of contents. The table is not used: it could lead
    to other batches than those whose sizes were checked.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = shown(path)
        if is_url(path):
            msg = f"{self.name} cannot be read from a URL, as Arrow files are mapped into memory; copy it to the disk."
            raise InvalidInputError(msg)
        Path(path).open("rb").close()  # a missing or forbidden file says so itself
        with decoding(self.name):
            self._mapped = pa.memory_map(str(path))
            self._content = _messages(self._mapped.read_buffer())
            self._stream = pa.BufferReader(self._content)
            self.schema = unmarked(self._reader().schema)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        self._mapped.close()

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were read."""
        return None if self._stream.closed or not self._content.size else self._stream.tell() / self._content.size

    def _reader(self, fields: list[int] | None = None) -> Any:
        self._stream.seek(0)
        return pa.ipc.open_stream(self._stream, options=pa.ipc.IpcReadOptions(included_fields=fields or []))

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        fields = [self.schema.get_field_index(name) for name in (*points, *others)]
        self._require_small_pieces(fields)
        yield from after(skip, self._reader(fields))

    def _require_small_pieces(self, fields: list[int]) -> None:
        try:
            largest = max(decompressed_sizes(pa.BufferReader(self._content), self.schema, fields), default=0)
        except struct.error:
            msg = "a message that ends too soon"
            raise ValueError(msg) from None
        if largest > limits.LARGEST_PIECE:
            msg = (
                f"`{self.name}` must have batches that can be read in bounded memory, got one of {largest:,} bytes; "
                "write it in batches of fewer rows."
            )
            raise InvalidInputError(msg)


class IpcSink(Sink):
    """An Arrow file; every table that is written becomes a record batch."""

    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(stream, text_schema(schema))

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        self._writer.write_table(as_text(table))

    def close(self) -> None:
        """End the file."""
        self._writer.close()


def _messages(content: pa.Buffer) -> pa.Buffer:
    """Return the stream of messages that the content is, or that an Arrow file has before its table of contents."""
    head, foot = content.slice(0, min(len(_PADDED), content.size)), len(_MAGIC) + 4
    if head.to_pybytes() != _PADDED:
        return content
    end = content.size - foot
    if end > len(_PADDED) and content.slice(end + 4).to_pybytes() == _MAGIC:
        end -= int.from_bytes(content.slice(end, 4).to_pybytes(), "little", signed=True)
        if len(_PADDED) <= end <= content.size - foot:
            return content.slice(len(_PADDED), end - len(_PADDED))
    msg = "an Arrow file without its end"
    raise ValueError(msg)
