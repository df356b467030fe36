"""What every format can do: a source gives batches of some columns, a sink takes tables."""

from __future__ import annotations

import json
import lzma
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.copying import JSON_TEXT, PARTITION, is_json
from metricdp.perturb.geometries import PART_OF_GEOMETRY
from metricdp.perturb.nested import NESTED, Leaf, leaves_of, with_leaves

__all__ = ["Extended", "Sink", "Source", "after", "as_text", "decoding", "text_schema", "unmarked"]

# What decoders raise for a damaged file. Their messages may quote the file, so they are never passed on.
_DAMAGE = (
    pa.ArrowException, OSError, EOFError, ValueError, OverflowError, RecursionError, zlib.error, lzma.LZMAError,
)  # fmt: skip

_NOT_IN = "text that is not {}; say what it is with `encoding`, such as latin-1 or cp1252"

# If the decoder's message contains the first, the second is said instead.
_SIGNS = {
    "straddl": "a row that is longer than 4 MB",
    "invalid UTF8": _NOT_IN.format("UTF-8"),
    "Nested data conversions": "texts inside of a struct in a form that pyarrow reads as a whole only; flatten it",
    "Memory usage limit": "it takes more than 128 MB to decompress; compress it with xz's own settings",
    "conversion error": "a cell that should be a number is none; decimals have a point, as in 24.94",
    "columns, got": "it has not as many cells as the first line has names",
}


class Source(ABC):
    """A table that is read from its beginning, some columns of it, in batches.

    is_text : whether the file is text, in some encoding.
    name : how messages call it.
    schema : all of its columns.
    """

    is_text: ClassVar[bool] = False
    name: str
    schema: pa.Schema

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool, encoding: str | None = None) -> Source:
        """Open a file. Without `with_others` the schema may lack columns beside the point's, if that saves work."""
        del with_others, encoding  # a schema is at hand in most formats, and most are not text
        return cls(path)  # type: ignore[call-arg]

    def reaching(self, names: Iterable[str]) -> Source:
        """Return a source that also has columns inside of others: `location.lon` for `lon` inside of `location`."""
        leaves = leaves_of(self.schema, names)
        return Extended(self, leaves) if leaves else self

    @abstractmethod
    def close(self) -> None:
        """Close the file."""

    def file_type(self, name: str) -> pa.DataType:
        """Return the type that a column has in the file, which may be read as another."""
        return self.schema.field(name).type

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        return pa.schema(
            [self.schema.field(name) for name in dict.fromkeys((*points, *others))], metadata=self.schema.metadata
        )

    def batches(
        self, points: Sequence[str], others: Sequence[str], skip: int = 0
    ) -> Generator[pa.RecordBatch, None, None]:
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


class Extended(Source):
    """A source with more columns: parts of its structs, and values that are the same in all rows.

    constants : text of such columns by name, None for null. They come from the names of folders.
    """

    def __init__(
        self, inner: Source, leaves: Mapping[str, Leaf] | None = None, constants: Mapping[str, str | None] | None = None
    ) -> None:
        self._inner, self._leaves = inner, dict(leaves or {})
        self._constants = {name: text for name, text in (constants or {}).items() if name not in inner.schema.names}
        self.name = inner.name
        given = with_leaves(inner.schema, self._leaves)
        self.schema = pa.schema([*given, *map(_partition_field, self._constants)], given.metadata)

    def close(self) -> None:
        """Close the file."""
        self._inner.close()

    def fraction(self) -> float | None:
        """Return the share of the source that has been read, or None if it is not known."""
        return self._inner.fraction()

    def file_type(self, name: str) -> pa.DataType:
        """Return the type that a column has in the file, which may be read as another."""
        own = name in self._inner.schema.names
        return self._inner.file_type(name) if own else super().file_type(name)

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        given = self._inner.selected(*self._own(points, others))
        known = {field.name: field for field in (*self.schema, *given)}
        return pa.schema([known[name] for name in dict.fromkeys((*points, *others))], metadata=given.metadata)

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        schema = self.selected(points, others)
        with closing(self._inner.batches(*self._own(points, others), skip)) as batches:
            for batch in batches:
                yield pa.RecordBatch.from_arrays([self._column(batch, field) for field in schema], schema=schema)

    def _own(self, points: Sequence[str], others: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the columns of the file itself that these are made from."""
        roots = [
            {self._leaves[name].root if name in self._leaves else name: None for name in names}
            for names in (points, others)
        ]
        return list(roots[0]), [name for name in roots[1] if name not in (*self._constants, *roots[0])]

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name in self._constants:
            return pa.repeat(pa.scalar(self._constants[field.name], pa.string()), len(batch))
        if field.name in self._leaves:
            return self._leaves[field.name].of(batch)
        return batch.column(field.name)


def _partition_field(name: str) -> pa.Field:
    return pa.field(name, pa.string(), metadata=PARTITION)


class Sink(ABC):
    """Takes tables of one schema one after the other and writes them as one file.

    suffixes : of the files that it writes.
    is_written : False if files with these endings are only read.
    is_text : whether they are text, which may be compressed as a whole.
    geometries : whether points are one column of geometries rather than one column per axis; None for as they came.
    needs_plane : whether it can only hold points of two axes.
    keeps_dictionaries : whether columns that were dictionaries are written as such.
    rows_at_once : how many rows are written together. Every table that is written has as many, but for the last.
    """

    suffixes: ClassVar[tuple[str, ...]]
    is_written: ClassVar[bool] = True
    is_text: ClassVar[bool] = False
    geometries: ClassVar[bool | None] = None
    needs_plane: ClassVar[bool] = False
    keeps_dictionaries: ClassVar[bool] = False
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
    if isinstance(error, UnicodeError):
        # Python's decoder of UTF-16 does not always say whose error it is.
        what = _NOT_IN.format(getattr(error, "encoding", "utf-16").upper())
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
    marks = {*JSON_TEXT, *PARTITION, *PART_OF_GEOMETRY, NESTED}
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
