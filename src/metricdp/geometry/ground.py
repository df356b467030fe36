"""Straight distances on the ground between points of a map: a plane in true kilometres, and how far it is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metricdp._validation import FloatArray
from metricdp.geometry.earth import distortion, km_per_degree_at

__all__ = ["Ground"]


@dataclass(frozen=True)
class Ground:
    """A plane on which straight distances are those on the ground, up to two factors that are close to 1.

    scale : by which coordinates are multiplied, one factor for each axis.
    shortest, longest : a true distance between two points of the box is between these factors times the plane's.
    unit : "km", or empty for coordinates that are not on the Earth; then the plane is that of the coordinates.

    Examples
    --------
    >>> from metricdp.geometry.projection import Equirectangular
    >>> here = Ground.over(Equirectangular(24.94, 60.17), np.array([[-2.0, -2.0], [2.0, 2.0]]))
    >>> bool(0.999 < here.shortest <= here.longest < 1.001)
    True
    """

    scale: FloatArray
    shortest: float
    longest: float
    unit: str

    @classmethod
    def over(cls, projection: Any, bounds: FloatArray) -> Ground:
        """Return the plane for a box, with a projection or without one."""
        if projection is None:
            return cls(np.ones(bounds.shape[1]), 1.0, 1.0, "")
        middle = projection.lat_deg + bounds[:, 1].mean() / projection.km_per_degree[1]
        per_degree = km_per_degree_at(float(middle))
        scale = per_degree / projection.km_per_degree
        found = distortion(_Scaled(projection.lat_deg, per_degree), bounds * scale, 0.0)
        return cls(scale, 1 / found.kappa, found.stretch, "km")

    def plane(self, points: FloatArray) -> FloatArray:
        """Return points of a problem or a mechanism on this plane."""
        return points * self.scale

    def coordinates(self, points: FloatArray) -> FloatArray:
        """Return points of this plane in the coordinates of the problem."""
        return points / self.scale


@dataclass(frozen=True)
class _Scaled:
    """An equirectangular projection with a scale of its own."""

    lat_deg: float
    km_per_degree: FloatArray
