"""Files of points: CSV, TSV, JSON lines, GeoJSON, Parquet and GeoParquet, Arrow, GeoPackage; one module each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.formats.base import Extended, Sink, Source
from metricdp.perturb.formats.csv_text import CsvSink, CsvSource, TsvSink, TsvSource
from metricdp.perturb.formats.geojson import GeoJsonSink, GeoJsonSource
from metricdp.perturb.formats.geopackage import GeoPackageSink, GeoPackageSource
from metricdp.perturb.formats.ipc import IpcSink, IpcSource
from metricdp.perturb.formats.json_lines import JsonLinesSink, JsonLinesSource
from metricdp.perturb.formats.packing import COMPRESSIONS, Compression
from metricdp.perturb.formats.parquet import GeoParquetSink, ParquetSink, ParquetSource
from metricdp.perturb.formats.streams import STANDARD
from metricdp.perturb.remote import file_name, is_url, shown

__all__ = [
    "COMPRESSIONS",
    "FORMATS",
    "STANDARD",
    "Sink",
    "SinkKind",
    "Source",
    "endings",
    "open_source",
    "sink_kind",
    "suffixes",
]

# What writes files of each format, and what reads them. The first whose ending fits a name counts. A format that is
# text may have the ending of a compression after its own.
FORMATS: dict[type[Sink], type[Source]] = {
    CsvSink: CsvSource,
    TsvSink: TsvSource,
    JsonLinesSink: JsonLinesSource,
    GeoParquetSink: ParquetSource,
    ParquetSink: ParquetSource,
    IpcSink: IpcSource,
    GeoJsonSink: GeoJsonSource,
    GeoPackageSink: GeoPackageSource,
}


@dataclass(frozen=True)
class SinkKind:
    """What writes a file: its format, and how the whole of it is compressed, if it is."""

    format: type[Sink]
    compression: Compression | None = None

    def __call__(self, stream: pa.NativeFile, schema: pa.Schema) -> Sink:
        """Begin a file; the stream stays the caller's to close."""
        if self.compression is None:
            return self.format(stream, schema)
        return _Packed(self.format, self.compression.pack(stream), schema)


class _Packed(Sink):
    """A file of some format, compressed."""

    def __init__(self, kind: type[Sink], packed: pa.NativeFile, schema: pa.Schema) -> None:
        self._packed = packed
        stream = packed if isinstance(packed, pa.NativeFile) else pa.PythonFile(packed, "w")
        self._inner = kind(stream, schema)

    def write(self, table: pa.Table) -> None:
        """Write some more rows."""
        self._inner.write(table)

    def close(self) -> None:
        """End the file."""
        self._inner.close()
        self._packed.close()

    def abandon(self) -> None:
        """Give the file up."""
        self._inner.abandon()


def suffixes() -> tuple[str, ...]:
    """Return all endings that names of files may have."""
    plain = [(suffix, sink.is_text) for sink in FORMATS for suffix in sink.suffixes]
    packed = [suffix + more for suffix, is_text in plain if is_text for more in COMPRESSIONS]
    return (*(suffix for suffix, _ in plain), *packed)


def endings() -> str:
    """Return a sentence's part that lists the endings."""
    formats = ", ".join(suffix for sink in FORMATS for suffix in sink.suffixes)
    return f"{formats} (the texts among them also with {', '.join(COMPRESSIONS)})"


def sink_kind(path: str | Path, parameter: str = "target") -> SinkKind:
    """Return what writes files of this name; if it is that of a `target`, it must be a format that is written."""
    name = file_name(path).casefold()
    if name == STANDARD:
        return SinkKind(CsvSink)
    ending = next((ending for ending in COMPRESSIONS if name.endswith(ending)), "")
    for kind in FORMATS:
        if name.removesuffix(ending).endswith(kind.suffixes) and (kind.is_text or not ending):
            if parameter == "target" and not kind.is_written:
                msg = (
                    f"{shown(path)} cannot be written: files that end in {kind.suffixes[0]} are only read; "
                    "write .geoparquet or .geojson."
                )
                raise InvalidInputError(msg)
            return SinkKind(kind, COMPRESSIONS.get(ending))
    raise reject(parameter, f"'-' or a file that ends in {endings()}", repr(shown(path)))


def open_source(
    path: str | Path,
    *,
    with_others: bool = True,
    encoding: str | None = None,
    names: Iterable[str] = (),
    constants: Mapping[str, str | None] | None = None,
) -> Source:
    """Open a file of points.

    Parameters
    ----------
    path : str or Path
        A file, a URL, or "-" for stdin.
    with_others : bool
        Whether the schema has to list columns beside the point's, which takes another pass over a GeoJSON file.
    encoding : str, optional
        Of a text file, by default UTF-8. A byte order mark counts for more.
    names : iterable of str
        Columns that will be asked for. Dotted names lead into structs and JSON objects.
    constants : mapping, optional
        Texts of further columns that are the same in all rows; a column of the file comes first.
    """
    kind = sink_kind(path, "source")
    reader = FORMATS[kind.format]
    if encoding is not None and not reader.is_text:
        raise reject("encoding", "given for text files only", f"a file that ends in {Path(file_name(path)).suffix}")
    # Some formats are read twice or from their end, which pipes and devices do not allow; some of these never end.
    on_disk = str(path) != STANDARD and not is_url(path)
    if on_disk and Path(path).stat() and not Path(path).is_file():
        raise reject("source", "a file, or '-' for what comes through a pipe", repr(str(path)))
    opened = reader.opened(path, with_others=with_others, encoding=encoding)
    if len(opened.schema) > limits.MOST_COLUMNS:
        opened.close()
        raise reject("source", f"a table of at most {limits.MOST_COLUMNS:,} columns", f"{len(opened.schema):,}")
    source = opened.reaching(names)
    return Extended(source, constants=constants) if constants else source
