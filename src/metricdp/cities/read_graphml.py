"""OSMnx GraphML files, read as a stream.

networkx could read them too, but builds a graph of dictionaries first: gigabytes for a large city, when three
numbers per node and edge are wanted. A stream also lets an error name the element. Nothing is kept of what is not
wanted, and what a hostile file could blow up (entities, tags of megabytes, deep nesting) is refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.cities._checks import IntArray, Origin, check_lengths, check_nodes, index_of_ids, shown
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["read_graphml"]

# What is kept of each kind of element: attributes first, then data keys.
WANTED = {"node": (("id",), ("x", "y")), "edge": (("source", "target"), ("length",))}
Row = list[str | None]

CHUNK_BYTES = 65_536

# Tags and comments are looked at again from their beginning whenever more of them arrives (expat before 2.6), which
# takes time that grows with the square of their length.
LONGEST_TAG_BYTES = 1_000_000
DEEPEST = 100
LONGEST_NUMBER = 400
MOST_KEYS = 10_000


def read_graphml(path: Path, name: str | None = None) -> RoadNetwork:
    """Read the network that `osmnx.save_graphml` wrote; other GraphML with the same keys works too.

    Nodes need whole-number ids and the keys x (longitude) and y (latitude), edges the key length in metres.
    Edges of an undirected graph are taken both ways. A file with a document type (DTD) is refused, since it could
    define entities that grow without end or that stand for other files.
    """
    reader = _Reader(path)
    try:
        with path.open("rb") as file:
            reader.read(file)
    except expat.ExpatError as error:
        raise InvalidInputError(f"{path} is not well-formed XML: {error}.") from error
    except InvalidInputError:
        raise
    except (OSError, ValueError, LookupError) as error:  # unreadable, or an encoding XML does not know
        raise InvalidInputError(f"{path} is not readable XML: {error}.") from error
    return _network(path, name, reader.rows, undirected=reader.undirected)


class _Element:
    """A node or an edge that is being read: its tag, its attributes and the numbers found in it so far."""

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes, self.depth = tag, attributes, 0
        self.numbers: dict[str, str | None] = {}

    def row(self) -> Row:
        attributes, names = WANTED[self.tag]
        return [self.attributes.get(key) for key in attributes] + [self.numbers.get(key) for key in names]


class _Reader:
    """Collects the wanted values of nodes and edges, and whether the graph is undirected."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[str, list[Row]] = {"node": [], "edge": []}
        self.undirected = False
        self._path = path
        self._keys: dict[str, str] = {}
        self._depth = 0
        self._open: list[_Element] = []
        # The key of the number that is being read, and its text up to now.
        self._number, self._text = "", ""
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end

    def read(self, file: Any) -> None:
        fed = 0
        while chunk := file.read(CHUNK_BYTES):
            self._parser.Parse(chunk, False)  # noqa: FBT003 - expat takes no keywords
            fed += len(chunk)
            if fed - self._parser.CurrentByteIndex > LONGEST_TAG_BYTES:
                raise self._refused(f"have tags and comments of at most {LONGEST_TAG_BYTES:,} bytes", "a longer one")
        self._parser.Parse(b"", True)  # noqa: FBT003

    def _refused(self, rule: str, got: str) -> InvalidInputError:
        line = self._parser.CurrentLineNumber
        return InvalidInputError(f"{self._path}: the file must {rule}, got {got} on line {line}.")

    def _doctype(self, *_: object) -> None:
        raise self._refused("have no document type (remove the <!DOCTYPE …> and what it defines)", "one")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refused(f"have elements at most {DEEPEST} deep in each other", "a deeper one")
        tag = name.rpartition(":")[2]
        if tag == "data":
            self._start_data(attributes)
        elif tag in WANTED:
            element = _Element(tag, attributes)
            element.depth = self._depth
            self._open.append(element)
        elif tag == "key":
            self._add_key(attributes)
        elif tag == "graph" and attributes.get("edgedefault") == "undirected":
            self.undirected = True

    def _add_key(self, attributes: dict[str, str]) -> None:
        key = attributes.get("id", "")
        if key in self._keys:
            raise self._refused("declare every <key> once", f"{shown(key)} again")
        if len(self._keys) == MOST_KEYS:
            raise self._refused(f"declare at most {MOST_KEYS:,} keys", "more")
        self._keys[key] = attributes.get("attr.name", "")

    def _start_data(self, attributes: dict[str, str]) -> None:
        if not self._open or self._depth != self._open[-1].depth + 1:
            return
        element, key = self._open[-1], self._keys.get(attributes.get("key", ""), "")
        if key in WANTED[element.tag][1]:
            if key in element.numbers:
                raise self._refused(f"give `{key}` once for each {element.tag}", "a second one")
            element.numbers[key] = None
            self._number, self._text = key, ""
            self._parser.CharacterDataHandler = self._more_text

    def _more_text(self, text: str) -> None:
        self._text += text
        if len(self._text) > LONGEST_NUMBER:
            rule = f"give `{self._number}` as a number of at most {LONGEST_NUMBER} characters"
            raise self._refused(rule, "a longer one")

    def _end(self, _: str) -> None:
        if self._open:
            element = self._open[-1]
            if self._depth == element.depth:
                self.rows[element.tag].append(element.row())
                self._open.pop()
            elif self._number and self._depth == element.depth + 1:
                element.numbers[self._number] = self._text or None
                self._number = ""
                self._parser.CharacterDataHandler = None
        self._depth -= 1


def _network(path: Path, name: str | None, rows: dict[str, list[Row]], *, undirected: bool) -> RoadNetwork:
    nodes = _columns(rows["node"], 3)
    edges = _columns(rows["edge"], 3)
    node_origin = Origin(str(path), lambda row: f"for node {shown(nodes[0][row])}")
    edge_origin = Origin(str(path), lambda row: f"for the edge from {shown(edges[0][row])} to {shown(edges[1][row])}")
    ids = _whole(node_origin, "node id", nodes[0])
    lon, lat = _numbers(node_origin, "x", nodes[1]), _numbers(node_origin, "y", nodes[2])
    check_nodes(node_origin, ids, lon, lat)
    if not rows["edge"]:
        raise edge_origin.broken("edge", "present at least once (the network is empty)", "no edges")
    u = index_of_ids(edge_origin, "source", _whole(edge_origin, "source", edges[0]), ids)
    v = index_of_ids(edge_origin, "target", _whole(edge_origin, "target", edges[1]), ids)
    length = _numbers(edge_origin, "length", edges[2])
    check_lengths(edge_origin, length, "length")
    if undirected:
        u, v, length = np.concatenate([u, v]), np.concatenate([v, u]), np.concatenate([length, length])
    with node_origin.named():
        return RoadNetwork(name or path.stem, ids, lon, lat, u, v, length)


def _columns(rows: list[Row], width: int) -> NDArray[Any]:
    return np.array(rows, dtype=object).reshape(len(rows), width).T


def _whole(origin: Origin, column: str, values: NDArray[Any]) -> IntArray:
    # 18 digits always fit 64 bits, and no map has longer ids.
    bad = [re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value or "") is None for value in values]
    origin.forbid(np.array(bad, dtype=bool), column, "a whole number, as OpenStreetMap ids are", values)
    return values.astype(np.int64)


def _numbers(origin: Origin, column: str, values: NDArray[Any]) -> FloatArray:
    bad = np.array([not _is_number(value) for value in values], dtype=bool)
    origin.forbid(bad, column, "a number", values)
    return values.astype(np.float64)


def _is_number(value: str | None) -> bool:
    # None: the key is missing. Python alone takes 1_0 and digits of other alphabets for numbers.
    if value is None or "_" in value or not value.isascii():
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
