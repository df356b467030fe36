"""Scores of outputs for a map of ε: about how far each output is along paths, and hardly steeper than ε anywhere.

Distances along the edges of a graph are no scores themselves: between the anchors of a grid they may change faster than
ε allows, whichever way they are rounded. Interpolated multilinearly from the corners of cells they are steepest at one
of those corners, where slopes can be compared with the cell's own ε; whoever uses scores shrinks them by the worst
ratio. So nothing private rests on what is computed here. That the ratio is near 1 takes two things: near a border the
smaller ε counts for a few cells, and kinks between the directions of the graph are smoothed away.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import sparse
from scipy.ndimage import gaussian_filter, minimum_filter
from scipy.sparse.csgraph import dijkstra

from metricdp._validation import FloatArray
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm

__all__ = ["path_scores"]

# How far the edges of the graph reach, in anchors along an axis, by number of axes: with more directions its distances
# are more nearly those of paths.
_REACH = {1: 1, 2: 3}

# In a window of so many cells the least ε counts, and scores are smoothed by a Gaussian of so many anchors. With 64
# cells the worst ratio is 1.05 then for a map of two values that differ by a factor of 4; without either it is 2.6.
_WINDOW, _SMOOTHED = 5, 1.0

# Near an output distances have a kink, which interpolation would make steeper: it is rounded off within so many cells.
_ROUNDED_OFF = 1.5

# Where the ε of an edge is looked at, as shares of the edge.
_LOOKS = np.arange(0.1, 1.0, 0.2)


def path_scores(grid: Grid, epsilon: EpsilonMap, outputs: FloatArray, p: float) -> FloatArray:
    """Return the scores (anchors, outputs): about d_ε from each anchor of a grid of equal cells to each output.

    Outputs outside the box count as its nearest point.
    """
    local = minimum_filter(epsilon.least_over(grid.breakpoints), _WINDOW, mode="nearest")
    places = np.clip(outputs, *grid.bounds)
    # Each output starts from the anchors around it.
    weights = grid.weights(places)
    starts = weights.indices.reshape(len(places), -1)
    offsets = _lengths(grid, local, np.repeat(places, starts.shape[1], axis=0), grid.anchors[starts.ravel()], p)
    sources, row = np.unique(starts, return_inverse=True)
    between = dijkstra(_graph(grid, local, p), indices=sources)[row.reshape(starts.shape)]
    found = (offsets.reshape(starts.shape)[..., None] + between).min(axis=1)
    kink = _ROUNDED_OFF * _cost_of_a_cell(grid, local, places)[:, None]
    rounded = np.sqrt(found**2 + kink**2) - kink
    on_grid = rounded.reshape(-1, *grid.anchor_shape)
    smooth = gaussian_filter(on_grid, (0.0, *[_SMOOTHED] * grid.n_axes), mode="nearest")
    return np.ascontiguousarray(smooth.reshape(len(places), -1).T)


def _graph(grid: Grid, local: FloatArray, p: float) -> sparse.csr_array:
    """Return the lengths of straight edges from every anchor to those within reach, in different directions."""
    reach = _REACH.get(grid.n_axes, 1)
    moves = [move for move in itertools.product(range(-reach, reach + 1), repeat=grid.n_axes) if _leads_on(move)]
    shape = np.array(grid.anchor_shape)
    here = np.stack(np.unravel_index(np.arange(grid.n_anchors), grid.anchor_shape), axis=1)
    starts, ends = [], []
    for move in moves:
        there = here + move
        inside = ((there >= 0) & (there < shape)).all(axis=1)
        starts.append(np.flatnonzero(inside))
        ends.append(np.ravel_multi_index(tuple(there[inside].T), grid.anchor_shape))
    start, end = np.concatenate(starts), np.concatenate(ends)
    length = _lengths(grid, local, grid.anchors[start], grid.anchors[end], p)
    places = np.stack([start, end]).astype(np.int32)
    half = sparse.csr_array((length, places), shape=(grid.n_anchors, grid.n_anchors))
    return sparse.csr_array(half + half.T)


def _leads_on(move: tuple[int, ...]) -> bool:
    """Return whether a move is one of each pair of opposite ones, and no multiple of a shorter one."""
    return move > (0,) * len(move) and math.gcd(*move) == 1


def _lengths(grid: Grid, local: FloatArray, left: FloatArray, right: FloatArray, p: float) -> FloatArray:
    """Return about ∫ε ds along segments, from the ε of cells at a few places."""
    values = local.ravel()
    looks = [values[grid.cell_numbers(left + share * (right - left))] for share in _LOOKS]
    return np.asarray(np.mean(looks, axis=0) * norm(right - left, p))


def _cost_of_a_cell(grid: Grid, local: FloatArray, points: FloatArray) -> FloatArray:
    """Return ε times the longest side of a cell, for the cell of each point."""
    longest = max(float(np.diff(edges).max()) for edges in grid.breakpoints)
    return local.ravel()[grid.cell_numbers(points)] * longest
