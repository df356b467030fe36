"""The answer that shows a map of ε: all of it is public."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.norms import norm
from metricdp.mechanisms.base import Mechanism

__all__ = ["cell_radii", "map_answer"]

# Sums of many products of a few roundings each.
_ROUNDED_DOWN = 1 - 1e-10


def map_answer(name: str, mechanism: Mechanism, sha256: str) -> bytes:
    """Return the answer to a request for the map of a mechanism whose ε varies."""
    local, plane = mechanism.epsilon_map, mechanism.plane_map
    assert local is not None
    assert plane is not None
    answer = {
        "mechanism": name,
        "sha256": sha256,
        "unit": None if mechanism.projection is None else "km",
        "breakpoints": [points.tolist() for points in local.breakpoints],
        "breakpoints_lonlat": _in_degrees(mechanism),
        "values": local.values.tolist(),
        "plane_values": plane.values.tolist(),
        "radii": cell_radii(mechanism).tolist(),
    }
    return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()


def cell_radii(mechanism: Mechanism) -> FloatArray:
    """Return a radius for each cell of a map, as people measure lengths and rounded down.

    From any point of the cell to any point of the box within the radius, no report is more than e times likelier from
    one than from the other. With f(s) the largest ε of all cells within s of the cell, the straight way to a point at
    distance R costs at most ∫ f(s) ds from 0 to R, and rounding of both points at most r times the largest ε.
    """
    plane = mechanism.plane_map
    assert plane is not None
    left = 1 - mechanism.promise.rounding * plane.max
    if left <= 0:
        return np.zeros(plane.shape)
    corners = _corners(plane)
    found = np.empty(len(corners))
    for part in chunks(len(corners), 8 * len(corners) * plane.n_axes):
        found[part] = _radii(corners[part], corners, plane, mechanism.p, left)
    return found.reshape(plane.shape) * _ROUNDED_DOWN / mechanism.promise.straight


def _radii(some: FloatArray, corners: FloatArray, plane: EpsilonMap, p: float, allowed: float) -> FloatArray:
    """Return the radii of some cells, given by their corners (n, 2, N), among all."""
    gaps = np.maximum(corners[None, :, 0] - some[:, None, 1], some[:, None, 0] - corners[None, :, 1])
    away = norm(np.maximum(gaps, 0.0), p)
    order = np.argsort(away, axis=1, kind="stable")
    steps = np.take_along_axis(away, order, axis=1)
    largest = np.maximum.accumulate(plane.values.ravel()[order], axis=1)
    spent = np.cumsum(largest[:, :-1] * np.diff(steps, axis=1), axis=1)
    last = (spent <= allowed).sum(axis=1)
    row = np.arange(len(some))
    before = np.concatenate([np.zeros((len(some), 1)), spent], axis=1)[row, last]
    return np.asarray(steps[row, last] + (allowed - before) / largest[row, last])


def _corners(plane: EpsilonMap) -> FloatArray:
    """Return the lower and the upper corner of every cell, as (cells, 2, N)."""
    sides = (
        np.stack(np.meshgrid(*(points[which] for points in plane.breakpoints), indexing="ij"), axis=-1)
        for which in (slice(None, -1), slice(1, None))
    )
    return np.stack([side.reshape(-1, plane.n_axes) for side in sides], axis=1)


def _in_degrees(mechanism: Mechanism) -> list[list[float]] | None:
    if mechanism.projection is None:
        return None
    local: Any = mechanism.epsilon_map
    east, north = local.breakpoints
    lon = mechanism.projection.to_lonlat(np.column_stack([east, np.zeros_like(east)]))[:, 0]
    lat = mechanism.projection.to_lonlat(np.column_stack([np.zeros_like(north), north]))[:, 1]
    return [lon.tolist(), lat.tolist()]
