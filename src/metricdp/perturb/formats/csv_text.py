"""Comma-separated text, gzipped or not, with a line of names."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, ClassVar

import pyarrow as pa
from pyarrow import csv as arrow_csv

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.perturb.formats.base import Sink, Source, after, decoding
from metricdp.perturb.formats.json_text import as_text, text_schema

__all__ = ["CsvSink", "CsvSource", "GzippedCsvSink"]

_BLOCK = 2**22
_LONGEST_HEADER = 2**20
_DELIMITERS = ",;\t|"
_GZIP_LEVEL = 4


class CsvSource(Source):
    """CSV from a file, or from stdin for "-". Coordinates are read as float64, other columns as text, unchanged.

    In columns of numbers an empty cell, NA, NaN, null and their like mean null.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        standard = self.name == "-"
        self._raw: IO[bytes] = sys.stdin.buffer if standard else Path(path).open("rb")  # noqa: SIM115 - closed below
        self._size = None if standard else os.fstat(self._raw.fileno()).st_size
        self._text = gzip.GzipFile(fileobj=self._raw) if self.name.endswith(".gz") else self._raw
        try:
            self._names, self._delimiter = self._header()
        except BaseException:
            self.close()
            raise
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def close(self) -> None:
        """Close the file, but not stdin."""
        if self._size is not None:
            self._raw.close()

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        return pa.schema([(name, pa.float64()) for name in points] + [(name, pa.string()) for name in others])

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were taken from it."""
        return None if not self._size or self._raw.closed else self._raw.tell() / self._size

    def _batches(self, points: Sequence[str], others: Sequence[str], skip: int) -> Iterator[pa.RecordBatch]:
        if not self._text.peek(1):  # type: ignore[union-attr]
            return
        kinds = {name: pa.string() for name in others} | {name: pa.float64() for name in points}
        reader = arrow_csv.open_csv(
            self._text,
            # Without threads it knows in which row trouble is, and is as fast.
            read_options=arrow_csv.ReadOptions(column_names=self._names, block_size=_BLOCK, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # In a file of one column, an empty line is a row without a value.
                ignore_empty_lines=len(self._names) > 1,
            ),
            convert_options=arrow_csv.ConvertOptions(include_columns=list(kinds), column_types=kinds),
        )
        yield from after(skip, reader)

    def _header(self) -> tuple[list[str], str]:
        with decoding(self.name):
            line = self._text.readline(_LONGEST_HEADER)
            while line.count(b'"') % 2 and (more := self._text.readline(_LONGEST_HEADER)):
                line += more
            text = line.decode("utf-8-sig").strip("\r\n")
        if not text or len(text) >= _LONGEST_HEADER:
            raise reject("IN", "CSV with a first line of column names", f"none in {self.name}")
        delimiter = max(_DELIMITERS, key=text.count)
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        if any(map(_is_number, names)):
            # The line itself may be somebody's coordinates.
            msg = f"`IN` must be CSV with a first line of column names, got numbers in the first line of {self.name}."
            raise InvalidInputError(msg)
        return names, delimiter


class CsvSink(Sink):
    """CSV with a line of names; null is nothing between two commas."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    geometries: ClassVar[bool | None] = False

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._stream = stream
        plain = text_schema(schema)
        others = [field.name for field in plain if not _is_plain(field.type)]
        if others:
            raise reject("copy", "columns of numbers, texts or times where CSV is written", ", ".join(others))
        header = io.StringIO(newline="")
        csv.writer(header, lineterminator="\n").writerow(plain.names)
        stream.write(header.getvalue().encode())
        self._writer = arrow_csv.CSVWriter(
            stream, plain, write_options=arrow_csv.WriteOptions(include_header=False, batch_size=2**14)
        )

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        # In one chunk: pyarrow 15 writes the chunk before an empty one twice.
        if len(table):
            self._writer.write_table(as_text(table).combine_chunks())

    def close(self) -> None:
        """End the file."""
        self._writer.close()


class GzippedCsvSink(CsvSink):
    """The same, gzipped."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv.gz",)

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        # Arrow's own gzip stream knows only the slowest level.
        self._packed = gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
        super().__init__(pa.PythonFile(self._packed, "w"), schema)

    def close(self) -> None:
        """End the file."""
        super().close()
        self._packed.close()


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
