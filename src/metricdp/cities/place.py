"""Road networks by place name, through OSMnx: the one thing here that needs the internet."""

from __future__ import annotations

import numpy as np

from metricdp._optional import optional
from metricdp.cities._checks import Origin, check_lengths, check_nodes
from metricdp.cities.network import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["from_place"]


def from_place(place: str, name: str | None = None, network_type: str = "drive") -> RoadNetwork:
    """Download the road network of a place, such as "Ghent, Belgium", from OpenStreetMap.

    OSMnx keeps what it downloads where ``osmnx.settings.cache_folder`` says.

    Parameters
    ----------
    place : str
        What OpenStreetMap's search would find.
    name : str, optional
        What to call the network; the place by default.
    network_type : str
        Which roads, in the words of OSMnx: "drive", "drive_service", "walk", "bike", "all".

    Raises
    ------
    ConnectionError
        OpenStreetMap could not be reached.
    InvalidInputError
        OpenStreetMap knows no such place, or no roads there.
    ModuleNotFoundError
        OSMnx is not installed.
    """
    osmnx = optional("osmnx", "cities", "Downloading a place by name")
    requests = optional("requests", "cities", "Downloading a place by name")
    try:
        graph = osmnx.graph_from_place(place, network_type=network_type)
    except requests.exceptions.RequestException as error:
        message = (
            f"OpenStreetMap could not be reached for {place!r}. Check the connection, or load a file "
            "instead: OSMnx GraphML, .osm.pbf or a folder with nodes.csv and edges.csv."
        )
        raise ConnectionError(message) from error
    except (ValueError, TypeError) as error:  # OSMnx's own errors are ValueErrors; TypeError: no area found
        message = f"`place` must be a place with roads on OpenStreetMap, got {place!r}: {error}"
        raise InvalidInputError(message) from error
    nodes = graph.nodes(data=True)
    ids = np.array([node for node, _ in nodes], dtype=np.int64)
    lon, lat = (np.array([data[key] for _, data in nodes], dtype=np.float64) for key in ("x", "y"))
    origin = Origin(place)
    check_nodes(origin, ids, lon, lat)
    index = {node: row for row, node in enumerate(ids.tolist())}
    edges = list(graph.edges(data=True))
    ends = np.array([(index[u], index[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2)
    length = np.array([data["length"] for _, _, data in edges], dtype=np.float64)
    check_lengths(origin, length, "length")
    return RoadNetwork(name or place, ids, lon, lat, ends[:, 0], ends[:, 1], length)
