"""A city's road network: where its nodes are and how far apart they are by road."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import KDTree

from metricdp._validation import FloatArray, finite_array, reject, table
from metricdp.cities._checks import IntArray, Origin, check_edges, check_lengths, check_nodes
from metricdp.cities.design import build_problem
from metricdp.errors import InvalidInputError
from metricdp.geometry.projection import Equirectangular
from metricdp.problem import Problem

__all__ = ["RoadNetwork"]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class RoadNetwork:
    """An immutable road network.

    Parameters
    ----------
    name : str
        What to call it.
    ids : (n,) integers
        One id per node, as in the map; all different.
    lon, lat : (n,) array
        Where the nodes are, in WGS 84 degrees.
    u, v : (m,) integers
        The ends of each edge as node *indices*; an edge leads from u to v, a two-way street is two edges.
    length_m : (m,) array
        The edges' lengths in metres.
    task, task_distance_m : int and (n,) array, optional
        For a network whose edges are not known: one node and the road distance of every node to it.

    Attributes
    ----------
    xy : (n, 2) array
        The nodes in kilometres about the centre of their bounding box.
    projection : Equirectangular
        How `xy` maps to longitude and latitude.

    Examples
    --------
    >>> square = RoadNetwork("square", [7, 8, 9], [0.0, 0.01, 0.01], [0.0, 0.0, 0.01],
    ...                      [0, 1], [1, 2], [1200.0, 1150.0])
    >>> square.distances_km([0]).tolist()
    [[0.0, 1.2, 2.3499999999999996]]
    """

    name: str
    ids: IntArray
    lon: FloatArray
    lat: FloatArray
    xy: FloatArray
    u: IntArray
    v: IntArray
    length_m: FloatArray
    projection: Equirectangular
    task: int | None
    task_distance_m: FloatArray | None

    def __init__(
        self,
        name: str,
        ids: ArrayLike,
        lon: ArrayLike,
        lat: ArrayLike,
        u: ArrayLike = (),
        v: ArrayLike = (),
        length_m: ArrayLike = (),
        *,
        task: int | None = None,
        task_distance_m: ArrayLike | None = None,
    ) -> None:
        columns = {"ids": _whole("ids", ids), "u": _whole("u", u), "v": _whole("v", v)}
        floats = {"lon": _flat("lon", lon), "lat": _flat("lat", lat), "length_m": _flat("length_m", length_m)}
        n = len(columns["ids"])
        for key in ("lon", "lat"):
            if len(floats[key]) != n:
                raise reject(key, f"as long as `ids`, {n}", len(floats[key]))
        check_nodes(Origin(), columns["ids"], floats["lon"], floats["lat"])
        check_edges(Origin(), n, columns["u"], columns["v"], floats["length_m"])
        centre = Equirectangular.for_box(floats["lon"], floats["lat"])
        arrays: dict[str, NDArray[Any]] = {**columns, **floats}
        arrays["xy"] = centre.to_xy_km(floats["lon"], floats["lat"])
        if task_distance_m is not None:
            arrays["task_distance_m"] = _known_distances(task, task_distance_m, n)
        elif task is not None:
            raise reject("task", "given together with `task_distance_m`", task)
        for key, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, key, array)
        object.__setattr__(self, "name", str(name))
        object.__setattr__(self, "projection", centre)
        object.__setattr__(self, "task", None if task is None else int(task))
        if task_distance_m is None:
            object.__setattr__(self, "task_distance_m", None)

    def __repr__(self) -> str:
        return f"RoadNetwork({self.name!r}, nodes={self.n_nodes}, edges={self.n_edges})"

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of directed edges."""
        return len(self.u)

    def graph(self, *, directed: bool = False) -> csr_array[np.float64]:
        """Return the (n, n) sparse matrix of edge lengths in km, the shortest of parallel edges.

        With ``directed=False`` an edge may be travelled either way and the matrix is symmetric.
        """
        if directed:
            start, end, metres = self.u, self.v, self.length_m
        else:
            start, end = np.concatenate([self.u, self.v]), np.concatenate([self.v, self.u])
            metres = np.concatenate([self.length_m, self.length_m])
        # Sparse constructors add duplicates up; a traveller takes the shortest one.
        order = np.lexsort((metres, end, start))
        start, end, metres = start[order], end[order], metres[order]
        first = np.ones(len(start), dtype=bool)
        first[1:] = (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        # SciPy 1.13, the oldest supported, refuses to search matrices with 64-bit indices.
        ends = start[first].astype(np.int32), end[first].astype(np.int32)
        return csr_array((metres[first] / 1000, ends), shape=(self.n_nodes, self.n_nodes))

    def components(self) -> IntArray:
        """Return for each node the number of its weakly connected component."""
        return np.asarray(connected_components(self.graph(), directed=False)[1], dtype=np.int64)

    def largest_component(self) -> RoadNetwork:
        """Return the part of the network in its largest weakly connected component, in the same order."""
        self._need_edges("largest_component")
        label = self.components()
        return self._part(label == np.bincount(label).argmax())

    def within(self, bounds: ArrayLike) -> RoadNetwork:
        """Return the nodes inside a box of degrees, and the edges between them, in the same order.

        Parameters
        ----------
        bounds : (2, 2) array
            The south-western and the north-eastern corner, longitude first. A box whose west is larger than its east
            lies across the antimeridian.
        """
        self._need_edges("within")
        corners = table("bounds", bounds, columns=2)
        if len(corners) != 2 or corners[0, 0] == corners[1, 0] or corners[0, 1] >= corners[1, 1]:
            raise reject("bounds", "[[west, south], [east, north]] in degrees", corners.tolist())
        (west, south), (east, north) = corners
        width = (east - west) % 360 or 360.0
        inside = ((self.lon - west) % 360 <= width) & (self.lat >= south) & (self.lat <= north)
        if not inside.any():
            rule = f"a box in {self.name!r}, which has longitudes {_range(self.lon)} and latitudes {_range(self.lat)}"
            raise reject("bounds", rule, corners.tolist())
        return self._part(inside)

    def _part(self, keep: NDArray[np.bool_]) -> RoadNetwork:
        """Return some of the nodes, and the edges between them."""
        if keep.all():
            return self
        renumber = np.cumsum(keep) - 1
        kept = keep[self.u] & keep[self.v]
        ends = renumber[self.u[kept]], renumber[self.v[kept]]
        return RoadNetwork(self.name, self.ids[keep], self.lon[keep], self.lat[keep], *ends, self.length_m[kept])

    def distances_km(self, sources: ArrayLike, *, directed: bool = False, reverse: bool = False) -> FloatArray:
        """Return (sources, n) road distances in km; infinite where there is no way.

        Parameters
        ----------
        sources : (s,) integers
            Node indices.
        directed : bool
            Whether one-way streets bind.
        reverse : bool
            Distances from every node *to* the sources instead; the same thing unless ``directed``.
        """
        self._need_edges("distances_km")
        start = _whole("sources", sources)
        if len(start) == 0:
            raise reject("sources", "non-empty", "no node indices")
        outside = (start < 0) | (start >= self.n_nodes)
        Origin().forbid(outside, "sources", f"node indices from 0 to {self.n_nodes - 1}", start)
        matrix = self.graph(directed=directed)
        if directed and reverse:
            matrix = csr_array(matrix.T)
        # The undirected matrix is symmetric already; `directed=True` saves SciPy a transposed copy.
        return np.asarray(dijkstra(matrix, directed=True, indices=start), dtype=np.float64)

    def nearest_nodes(self, lonlat: ArrayLike) -> IntArray:
        """Return the index of the node nearest to each (longitude, latitude) row."""
        points = table("lonlat", lonlat, columns=2)
        _, index = self._tree.query(self.projection.to_xy_km(points[:, 0], points[:, 1]))
        return np.asarray(index, dtype=np.int64)

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.xy)

    def info(self) -> dict[str, Any]:
        """Return counts, the bounding box and the extent, as values that JSON can hold."""
        width, height = np.ptp(self.xy, axis=0)
        return {
            "name": self.name,
            "nodes": self.n_nodes,
            "edges": self.n_edges,
            "components": int(self.components().max()) + 1 if self.n_edges else None,
            "box": {
                "lon": [float(self.lon.min()), float(self.lon.max())],
                "lat": [float(self.lat.min()), float(self.lat.max())],
            },
            "extent_km": [float(width), float(height)],
            "street_km": float(self.length_m.sum() / 1000),
        }

    def problem(
        self,
        outputs: int | ArrayLike | str = 20,
        tasks: int | ArrayLike = 50,
        seed: int = 0,
        p: float = 2,
        *,
        prior: ArrayLike | None = None,
        task_weights: ArrayLike | None = None,
        directed: bool = False,
        choose: str = "random",
        bounds: ArrayLike | None = None,
        output_ids: ArrayLike | None = None,
        output_names: ArrayLike | None = None,
    ) -> Problem:
        """Return the problem of reporting one of K nodes or places when the traveller's road distance to tasks matters.

        See `metricdp.cities.design.build_problem` for the exact construction and every parameter.
        """
        return build_problem(
            self, outputs, tasks, seed, p,
            prior=prior, task_weights=task_weights, directed=directed, choose=choose, bounds=bounds,
            output_ids=output_ids, output_names=output_names,
        )  # fmt: skip

    def _need_edges(self, what: str) -> None:
        if self.n_edges == 0:
            message = f"`{what}` needs a network with edges, and {self.name!r} has none."
            raise InvalidInputError(message)


def _range(degrees: FloatArray) -> str:
    return f"{degrees.min():g} to {degrees.max():g}"


def _whole(name: str, values: ArrayLike) -> IntArray:
    array = np.array(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise reject(name, "a flat array of whole numbers", f"{array.dtype} of shape {array.shape}")
    return array.astype(np.int64)


def _flat(name: str, values: ArrayLike) -> FloatArray:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise reject(name, "an array of numbers", type(values).__name__) from None
    if array.ndim != 1:
        raise reject(name, "a flat array", f"shape {array.shape}")
    return array


def _known_distances(task: int | None, task_distance_m: ArrayLike, n_nodes: int) -> FloatArray:
    metres = finite_array("task_distance_m", task_distance_m)
    if metres.shape != (n_nodes,):
        raise reject("task_distance_m", f"of shape ({n_nodes},)", f"shape {metres.shape}")
    check_lengths(Origin(), metres, "task_distance_m")
    if task is None or not 0 <= task < n_nodes:
        raise reject("task", f"a node index from 0 to {n_nodes - 1}", task)
    if metres[task] != 0:
        raise reject("task_distance_m", "zero at the task itself", f"{metres[task]} at index {task}")
    return metres
