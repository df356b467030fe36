"""A movement model from roads and a speed, for places without public traces."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricdp._validation import FloatArray, positive, reject
from metricdp.errors import InvalidInputError
from metricdp.problem import Problem
from metricdp.traces.raster import Raster

__all__ = ["disc_kernel", "raster_of_roads", "road_density"]

# Share of the prior that is spread evenly: people are now and then away from roads.
_EVEN = 0.1

# Points along a side of a cell that decide how much of it lies within a circle.
_FINE = 8


def raster_of_roads(roads: Any, cell_km: float) -> Raster:
    """Return cells over the box of a problem, or over the nodes of a road network."""
    if isinstance(roads, Problem):
        if roads.projection is None:
            msg = "This problem has no projection; make it with `Problem.from_lonlat`, or give a road network."
            raise InvalidInputError(msg)
        return Raster.over(roads.bounds, cell_km, roads.projection)
    if not (hasattr(roads, "xy") and hasattr(roads, "projection")):
        raise reject("roads", "a road network (`cities.load`) or a problem", type(roads).__name__)
    box = np.array([roads.xy.min(axis=0), roads.xy.max(axis=0)])
    return Raster.over(box + np.array([[-0.5], [0.5]]) * positive("cell_km", cell_km), cell_km, roads.projection)


def road_density(roads: Any, raster: Raster) -> FloatArray:
    """Return how much road, or how much of a problem's prior, each cell holds; a little is spread over all cells."""
    if isinstance(roads, Problem):
        points, weights = roads.records, roads.prior
    elif roads.n_edges:
        points, weights = _along(roads, raster.cell_km)
    else:  # a network whose edges are not known
        points, weights = roads.xy, np.ones(len(roads.xy))
    cells = raster.cells_of(points)
    inside = cells >= 0
    mass = np.bincount(cells[inside], weights[inside], minlength=raster.n_cells)
    return (1 - _EVEN) * mass / mass.sum() + _EVEN / raster.n_cells


def disc_kernel(raster: Raster, reach_km: float, still: float) -> FloatArray:
    """Return a kernel of displacements: none with chance `still`, else evenly within `reach_km`."""
    longest = np.array(raster.shape) - 1
    reach = np.minimum(np.ceil(reach_km / raster.cell_km + 0.5).astype(int), longest)
    fine = (np.arange(_FINE) + 0.5) / _FINE - 0.5
    east, north = (((np.arange(-r, r + 1)[:, None] + fine) * raster.cell_km).ravel() for r in reach)
    within = np.hypot(east[:, None], north) <= max(reach_km, raster.cell_km / 2)
    counts = within.reshape(2 * reach[0] + 1, _FINE, 2 * reach[1] + 1, _FINE).sum(axis=(1, 3), dtype=np.float64)
    kernel = (1 - still) * counts / counts.sum()
    kernel[reach[0], reach[1]] += still
    return np.asarray(kernel)


def _along(roads: Any, spacing_km: float) -> tuple[FloatArray, FloatArray]:
    """Return points along straight edges, no more than `spacing_km` apart, and the length that each stands for."""
    start, end = roads.xy[roads.u], roads.xy[roads.v]
    length = np.hypot(*(end - start).T)
    counts = np.maximum(1, np.ceil(length / spacing_km).astype(np.int64))
    edge = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (place + 0.5) / counts[edge]
    return start[edge] + share[:, None] * (end - start)[edge], (length / counts)[edge]
