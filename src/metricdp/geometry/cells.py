"""Cells as places to report: H3 hexagons, geohashes or squares, as many as hold a record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from metricdp._optional import optional
from metricdp._validation import FloatArray, reject
from metricdp.errors import ProblemTooLargeError
from metricdp.geometry.projection import Equirectangular

__all__ = ["EXAMPLES", "MOST_CELLS", "Cells", "cells_over", "names_cells"]

EXAMPLES = "'h3:8', 'geohash:6' or 'square:500m'"

# More outputs than this are beyond what mechanisms are designed for.
MOST_CELLS = 5_000

_SPELLING = re.compile(r"(h3|geohash|square):(\S+)", re.IGNORECASE)
_LENGTH = re.compile(r"([0-9]{1,7})(m|km)", re.IGNORECASE)

_FINEST_H3, _LONGEST_GEOHASH = 15, 12
# The letters of a geohash, in order of the five bits that each stands for; a, i, l and o are left out.
_LETTERS = np.array(list("0123456789bcdefghjkmnpqrstuvwxyz"))


@dataclass(frozen=True)
class Cells:
    """Some cells of a system of cells.

    ids : what the system calls them, in alphabetical order.
    lonlat : (K, 2) array, their centres.
    """

    ids: tuple[str, ...]
    lonlat: FloatArray


def names_cells(text: str) -> bool:
    """Whether a text names a system of cells, as "h3:8" does, rather than a file."""
    return _SPELLING.fullmatch(text) is not None


def cells_over(lonlat: FloatArray, projection: Equirectangular, corner_km: FloatArray, spec: str) -> Cells:
    """Return the cells that hold one of the points.

    Parameters
    ----------
    lonlat : (n, 2) array
        Points in degrees.
    projection : Equirectangular
        In whose plane squares are squares.
    corner_km : (2,) array
        Where squares are counted from: the south-western corner of the box.
    spec : str
        "h3:8", a resolution of 0 to 15; "geohash:6", as many letters, 1 to 12; "square:500m" or "square:2km", the side.
    """
    spelled = _SPELLING.fullmatch(spec)
    if spelled is None:
        raise reject("outputs", f"cells such as {EXAMPLES}", repr(spec))
    system, size = spelled[1].lower(), spelled[2]
    if system == "h3":
        found, level = partial(_h3, lonlat), _whole(spec, size, 0, _FINEST_H3)
    elif system == "geohash":
        found, level = partial(_geohash, lonlat), _whole(spec, size, 1, _LONGEST_GEOHASH)
    else:
        found, level = partial(_squares, lonlat, projection, corner_km), _metres(spec, size)
    return _few_enough(spec, found, level)


def _few_enough(spec: str, found: Callable[[int], Cells], level: int) -> Cells:
    """Return the cells of a level, or say how many they are and which coarser ones are few enough."""
    cells = found(level)
    if len(cells.ids) <= MOST_CELLS:
        return cells
    system, count, unit = spec.partition(":")[0].lower(), len(cells.ids), ""
    while len(cells.ids) > MOST_CELLS:
        level, unit = (2 * level, "m") if system == "square" else (level - 1, "")
        cells = found(level)
    msg = (
        f"`outputs` must be at most {MOST_CELLS:,} cells, got {count:,} with {spec!r}; "
        f"'{system}:{level}{unit}' makes {len(cells.ids):,}."
    )
    raise ProblemTooLargeError(msg)


def _h3(lonlat: FloatArray, resolution: int) -> Cells:
    h3 = optional("h3", "cells", "Reporting H3 cells")
    # The library has no function of arrays; a million points take half a second.
    ids = sorted({h3.latlng_to_cell(lat, lon, resolution) for lon, lat in lonlat.tolist()})
    centres = np.array([h3.cell_to_latlng(cell) for cell in ids])
    return Cells(tuple(ids), centres[:, ::-1].copy())


def _geohash(lonlat: FloatArray, letters: int) -> Cells:
    """Return geohashes: bits of longitude and latitude in turn, longitude first, five bits to a letter."""
    bits = np.array([(5 * letters + 1) // 2, 5 * letters // 2])
    span = np.array([360.0, 180.0])
    steps = 2.0**bits
    # The easternmost meridian and the north pole belong to the last cell.
    numbers = np.minimum(np.floor((lonlat + span / 2) / span * steps), steps - 1).astype(np.int64)
    numbers = np.unique(numbers, axis=0)
    codes = np.zeros(len(numbers), dtype=np.int64)
    for place in range(5 * letters):
        axis = place % 2
        codes = 2 * codes + ((numbers[:, axis] >> (bits[axis] - 1 - place // 2)) & 1)
    places = 5 * np.arange(letters - 1, -1, -1)
    written = _LETTERS[(codes[:, None] >> places) & 31]
    ids = np.array(["".join(row) for row in written.tolist()])
    centres = (numbers + 0.5) / steps * span - span / 2
    return _sorted(ids, centres)


def _squares(lonlat: FloatArray, projection: Equirectangular, corner_km: FloatArray, side_m: int) -> Cells:
    """Return squares of the plane, called by their column and row from the corner."""
    side_km = side_m / 1000
    plane = projection.to_xy_km(lonlat[:, 0], lonlat[:, 1]) - corner_km
    numbers = np.unique(np.floor(plane / side_km).astype(np.int64), axis=0)
    ids = np.array([f"x{column}y{row}" for column, row in numbers.tolist()])
    return _sorted(ids, projection.to_lonlat((numbers + 0.5) * side_km + corner_km))


def _sorted(ids: NDArray[np.str_], centres: FloatArray) -> Cells:
    order = np.argsort(ids)
    return Cells(tuple(ids[order].tolist()), centres[order])


def _whole(spec: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and least <= int(text) <= most):
        raise reject("outputs", f"{spec.partition(':')[0]} cells with a number from {least} to {most}", repr(spec))
    return int(text)


def _metres(spec: str, text: str) -> int:
    length = _LENGTH.fullmatch(text)
    metres = int(length[1]) * (1000 if length[2].lower() == "km" else 1) if length else 0
    if not 1 <= metres <= 1_000_000:
        raise reject("outputs", "squares with a side from 1m to 1000km, such as square:500m", repr(spec))
    return metres
