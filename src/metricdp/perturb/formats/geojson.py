"""GeoJSON feature collections of points, read and written feature by feature."""

from __future__ import annotations

import codecs
import itertools
import json
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.copying import JSON_TEXT, NESTED, is_json
from metricdp.perturb.formats.base import Sink, Source, decoding

__all__ = ["GeoJsonSink", "GeoJsonSource"]

LON, LAT = "lon", "lat"

# A batch ends after so many features, or after so many values of properties, those that a feature lacks included, or
# after `limits.BATCH_BYTES` of the file.
_ROWS, _VALUES = 2**14, 2**20


class GeoJsonSource(Source):
    """A feature collection, decoded feature by feature: memory holds a few thousand of them.

    Points become the columns `lon` and `lat`, properties columns of JSON texts. A column's metadata tell whether some
    of its values, or all that are not null, are objects and arrays.

    with_properties : whether names of properties are wanted, which takes a first pass over the file.
    """

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool) -> GeoJsonSource:
        """Open a file; names of properties take a first pass over it."""
        return cls(path, with_properties=with_others)

    def __init__(self, path: str | Path, *, with_properties: bool) -> None:
        self.name = str(path)
        self._path = Path(path)
        self._size, self._done = self._path.stat().st_size, 0
        with decoding(self.name):
            json_fields = self._properties() if with_properties else []
        self.schema = pa.schema([pa.field(LON, pa.float64()), pa.field(LAT, pa.float64()), *json_fields])

    def close(self) -> None:
        """Do nothing: the file is open only while batches are read."""

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were read."""
        return self._done / self._size if self._size else None

    def _properties(self) -> list[pa.Field]:
        nested: dict[str, set[bool]] = {}
        with closing(self._features()) as features:
            for number, feature in enumerate(features, start=1):
                for name, value in (feature.get("properties") or {}).items():
                    kinds = nested.setdefault(name, set())
                    if value is not None:
                        kinds.add(isinstance(value, (dict, list)))
                if len(nested) > limits.MOST_COLUMNS:
                    raise self._bad(number, f"more than {limits.MOST_COLUMNS:,} different names of properties")
        # `lon` and `lat` are the point's own columns.
        return [_json_field(name, kinds) for name, kinds in nested.items() if name not in (LON, LAT)]

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        schema = self.selected(points, others)
        self._done = 0
        # A generator that an error leaves behind would keep its file open for as long as the error is looked at.
        with closing(self._features()) as opened:
            features = enumerate(opened, start=1)
            for _ in itertools.islice(features, skip):
                pass
            while rows := self._rows(features, others):
                columns = zip(zip(*rows, strict=True), schema, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(values, field.type) for values, field in columns], schema=schema
                )

    def _rows(self, features: Iterator[tuple[int, dict[str, Any]]], others: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the next features as rows of a batch: the point, then the properties."""
        rows: list[tuple[Any, ...]] = []
        begun, most = self._done, max(1, min(_ROWS, _VALUES // (1 + len(others))))
        for number, feature in features:
            texts = (_text(feature, name) for name in others)
            rows.append((*self._point(feature.get("geometry"), number), *texts))
            if len(rows) == most or self._done - begun > limits.BATCH_BYTES:
                break
        return rows

    def _point(self, geometry: Any, number: int) -> tuple[float | None, float | None]:
        if geometry is None:
            return None, None
        is_point = isinstance(geometry, dict) and geometry.get("type") == "Point"
        place = geometry.get("coordinates") if is_point else None
        if place == []:
            return None, None
        if not (isinstance(place, list) and len(place) >= 2 and all(_is_number(value) for value in place[:2])):
            raise self._bad(number, "a geometry that is no point of two numbers")
        return float(place[0]), float(place[1])

    def _bad(self, number: int, what: str) -> InvalidInputError:
        return InvalidInputError(f"`{self.name}` must be a GeoJSON FeatureCollection of points, got {what} "
                                 f"at feature {number:,}.")  # fmt: skip

    def _features(self) -> Generator[dict[str, Any], None, None]:
        """Yield the features; other members of the collection are skipped."""
        number, text = 0, _Text(self._path)
        try:
            for feature in text.members_of("features"):
                number, self._done = number + 1, text.bytes_read
                if not isinstance(feature, dict) or not isinstance(feature.get("properties") or {}, dict):
                    raise self._bad(number, "something else than a feature")
                yield feature
        except (_SyntaxError, UnicodeError):
            damaged = True
        else:
            damaged = False
        finally:
            text.close()
        if damaged:
            raise self._bad(number + 1, "text that is no JSON, or that ends too soon,")


class _SyntaxError(Exception):
    """The text is not a JSON object with the array; the error quotes nothing of it."""


class _Text:
    """JSON text of which only a part is in memory; each member of an array is decoded by the json module.

    ijson with its C backend is 1.2 times as fast (measured with 200,000 features) and not safe for files of strangers:
    it keeps the path to every open bracket, so that a feature of 80 kB, 40,000 brackets deep, takes 3.8 GB; it has no
    limit on the length of a value; and it refuses whole numbers of more than 64 bits, which may be somebody's ids.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._text, self._place, self._ended = "", 0, False
        self.bytes_read = 0

    def close(self) -> None:
        self._file.close()

    def members_of(self, key: str) -> Iterator[Any]:
        """Yield the members of the array under `key` of the object that the file is."""
        self._expect("{")
        found = False
        while self._peek() != "}":
            name = self._value()
            self._expect(":")
            if name == key:
                found = True
                yield from self._array()
            else:
                self._value()
            if self._peek() != "}":
                self._expect(",")
        self._place += 1
        if not found or self._peek() != "":
            raise _SyntaxError

    def _array(self) -> Iterator[Any]:
        self._expect("[")
        while self._peek() != "]":
            yield self._value()
            if self._peek() != "]":
                self._expect(",")
                if self._peek() == "]":
                    raise _SyntaxError
        self._expect("]")

    def _peek(self) -> str:
        """Return the next character that is no white space, "" at the end."""
        while True:
            while self._place < len(self._text):
                letter = self._text[self._place]
                if letter not in " \t\r\n":
                    return letter
                self._place += 1
            if not self._more(limits.READ_BYTES):
                return ""

    def _expect(self, letter: str) -> None:
        if self._peek() != letter:
            raise _SyntaxError
        self._place += 1

    def _value(self) -> Any:
        """Decode one value; as long as the text ends inside it, read on."""
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._place)
            except json.JSONDecodeError:
                end = -1
            except (ValueError, RecursionError):
                # A number of thousands of digits, or brackets nested too deep: reading on would not help.
                raise _SyntaxError from None
            # A number at the end of what was read may go on.
            if end >= 0 and (end < len(self._text) or self._ended):
                self._place = end
                return value
            held = len(self._text) - self._place
            # Twice as much each time, so that a long value is decoded a few times only.
            if held > limits.LONGEST_FEATURE or not self._more(max(limits.READ_BYTES, held)):
                if end < 0:
                    raise _SyntaxError
                self._ended = True

    def _more(self, count: int) -> bool:
        """Read on; return False at the end."""
        raw = self._file.read(count)
        self.bytes_read += len(raw)
        self._text = self._text[self._place :] + self._decoder.decode(raw, final=not raw)
        self._place = 0
        return bool(raw)


class GeoJsonSink(Sink):
    """A feature collection of points; other columns become properties."""

    suffixes: ClassVar[tuple[str, ...]] = (".geojson", ".json")
    geometries: ClassVar[bool | None] = False  # it makes its own
    needs_plane: ClassVar[bool] = True
    rows_at_once: ClassVar[int] = 2**16

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._stream = stream
        # The point's columns come first; copied columns may be called x and y too.
        self._axes = [name for name in schema.names if name in (LON, LAT, "x", "y")][:2]
        self._others = [field for field in schema if field.name not in self._axes]
        self._keys = [f"{json.dumps(field.name)}: " for field in self._others]
        self._between = b"\n"
        stream.write(b'{"type": "FeatureCollection", "features": [')

    def write(self, table: pa.Table) -> None:
        """Write some more features."""
        if not len(table):
            return
        points = zip(*(table.column(name).to_pylist() for name in self._axes), strict=True)
        values = zip(*(self._texts(table, field) for field in self._others), strict=True)
        lines = [self._feature(point, texts) for point, texts in zip(points, values, strict=True)]
        self._stream.write(self._between + ",\n".join(lines).encode())
        self._between = b",\n"

    def close(self) -> None:
        """End the collection."""
        self._stream.write(b"\n]}\n")

    def _feature(self, point: tuple[float | None, ...], texts: tuple[str | None, ...]) -> str:
        place = "null" if None in point else f'{{"type": "Point", "coordinates": [{point[0]!r}, {point[1]!r}]}}'
        named = zip(self._keys, texts, strict=True)
        properties = ", ".join([key + text for key, text in named if text is not None])
        return f'{{"type": "Feature", "geometry": {place}, "properties": {{{properties}}}}}'

    @staticmethod
    def _texts(table: pa.Table, field: pa.Field) -> Iterable[str | None]:
        values: list[Any] = table.column(field.name).to_pylist()
        if is_json(field):
            return values
        if pa.types.is_integer(field.type):
            return ["null" if value is None else str(value) for value in values]
        return map(_json, values)


def _text(feature: dict[str, Any], name: str) -> str | None:
    properties = feature.get("properties") or {}
    return _json(properties[name]) if name in properties else None


def _json_field(name: str, nested: set[bool]) -> pa.Field:
    """Return the column of a property; `nested` has True if values are objects or arrays, False if values are not."""
    mark = {NESTED: b"some" if False in nested else b"all"} if True in nested else {}
    return pa.field(name, pa.string(), metadata={**JSON_TEXT, **mark})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _json(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False, default=str)
