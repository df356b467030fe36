"""The option `--epsilon-map`: which kind of file it is, and the map of ε that it holds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp._optional import optional
from metricdp.cli._console import named_as, note
from metricdp.errors import InvalidInputError
from metricdp.files.map_files import is_map, map_from_dict, parsed
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.problem import Problem

__all__ = ["EpsilonElsewhere", "EpsilonMapFile", "read_epsilon_map", "require_one", "the_one_given"]

EpsilonMapFile = Annotated[
    Path | None,
    typer.Option(
        "--epsilon-map",
        help="A file with an ε for each part of the map, instead of --epsilon: JSON, GeoJSON or GeoTIFF, see "
        "docs/elastic.md.",
    ),
]
EpsilonElsewhere = Annotated[
    float | None, typer.Option("--epsilon-elsewhere", help="ε where the polygons or pixels of --epsilon-map have none.")
]

_KINDS = (
    "JSON as `metricdp epsilon --by-density` writes it, GeoJSON with polygons that have a property 'epsilon', or a "
    "GeoTIFF"
)

# How TIFF and BigTIFF files begin, with either order of bytes.
_TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def require_one(epsilon: float | None, map_file: Path | None, elsewhere: float | None) -> None:
    """Refuse ε given twice, or not at all; before the problem is read, which may take long."""
    if epsilon is not None and map_file is not None:
        raise InvalidInputError("`--epsilon` and `--epsilon-map` exclude each other; leave one of them out.")
    if epsilon is None and map_file is None:
        raise InvalidInputError("Say how private: a number as `--epsilon`, or a file as `--epsilon-map`.")
    if elsewhere is not None and map_file is None:
        raise InvalidInputError("`--epsilon-elsewhere` is about `--epsilon-map`, which is not given.")
    if map_file is not None and not map_file.is_file():
        raise InvalidInputError(f"`--epsilon-map` must be a file, got {os.fspath(map_file)!r}.")


def the_one_given(
    epsilon: float | None, map_file: Path | None, elsewhere: float | None, problem: Problem
) -> float | EpsilonMap:
    """Return ε, a number or a map, of the two options of which one is given."""
    if map_file is not None:
        return read_epsilon_map(map_file, elsewhere, problem)
    assert epsilon is not None
    return epsilon


def read_epsilon_map(path: Path, elsewhere: float | None, problem: Problem) -> EpsilonMap:
    """Read a map for a problem; the kind of file is told by what is in it, not by its name."""
    name = f"`--epsilon-map` {os.fspath(path)}"
    found = _read(path, name, elsewhere, problem)
    if found.n_axes != problem.n_axes:
        raise InvalidInputError(f"{name} has {found.n_axes} axes, and the problem {problem.n_axes}.")
    if not found.covers(problem.bounds):
        raise InvalidInputError(f"{name} does not cover the box. {_extents(found, problem)}")
    return found


def _read(path: Path, name: str, elsewhere: float | None, problem: Problem) -> EpsilonMap:
    with path.open("rb") as stream:
        start = stream.read(64)
    if start.startswith(_TIFF):
        return _from_geotiff(path, name, elsewhere, problem)
    if not start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        raise InvalidInputError(f"{name} is not a map of ε; it must be {_KINDS}.")
    document = parsed(path)
    if document.get("type") == "FeatureCollection":
        return _from_features(document, name, elsewhere, problem)
    if not is_map(document):
        raise InvalidInputError(f"{name} holds JSON that is no map of ε; it must be {_KINDS}.")
    if elsewhere is not None:
        raise InvalidInputError(f"`--epsilon-elsewhere` is about polygons and rasters; {name} says ε of every cell.")
    return map_from_dict(document, problem.projection, name=name)


def _from_geotiff(path: Path, name: str, elsewhere: float | None, problem: Problem) -> EpsilonMap:
    rasterio = optional("rasterio", "maps", "Reading a GeoTIFF")
    try:
        with named_as({"missing": "--epsilon-elsewhere", "path": "--epsilon-map"}):
            return EpsilonMap.from_geotiff(path, problem, missing=elsewhere)
    except rasterio.errors.RasterioError as error:
        raise InvalidInputError(f"{name} is not a GeoTIFF that can be read.") from error


def _from_features(document: dict[str, Any], name: str, elsewhere: float | None, problem: Problem) -> EpsilonMap:
    """Return the map of GeoJSON, in degrees as RFC 7946 has it; where no polygon is, the least ε of all counts."""
    if problem.projection is None:
        raise InvalidInputError(f"{name} is GeoJSON, in longitude and latitude, and the problem has no projection.")
    features = document.get("features")
    if not isinstance(features, list) or not features:
        raise InvalidInputError(f"{name} is GeoJSON without features.")
    polygons, values = zip(*(_feature(one, f"{name}, feature {at}") for at, one in enumerate(features)), strict=True)
    if elsewhere is None:
        elsewhere = min(values)
        note(f"Where no polygon is, ε is the least of all, {elsewhere:g}; `--epsilon-elsewhere` says otherwise.")
    with named_as({"elsewhere": "--epsilon-elsewhere"}):
        return EpsilonMap.from_polygons(list(polygons), list(values), problem, elsewhere)


def _feature(feature: Any, name: str) -> tuple[Any, float]:
    """Return the polygon and the ε of a feature that a stranger wrote."""
    properties = feature.get("properties") if isinstance(feature, dict) else None
    value = properties.get("epsilon") if isinstance(properties, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise InvalidInputError(f"{name} must have a property 'epsilon' that is a positive number.")
    shapely = optional("shapely", "maps", "A map from polygons")
    try:
        shape = shapely.from_geojson(json.dumps(feature.get("geometry")))
    except (shapely.errors.ShapelyError, ValueError, TypeError) as error:
        raise InvalidInputError(f"{name} has no geometry that can be read.") from error
    if shape is None or shape.geom_type not in ("Polygon", "MultiPolygon") or not shape.is_valid or shape.is_empty:
        raise InvalidInputError(f"{name} must be a valid Polygon or MultiPolygon.")
    return shape, float(value)


def _extents(found: EpsilonMap, problem: Problem) -> str:
    boxes = [found.bounds, problem.bounds]
    unit = "in its coordinates"
    if problem.projection is not None:
        boxes, unit = [problem.projection.to_lonlat(box) for box in boxes], "in degrees"
    own, needed = (" x ".join(f"[{low:.9g}, {high:.9g}]" for low, high in box.T) for box in boxes)
    return f"It reaches over {own}, and the box is {needed}, {unit}."
