"""The plane of a projection against the ground: how much longer or shorter distances are on the WGS 84 ellipsoid.

A projection here maps degrees to kilometres along two axes, x = k_x (λ − λ₀) and y = k_y (φ − φ₀). With M and N the
meridian and normal radii of the ellipsoid, a short step on the ground is N cos φ dλ to the east and M dφ to the north.
So along any path plane lengths are at most κ times true ones, and true ones at most λ times plane ones:

    κ = max over latitudes of max(k_x / (N cos φ), k_y / M)
    λ = max over latitudes of max(N cos φ / k_x, M / k_y)

with k in kilometres per radian. A shortest path on the ground may leave the box towards a pole; its latitudes count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from metricdp._validation import FloatArray

__all__ = ["MARGIN_KM", "Distortion", "Projection", "distortion", "km_per_degree_at"]

# WGS 84.
_EQUATOR_KM, _FLATTENING = 6378.137, 1 / 298.257223563
_ECCENTRICITY_SQUARED = _FLATTENING * (2 - _FLATTENING)

# How far outside the box a point may lie for the claim in metres to cover it.
MARGIN_KM = 1.0

# Factors are rounded up by this share, many thousand times what the floating point of their formulas loses.
_ROUNDED_UP = 1e-9

# A larger factor means that the box comes near a pole or spans half the Earth; then there is no claim on the ground.
_LARGEST = 100.0


class Projection(Protocol):
    """What the ground needs to know of a projection: its centre and its scale."""

    @property
    def lat_deg(self) -> float:
        """Latitude of the centre."""

    @property
    def km_per_degree(self) -> FloatArray:
        """Kilometres on the plane per degree of longitude and of latitude."""


@dataclass(frozen=True)
class Distortion:
    """How plane and true distances compare.

    kappa : d_plane ≤ kappa · d_true for any two points of the box and a margin around it; infinite if there is no
        such number.
    stretch : d_true ≤ stretch · d_plane for any two points of the box (λ above).
    margin_km : the margin.
    """

    kappa: float
    stretch: float
    margin_km: float


def distortion(projection: Projection, bounds: FloatArray, margin_km: float = MARGIN_KM) -> Distortion:
    """Return how distances on the plane compare with those on the ground, over a (2, 2) box in kilometres."""
    per_radian = projection.km_per_degree * (180 / math.pi)
    south, north = _latitudes(projection, bounds, 0.0)
    least, most = _nearest_to_equator(south, north), max(abs(south), abs(north))
    if most >= math.pi / 2:
        return Distortion(math.inf, math.inf, margin_km)
    stretch = max(_east(least) / per_radian[0], _north(most) / per_radian[1])
    kappa = _kappa_with_margin(projection, bounds, margin_km)
    return Distortion(float(kappa) if kappa <= _LARGEST else math.inf, float(stretch) * (1 + _ROUNDED_UP), margin_km)


def km_per_degree_at(lat_deg: float) -> FloatArray:
    """Return true kilometres per degree of longitude and of latitude, at a latitude."""
    latitude = math.radians(lat_deg)
    return np.radians([_east(latitude), _north(latitude)])


def _kappa_with_margin(projection: Projection, bounds: FloatArray, margin_km: float) -> float:
    """Return κ over the box and all points within `margin_km` of it on the ground.

    The margin is in true kilometres and the box in those of the plane. If κ is k over the box widened by w on the
    plane, and k times the margin is at most w, then a path as long as the margin stays within k times the margin.
    """
    widened = margin_km
    while (kappa := _kappa(projection, bounds, widened)) * margin_km > widened:
        if not math.isfinite(kappa):
            return kappa
        widened *= 2
    return _kappa(projection, bounds, kappa * margin_km)


def _kappa(projection: Projection, bounds: FloatArray, widened: float) -> float:
    """Return κ over the box widened by so many kilometres of the plane, infinite if there is none."""
    # Longitudes are taken within 180° of the centre. Across that meridian neighbours would be half a world apart.
    if np.abs(bounds[:, 0]).max() + widened >= 180 * projection.km_per_degree[0]:
        return math.inf
    south, north = _latitudes(projection, bounds, widened)
    width = math.radians(float((np.ptp(bounds[:, 0]) + 2 * widened) / projection.km_per_degree[0]))
    reached = _poleward(max(abs(south), abs(north)), width)
    if reached >= math.pi / 2:
        return math.inf
    per_radian = projection.km_per_degree * (180 / math.pi)
    nearest = _nearest_to_equator(south, north)
    return float(max(per_radian[0] / _east(reached), per_radian[1] / _north(nearest)) * (1 + _ROUNDED_UP))


def _latitudes(projection: Projection, bounds: FloatArray, margin_km: float) -> tuple[float, float]:
    """Return the southern and northern edge, in radians."""
    edges = (bounds[:, 1] + [-margin_km, margin_km]) / projection.km_per_degree[1]
    south, north = np.radians(projection.lat_deg + edges)
    return float(south), float(north)


def _nearest_to_equator(south: float, north: float) -> float:
    return 0.0 if south <= 0 <= north else min(abs(south), abs(north))


def _poleward(edge: float, width: float) -> float:
    """Return the highest latitude of shortest paths between points up to `edge` from the equator, `width` apart.

    On the auxiliary sphere the path is a great circle between reduced latitudes β, and spans a longitude of at most
    width / (1 − f). It is highest midway between two points of equal latitude: tan β = tan β_edge / cos(half the span).
    """
    half_span = width / (2 * (1 - _FLATTENING))
    if half_span >= math.pi / 2 or edge >= math.pi / 2:
        return math.pi / 2
    reduced = (1 - _FLATTENING) * math.tan(edge) / math.cos(half_span)
    return math.atan(reduced / (1 - _FLATTENING))


def _east(latitude: float) -> float:
    """Return N cos φ, the kilometres per radian of longitude."""
    return _EQUATOR_KM * math.cos(latitude) / math.sqrt(1 - _ECCENTRICITY_SQUARED * math.sin(latitude) ** 2)


def _north(latitude: float) -> float:
    """Return M, the kilometres per radian of latitude."""
    return _EQUATOR_KM * (1 - _ECCENTRICITY_SQUARED) / (1 - _ECCENTRICITY_SQUARED * math.sin(latitude) ** 2) ** 1.5
