"""GeoPackage layers of points, read through pyogrio (GDAL) after SQLite has looked at the file. Needs the extra `geo`.

A GeoPackage is an SQLite database, and GDAL runs what is in it: a view is a program. So the file is first opened
read-only by Python's own `sqlite3`, and only a layer that is a plain table is handed to GDAL.
"""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.formats.base import Sink, Source, after, decoding, unmarked
from metricdp.perturb.remote import is_url, shown

__all__ = ["GeoPackageSink", "GeoPackageSource"]

# How an SQLite file begins, and the application ids of GeoPackage from 1.2 on, and of 1.0 and 1.1.
_MAGIC = b"SQLite format 3\0"
_APPLICATIONS = tuple(int.from_bytes(word, "big") for word in (b"GPKG", b"GP10", b"GP11"))

# What SQLite keeps beside a file that a program is writing; GDAL would not see the rows in it.
_UNFINISHED = ("-wal", "-journal")

# GeoPackage's own index of places is the only virtual table that a reader has to expect.
_INDEX = re.compile(r"CREATE VIRTUAL TABLE\s+\S*\brtree_.* USING rtree\s*\(", re.IGNORECASE | re.DOTALL)

# The schema is a stranger's: none of its expressions is to be run.
_DISTRUST = "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA ignore_check_constraints=ON"

# Values that GDAL would not take it warns of, and its warning quotes the value. So they are looked for before.
_DATE = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_TIME = f"{_DATE}T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
_TIMES = " OR ".join(
    f"{{0}} GLOB '{_TIME}{fraction}{zone}'"
    for fraction in ("", ".[0-9][0-9][0-9]")
    for zone in ("", "Z", "[+-][0-9][0-9]:[0-9][0-9]")
)
# Times with an offset GDAL writes by itself, and warns of when it reads them; this warning quotes the time.
_QUOTING = "(Non-conformant|Invalid) content for record"
_SOUND = {
    "DATE": f"{{0}} GLOB '{_DATE}' AND strftime('%s', {{0}}) IS NOT NULL",
    "DATETIME": f"({_TIMES}) AND strftime('%s', {{0}}) IS NOT NULL",
    "BOOLEAN": "{0} IN (0, 1)",
    "REAL": "typeof({0}) IN ('real', 'integer')",
    "INTEGER": "typeof({0}) = 'integer'",
    **{
        name: f"typeof({{0}}) = 'integer' AND {{0}} BETWEEN {-(2**bits)} AND {2**bits - 1}"
        for name, bits in {"TINYINT": 7, "SMALLINT": 15, "MEDIUMINT": 31}.items()
    },
    "BLOB": "typeof({0}) = 'blob'",
    "TEXT": "typeof({0}) = 'text'",
}
_ALIASES = {"INT": "INTEGER", "DOUBLE": "REAL", "FLOAT": "REAL"}


@dataclass(frozen=True)
class _Layer:
    """A table of features: its name, and by name of a column the type that it is declared with."""

    name: str
    geometry: str
    types: dict[str, str]


class GeoPackageSource(Source):
    """The one layer of features of a GeoPackage, in bounded memory."""

    def __init__(self, path: str | Path) -> None:
        self.name = shown(path)
        if is_url(path):
            msg = f"{self.name} cannot be read from a URL, as SQLite reads from the disk; copy it there."
            raise InvalidInputError(msg)
        self._path = Path(path).absolute()
        self._path.open("rb").close()  # a missing or forbidden file says so itself
        self._require_quiet()
        self._raw = _pyogrio(self.name)
        _require_plain_name(self._path, self.name)
        with decoding(self.name), _gdal():
            with closing(_database(self._path)) as database:
                self._layer = self._checked(database)
            with self._opened(batch_size=1, return_fids=True) as (described, reader):
                self.schema = unmarked(reader.schema)
                self._fields = [str(name) for name in described["fields"]]
        self._rows, self._read = 0, 0

    def close(self) -> None:
        """Do nothing: the file is open only while batches are read."""

    def fraction(self) -> float | None:
        """Return the share of the rows that were read."""
        return min(1.0, self._read / self._rows) if self._rows else None

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        wanted = dict.fromkeys((*points, *others))
        with _gdal():
            with closing(_database(self._path)) as database:
                self._rows, widest = self._measured(database, [name for name in wanted if name in self._layer.types])
            fields = [name for name in self._fields if name in wanted]
            rest = wanted.keys() - {*fields, self._layer.geometry}
            with self._opened(
                columns=fields,
                read_geometry=self._layer.geometry in wanted,
                return_fids=bool(rest),
                batch_size=max(1, min(limits.CHUNK_ROWS, limits.BATCH_BYTES // max(1, widest))),
            ) as (_, reader):
                self._read = skip
                for batch in after(skip, reader):
                    self._read += len(batch)
                    yield batch

    @contextmanager
    def _opened(self, **options: Any) -> Iterator[tuple[dict[str, Any], Any]]:
        """Open the layer with GDAL, which then looks neither for a lock nor for other programs' changes."""
        # Not in a block of `catch_warnings`, which is for one thread only.
        warnings.filterwarnings("ignore", _QUOTING, RuntimeWarning)
        with self._raw.open_arrow(str(self._path), layer=self._layer.name, IMMUTABLE="YES", **options) as (
            described,
            stream,
        ):
            yield described, pa.RecordBatchReader.from_stream(stream)

    def _require_quiet(self) -> None:
        for ending in _UNFINISHED:
            beside = self._path.with_name(self._path.name + ending)
            if beside.exists() and beside.stat().st_size:
                self._refuse(f"{beside.name} lies beside it, so a program is writing it or was cut off; close it there")

    def _checked(self, database: sqlite3.Connection) -> _Layer:
        """Return the layer, of a file in which nothing is a program and no page is damaged."""
        if database.execute("PRAGMA application_id").fetchone()[0] not in _APPLICATIONS:
            self._refuse("it is an SQLite file, but no GeoPackage")
        for kind, words in database.execute("SELECT type, sql FROM sqlite_schema WHERE type IN ('table', 'view')"):
            text = str(words).lstrip()
            if kind == "view" or not (text.upper().startswith("CREATE TABLE") or _INDEX.match(text)):
                self._refuse("it has views or virtual tables; copy the layer to a file of its own")
        # Finds pages that are used twice, by which a small file would have endless rows.
        if database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            self._refuse("it is damaged; SQLite's `PRAGMA integrity_check` says more")
        return self._only_layer(database)

    def _only_layer(self, database: sqlite3.Connection) -> _Layer:
        found = database.execute(
            "SELECT table_name, column_name FROM gpkg_contents JOIN gpkg_geometry_columns USING (table_name)"
            " WHERE data_type = 'features' LIMIT 2"
        ).fetchall()
        if len(found) != 1:
            self._refuse(f"it has {'more than one layer' if found else 'no layer'} of features; it must have one")
        name, geometry = map(str, found[0])
        columns = database.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
        if not columns or any(hidden for *_, hidden in columns):
            self._refuse("its layer is no table, or has columns that are computed")
        types = {str(column): str(kind).upper().partition("(")[0].strip() for column, kind, _ in columns}
        if geometry not in types:
            self._refuse("its layer lacks the column of geometries that it names")
        return _Layer(name, geometry, types)

    def _measured(self, database: sqlite3.Connection, names: Sequence[str]) -> tuple[int, int]:
        """Return the number of rows and the bytes that one can have at most; refuse values of other types."""
        terms = ["count(*)"]
        for name in names:
            column, kind = _quoted(name), self._layer.types[name]
            kind = "BLOB" if name == self._layer.geometry else _ALIASES.get(kind, kind)
            sound = _SOUND.get(kind, _SOUND["TEXT"]).format(column)
            terms += [f"max(length(CAST({column} AS BLOB)))", f"total({column} IS NOT NULL AND NOT ({sound}))"]
        found = database.execute(f"SELECT {', '.join(terms)} FROM {_quoted(self._layer.name)}").fetchone()  # noqa: S608 - names are quoted
        for name, wrong in zip(names, found[2::2], strict=True):
            if wrong:
                self._refuse(f"column {name!r} has {int(wrong):,} values that its type does not allow")
        return found[0], sum((size or 0) + 8 for size in found[1::2])

    def _refuse(self, reason: str) -> NoReturn:
        msg = f"{self.name} cannot be read: {reason}."
        raise InvalidInputError(msg)


class GeoPackageSink(Sink):
    """Stands for the ending; outputs are not written as GeoPackage, which GDAL can only write to a path of its own."""

    suffixes: ClassVar[tuple[str, ...]] = (".gpkg",)
    is_written: ClassVar[bool] = False

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        raise NotImplementedError

    def write(self, table: pa.Table) -> None:
        """Never called."""
        raise NotImplementedError

    def close(self) -> None:
        """Never called."""
        raise NotImplementedError


def _pyogrio(name: str) -> Any:
    try:
        from pyogrio import raw  # noqa: PLC0415 - most users have no GeoPackages
    except ImportError:
        msg = f"{name} is read through pyogrio, which is not installed: pip install 'metricdp[geo]'."
        raise InvalidInputError(msg) from None
    return raw


def _require_plain_name(path: Path, name: str) -> None:
    """Refuse names from which pyogrio or GDAL would make another file's, in an archive or in the network."""
    from pyogrio.util import vsi_path  # noqa: PLC0415

    if str(path).startswith("/vsi") or vsi_path(str(path)) != str(path):
        msg = f"{name} has a name that GDAL reads as that of another file; rename it, or the folder that it is in."
        raise InvalidInputError(msg)


def _database(path: Path) -> sqlite3.Connection:
    """Open an SQLite file to be read only, without anything that its schema could make SQLite do."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            msg = "no SQLite file"
            raise ValueError(msg)
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.LONGEST_FEATURE)
    database.executescript(_DISTRUST)
    return database


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _gdal() -> Iterator[None]:
    """Make errors of SQLite and GDAL, which may quote the file, those of a damaged file."""
    try:
        yield
    except InvalidInputError:
        raise
    except (sqlite3.Error, RuntimeError):
        msg = "a damaged file"
        raise ValueError(msg) from None
