"""Points in degrees as users have them, arrays or tables, and what looks wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from metricdp._point_names import LATITUDE, LONGITUDE, listed, one_of
from metricdp._validation import FloatArray, finite_array, reject, table
from metricdp.errors import InvalidInputError
from metricdp.geometry.projection import Equirectangular

__all__ = [
    "REMEDY",
    "column_values",
    "degrees_of",
    "doubts",
    "in_degrees",
    "is_table",
    "look_like_degrees",
    "projection_about",
]

# What to do about records far from the rest.
REMEDY = "drop these records if they are mistakes"

# WGS 84 with longitude first, which is what points in degrees are taken to be.
_DEGREES = "OGC:CRS84"

# A record is far from the rest if it is farther from the median than this many times the middle half's extent.
_FAR = 6.0

# Boxes wider than this are no city or region. Kilometres taken for degrees make such boxes.
_WIDE_KM = 1000.0

# Degrees of a region, and how many times its width a region's centre is away from the origin.
_REGION = 5.0

# Degrees around longitude 0, latitude 0, and around the poles, where data with another meaning often end up.
_NULL_ISLAND, _POLAR = 1.0, 80.0


def is_table(given: Any) -> bool:
    """Whether it has named columns, as tables of pandas, GeoPandas and polars do."""
    return hasattr(given, "columns") and hasattr(given, "__getitem__")


def column_values(parameter: str, given: Any, name: str) -> list[Any]:
    """Return the values of a table's column."""
    if not is_table(given):
        raise reject(parameter, "left out unless the outputs are a table", repr(name))
    names = [str(one) for one in given.columns]
    if names.count(name) != 1:
        raise reject(parameter, f"one of the columns {listed(names)}", repr(name))
    return list(given[name])


def degrees_of(parameter: str, given: ArrayLike) -> FloatArray:
    """Return (n, 2) longitudes and latitudes.

    Parameters
    ----------
    parameter : str
        How messages call the points.
    given : (n, 2) array, table or GeoDataFrame
        A table has columns of longitude and latitude, which are found by their names. A GeoDataFrame or GeoSeries of
        points is reprojected from its reference system; without one, its coordinates are taken as degrees.

    Examples
    --------
    >>> import pandas as pd
    >>> degrees_of("records", pd.DataFrame({"pickup_lat": [60.2], "pickup_lon": [24.9]})).tolist()
    [[24.9, 60.2]]
    """
    if hasattr(given, "to_crs"):
        return in_degrees(parameter, _from_geometries(parameter, given))
    if not is_table(given):
        return in_degrees(parameter, table(parameter, given, columns=2))
    values: Any = given
    names = [str(one) for one in values.columns]
    found = [one_of(names, aliases, parameter) for aliases in (LONGITUDE, LATITUDE)]
    if None in found:
        rule = "a table with columns of longitude and latitude (looked for lon, lat and their like)"
        raise reject(parameter, rule, f"a table of {listed(names)}")
    axes = [finite_array(parameter, values[name]) for name in found]
    return in_degrees(parameter, table(parameter, np.column_stack(axes), columns=2))


def in_degrees(parameter: str, lonlat: FloatArray) -> FloatArray:
    """Return the points, or refuse them if they cannot be degrees; says how many and not which values."""
    wrong = (np.abs(lonlat) > (180, 90)).any(axis=1)
    if wrong.any():
        swapped = not (np.abs(lonlat[:, ::-1]) > (180, 90)).any()
        hint = "Longitude comes first; are the columns swapped?" if swapped else "Are they degrees?"
        count = int(np.count_nonzero(wrong))
        rule = "longitudes within ±180 and latitudes within ±90 degrees"
        msg = f"`{parameter}` must be {rule}, got {count:,} of {len(lonlat):,} rows outside. {hint}"
        raise InvalidInputError(msg)
    return lonlat


def look_like_degrees(points: FloatArray) -> bool:
    """Whether unnamed numbers are probably longitudes and latitudes of a city or region.

    They are in range, and their box is small and far from the origin. Kilometres about a centre surround the origin.

    Examples
    --------
    >>> look_like_degrees(np.array([[24.9, 60.1], [25.0, 60.2]])), look_like_degrees(np.array([[0.0, 0.0], [4.0, 4.0]]))
    (True, False)
    """
    if points.shape[1] != 2 or (np.abs(points) > (180, 90)).any():
        return False
    widest = float(np.ptp(points, axis=0).max())
    return widest <= _REGION and float(np.hypot(*points.mean(axis=0))) > _REGION * widest


def projection_about(lonlat: FloatArray, bounds: ArrayLike | None) -> tuple[Equirectangular, FloatArray | None]:
    """Return the projection about the box, and the box in kilometres if there are `bounds`.

    Parameters
    ----------
    lonlat : (n, 2) array
        Points, whose bounding box counts where there are no bounds.
    bounds : (2, 2) array, optional
        West and south, then east and north, in degrees. A box across the antimeridian has its west east of its east:
        [[179, -18], [-179, -16]].
    """
    if bounds is None:
        if (np.ptp(lonlat[:, 0]) > 180) and np.ptp(lonlat[:, 0] % 360) > 180:
            raise reject("records", "within 180 degrees of longitude of each other", "more")
        return Equirectangular.for_box(lonlat[:, 0], lonlat[:, 1]), None
    corners = finite_array("bounds", bounds)
    if corners.shape != (2, 2):
        raise reject("bounds", "of shape (2, 2): west and south, then east and north", f"shape {corners.shape}")
    in_degrees("bounds", corners)
    (west, south), (east, north) = corners.tolist()
    if not (0 < (east - west) % 360 < 180 and south < north):
        rule = "west and south, then east and north, less than 180 degrees wide"
        raise reject("bounds", rule, f"[[{west:g}, {south:g}], [{east:g}, {north:g}]]")
    projection = Equirectangular.for_box([west, east], [south, north])
    return projection, projection.to_xy_km([west, east], [south, north])


def doubts(projection: Equirectangular, box_km: FloatArray, records: FloatArray, outputs: FloatArray) -> list[str]:
    """Return sentences about what looks wrong with a problem in degrees; they hold counts and sizes, no coordinates.

    Parameters
    ----------
    projection : Equirectangular
        That of the box.
    box_km : (2, 2) array
        The box.
    records, outputs : (n, 2) and (K, 2) arrays
        In kilometres.
    """
    found = [
        _far_records(projection, box_km, records),
        _wide_box(box_km),
        _absurd_place(projection.to_lonlat(records)),
        _outputs_elsewhere(projection, box_km, outputs),
    ]
    return [words for words in found if words is not None]


def _from_geometries(parameter: str, given: Any) -> FloatArray:
    if given.crs is not None:
        given = given.to_crs(_DEGREES)
    shapes = given.geometry
    others = int(np.count_nonzero((shapes.geom_type != "Point") | shapes.is_empty))
    if others or not len(shapes):
        got = f"{others:,} of {len(shapes):,} rows with another geometry, or none"
        raise reject(parameter, "points (of other shapes, take `.representative_point()`)", got)
    return table(parameter, np.column_stack([shapes.x, shapes.y]), columns=2)


def _far_records(projection: Equirectangular, box_km: FloatArray, records: FloatArray) -> str | None:
    """Say that few records make the box much larger than the others need."""
    quarter, middle, three_quarters = np.quantile(records, [0.25, 0.5, 0.75], axis=0)
    # One extent for both axes: records along one straight road are not far from each other.
    spread = float((three_quarters - quarter).max())
    far = np.abs(records - middle).max(axis=1) > _FAR * spread
    sides = np.ptp(box_km, axis=0)
    without = _sides_km(projection.to_lonlat(records[~far])) if spread > 0 and far.any() else sides
    if not (without < sides / 2).any():
        return None
    count = int(np.count_nonzero(far))
    return (
        f"{count:,} of {len(records):,} records lie far from the rest: the box is {_size(sides)} with them and "
        f"{_size(without)} without. The guarantee covers the whole box, so a large one costs accuracy; "
        f"{REMEDY}."
    )


def _sides_km(lonlat: FloatArray) -> FloatArray:
    """Return the sides of the points' box, measured in the middle of it."""
    plane = Equirectangular.for_box(*lonlat.T).to_xy_km(*lonlat.T)
    return np.asarray(np.ptp(plane, axis=0))


def _wide_box(box_km: FloatArray) -> str | None:
    sides = np.ptp(box_km, axis=0)
    if sides.max() <= _WIDE_KM:
        return None
    return (
        f"The box is {_size(sides)}, which is more than a region; are the coordinates degrees, and all of them right?"
    )


def _absurd_place(lonlat: FloatArray) -> str | None:
    if (np.abs(lonlat) < _NULL_ISLAND).all():
        return (
            "All records lie within one degree of longitude 0 and latitude 0, in the Atlantic; are they kilometres? "
            "Those are for `Problem`, not for degrees."
        )
    if (np.abs(lonlat[:, 1]) > _POLAR).all():
        return "All records lie within ten degrees of a pole; longitude comes first, so are the columns swapped?"
    return None


def _outputs_elsewhere(projection: Equirectangular, box_km: FloatArray, outputs: FloatArray) -> str | None:
    """Say that most outputs are farther from the box than it is wide."""
    away = _far_outside(box_km, outputs)
    count = int(np.count_nonzero(away))
    if 2 * count <= len(outputs):
        return None
    swapped = projection.to_lonlat(outputs[away])[:, ::-1]
    possible = swapped[np.abs(swapped[:, 1]) <= 90]
    back = len(possible) - np.count_nonzero(_far_outside(box_km, projection.to_xy_km(*possible.T)))
    question = "are their columns swapped?" if 2 * back > count else "are they outputs for these records?"
    return f"{count:,} of {len(outputs):,} outputs lie far outside the box of the records; {question}"


def _far_outside(box_km: FloatArray, points: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    low, high = box_km
    reach = high - low
    return np.asarray(((points < low - reach) | (points > high + reach)).any(axis=1))


def _size(sides_km: FloatArray) -> str:
    return " × ".join(f"{side:,.3g}" if side < 100 else f"{side:,.0f}" for side in sides_km) + " km"
