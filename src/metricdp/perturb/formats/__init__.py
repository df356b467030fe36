"""Files of points: CSV, Parquet and GeoParquet, GeoJSON, Arrow; one module each."""

from __future__ import annotations

from pathlib import Path

from metricdp._validation import reject
from metricdp.perturb import limits
from metricdp.perturb.formats.base import Sink, Source
from metricdp.perturb.formats.csv_text import CsvSink, CsvSource, GzippedCsvSink
from metricdp.perturb.formats.geojson import GeoJsonSink, GeoJsonSource
from metricdp.perturb.formats.ipc import IpcSink, IpcSource
from metricdp.perturb.formats.parquet import GeoParquetSink, ParquetSink, ParquetSource

__all__ = ["FORMATS", "STANDARD", "Sink", "Source", "open_source", "sink_kind", "suffixes"]

# Stands for stdin and stdout, which are CSV.
STANDARD = "-"

# What writes files of each format, and what reads them. The first whose ending fits a name counts.
FORMATS: dict[type[Sink], type[Source]] = {
    GzippedCsvSink: CsvSource,
    CsvSink: CsvSource,
    GeoParquetSink: ParquetSource,
    ParquetSink: ParquetSource,
    IpcSink: IpcSource,
    GeoJsonSink: GeoJsonSource,
}


def suffixes() -> tuple[str, ...]:
    """Return the endings of all formats."""
    return tuple(suffix for sink in FORMATS for suffix in sink.suffixes)


def sink_kind(path: str | Path, parameter: str = "target") -> type[Sink]:
    """Return what writes files of this name."""
    name = str(path).casefold()
    for kind in FORMATS:
        if name.endswith(kind.suffixes) or (name == STANDARD and kind is CsvSink):
            return kind
    raise reject(parameter, f"'-' or a file that ends in {', '.join(suffixes())}", repr(str(path)))


def open_source(path: str | Path, *, with_others: bool = True) -> Source:
    """Open a file of points.

    The schema lists columns beside the point's if `with_others`, which takes another pass over a GeoJSON file.
    """
    kind = sink_kind(path, "source")
    # Some formats are read twice or from their end, which pipes and devices do not allow; some of these never end.
    if str(path) != STANDARD and Path(path).stat() and not Path(path).is_file():
        raise reject("source", "a file, or '-' for what comes through a pipe", repr(str(path)))
    source = FORMATS[kind].opened(path, with_others=with_others)
    if len(source.schema) > limits.MOST_COLUMNS:
        source.close()
        raise reject("source", f"a table of at most {limits.MOST_COLUMNS:,} columns", f"{len(source.schema):,}")
    return source
