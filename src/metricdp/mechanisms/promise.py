"""What a mechanism promises of a pair of points, in the coordinates of its plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._rounding import product_above
from metricdp._validation import FloatArray, reject, table
from metricdp.errors import InvalidInputError
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.norms import norm_above
from metricdp.geometry.path_metric import PathMetric

__all__ = ["Promise"]

# The norms and products of one exponent are off by a few roundings.
_ROUNDED_UP = 1 + 1e-12


@dataclass(frozen=True)
class Promise:
    """No report is more than e^{exponent} times likelier from one point of the box than from another, as given.

    epsilon : ε per unit of the plane, the largest of the map if there is one.
    p : order of the norm.
    rounding : r, what rounding adds to the distance of two points.
    bounds : the box; points outside count as its nearest point.
    paths : the metric of the map; None for one ε.
    projection : how the plane maps to longitude and latitude, if it does.
    straight : the largest ratio of a length in the plane to the one that people measure: κ and the norm's factor.
    """

    epsilon: float
    p: float
    rounding: float
    bounds: FloatArray
    paths: PathMetric | None = None
    projection: Any = None
    straight: float = 1.0

    def exponents(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the exponents, rounded up, of pairs of points (n, N) of the box: ε (d_p + r), or ∫ε ds along a path.

        With a map each point is moved by at most r/2 before anything else, where the cells within r/2 count.
        """
        if self.paths is None:
            return product_above(self.epsilon, norm_above(right - left, self.p) + self.rounding)
        near = product_above(self.rounding, 0.5)
        moves = (product_above(near, self.paths.epsilon.most_within(points, near)) for points in (left, right))
        return np.asarray(self.paths.between(left, right) + sum(moves))

    def between(self, left: ArrayLike, right: ArrayLike) -> FloatArray:
        """Return exponents, rounded up, of pairs of points anywhere: two points, or two arrays of them."""
        here, there = (np.clip(self._points(points), *self.bounds) for points in (left, right))
        if here.shape != there.shape:
            raise reject("b", f"as many points as `a`, {len(here)}", len(there))
        return product_above(self.exponents(here, there), _ROUNDED_UP)

    def between_lonlat(self, left: ArrayLike, right: ArrayLike) -> FloatArray:
        """Return exponents of pairs of points given in degrees, longitude first."""
        return self.between(self.from_lonlat(left), self.from_lonlat(right))

    def from_lonlat(self, points: ArrayLike) -> FloatArray:
        """Return points given in degrees in the coordinates of the plane."""
        if self.projection is None:
            msg = "This mechanism has no projection, so it cannot take longitude and latitude."
            raise InvalidInputError(msg)
        degrees = self._points(points)
        return np.asarray(self.projection.to_xy_km(degrees[:, 0], degrees[:, 1]))

    def radii(self, points: ArrayLike, exponent: float) -> FloatArray:
        """Return how far from each point the exponent stays at most this, as people measure lengths, rounded down.

        For every place within the radius, inside the box, the exponent from the point is at most `exponent`.
        """
        here = np.clip(self._points(points), *self.bounds)
        paths = self.paths or PathMetric(EpsilonMap.constant(self.bounds, self.epsilon), self.p)
        # Both points are moved by rounding, by r in all, where the largest ε may count.
        spent = self.rounding * paths.epsilon.max * _ROUNDED_UP
        if exponent <= spent:
            return np.zeros(len(here))
        return paths.radii(here, exponent - spent) / (self.straight * _ROUNDED_UP)

    def _points(self, points: ArrayLike) -> FloatArray:
        return table("points", np.atleast_2d(np.asarray(points, dtype=np.float64)), columns=self.bounds.shape[1])
