"""OSMnx GraphML files, read as a stream.

networkx could read them too, but builds a graph of dictionaries first: gigabytes for a large city, when three
numbers per node and edge are wanted. A stream also lets an error name the element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.cities._checks import IntArray, Source, check_lengths, check_nodes, index_of_ids
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["read_graphml"]

# What is kept of each kind of element: attributes first, then data keys.
WANTED = {"node": (("id",), ("x", "y")), "edge": (("source", "target"), ("length",))}
Row = list[str | None]


def read_graphml(path: Path, name: str | None = None) -> RoadNetwork:
    """Read the network that `osmnx.save_graphml` wrote; other GraphML with the same keys works too.

    Nodes need whole-number ids and the keys x (longitude) and y (latitude), edges the key length in metres.
    Edges of an undirected graph are taken both ways.
    """
    rows: dict[str, list[Row]] = {"node": [], "edge": []}
    undirected = False
    try:
        for kind, row in _rows(path):
            if kind == "undirected":
                undirected = True
            else:
                rows[kind].append(row)
    except ET.ParseError as error:
        raise InvalidInputError(f"{path}: the file must be well-formed XML, got: {error}.") from error
    except (OSError, ValueError, LookupError) as error:  # unreadable, or an encoding XML does not know
        raise InvalidInputError(f"{path}: the file must be readable XML, got: {error}.") from error
    return _network(path, name, rows, undirected=undirected)


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield ("node" | "edge", wanted values) in file order, and ("undirected", []) for such a graph."""
    keys: dict[str, str] = {}
    graph: ET.Element | None = None
    # Expat limits entity expansion and ElementTree fetches nothing: a hostile file can only fail.
    for event, element in ET.iterparse(path, events=("start", "end")):  # noqa: S314
        tag = element.tag.rpartition("}")[2]
        if event == "start":
            if tag == "graph":
                graph = element
                if element.get("edgedefault") == "undirected":
                    yield "undirected", []
        elif tag == "key":
            keys[element.get("id", "")] = element.get("attr.name", "")
        elif tag in WANTED:
            attributes, names = WANTED[tag]
            data = {keys.get(item.get("key", "")): item.text for item in element}
            yield tag, [element.get(key) for key in attributes] + [data.get(key) for key in names]
            if graph is not None:
                del graph[:]  # what was read is not needed again; without this the whole file stays in memory


def _network(path: Path, name: str | None, rows: dict[str, list[Row]], *, undirected: bool) -> RoadNetwork:
    nodes = _columns(rows["node"], 3)
    edges = _columns(rows["edge"], 3)
    node_source = Source(str(path), lambda row: f"for node {nodes[0][row]}")
    edge_source = Source(str(path), lambda row: f"for the edge from {edges[0][row]} to {edges[1][row]}")
    ids = _whole(node_source, "node id", nodes[0])
    lon, lat = _numbers(node_source, "x", nodes[1]), _numbers(node_source, "y", nodes[2])
    check_nodes(node_source, ids, lon, lat)
    if not rows["edge"]:
        raise edge_source.broken("edge", "present at least once (the network is empty)", "no edges")
    u = index_of_ids(edge_source, "source", _whole(edge_source, "source", edges[0]), ids)
    v = index_of_ids(edge_source, "target", _whole(edge_source, "target", edges[1]), ids)
    length = _numbers(edge_source, "length", edges[2])
    check_lengths(edge_source, length, "length")
    if undirected:
        u, v, length = np.concatenate([u, v]), np.concatenate([v, u]), np.concatenate([length, length])
    return RoadNetwork(name or path.stem, ids, lon, lat, u, v, length)


def _columns(rows: list[Row], width: int) -> NDArray[Any]:
    return np.array(rows, dtype=object).reshape(len(rows), width).T


def _whole(source: Source, column: str, values: NDArray[Any]) -> IntArray:
    # 18 digits always fit 64 bits, and no map has longer ids.
    bad = [re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value or "") is None for value in values]
    source.forbid(np.array(bad, dtype=bool), column, "a whole number, as OpenStreetMap ids are", values)
    return values.astype(np.int64)


def _numbers(source: Source, column: str, values: NDArray[Any]) -> FloatArray:
    bad = np.array([not _is_number(value) for value in values], dtype=bool)
    source.forbid(bad, column, "a number", values)
    return values.astype(np.float64)


def _is_number(value: str | None) -> bool:
    if value is None:  # the key is missing
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
