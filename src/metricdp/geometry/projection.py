"""Longitude and latitude to kilometres on a plane, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray, finite_array, reject, table

__all__ = ["EARTH_RADIUS_KM", "Equirectangular", "lonlat_arrays"]

EARTH_RADIUS_KM = 6371.0
KIND = "equirectangular"


@dataclass(frozen=True)
class Equirectangular:
    """The equirectangular projection about a centre (lon₀, lat₀).

    x = R · cos(lat₀) · (lon − lon₀) and y = R · (lat − lat₀), angles in radians and R = 6371 km.
    Good for a city: an east-west distance at Δlat from the centre is off by a factor of about
    1 ± tan(lat₀) · Δlat, which is 0.35 % at 25 km from the centre of Rome.

    Parameters
    ----------
    lon_deg, lat_deg : float
        The centre in degrees; the latitude strictly between -90 and 90.

    Examples
    --------
    >>> centre = Equirectangular(24.94, 60.17)
    >>> centre.to_xy_km([24.94], [60.18]).round(3).tolist()
    [[0.0, 1.112]]
    """

    lon_deg: float
    lat_deg: float

    def __post_init__(self) -> None:
        for name, limit in (("lon_deg", 180.0), ("lat_deg", 90.0)):
            value = getattr(self, name)
            try:
                number = float(value)
            except (TypeError, ValueError):
                raise reject(name, "a number of degrees", repr(value)) from None
            if not abs(number) <= limit:
                raise reject(name, f"between {-limit:g} and {limit:g} degrees", repr(value))
            object.__setattr__(self, name, number)
        # At a pole cos(lat₀) is 0: every meridian would fall on one line and could not be told apart again.
        if abs(self.lat_deg) == 90:
            raise reject("lat_deg", "strictly between -90 and 90 degrees", self.lat_deg)

    @classmethod
    def for_box(cls, lon: ArrayLike, lat: ArrayLike) -> Self:
        """Return the projection about the centre of the points' bounding box."""
        east, north = lonlat_arrays(lon, lat)
        if east.size == 0:
            raise reject("lon", "non-empty", "no points")
        if np.ptp(east) > 180:
            east = np.where(east < 0, east + 360, east)  # across the antimeridian
        if np.ptp(east) > 180:
            raise reject("lon", "within 180 degrees of each other", f"{np.ptp(east):g} degrees")
        centre = _wrapped(np.array([float(east.min() + east.max()) / 2]))
        return cls(float(centre[0]), float(north.min() + north.max()) / 2)

    def to_xy_km(self, lon: ArrayLike, lat: ArrayLike) -> FloatArray:
        """Return (n, 2) kilometres east and north of the centre.

        Longitudes are taken within 180 degrees of the centre, so that neighbours across the antimeridian stay
        neighbours.
        """
        east, north = lonlat_arrays(lon, lat)
        return np.column_stack([_wrapped(east - self.lon_deg), north - self.lat_deg]) * self.km_per_degree

    def to_lonlat(self, xy_km: ArrayLike) -> FloatArray:
        """Return (n, 2) degrees, longitude first."""
        xy = table("xy_km", xy_km, columns=2)
        degrees = np.asarray(xy / self.km_per_degree + [self.lon_deg, self.lat_deg])
        degrees[:, 0] = _wrapped(degrees[:, 0])
        return degrees

    @property
    def km_per_degree(self) -> FloatArray:
        """Kilometres on the plane per degree of longitude and of latitude."""
        along_meridian = EARTH_RADIUS_KM * math.pi / 180
        return np.array([along_meridian * math.cos(math.radians(self.lat_deg)), along_meridian])

    def to_dict(self) -> dict[str, str | float]:
        """Return the projection as values that JSON can hold."""
        return {"kind": KIND, "lon_deg": self.lon_deg, "lat_deg": self.lat_deg, "radius_km": EARTH_RADIUS_KM}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the projection that `to_dict` described.

        Examples
        --------
        >>> Equirectangular.from_dict(Equirectangular(12.5, 41.9).to_dict())
        Equirectangular(lon_deg=12.5, lat_deg=41.9)
        """
        if not isinstance(values, Mapping):
            raise reject("projection", "a mapping", type(values).__name__)
        keys = ("kind", "lon_deg", "lat_deg", "radius_km")
        if not all(key in values for key in keys):
            raise reject("projection", f"a mapping with the keys {', '.join(keys)}", sorted(values))
        # Another kind or radius would place every point elsewhere, so neither is read as ours.
        if values["kind"] != KIND or values["radius_km"] != EARTH_RADIUS_KM:
            got = f"{values['kind']!r} with {values['radius_km']!r}"
            raise reject("projection", f"{KIND!r} with radius_km {EARTH_RADIUS_KM:g}", got)
        return cls(values["lon_deg"], values["lat_deg"])


def _wrapped(degrees: FloatArray) -> FloatArray:
    """Return angles within ±180 degrees; those that are already there are left as they are, to the last bit."""
    return np.asarray(np.where(np.abs(degrees) > 180, degrees - 360 * np.rint(degrees / 360), degrees))


def lonlat_arrays(lon: ArrayLike, lat: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return two flat float arrays of one length, in range; swapped or projected coordinates show up here."""
    east, north = np.atleast_1d(finite_array("lon", lon)), np.atleast_1d(finite_array("lat", lat))
    if east.ndim != 1 or east.shape != north.shape:
        raise reject("lat", f"as long as `lon`, shape {east.shape}", f"shape {north.shape}")
    for name, values, limit in (("lon", east, 180), ("lat", north, 90)):
        outside = np.flatnonzero(np.abs(values) > limit)
        if len(outside):
            # The index only: the value may be somebody's coordinate.
            got = f"a value outside at index {outside[0]}"
            raise reject(name, f"between -{limit} and {limit} degrees", got)
    return east, north
