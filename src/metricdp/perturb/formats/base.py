"""What every format can do: a source gives batches of some columns, a sink takes tables."""

from __future__ import annotations

import json
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.copying import JSON_TEXT, NESTED, is_json

__all__ = ["Sink", "Source", "after", "as_text", "decoding", "text_schema", "unmarked"]

# What decoders raise for a damaged file. Their messages may quote the file, so they are never passed on.
_DAMAGE = (pa.ArrowException, OSError, EOFError, ValueError, OverflowError, RecursionError, zlib.error)

# If the decoder's message contains the first, the second is said instead.
_SIGNS = {
    "straddl": "a row that is longer than 4 MB",
    "invalid UTF8": "text that is not UTF-8",
    "conversion error": "a cell that should be a number is none",
    "columns, got": "it has not as many cells as the first line has names",
}


class Source(ABC):
    """A table that is read from its beginning, some columns of it, in batches.

    name : how messages call it.
    schema : all of its columns.
    """

    name: str
    schema: pa.Schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool) -> Source:
        """Open a file. Without `with_others` the schema may lack columns beside the point's, if that saves work."""
        del with_others  # a schema is at hand in most formats
        return cls(path)  # type: ignore[call-arg]

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        return pa.schema(
            [self.schema.field(name) for name in dict.fromkeys((*points, *others))], metadata=self.schema.metadata
        )

    def batches(self, points: Sequence[str], others: Sequence[str], skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Yield batches of these columns, after the first `skip` rows, in order.

        Raises
        ------
        InvalidInputError
            If the file is damaged. Says where, as far as that is known, and never what stands there.
        """
        rows, schema = skip, self.selected(points, others)
        with closing(self._batches(points, others, skip)) as batches:
            while True:
                with decoding(self.name, rows, self.schema.names):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    # Building the batch anew also checks the lengths of buffers, which may be wrong in a damaged file.
                    batch = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
                rows += len(batch)
                yield batch

    @abstractmethod
    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the batches; may raise whatever the decoder raises."""

    @abstractmethod
    def fraction(self) -> float | None:
        """Return the share of the source that has been read, or None if it is not known."""


class Sink(ABC):
    """Takes tables of one schema one after the other and writes them as one file.

    suffixes : of the files that it writes.
    geometries : whether points are one column of geometries rather than one column per axis; None for as they came.
    needs_plane : whether it can only hold points of two axes.
    rows_at_once : how many rows are written together. Every table that is written has as many, but for the last.
    """

    suffixes: ClassVar[tuple[str, ...]]
    geometries: ClassVar[bool | None] = None
    needs_plane: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = limits.CHUNK_ROWS

    @abstractmethod
    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        """Begin the file; the stream stays the caller's to close."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write some more rows."""

    @abstractmethod
    def close(self) -> None:
        """End the file."""

    def abandon(self) -> None:  # noqa: B027 - most have nothing to do
        """Give the file up without writing anything more to the stream."""


@contextmanager
def decoding(name: str, rows: int = 0, columns: Sequence[str] = ()) -> Iterator[None]:
    """Replace a decoder's error, which may quote the file, by one that does not; so many `rows` were read before."""
    try:
        yield
    except InvalidInputError:
        raise
    except _DAMAGE as error:
        raise _unreadable(name, error, rows, columns) from None


def _unreadable(name: str, error: Exception, rows: int, columns: Sequence[str]) -> Exception:
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, os.strerror(error.errno), name)
    words = str(error)
    # Only numbers are taken over: the rest of the sentence may quote a cell.
    row, column = re.search(r"\bRow #(\d+)", words), re.search(r"\bCSV column #(\d+)", words)
    where = f"row {int(row[1]):,}" if row is not None else f"some row after {rows:,}"
    if column is not None and int(column[1]) < len(columns):
        where += f", column {columns[int(column[1])]!r}"
    what = next((said for sign, said in _SIGNS.items() if sign in words), "it is damaged or cut off")
    return InvalidInputError(f"`{name}` must be readable, got trouble at {where}: {what}.")


def after(skip: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what comes after the first `skip` rows."""
    for batch in batches:
        if skip < len(batch):
            yield batch.slice(skip)
        skip = max(0, skip - len(batch))


def unmarked(schema: pa.Schema) -> pa.Schema:
    """Return a file's schema without the marks of this library, which only its own modules may set.

    Names are decoded here for the first time: a name that is not UTF-8 raises while the file is being opened.
    """
    marks = {*JSON_TEXT, NESTED}
    fields = []
    for field in schema:
        kept = {key: value for key, value in (field.metadata or {}).items() if key not in marks}
        fields.append(pa.field(field.name, field.type, field.nullable, kept or None))
    return pa.schema(fields, schema.metadata)


def text_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with JSON texts, such as GeoJSON's properties, as plain texts."""
    return pa.schema([field.remove_metadata() if is_json(field) else field for field in schema], schema.metadata)


def as_text(table: pa.Table) -> pa.Table:
    """Return the table with JSON strings unquoted; other JSON values stay as they are written."""
    for place, field in enumerate(table.schema):
        if is_json(field):
            texts = [_unquoted(text) for text in table.column(place).to_pylist()]
            table = table.set_column(place, field.remove_metadata(), pa.array(texts, pa.string()))
    return table


def _unquoted(text: str | None) -> str | None:
    return json.loads(text) if text is not None and text.startswith('"') else text
