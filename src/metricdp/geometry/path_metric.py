"""The path metric of a map of ε, bounded from above.

d_ε(x, x') is the least ∫ε ‖ds‖_p over paths from x to x' inside the box. Any path bounds it from above: here the
straight segment and chains of segments between points on the borders of cells, whichever is shorter. Along a border the
smaller ε counts, since a path may run as near to it as it likes on that side. All answers are rounded up.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from metricdp._chunks import chunks
from metricdp._rounding import product_above
from metricdp._validation import FloatArray
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm, norm_above

__all__ = ["PathMetric"]

# Sums of a few thousand products of a few roundings each, many times over.
_ROUNDED_UP = 1 + 1e-11

# A computed point of a segment is off by a few roundings of coordinates; so is a share of the segment, of 1.
_OFF = 2.0**-47

# A side of a cell is cut into as many parts as these limits allow: nodes in all, and nodes of one cell.
_PARTS, _MOST_MEMBERS = (8, 4, 2, 1), 32

# Chains have all their distances computed at once up to so many points, and one by one for so few pairs.
_MOST_NODES, _FEW_PAIRS = 2500, 64

# Segments of all chains together, about 200 MB; a file of kilobytes may hold a map on many axes that has far more.
_MOST_SEGMENTS = 2**21


@dataclass(frozen=True)
class PathMetric:
    """Upper bounds of distances that count each cell's own ε.

    epsilon : the map, per unit of the coordinates.
    p : order of the norm.
    """

    epsilon: EpsilonMap
    p: float

    def between(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return a number that is at least d_ε, for pairs of points (n, N) of the box."""
        straight = self.straight(left, right)
        if self.epsilon.is_constant:
            return straight
        return np.fmin(straight, self._by_chains(left, right))

    def radii(self, points: FloatArray, distance: float) -> FloatArray:
        """Return radii R, rounded down, so that d_ε is at most `distance` to every point of the box within R.

        With f(s) the largest ε of the cells within s of a point, the straight way to a point at R costs at most
        ∫ f(s) ds from 0 to R.
        """
        found = np.empty(len(points))
        for part in chunks(len(points), 8 * self.epsilon.values.size):
            found[part] = self._radii(points[part], distance)
        # A sum over n cells, one after the other, is off by up to n roundings: more than a constant for large maps.
        return np.nextafter(found / (_ROUNDED_UP + 2.0**-52 * self.epsilon.values.size), 0.0)

    def _radii(self, points: FloatArray, distance: float) -> FloatArray:
        away = np.nextafter(norm(self._away(points), self.p) / _ROUNDED_UP, 0.0)
        order = np.argsort(away, axis=1, kind="stable")
        # Up to the distance of the next cell the largest ε so far counts.
        steps = np.take_along_axis(away, order, axis=1)
        largest = np.maximum.accumulate(self.epsilon.values.ravel()[order], axis=1)
        spent = np.concatenate(
            [np.zeros((len(points), 1)), np.cumsum(largest[:, :-1] * np.diff(steps), axis=1)], axis=1
        )
        last = (spent <= distance).sum(axis=1) - 1
        row = np.arange(len(points))
        return np.asarray(steps[row, last] + (distance - spent[row, last]) / largest[row, last])

    def _away(self, points: FloatArray) -> FloatArray:
        """Return how far each cell is from each point along each axis, as (points, cells, N)."""
        gaps = [
            np.maximum(np.maximum(edges[:-1] - points[:, [axis]], points[:, [axis]] - edges[1:]), 0.0)
            for axis, edges in enumerate(self.epsilon.breakpoints)
        ]
        shape = (len(points), *self.epsilon.shape)
        spread = [
            np.broadcast_to(
                gap.reshape([len(points), *(-1 if other == axis else 1 for other in range(len(gaps)))]), shape
            )
            for axis, gap in enumerate(gaps)
        ]
        return np.stack(spread, axis=-1).reshape(len(points), -1, len(gaps))

    def straight(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return ∫ε ‖ds‖_p along the straight segments between pairs of points (n, N), rounded up."""
        found = np.empty(len(left))
        cuts = sum(len(points) for points in self.epsilon.breakpoints)
        for part in chunks(len(left), 8 * cuts * left.shape[1]):
            # Lengths that are too large for floats are infinite.
            with np.errstate(over="ignore", invalid="ignore"):
                found[part] = self._straight(left[part], right[part])
        return found

    def _straight(self, left: FloatArray, right: FloatArray) -> FloatArray:
        move = right - left
        shares = [np.zeros((len(left), 1)), np.ones((len(left), 1))]
        for axis, points in enumerate(self.epsilon.breakpoints):
            with np.errstate(divide="ignore"):
                crossing = (points[1:-1] - left[:, [axis]]) / move[:, [axis]]
            shares.append(np.clip(np.nan_to_num(crossing, nan=0.0), 0.0, 1.0))
        cut = np.sort(np.concatenate(shares, axis=1), axis=1)
        middle = ((cut[:, 1:] + cut[:, :-1]) / 2)[..., None]
        places = np.clip(left[:, None] + middle * move[:, None], *_ordered(left[:, None], right[:, None]))
        # A point that rounding may have moved across a border counts with the larger ε of the two sides.
        off = product_above(_OFF, max(float(np.abs(points).max()) for points in self.epsilon.breakpoints))
        local = self.epsilon.most_within(places.reshape(-1, left.shape[1]), off).reshape(len(left), -1)
        # Shares of the largest ε: what is too small for floats beside it is far below the term for rounding.
        mean = (local / self.epsilon.max * np.diff(cut, axis=1)).sum(axis=1) + cut.shape[1] * _OFF
        return product_above(mean * _ROUNDED_UP, product_above(self.epsilon.max, norm_above(move, self.p)))

    def _by_chains(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the lengths of the shortest chains, infinite where they would take too long to find."""
        if _segments(self.epsilon) > _MOST_SEGMENTS:
            return np.full(len(left), np.inf)
        chains = self._chains
        if chains.n_nodes > _MOST_NODES and len(left) > _FEW_PAIRS:
            return np.full(len(left), np.inf)
        found = np.empty(len(left))
        for part in chunks(len(left), chains.members.shape[1] ** 2):
            first, to_first = chains.ends(left[part])
            last, to_last = chains.ends(right[part])
            inner = self._between_nodes(first, last)
            with np.errstate(over="ignore"):
                found[part] = (to_first[:, :, None] + inner + to_last[:, None, :]).min(axis=(1, 2))
        return product_above(found, _ROUNDED_UP)

    def _between_nodes(self, first: NDArray[np.intp], last: NDArray[np.intp]) -> FloatArray:
        if self._chains.n_nodes <= _MOST_NODES:
            return np.asarray(self._all_nodes[first[:, :, None], last[:, None, :]])
        sources, place = np.unique(first, return_inverse=True)
        lengths = dijkstra(self._chains.graph, indices=sources)
        return np.asarray(lengths[place.reshape(first.shape)[:, :, None], last[:, None, :]])

    @cached_property
    def _all_nodes(self) -> FloatArray:
        return np.asarray(dijkstra(self._chains.graph))

    @cached_property
    def _chains(self) -> _Chains:
        return _Chains(self.epsilon, self.p)


class _Chains:
    """Segments inside cells, between nodes that are spread over their borders.

    nodes : (n, N). members : the nodes of each cell, (cells, m). values : ε of each cell.
    """

    def __init__(self, epsilon: EpsilonMap, p: float) -> None:
        self.p = p
        self.cells = Grid(epsilon.breakpoints)
        self.values = epsilon.values.ravel()
        n_axes = epsilon.n_axes
        parts = _parts(epsilon)
        ticks = [
            np.interp(np.arange(parts * (len(x) - 1) + 1) / parts, np.arange(len(x)), x) for x in epsilon.breakpoints
        ]
        shape = tuple(map(len, ticks))
        corner = np.stack(np.unravel_index(np.arange(epsilon.values.size), epsilon.shape), axis=1)
        steps = np.array(list(itertools.product(range(parts + 1), repeat=n_axes)))
        border = steps[((steps == 0) | (steps == parts)).any(axis=1)]
        around = parts * corner[:, None] + border
        numbers, members = np.unique(
            np.ravel_multi_index(tuple(np.moveaxis(around, -1, 0)), shape), return_inverse=True
        )
        self.members = members.reshape(len(corner), len(border))
        places = np.unravel_index(numbers, shape)
        self.nodes = np.stack([tick[place] for tick, place in zip(ticks, places, strict=True)], axis=1)
        self.n_nodes = len(self.nodes)

    def ends(self, points: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Return the nodes of each point's cell, and how far they are from it."""
        cell = self.cells.cell_numbers(points)
        members = self.members[cell]
        return members, product_above(
            self.values[cell, None], norm_above(self.nodes[members] - points[:, None], self.p)
        )

    @cached_property
    def graph(self) -> Any:
        """The lengths of the segments, the shorter where two cells share one."""
        first, second = np.triu_indices(self.members.shape[1], k=1)
        start, end = self.members[:, first].ravel(), self.members[:, second].ravel()
        length = product_above(
            np.repeat(self.values, len(first)), norm_above(self.nodes[start] - self.nodes[end], self.p)
        )
        order = np.argsort(length, kind="stable")
        _, once = np.unique((start * self.n_nodes + end)[order], return_index=True)
        kept = order[once]
        places = np.stack([start[kept], end[kept]]).astype(np.int32)
        half = sparse.csr_array((length[kept], places), shape=(self.n_nodes, self.n_nodes))
        return half + half.T


def _parts(epsilon: EpsilonMap) -> int:
    """Return into how many parts sides are cut."""
    return next(k for k in _PARTS if k == 1 or _fits(k, epsilon))


def _members(parts: int, n_axes: int) -> int:
    """Return the nodes of one cell."""
    return (parts + 1) ** n_axes - (parts - 1) ** n_axes


def _segments(epsilon: EpsilonMap) -> int:
    """Return the segments of all cells."""
    members = _members(_parts(epsilon), epsilon.n_axes)
    return epsilon.values.size * members * (members - 1) // 2


def _fits(parts: int, epsilon: EpsilonMap) -> bool:
    """Return whether sides may be cut into so many parts."""
    members = _members(parts, epsilon.n_axes)
    return members <= _MOST_MEMBERS and members * epsilon.values.size <= 2 * _MOST_NODES


def _ordered(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.minimum(left, right), np.maximum(left, right)
