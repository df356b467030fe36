"""Comma-separated text, gzipped or not, with a first line of column names; from stdin too."""

from __future__ import annotations

import csv
import gzip
import io
import os
import select
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import csv as arrow_csv

from metricdp._validation import reject
from metricdp.perturb import limits
from metricdp.perturb.copying import why_not_plain
from metricdp.perturb.formats.base import Sink, Source, after, as_text, decoding, text_schema

__all__ = ["CsvSink", "CsvSource", "GzippedCsvSink", "StandardInput"]

_DELIMITERS = ",;\t|"

# Lines that the names may take up, in quotes.
_MOST_LINES = 2**8

# Rows that Arrow formats at once.
_FORMATTED_ROWS = 2**14

_GZIP_LEVEL = 4

# Seconds after which a thread that waits for stdin looks whether anybody still wants it.
_PATIENCE = 0.1


class CsvSource(Source):
    """CSV from a file, or from stdin for "-". Coordinates are read as float64, other columns as text, unchanged.

    In columns of numbers an empty cell, NA, NaN, null and their like mean null.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self._path = None if self.name == "-" else Path(path)
        self._text = StandardInput() if self._path is None else _unpacked(self._path)
        self._packed: pa.NativeFile | None = None
        try:
            self._names, self._delimiter = self._header()
            self._empty = not self._text.peek(1)
        except BaseException:
            self.close()
            raise
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    def close(self) -> None:
        """Close the file; from stdin nothing more is read."""
        self._text.close()
        if self._packed is not None:
            self._packed.close()

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        return pa.schema([(name, pa.float64()) for name in points] + [(name, pa.string()) for name in others])

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were taken from it."""
        if self._path is None or self._packed is None or self._packed.closed:
            return None
        return float(self._packed.tell() / max(1, self._packed.size()))

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        if self._empty:
            return
        kinds = {name: pa.string() for name in others} | {name: pa.float64() for name in points}
        reader = arrow_csv.open_csv(
            self._rest(),
            # Without threads its errors name the row, and it is as fast.
            read_options=arrow_csv.ReadOptions(
                column_names=self._names, block_size=limits.LONGEST_LINE, use_threads=False
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # In a file of one column, an empty line is a row without a value.
                ignore_empty_lines=len(self._names) > 1,
            ),
            convert_options=arrow_csv.ConvertOptions(include_columns=list(kinds), column_types=kinds),
        )
        yield from after(skip, reader)

    def _rest(self) -> Any:
        """Return what comes after the first line.

        Files are opened and decompressed by Arrow, not by Python: the reader has a thread of its own that reads ahead,
        and a thread that is inside Python when the interpreter ends, after an error, would abort the process.
        """
        if self._path is None:
            return self._text
        self._packed = pa.OSFile(str(self._path))
        stream = pa.CompressedInputStream(self._packed, "gzip") if _is_packed(self._path) else self._packed
        stream.read(self._length)
        return stream

    def _header(self) -> tuple[list[str], str]:
        with decoding(self.name):
            line = self._text.readline(limits.LONGEST_NOTE)
            # A name in quotes may have several lines.
            for _ in range(_MOST_LINES):
                if line.count(b'"') % 2 == 0 or len(line) >= limits.LONGEST_NOTE:
                    break
                line += self._text.readline(limits.LONGEST_NOTE)
            self._length = len(line)
            text = line.decode("utf-8-sig").strip("\r\n")
        if not text or len(line) >= limits.LONGEST_NOTE or line.count(b'"') % 2:
            raise reject("source", "CSV with a first line of column names", f"none in {self.name}")
        delimiter = max(_DELIMITERS, key=text.count)
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except csv.Error:
            names = ["0"]
        if any(map(_is_number, names)):
            # The line is not quoted: it may be somebody's coordinates.
            raise reject("source", "CSV with a first line of column names", f"numbers in the first line of {self.name}")
        return names, delimiter


class CsvSink(Sink):
    """CSV with a first line of column names; null is an empty cell."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    geometries: ClassVar[bool | None] = False

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._stream = stream
        plain = text_schema(schema)
        others = [field.name for field in plain if why_not_plain(field) is not None]
        if others:
            raise reject("copy", "columns of numbers, texts or times where CSV is written", ", ".join(others))
        header = io.StringIO(newline="")
        # The csv module quotes names that contain a character of this terminator.
        csv.writer(header, lineterminator="\r\n").writerow(plain.names)
        stream.write(header.getvalue().removesuffix("\r\n").encode() + b"\n")
        self._writer = arrow_csv.CSVWriter(
            stream, plain, write_options=arrow_csv.WriteOptions(include_header=False, batch_size=_FORMATTED_ROWS)
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
        # Arrow's own gzip stream has only the slowest level.
        self._packed = gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
        super().__init__(pa.PythonFile(self._packed, "w"), schema)

    def close(self) -> None:
        """End the file."""
        super().close()
        self._packed.close()


class StandardInput:
    """Standard input, which can be closed while another thread waits for it; read by line, then in blocks.

    Arrow's reader of CSV reads in a thread of its own. A thread that still waits for input when the interpreter ends
    would abort the process, so it never waits for long, and finds the end of the input as soon as this is closed.
    """

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._held = b""
        self._reading = threading.Lock()
        self.closed = False

    def close(self) -> None:
        """End the input, and wait until no thread is inside `read`."""
        self.closed = True
        with self._reading:
            self._held = b""

    def readable(self) -> bool:
        """Whether it can be read, which Arrow asks."""
        return True

    def readline(self, limit: int) -> bytes:
        """Return a line, or `limit` bytes of it."""
        while b"\n" not in self._held and len(self._held) < limit and (more := self._next(limits.READ_BYTES)):
            self._held += more
        end = self._held.find(b"\n") + 1 or len(self._held)
        line, self._held = self._held[: min(end, limit)], self._held[min(end, limit) :]
        return line

    def peek(self, count: int) -> bytes:
        """Return some of the next bytes without taking them, none at the end."""
        self._held = self._held or self._next(max(count, limits.READ_BYTES))
        return self._held[:count]

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer only at the end."""
        with self._reading:
            blocks, missing = [self._held[:count]], count - len(self._held[:count])
            self._held = self._held[count:]
            while missing and (block := self._next(missing)):
                blocks.append(block)
                missing -= len(block)
            return b"".join(blocks)

    def _next(self, most: int) -> bytes:
        """Wait for some bytes and return them; none at the end."""
        while not self.closed:
            if os.name == "nt" or select.select([self._handle], [], [], _PATIENCE)[0]:
                return os.read(self._handle, most)
        return b""


def _is_packed(path: Path) -> bool:
    return path.name.casefold().endswith(".gz")


def _unpacked(path: Path) -> Any:
    return gzip.open(path) if _is_packed(path) else path.open("rb")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
