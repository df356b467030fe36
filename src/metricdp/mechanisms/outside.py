"""Most points outside the box: one rule, for `sample` as for files of points, of when that is told and in which words.

Points outside the box are clamped to it, which keeps the guarantee and makes reports useless. If most of them are
outside, somebody has probably mixed up columns, units or mechanisms. The words hold counts and never coordinates.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray

__all__ = ["FEWEST_POINTS", "ROUNDING_MARGIN", "Boxed", "mostly_outside", "suspicion", "suspicion_of"]

# A point that was converted from degrees may miss the box by a rounding error, which is neither an error nor worth a
# warning: up to this share of the box's sides it counts as inside.
ROUNDING_MARGIN = 1e-6

# If a larger share of the points lies outside the box, something is probably wrong.
_SUSPICIOUS = 0.5

# `sample` says nothing of fewer points than these. They may be one person's, and a warning in a log, "outside the box",
# is a bit about where that person is. (Files are different: whoever perturbs one is told the exact counts anyway.)
FEWEST_POINTS = 20


class Boxed(Protocol):
    """What the rule needs to know of a mechanism."""

    @property
    def projection(self) -> Any:
        """How degrees become kilometres."""

    def outside_box(self, points: FloatArray, margin: float = 0.0) -> NDArray[np.bool_]:
        """Return which points lie outside the box."""


def mostly_outside(outside: int, points: int) -> bool:
    """Whether so many of the points are outside that it is worth a warning."""
    return outside > _SUSPICIOUS * points


def suspicion(outside: int, points: int, *, swapped: int = 0, advice: str | None = None) -> str | None:
    """Return a sentence for the user if most points lie outside the box.

    swapped : how many of those outside would be inside if their two coordinates were exchanged.
    advice : what to do, if it is known.
    """
    if not mostly_outside(outside, points):
        return None
    # Rounded down, so that 100 % means all.
    share = f"{100 * outside // points} % of points fall outside the box"
    if swapped > outside / 2:
        return f"{share}; are columns swapped?"
    return f"{share}; {advice or 'is it the right mechanism for these data, and are the units right?'}"


def suspicion_of(mechanism: Boxed, plane: FloatArray, degrees: FloatArray | None = None) -> str | None:
    """Return that sentence for points given to `sample`, or to `sample_lonlat` as `degrees`; None for a few points.

    plane : (m, 2) array, the points in kilometres.
    degrees : (m, 2) array, as they were given to `sample_lonlat`.
    """
    if mechanism.projection is None or len(plane) < FEWEST_POINTS:
        return None
    outside = mechanism.outside_box(plane, ROUNDING_MARGIN)
    count = int(np.count_nonzero(outside))
    if not mostly_outside(count, len(plane)):
        return None
    if degrees is None:
        given = plane[outside]
        other = _inside_as_degrees(mechanism, given)
        swapped = _inside(mechanism, given[:, ::-1])
        advice = "they look like longitude and latitude, which `sample_lonlat` and `probabilities_lonlat` take"
    else:
        given = degrees[outside]
        other = _inside(mechanism, given)
        swapped = _inside_as_degrees(mechanism, given[:, ::-1])
        advice = "they look like kilometres, which `sample` and `probabilities` take"
    mistaken = other > count / 2
    return suspicion(count, len(plane), swapped=0 if mistaken else swapped, advice=advice if mistaken else None)


def _inside(mechanism: Boxed, plane: FloatArray) -> int:
    return int(np.count_nonzero(~mechanism.outside_box(plane, ROUNDING_MARGIN)))


def _inside_as_degrees(mechanism: Boxed, points: FloatArray) -> int:
    """Return how many of the points would be inside if they were longitudes and latitudes."""
    possible = points[(np.abs(points) <= (180, 90)).all(axis=1)]
    return _inside(mechanism, mechanism.projection.to_xy_km(*possible.T)) if len(possible) else 0
