"""OpenStreetMap extracts in the PBF format, through pyrosm."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from metricdp._optional import optional
from metricdp.cities._checks import Source, check_lengths, check_nodes, index_of_ids
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["read_pbf"]


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
        *(zlib.error, struct.error, EOFError, OSError, ValueError),
    )
    try:
        # The default engine leaves files in the shared temporary folder; this one does not.
        nodes, edges = pyrosm.OSM(str(path), engine="in_memory").get_network(network_type, nodes=True)
        if edges is not None:
            # Without the column pyrosm warns; with it empty, streets are two-way, which is what OSM means.
            edges = edges if "oneway" in edges else edges.assign(oneway=None)
            nodes, edges = graphs.get_directed_edges(nodes, edges, network_type=network_type)
    except errors as error:
        reason = " ".join(str(error).split())
        message = f"{path}: the file must be an OpenStreetMap PBF extract, got: {reason}"
        raise InvalidInputError(message) from error
    if edges is None or len(edges) == 0:
        raise InvalidInputError(f"{path}: the file must hold roads of type {network_type!r}, got none.")
    nodes = nodes.sort_values("id", kind="stable")
    source = Source(str(path))
    ids = nodes["id"].to_numpy(np.int64)
    lon, lat = nodes["lon"].to_numpy(np.float64), nodes["lat"].to_numpy(np.float64)
    check_nodes(source, ids, lon, lat)
    length = edges["length"].to_numpy(np.float64)
    check_lengths(source, length, "length")
    u, v = (index_of_ids(source, key, edges[key].to_numpy(np.int64), ids) for key in ("u", "v"))
    return RoadNetwork(name or path.name.partition(".")[0], ids, lon, lat, u, v, length)
