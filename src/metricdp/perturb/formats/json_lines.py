"""JSON lines: an object in every line, whose members are the columns."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from metricdp.errors import InvalidInputError
from metricdp.perturb import limits
from metricdp.perturb.copying import JSON_TEXT
from metricdp.perturb.formats.base import Sink, Source, decoding
from metricdp.perturb.formats.json_values import Names, batched, is_number, json_text, json_texts
from metricdp.perturb.formats.streams import Bytes
from metricdp.perturb.nested import NESTED
from metricdp.perturb.remote import shown

__all__ = ["JsonLinesSink", "JsonLinesSource"]

# Lines of nothing but white space are passed over, as fast as such a file can be decompressed.
_LINE = re.compile(rb"[^\s][^\n]*")

_MISSING = object()


class JsonLinesSource(Source):
    """A file of JSON objects, one in each line; the json module decodes them one by one.

    A first pass over the file finds the names of the columns. Coordinates become float64, other members JSON texts. A
    column's metadata tell whether some of its values, or all that are not null, are objects and arrays.

    pyarrow's own reader guesses types from the first lines, refuses a file whose later lines differ, and decodes nested
    values by recursion without a limit.
    """

    is_text: ClassVar[bool] = True

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self.name = shown(path)
        self._path, self._encoding, self._fraction = path, encoding, 0.0
        self._paths: dict[str, tuple[str, ...]] = {}
        names = Names()
        with decoding(self.name), closing(self._objects()) as objects:
            for number, members, _ in objects:
                names.add(members)
                if len(names) > limits.MOST_COLUMNS:
                    raise self._bad(number, f"more than {limits.MOST_COLUMNS:,} different names")
        self.schema = pa.schema(list(names.fields()))

    @classmethod
    def opened(cls, path: str | Path, *, with_others: bool, encoding: str | None = None) -> JsonLinesSource:
        """Open a file; the names of its columns take a first pass over it."""
        del with_others
        return cls(path, encoding)

    def close(self) -> None:
        """Do nothing: the file is open only while batches are read."""

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were read."""
        return self._fraction

    def reaching(self, names: Iterable[str]) -> Source:
        """Let dotted names lead into objects; which of them have such a member is seen when they are read."""
        for name in names:
            words = name.split(".")
            fits = [count for count in range(1, len(words)) if self._is_nested(".".join(words[:count]))]
            if name not in self.schema.names and fits:
                self._paths[name] = (".".join(words[: fits[0]]), *words[fits[0] :])
                inside = pa.field(name, pa.string(), metadata={**JSON_TEXT, NESTED: b"some"})
                self.schema = self.schema.append(inside)
        return self

    def selected(self, points: Sequence[str], others: Sequence[str]) -> pa.Schema:
        """Return the schema of `batches`."""
        return pa.schema([(name, pa.float64()) for name in points] + [self.schema.field(name) for name in others])

    def _is_nested(self, name: str) -> bool:
        return name in self.schema.names and NESTED in (self.schema.field(name).metadata or {})

    def _batches(
        self, points: Sequence[str], others: Sequence[str], skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        schema = self.selected(points, others)
        # A generator that an error leaves behind would keep its file open for as long as the error is looked at.
        with closing(self._objects()) as objects:
            found = self._rows(itertools.islice(objects, skip, None), points, others)
            yield from batched(found, schema)

    def _rows(
        self, objects: Iterator[tuple[int, dict[str, Any], int]], points: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[tuple[Any, ...], int]]:
        for number, members, place in objects:
            axes = [self._number(members, name, number) for name in points]
            texts = [self._text(members, name) for name in others]
            yield (*axes, *texts), place

    def _value(self, members: Any, name: str) -> Any:
        path = self._paths.get(name)
        if path is None:
            return members.get(name, _MISSING)
        for word in path:
            members = members.get(word, _MISSING) if isinstance(members, dict) else _MISSING
        return members

    def _number(self, members: dict[str, Any], name: str, number: int) -> float | None:
        value = self._value(members, name)
        if value is None or value is _MISSING:
            return None
        if not is_number(value):
            raise self._bad(number, f"a value of {name!r} that is no number")
        return float(value)

    def _text(self, members: dict[str, Any], name: str) -> str | None:
        value = self._value(members, name)
        return None if value is _MISSING else json_text(value)

    def _bad(self, number: int, what: str) -> InvalidInputError:
        return InvalidInputError(f"`{self.name}` must be a JSON object in every line, got {what} in line {number:,}.")

    def _objects(self) -> Generator[tuple[int, dict[str, Any], int], None, None]:
        """Yield the number of each line that is not blank, its object, and the bytes read until then."""
        decode = json.JSONDecoder(object_pairs_hook=_members).decode
        with Bytes(self._path, self._encoding) as content:
            for number, (line, place) in enumerate(self._lines(content), start=1):
                what = ""
                try:
                    value = decode(line.decode())
                except _RepeatedName:
                    what = "a name that appears twice in an object"
                except UnicodeDecodeError:
                    raise
                except (ValueError, RecursionError):
                    what = "text that is no JSON"
                if what or not isinstance(value, dict):
                    raise self._bad(number, what or "something else than an object")
                self._fraction = content.fraction() or 0.0
                yield number, value, place

    def _lines(self, content: Bytes) -> Iterator[tuple[bytes, int]]:
        """Yield the lines that are not blank, and the bytes read until then."""
        held, number, place = b"", 0, 0
        while block := content.read(limits.READ_BYTES):
            place += len(block)
            end = block.rfind(b"\n") + 1
            if end:
                for line in _LINE.findall((held + block[:end]).strip()):
                    number += 1
                    yield line, place
                held = b""
            held += block[end:]
            # White space alone may be endless.
            held = held.lstrip()
            if len(held) > limits.LONGEST_FEATURE:
                raise self._bad(number + 1, f"more than {limits.LONGEST_FEATURE:,} bytes")
        if held:
            yield held, place


class JsonLinesSink(Sink):
    """An object in every line."""

    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")
    is_text: ClassVar[bool] = True
    geometries: ClassVar[bool | None] = False
    rows_at_once: ClassVar[int] = 2**16

    def __init__(self, stream: pa.NativeFile, schema: pa.Schema) -> None:
        self._stream = stream
        self._keys = [f"{json.dumps(field.name, ensure_ascii=False)}: " for field in schema]

    def write(self, table: pa.Table) -> None:
        """Write some more lines."""
        if not len(table):
            return
        values = zip(*(json_texts(table, field) for field in table.schema), strict=True)
        lines = [self._object(texts) for texts in values]
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        """Do nothing: lines have no end."""

    def _object(self, texts: tuple[str | None, ...]) -> str:
        named = zip(self._keys, texts, strict=True)
        return f"{{{', '.join([key + text for key, text in named if text is not None])}}}\n"


class _RepeatedName(ValueError):  # noqa: N818 - never leaves this module
    """An object has two members of one name."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _RepeatedName
    return members
