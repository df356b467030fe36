"""Maps of ε as JSON files: one object with the borders of cells and a number for each cell."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from metricdp._atomic import atomic_file
from metricdp._validation import FloatArray, reject
from metricdp.errors import InvalidInputError
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.projection import Equirectangular

__all__ = ["FORMAT", "KIND", "is_map", "map_as_dict", "map_from_dict", "parsed", "read_map", "write_map"]

# What tells such a file from other JSON, and the number of its format.
KIND, FORMAT = "epsilon map", 1

_FIELDS = ("metricdp", "format", "coordinates", "breakpoints", "values")

# A million cells, far more than a mechanism can be optimised for.
_LARGEST_BYTES = 32_000_000

# Degrees by which a written map reaches over the box, a tenth of a millimetre: what is read again covers it then.
_OVER_THE_EDGE = 1e-9


def write_map(path: str | os.PathLike[str], epsilon: EpsilonMap, projection: Any = None) -> None:
    """Write a map to a JSON file, which appears whole or not at all; `projection` as in `map_as_dict`."""
    text = json.dumps(map_as_dict(epsilon, projection), indent=1, allow_nan=False)
    with atomic_file(Path(path)) as stream:
        stream.write(text.encode())


def read_map(path: str | os.PathLike[str], projection: Any = None) -> EpsilonMap:
    """Read a map from a JSON file into the coordinates of a problem.

    projection : of the problem, None if it has none. Files in degrees need one.
    """
    return map_from_dict(parsed(Path(path)), projection, name=os.fspath(path))


def map_as_dict(epsilon: EpsilonMap, projection: Any = None) -> dict[str, Any]:
    """Return a map as plain data: in degrees where the problem has a projection, otherwise in its own coordinates."""
    axes = epsilon.breakpoints if projection is None else _in_degrees(epsilon.breakpoints, _checked(projection))
    return {
        "metricdp": KIND,
        "format": FORMAT,
        "coordinates": "projected" if projection is None else "lonlat",
        "breakpoints": [points.tolist() for points in axes],
        "values": epsilon.values.tolist(),
    }


def map_from_dict(document: Any, projection: Any = None, *, name: str = "The map") -> EpsilonMap:
    """Return the map that `map_as_dict` described; whoever wrote it is not trusted."""
    if not is_map(document):
        raise InvalidInputError(f'{name} is not a map of ε: it lacks "metricdp": "{KIND}".')
    if sorted(document) != sorted(_FIELDS):
        raise InvalidInputError(f"{name} is not a map of ε: its fields must be {', '.join(_FIELDS)}.")
    if document["format"] != FORMAT or isinstance(document["format"], bool):
        raise InvalidInputError(f"{name} is a map of ε of another format; this version reads format {FORMAT}.")
    coordinates = document["coordinates"]
    if coordinates not in ("lonlat", "projected"):
        raise InvalidInputError(f"{name}: `coordinates` must be 'lonlat' or 'projected'.")
    if coordinates == "lonlat" and projection is None:
        raise InvalidInputError(f"{name} is in longitude and latitude, and the problem has no projection.")
    if not isinstance(document["breakpoints"], list) or not document["breakpoints"]:
        raise InvalidInputError(f"{name}: `breakpoints` must be a list with one list of numbers per axis.")
    try:
        axes = [_numbers(f"breakpoints[{axis}]", given) for axis, given in enumerate(document["breakpoints"])]
        if coordinates == "lonlat":
            axes = _on_the_plane(axes, _checked(projection))
        return EpsilonMap(axes, _numbers("values", document["values"]))
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def is_map(document: Any) -> bool:
    """Return whether JSON calls itself a map of ε."""
    return isinstance(document, dict) and document.get("metricdp") == KIND


def parsed(path: Path) -> Any:
    """Return what a JSON file of strangers holds; numbers that JSON does not have, and names twice, are refused."""
    name = os.fspath(path)
    with path.open("rb") as stream:
        text = stream.read(_LARGEST_BYTES + 1)
    if len(text) > _LARGEST_BYTES:
        raise InvalidInputError(f"{name} has more than {_LARGEST_BYTES:,} bytes, too many for a map of ε.")
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refused, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{name} is not valid JSON.") from error


def _refused(constant: str) -> None:
    raise ValueError(constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _numbers(name: str, given: Any) -> FloatArray:
    """Return nested lists of numbers as an array; text and booleans are no numbers."""
    try:
        # Objects first: among floats, numpy would take `true` for 1.
        raw = np.array(given, dtype=object)
        if raw.ndim and {int, float} >= set(map(type, raw.flat)):
            return raw.astype(np.float64)
    except (ValueError, OverflowError):
        pass
    raise reject(name, "lists of numbers, all of one length", "something else")


def _on_the_plane(axes: list[FloatArray], projection: Equirectangular) -> list[FloatArray]:
    if len(axes) != 2:
        raise reject("breakpoints", "two lists, of longitudes and of latitudes", f"{len(axes)}")
    lon, lat = axes
    centre = np.array([projection.lon_deg]), np.array([projection.lat_deg])
    east = projection.to_xy_km(lon, np.broadcast_to(centre[1], lon.shape))[:, 0]
    north = projection.to_xy_km(np.broadcast_to(centre[0], lat.shape), lat)[:, 1]
    return [east, north]


def _in_degrees(axes: tuple[FloatArray, ...], projection: Equirectangular) -> list[FloatArray]:
    if len(axes) != 2:
        raise reject("epsilon", "a map of two axes, where there is a projection", f"{len(axes)} axes")
    wider = [_reaching_over(points, km) for points, km in zip(axes, projection.km_per_degree, strict=True)]
    zeros = [np.zeros_like(points) for points in wider]
    lon = projection.to_lonlat(np.column_stack([wider[0], zeros[0]]))[:, 0]
    lat = projection.to_lonlat(np.column_stack([zeros[1], wider[1]]))[:, 1]
    return [lon, lat]


def _reaching_over(points: FloatArray, km_per_degree: float) -> FloatArray:
    wider = points.copy()
    wider[[0, -1]] += np.array([-1, 1]) * _OVER_THE_EDGE * km_per_degree
    return wider


def _checked(projection: Any) -> Equirectangular:
    """Only where meridians and parallels are straight do borders in degrees become borders on the plane."""
    if not isinstance(projection, Equirectangular):
        raise reject("projection", "an Equirectangular projection", type(projection).__name__)
    return projection
