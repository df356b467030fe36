"""OpenStreetMap extracts in the PBF format, through pyrosm."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from metricdp._optional import optional
from metricdp.cities._checks import Origin, check_lengths, check_nodes, index_of_ids
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["read_pbf"]

# The format's own limits for a blob's header, and for a blob both packed and unpacked.
LARGEST_HEADER, LARGEST_BLOB = 64 * 2**10, 32 * 2**20

# Extracts unpack to two or three times their size. Every unpacked byte may become a node of a hundred bytes.
MOST_TIMES, MOST_BESIDES = 10, 4 * 2**20

# Numbers of fields in the format's messages BlobHeader and Blob.
DATASIZE = 3
RAW, ZLIB, OTHERS = 1, 3, (4, 5, 6, 7)


def read_pbf(path: Path, name: str | None = None, network_type: str = "driving") -> RoadNetwork:
    """Read the roads of an `.osm.pbf` extract, nodes in the order of their ids.

    Every bend of a street is a node. A two-way street becomes two edges.

    Parameters
    ----------
    path : Path
        The extract.
    name : str, optional
        What to call the network; the file's name without its endings by default.
    network_type : str
        Which roads: "driving", "driving+service", "walking", "cycling" or "all".
    """
    pyrosm = optional("pyrosm", "cities", "Reading an .osm.pbf file")
    graphs = optional("pyrosm.graphs", "cities", "Reading an .osm.pbf file")
    errors = (
        optional("pyrosm.exceptions", "cities", "Reading an .osm.pbf file").PBFException,
        optional("google.protobuf.message", "cities", "Reading an .osm.pbf file").Error,
        # pyrosm follows some numbers of a file unchecked, into lists that are shorter.
        *(zlib.error, struct.error, EOFError, OSError, ValueError, LookupError, ArithmeticError, TypeError),
    )
    try:
        with path.open("rb") as file:
            _check_blobs(file, path.stat().st_size)
        # The default engine leaves files in the shared temporary folder; this one does not.
        nodes, edges = pyrosm.OSM(str(path), engine="in_memory").get_network(network_type, nodes=True)
        if edges is not None:
            # Without the column pyrosm warns; with it empty, streets are two-way, which is what OSM means.
            edges = edges if "oneway" in edges else edges.assign(oneway=None)
            nodes, edges = graphs.get_directed_edges(nodes, edges, network_type=network_type)
    except errors as error:
        reason = " ".join(str(error).split()).rstrip(".")
        message = f"{path} is not an OpenStreetMap PBF extract: {reason}."
        raise InvalidInputError(message) from error
    if edges is None or len(edges) == 0:
        raise InvalidInputError(f"{path} has no roads of type {network_type!r}.")
    nodes = nodes.sort_values("id", kind="stable")
    origin = Origin(str(path))
    ids = nodes["id"].to_numpy(np.int64)
    lon, lat = nodes["lon"].to_numpy(np.float64), nodes["lat"].to_numpy(np.float64)
    check_nodes(origin, ids, lon, lat)
    length = edges["length"].to_numpy(np.float64)
    check_lengths(origin, length, "length")
    u, v = (index_of_ids(origin, key, edges[key].to_numpy(np.int64), ids) for key in ("u", "v"))
    with origin.named():
        return RoadNetwork(name or path.name.partition(".")[0], ids, lon, lat, u, v, length)


def _check_blobs(file: BinaryIO, size: int) -> None:
    """Raise unless the file is a chain of blobs that ends where the file does and unpacks to a decent size.

    pyrosm follows sizes as they are given: one below zero sends it back to where it was, for ever.
    """
    left = MOST_BESIDES + MOST_TIMES * size
    while (at := file.tell()) < size:
        (length,) = struct.unpack("!L", _exactly(file, 4, size - at))
        if length > LARGEST_HEADER:
            raise ValueError(f"a blob's header of more than {LARGEST_HEADER:,} bytes")
        header = dict(_fields(_exactly(file, length, size - at - 4)))
        datasize = header.get(DATASIZE)
        if not isinstance(datasize, int) or datasize > LARGEST_BLOB:
            raise ValueError(f"a blob without a size, or with one of more than {LARGEST_BLOB:,} bytes")
        left -= _unpacked_size(_exactly(file, datasize, size - file.tell()))
        if left < 0:
            most = f"{MOST_TIMES} times its size (and {MOST_BESIDES:,} bytes)"
            raise ValueError(f"a file that unpacks to more than {most}")


def _exactly(file: BinaryIO, count: int, left: int) -> bytes:
    """Read `count` bytes of the `left` that the file still holds."""
    if count > left:
        raise EOFError("a file that ends too early")
    return file.read(count)


def _unpacked_size(blob: bytes) -> int:
    contents = [(number, value) for number, value in _fields(blob) if number in (RAW, ZLIB, *OTHERS)]
    if len(contents) != 1:
        raise ValueError("a blob without contents, or with several")
    ((number, value),) = contents
    if not isinstance(value, bytes) or number in OTHERS:
        raise ValueError("a blob that is packed otherwise than by zlib")
    if number == RAW:
        return len(value)
    unpacking = zlib.decompressobj()
    plain = unpacking.decompress(value, LARGEST_BLOB)
    if not unpacking.eof:
        raise ValueError(f"a blob that is cut off, or unpacks to more than {LARGEST_BLOB:,} bytes")
    return len(plain)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message: their numbers, and whole numbers or bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError("a message with a field of an unknown kind")
        if length > len(message) - at:
            raise EOFError("a message that ends too early")
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place in a message, and the place after it."""
    value = 0
    for step, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << (7 * step)
        if byte < 128:
            return value, at + step + 1
    raise EOFError("a message that ends too early")
