"""GeoJSON feature collections of points, read and written feature by feature."""

from __future__ import annotations

import codecs
import itertools
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.formats.base import Sink, Source, decoding
from metricdp.perturb.formats.json_values import Names, batched, is_number, json_text, json_texts
from metricdp.perturb.formats.streams import Bytes
from metricdp.perturb.remote import shown

__all__ = ["GeoJsonSink", "GeoJsonSource"]

LON, LAT = "lon", "lat"


class GeoJsonSource(Source):
    """A feature collection, decoded feature by feature: memory holds a few thousand of them.

    Points become the columns `lon` and `lat`, properties columns of JSON texts. A column's metadata tell whether some
    of its values, or all that are not null, are objects and arrays.

    with_properties : whether names of properties are wanted, which takes a first pass over the file.
    """

    is_text: ClassVar[bool] = True

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool, encoding: str | None = None) -> GeoJsonSource:
        """Open a file; names of properties take a first pass over it."""
        return cls(path, encoding, with_properties=with_others)

    def __init__(self, path: str | Path, encoding: str | None = None, *, with_properties: bool) -> None:
        self.name = shown(path)
        self._path, self._encoding, self._fraction = path, encoding, 0.0
        with decoding(self.name):
            json_fields = self._properties() if with_properties else []
        self.schema = pa.schema([pa.field(LON, pa.float64()), pa.field(LAT, pa.float64()), *json_fields])

    def close(self) -> None:
        """Do nothing: the file is open only while batches are read."""

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were read."""
        return self._fraction

    def _properties(self) -> list[pa.Field]:
        names = Names()
        with closing(self._features()) as features:
            for number, (feature, _) in enumerate(features, start=1):
                names.add(feature.get("properties") or {})
                if len(names) > limits.MOST_COLUMNS:
                    raise self._bad(number, f"more than {limits.MOST_COLUMNS:,} different names of properties")
        # `lon` and `lat` are the point's own columns.
        return [field for field in names.fields() if field.name not in (LON, LAT)]

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        schema = self.selected(points, others)
        # A generator that an error leaves behind would keep its file open for as long as the error is looked at.
        with closing(self._features()) as features:
            found = self._rows(itertools.islice(enumerate(features, start=1), skip, None), others)
            yield from batched(found, schema)

    def _rows(
        self, features: Iterator[tuple[int, tuple[dict[str, Any], int]]], others: Sequence[str]
    ) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Yield features as rows of a batch, the point before the properties, and how far the file was read."""
        for number, (feature, place) in features:
            texts = (_text(feature, name) for name in others)
            yield (*self._point(feature.get("geometry"), number), *texts), place

    def _point(self, geometry: Any, number: int) -> tuple[float | None, float | None]:
        if geometry is None:
            return None, None
        is_point = isinstance(geometry, dict) and geometry.get("type") == "Point"
        place = geometry.get("coordinates") if is_point else None
        if place == []:
            return None, None
        if not (isinstance(place, list) and len(place) >= 2 and all(is_number(value) for value in place[:2])):
            raise self._bad(number, "a geometry that is no point of two numbers")
        return float(place[0]), float(place[1])

    def _bad(self, number: int, what: str) -> InvalidInputError:
        return InvalidInputError(f"`{self.name}` must be a GeoJSON FeatureCollection of points, got {what} "
                                 f"at feature {number:,}.")  # fmt: skip

    def _features(self) -> Generator[tuple[dict[str, Any], int], None, None]:
        """Yield the features, and how many bytes were read until then; other members of the collection are skipped."""
        number, damaged = 0, False
        with Bytes(self._path, self._encoding) as content:
            text = _Text(content)
            try:
                for feature in text.members_of("features"):
                    number += 1
                    if not isinstance(feature, dict) or not isinstance(feature.get("properties") or {}, dict):
                        raise self._bad(number, "something else than a feature")
                    self._fraction = content.fraction() or 0.0
                    yield feature, text.bytes_read
            except _SyntaxError:
                damaged = True
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

    def __init__(self, content: Bytes) -> None:
        self._content = content
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._text, self._place, self._ended = "", 0, False
        self.bytes_read = 0

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
        raw = self._content.read(count)
        self.bytes_read += len(raw)
        self._text = self._text[self._place :] + self._decoder.decode(raw, final=not raw)
        self._place = 0
        return bool(raw)


class GeoJsonSink(Sink):
    """A feature collection of points; other columns become properties."""

    suffixes: ClassVar[tuple[str, ...]] = (".geojson", ".json")
    is_text: ClassVar[bool] = True
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
        values = zip(*(json_texts(table, field) for field in self._others), strict=True)
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


def _text(feature: dict[str, Any], name: str) -> str | None:
    properties = feature.get("properties") or {}
    return json_text(properties[name]) if name in properties else None
