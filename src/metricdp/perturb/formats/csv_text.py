"""Comma- and tab-separated text with a first line of column names; from stdin too."""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import csv as arrow_csv

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.copying import why_not_plain
from metricdp.perturb.formats.base import Sink, Source, after, as_text, decoding, text_schema
from metricdp.perturb.formats.streams import STANDARD, Bytes, share_read, unpacked
from metricdp.perturb.remote import shown

__all__ = ["CsvSink", "CsvSource", "TsvSink", "TsvSource"]

# What stands for no number: what pandas and Arrow take for it, and what databases write.
_NULLS = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "\\N", "n/a", "nan", "null",
]  # fmt: skip

# Lines that the names may take up, in quotes.
_MOST_LINES = 2**8

# Rows that Arrow formats at once.
_FORMATTED_ROWS = 2**14


class CsvSource(Source):
    r"""CSV from a file, or from stdin for "-". Coordinates are read as float64, other columns as text, unchanged.

    In columns of numbers an empty cell, NA, NaN, null, \N and their like mean null.
    """

    is_text: ClassVar[bool] = True
    delimiters: ClassVar[str] = ",;\t|"

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self.name = shown(path)
        self._path, self._encoding, self._begun = path, encoding, False
        with decoding(self.name):
            self._text = Bytes(path, encoding)
        self._packed: pa.NativeFile | None = None
        try:
            with decoding(self.name):
                line = self._first_line()
                self._empty = not self._text.peek(1)
            self._names, self._delimiter = self._header(line)
        except BaseException:
            self.close()
            raise
        self.schema = pa.schema([(name, pa.string()) for name in self._names])

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool, encoding: str | None = None) -> CsvSource:
        """Open a file in some encoding, by default UTF-8."""
        del with_others
        return cls(path, encoding)

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
        if not self._text.native:
            return self._text.fraction()
        return None if self._packed is None else share_read(self._packed)

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
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(kinds), column_types=kinds, null_values=_NULLS
            ),
        )
        yield from after(skip, reader)

    def _rest(self) -> Any:
        """Return what comes after the first line.

        Where they can be, files are opened and decompressed by Arrow, not by Python: the reader has a thread of its own
        that reads ahead, and a thread that is inside Python when the interpreter ends, after an error, would abort the
        process.
        """
        if not self._text.native:
            if self._begun and str(self._path) != STANDARD:
                self._text.close()
                self._text = Bytes(self._path, self._encoding)
                self._first_line()
            self._begun = True
            return self._text
        self._packed, stream = unpacked(self._path)
        stream.read(self._text.taken)
        return stream

    def _first_line(self) -> str:
        line = self._text.readline(limits.LONGEST_NOTE)
        # A name in quotes may have several lines.
        for _ in range(_MOST_LINES):
            if line.count(b'"') % 2 == 0 or len(line) >= limits.LONGEST_NOTE:
                break
            line += self._text.readline(limits.LONGEST_NOTE)
        if len(line) >= limits.LONGEST_NOTE or line.count(b'"') % 2:
            return ""
        return line.decode().strip("\r\n")

    def _header(self, text: str) -> tuple[list[str], str]:
        if not text:
            raise reject("source", "CSV with a first line of column names", f"none in {self.name}")
        if "\0" in text:
            msg = (
                f"The first line of {self.name} has NUL characters, as UTF-16 has when it is read as UTF-8; say what "
                "it is with `encoding`, such as utf-16-le."
            )
            raise InvalidInputError(msg)
        delimiter = max(self.delimiters, key=text.count)
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except csv.Error:
            names = ["0"]
        if any(map(_is_number, names)):
            # The line is not quoted: it may be somebody's coordinates.
            raise reject("source", "CSV with a first line of column names", f"numbers in the first line of {self.name}")
        return names, delimiter


class TsvSource(CsvSource):
    """The same, with tabs between the cells, whatever else is in the names."""

    delimiters: ClassVar[str] = "\t"


class CsvSink(Sink):
    """CSV with a first line of column names; null is an empty cell."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    geometries: ClassVar[bool | None] = False
    is_text: ClassVar[bool] = True
    delimiter: ClassVar[str] = ","

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        plain = text_schema(schema)
        others = [field.name for field in plain if why_not_plain(field) is not None]
        if others:
            raise reject("copy", "columns of numbers, texts or times where CSV is written", ", ".join(others))
        header = io.StringIO(newline="")
        # The csv module quotes names that contain a character of this terminator.
        csv.writer(header, delimiter=self.delimiter, lineterminator="\r\n").writerow(plain.names)
        stream.write(header.getvalue().removesuffix("\r\n").encode() + b"\n")
        options = arrow_csv.WriteOptions(include_header=False, batch_size=_FORMATTED_ROWS, delimiter=self.delimiter)
        self._writer = arrow_csv.CSVWriter(stream, plain, write_options=options)

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        # In one chunk: pyarrow 15 writes the chunk before an empty one twice.
        if len(table):
            self._writer.write_table(as_text(table).combine_chunks())

    def close(self) -> None:
        """End the file."""
        self._writer.close()


class TsvSink(CsvSink):
    """The same, with tabs between the cells."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv",)
    delimiter: ClassVar[str] = "\t"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
