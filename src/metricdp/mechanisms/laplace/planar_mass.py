"""Exact probabilities of planar Laplace noise: what falls into the squares of each label."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from metricdp._validation import FloatArray
from metricdp.mechanisms.laplace.squares import Squares

__all__ = ["PlanarMass", "count_panels", "panels_per_edge"]

# Walls are cut into panels no longer than this over the rate, so that few quadrature nodes resolve the decay
# e^{−rate·r} along them.
_LONGEST = 0.6

# Gauss–Legendre nodes that reach full accuracy from this many panel lengths away on: the integrand has a pole
# at the point, and the error is about (4 · distance / length)^(−2 · nodes).
_BY_DISTANCE = ((2.5, 8), (5.0, 6), (16.0, 4), (56.0, 3))
# Nodes that resolve the decay along panels longer than this over the rate.
_BY_LENGTH = ((0.0, 3), (0.08, 4), (0.36, 5))
# Panels that carry a wall to infinity: lengths in units of 1/rate and of their distance from the box, and
# nodes.
_RAY_LENGTH, _RAY_GROWTH, _RAY_NODES = 8.0, 1.6, 12

# Mass further out than this over the rate is below rounding, next to what a label's nearest wall contributes.
_NEGLIGIBLE = 50.0

# Mass further out than this over the rate, 3e-12, shows in no expected loss.
_OUT_OF_SIGHT = 30.0

# Nodes that keep the absolute error of a panel below 1e-13 from this distance over the rate on, and the most of them
# with which single precision does no harm.
_BY_SIGHT = ((5.0, 4), (12.5, 3), (19.5, 2), (26.0, 1))
_NODES_OF_SINGLES = 2

# Points that look at the same panels share a cell this wide over the rate; in it they are sorted by so many bits of
# each coordinate.
_VIEW_SIDE, _BITS = 6.0, 8

# Marks panels that need not be looked at.
_NO_NODES = -1

# Points are taken together when they share a cell of this many panel lengths, and no wider than this over the
# rate; at most so many at once, and so many (panel, point) pairs.
_BLOCK_SIDE, _BLOCK_REACH, _BLOCK_POINTS, _BLOCK_NUMBERS = 4.0, 1.2, 64, 2**20

# Terms of the series for panels near a point, where rate · r ≤ 0.6 · (2.5 + 1) + 1.2 · √2 < 4.
_TERMS = 34

# Replaces an offset of zero where a point lies exactly on a wall, so that the point counts as above the wall, as
# it does in `Squares.square_of`.
_NEXT_TO_ZERO = 1e-150


@dataclass(frozen=True, eq=False)
class PlanarMass:
    """Label probabilities for noise of density rate²/(2π) e^{−rate ‖·‖_2}.

    With T(r) = (1 + rate·r) e^{−rate·r} the tail of the radius, the mass of a region R around a point x is

        z(x) = 1[x ∈ R] − (1/2π) ∮_{∂R} T(r) dθ,

    so only the *walls* between squares of different labels matter. A wall at signed distance a across and
    from t₁ to t₂ along adds c = (1/2π) ∫ T(r) a/r² dt to the label above it and −c to the label below: rows
    sum to 1 as they are. Walls are cut into panels. Far from a point c is a Gauss–Legendre sum of terms of
    one sign, so it keeps its relative accuracy however small T is; near it, c = (Δθ − ∫ (1 − T) a/r² dt) / 2π
    with the integral as a power series in rate·r whose terms ∫ r^m dt are closed forms. Squares on the border
    reach out to infinity; so do the walls between them.
    """

    squares: Squares
    labels: NDArray[np.intp]
    rate: float
    n_outputs: int
    box: FloatArray

    def rows(self, points: FloatArray) -> FloatArray:
        """Return the label probabilities of each point."""
        rows = np.zeros((len(points), self.n_outputs))
        home = self.labels.ravel()[self.squares.square_of(points)]
        rows[np.arange(len(points)), home] = 1.0
        if self._panels.count:
            for block in self._blocks(points):
                rows[block] += (self._gather @ self._contributions(points[block])).T
        return rows

    def expected(self, points: FloatArray, values: FloatArray) -> FloatArray:
        """Return the mean of each point's values over the labels, as if its probabilities were off by 1e-11.

        values : (points, outputs), a number for each label.

        Walls that are out of sight of a point are not looked at. If 1/rate is short against the box that saves nearly
        all of the work, and what it costs is the relative accuracy of tiny probabilities.
        """
        found = values[np.arange(len(points)), self.labels.ravel()[self.squares.square_of(points)]].astype(float)
        if not self._panels.count:
            return found
        for block in self._views(points):
            panels, nearest = self._seen_from(points[block])
            contributions = self._likely_contributions(panels, nearest, points[block])
            rows = _gathered(panels, self.n_outputs) @ contributions
            found[block] += np.einsum("ki,ik->i", rows, values[block])
        return found

    def _views(self, points: FloatArray) -> Iterator[NDArray[np.intp]]:
        """Yield the numbers of points that lie close together, so that they see about the same panels."""
        place = (points - self.squares.window[0]) * (self.rate / _VIEW_SIDE)
        cell = np.floor(place)
        order = np.lexsort((_z_order(place - cell), *cell.T))
        moved = (np.diff(cell[order], axis=0) != 0).any(axis=1)
        for group in np.split(order, np.flatnonzero(moved) + 1):
            for start in range(0, len(group), _BLOCK_POINTS):
                yield group[start : start + _BLOCK_POINTS]

    def _seen_from(self, points: FloatArray) -> tuple[_Panels, FloatArray]:
        """Return the panels within sight of a block of points, and lower bounds on their distances."""
        middle = (points.max(axis=0) + points.min(axis=0)) / 2
        reach = _OUT_OF_SIGHT / self.rate + float(np.hypot(*np.ptp(points, axis=0))) / 2
        tree, numbers, longest = self._tree
        near = tree.query_ball_point(middle, reach + longest / 2)
        panels = self._panels.take(np.concatenate([numbers[near], np.flatnonzero(self._panels.ray)]))
        nearest = panels.nearest(points)
        seen = np.flatnonzero(nearest <= _OUT_OF_SIGHT / self.rate)
        return panels.take(seen), nearest[seen]

    def _likely_contributions(self, panels: _Panels, nearest: FloatArray, points: FloatArray) -> FloatArray:
        """Return 2πc of panels for a block of points, each with an absolute error of about 1e-13."""
        nodes = self._nodes(panels, nearest)
        enough = np.where(panels.ray, _RAY_NODES, _step(_BY_SIGHT, self.rate * nearest))
        np.copyto(nodes, enough, where=enough > 0)
        result = np.empty((panels.count, len(points)))
        for count in np.unique(nodes):
            which = np.flatnonzero(nodes == count)
            across, start, stop = panels.seen_from(points, which)
            if count == 0:
                result[which] = self._by_pairs(across, start, stop)
                continue
            # Where so few nodes do, single precision does too.
            kind = np.float32 if count <= _NODES_OF_SINGLES else np.float64
            offsets: list[Any] = [offset.astype(kind, copy=False) for offset in (across, start, stop)]
            result[which] = _far(offsets[0], offsets[1], offsets[2], self.rate, int(count))
        return result

    def _by_pairs(self, across: FloatArray, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Return 2πc of panels near a block: each pair of a panel and a point for itself is near or far."""
        beside = np.maximum(np.maximum(start, -stop), 0.0)
        near = np.hypot(across, beside) < _BY_DISTANCE[0][0] * (stop - start)
        result = np.empty_like(across)
        result[near] = _near(across[near], start[near], stop[near], self.rate)
        far = ~near
        result[far] = _far(across[far], start[far], stop[far], self.rate, _BY_DISTANCE[0][1])
        return result

    @cached_property
    def _tree(self) -> tuple[cKDTree, NDArray[np.intp], float]:
        """The middles of panels that are not rays, the numbers of these panels, and the longest of them."""
        numbers = np.flatnonzero(~self._panels.ray)
        low, high = (corner[numbers] for corner in self._panels.corners)
        return cKDTree((low + high) / 2), numbers, float(self._panels.length[numbers].max())

    def _blocks(self, points: FloatArray) -> Iterator[NDArray[np.intp]]:
        """Yield the numbers of points that lie close together, few enough for arrays over all panels."""
        limit = max(1, min(_BLOCK_POINTS, _BLOCK_NUMBERS // self._panels.count))
        cell = np.floor((points - self.squares.window[0]) / self._block_side)
        order = np.lexsort(cell.T)
        moved = (np.diff(cell[order], axis=0) != 0).any(axis=1)
        for group in np.split(order, np.flatnonzero(moved) + 1):
            for start in range(0, len(group), limit):
                yield group[start : start + limit]

    def _contributions(self, points: FloatArray) -> FloatArray:
        """Return 2πc of every panel for a block of points, (panels, points); negligible ones are zero."""
        panels = self._panels
        nearest = panels.nearest(points)
        nodes = np.where(self._matters(points, nearest), self._nodes(panels, nearest), _NO_NODES)
        result = np.zeros((panels.count, len(points)))
        for count in np.unique(nodes[nodes != _NO_NODES]):
            which = np.flatnonzero(nodes == count)
            offsets = panels.seen_from(points, which)
            result[which] = _far(*offsets, self.rate, int(count)) if count else _near(*offsets, self.rate)
        return result

    def _nodes(self, panels: _Panels, nearest: FloatArray) -> NDArray[np.intp]:
        """Return the Gauss–Legendre nodes that each panel needs; 0 where it is too near for them."""
        nodes = _step(_BY_DISTANCE, nearest / panels.length)
        np.maximum(nodes, _step(_BY_LENGTH, self.rate * panels.length), out=nodes, where=nodes > 0)
        nodes[panels.ray] = _RAY_NODES
        return nodes

    def _matters(self, points: FloatArray, nearest: FloatArray) -> NDArray[np.bool_]:
        """Return which panels add more than rounding to one of their labels, somewhere in a block."""
        panels, reach = self._panels, _NEGLIGIBLE / self.rate
        if nearest.max() <= reach:
            return np.ones(panels.count, dtype=bool)
        low, high = panels.corners
        span = np.maximum(high - points.min(axis=0), points.max(axis=0) - low)
        furthest = np.hypot(span[:, 0], span[:, 1])
        horizon = np.full(self.n_outputs, np.inf)
        np.minimum.at(horizon, panels.below, furthest)
        np.minimum.at(horizon, panels.above, furthest)
        return nearest <= np.maximum(horizon[panels.below], horizon[panels.above]) + reach

    @cached_property
    def _block_side(self) -> float:
        shortest = float(self._panels.length[~self._panels.ray].min())
        return min(_BLOCK_SIDE * shortest, _BLOCK_REACH / self.rate)

    @cached_property
    def _panels(self) -> _Panels:
        return _Panels.between(self.labels, self.squares, self.rate, self.box)

    @cached_property
    def _gather(self) -> sparse.csc_array:
        return _gathered(self._panels, self.n_outputs)


def _gathered(panels: _Panels, n_outputs: int) -> sparse.csc_array:
    """Return the (outputs, panels) matrix that adds c to the label above a panel and −c to the one below."""
    value = np.tile([1.0, -1.0], panels.count) / (2 * math.pi)
    label = np.column_stack([panels.above, panels.below]).ravel()
    ends = 2 * np.arange(panels.count + 1)
    return sparse.csc_array((value, label, ends), shape=(n_outputs, panels.count))


def _z_order(place: FloatArray) -> NDArray[np.intp]:
    """Return numbers of places in the unit square by which neighbours follow each other: their bits in turns."""
    steps = (place * 2**_BITS).astype(np.intp)
    bits = steps[:, :, None] >> np.arange(_BITS) & 1
    return np.asarray((bits << 2 * np.arange(_BITS) + np.arange(2)[:, None]).sum(axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class _Panels:
    """Pieces of walls. `normal` is the axis across which labels change, from `below` to `above`."""

    normal: NDArray[np.intp]
    position: FloatArray
    start: FloatArray
    stop: FloatArray
    below: NDArray[np.intp]
    above: NDArray[np.intp]
    ray: NDArray[np.bool_]

    @classmethod
    def between(cls, labels: NDArray[np.intp], squares: Squares, rate: float, box: FloatArray) -> _Panels:
        """Cut every wall between squares of different labels into panels."""
        parts: list[tuple[Any, ...]] = []
        for normal in (0, 1):
            table = labels if normal == 0 else labels.T
            sides = squares.edges[1 - normal]
            row, column = np.nonzero(table[1:] != table[:-1])
            position, below, above = (
                squares.edges[normal][row + 1],
                table[row, column],
                table[row + 1, column],
            )
            shares = np.linspace(0.0, 1.0, panels_per_edge(rate * float(squares.pitch[1 - normal])) + 1)
            for ends in pairwise(shares):
                start, stop = (sides[column] * (1 - share) + sides[column + 1] * share for share in ends)
                parts.append((normal, position, start, stop, below, above, False))
            rays = _ray_cuts(squares, rate, box, normal)
            first, last = column == 0, column == len(sides) - 2
            for near, far in pairwise(rays):
                parts.append(
                    (
                        normal,
                        position[first],
                        sides[0] - far,
                        sides[0] - near,
                        below[first],
                        above[first],
                        True,
                    )
                )
                parts.append(
                    (
                        normal,
                        position[last],
                        sides[-1] + near,
                        sides[-1] + far,
                        below[last],
                        above[last],
                        True,
                    )
                )
        columns = zip(*(np.broadcast_arrays(*part) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    @property
    def count(self) -> int:
        """How many panels there are."""
        return len(self.position)

    def take(self, which: NDArray[np.intp]) -> _Panels:
        """Return some of the panels."""
        return _Panels(*(getattr(self, field.name)[which] for field in fields(self)))

    def nearest(self, points: FloatArray) -> FloatArray:
        """Return a lower bound on the distance between each panel and any point of a block."""
        low, high = self.corners
        gap = np.maximum(np.maximum(low - points.max(axis=0), points.min(axis=0) - high), 0.0)
        return np.hypot(gap[:, 0], gap[:, 1])

    @cached_property
    def length(self) -> FloatArray:
        """Length of each panel."""
        return self.stop - self.start

    @cached_property
    def corners(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper end of each panel, (panels, 2) each."""
        first = self.normal[:, None] == np.arange(2)
        low, high = (np.where(first, self.position[:, None], end[:, None]) for end in (self.start, self.stop))
        return low, high

    def seen_from(self, points: FloatArray, which: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the offsets (panels, points): a across, t₁ and t₂ along, of some panels from each point."""
        normal = self.normal[which]
        across = self.position[which, None] - points.T[normal]
        beside = points.T[1 - normal]
        return across, self.start[which, None] - beside, self.stop[which, None] - beside


def _step(table: tuple[tuple[float, int], ...], at: FloatArray) -> NDArray[np.intp]:
    """Return the value of the last entry that starts at or before each number; 0 before the first."""
    starts, values = zip(*table, strict=True)
    return np.array([0, *values])[np.searchsorted(starts, at, side="right")]


def panels_per_edge(length: float) -> int:
    """Return into how many panels an edge of this length over the rate is cut."""
    return math.ceil(length / _LONGEST)


def count_panels(labels: NDArray[np.intp], squares: Squares, rate: float, box: FloatArray) -> int:
    """Return how many panels the walls between squares of different labels are cut into, without cutting them."""
    total = 0
    for normal in (0, 1):
        table = labels if normal == 0 else labels.T
        wall = table[1:] != table[:-1]
        rays = int(wall[:, 0].sum()) + int(wall[:, -1].sum())
        total += int(wall.sum()) * panels_per_edge(rate * float(squares.pitch[1 - normal]))
        total += rays * (len(_ray_cuts(squares, rate, box, normal)) - 1)
    return total


def _ray_cuts(squares: Squares, rate: float, box: FloatArray, normal: int) -> FloatArray:
    """Return distances from the window's border at which rays are cut.

    Panels grow with their distance from the box, up to a fixed multiple of 1/rate. The last one ends where
    every point of the box is further away than from the ray's start by what is negligible.
    """
    along = 1 - normal
    margin = float(min(box[0, along] - squares.window[0, along], squares.window[1, along] - box[1, along]))
    aside = float(max(squares.window[1, normal] - box[0, normal], box[1, normal] - squares.window[0, normal]))
    end = math.sqrt((math.hypot(margin, aside) + _NEGLIGIBLE / rate) ** 2 - aside**2) - margin
    cuts = [0.0]
    while cuts[-1] < end:
        cuts.append(cuts[-1] + min(_RAY_LENGTH / rate, _RAY_GROWTH * (margin + cuts[-1])))
    return np.array(cuts)


@cache
def _gauss_legendre(nodes: int) -> tuple[FloatArray, FloatArray]:
    return np.polynomial.legendre.leggauss(nodes)


def _far(across: FloatArray, start: FloatArray, stop: FloatArray, rate: float, nodes: int) -> FloatArray:
    """Return ∫ T(r) a/r² dt by Gauss–Legendre."""
    places, weights = _gauss_legendre(nodes)
    middle, half = (start + stop) / 2, (stop - start) / 2
    square = across**2
    total = np.zeros_like(across)
    for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
        along = middle + place * half
        along *= along
        along += square
        reach = np.sqrt(along)
        reach *= rate
        term = np.exp(-reach)
        reach += 1.0
        term *= reach
        term /= along
        term *= weight
        total += term
    total *= across
    total *= half
    return total


def _near(across: FloatArray, start: FloatArray, stop: FloatArray, rate: float) -> FloatArray:
    """Return Δθ − ∫ (1 − T) a/r² dt, with (1 − T)/r² = rate² Σ_m (−1)^m (m + 1)/(m + 2)! (rate·r)^m."""
    across = np.where(across == 0, -_NEXT_TO_ZERO, across)
    size = np.abs(across)
    start, stop = (np.where(along == 0, -_NEXT_TO_ZERO, along) for along in (start, stop))
    angle = np.arctan2(stop, size) - np.arctan2(start, size)
    return np.sign(across) * (angle - size * (_smooth(size, stop, rate) - _smooth(size, start, rate)))


def _smooth(size: FloatArray, along: FloatArray, rate: float) -> FloatArray:
    """Return ∫_0^along (1 − T(r))/r² dt, by M_m = ∫ r^m dt = (along · r^m + m a² M_{m−2}) / (m + 1)."""
    size, along = rate * size, rate * along
    reach = np.hypot(size, along)
    square = size**2
    older, old = np.arcsinh(along / size), along.copy()  # M_{−1}, M_0
    power = np.ones_like(reach)
    coefficient = 0.5
    total = coefficient * old
    for m in range(1, _TERMS):
        power *= reach
        older, old = old, (along * power + m * square * older) / (m + 1)
        coefficient *= -(m + 1) / (m * (m + 2))
        total += coefficient * old
    return rate * total
