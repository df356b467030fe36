"""Which columns hold the point: as the caller says, or guessed from names and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metricdp._point_names import AXES, LATITUDE, LONGITUDE, last_word, listed, one_of
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.geometries import holds_points, primary_geometry, reference_system
from metricdp.perturb.nested import NESTED

__all__ = ["PointColumns", "find_columns", "find_places", "require_column"]


@dataclass(frozen=True)
class PointColumns:
    """Where a batch keeps its points.

    names : one column per axis, or one column of geometries.
    degrees : whether they are longitude and latitude, to be projected, rather than the mechanism's own coordinates.
    geometry : whether `names` is one column of geometries.
    """

    names: tuple[str, ...]
    degrees: bool
    geometry: bool = False


def find_columns(
    schema: pa.Schema, mechanism: Mechanism, names: Sequence[str] | None = None, coordinates: str | None = None
) -> PointColumns:
    """Return the columns of the point, guessed where `names` is None.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns to choose from; GeoParquet's and GeoArrow's notes about geometries are heeded.
    mechanism : Mechanism
        Says how many axes there are, and whether longitude and latitude can be projected.
    names : sequence of str, optional
        One column per axis (longitude before latitude), or one column of geometries.
    coordinates : "lonlat" or "projected", optional
        What the numbers are. By default degrees if the mechanism has a projection, unless columns are named x and y.
    """
    n_axes, projected = mechanism.bounds.shape[1], mechanism.projection is not None
    if names is None:
        hint = "" if projected else " in the mechanism's own coordinates; it has no projection"
        found = _guess(schema, (n_axes,), coordinates, lonlat=projected, hint=hint)
    else:
        found = _checked(schema, n_axes, tuple(names))
    geometry = len(found) == 1 and holds_points(schema.field(found[0]))
    degrees = _in_degrees(found, mechanism, coordinates)
    if geometry and degrees:
        _require_degrees(reference_system(schema, found[0]))
    return PointColumns(found, degrees, geometry)


def find_places(
    schema: pa.Schema, names: Sequence[str] | None = None, coordinates: str | None = None
) -> tuple[PointColumns, bool]:
    """Return the columns of places that no mechanism has been made for yet, and whether degrees are sure.

    As `find_columns`, but the number of axes is that of the columns found. Degrees are sure if `coordinates` or names
    say so, or if the points are geometries; they are surely none if columns are called x, y, z. Otherwise `degrees` is
    False, and the caller may look at the values.
    """
    if names is not None:
        found = tuple(names)
    elif len(schema) == 1:
        found = (schema.names[0],)
    else:
        found = _guess(schema, (3, 2, 1), coordinates, lonlat=True)
    for name in found:
        require_column("columns", schema.names, name)
    geometry = len(found) == 1 and holds_points(schema.field(found[0]))
    if coordinates == "lonlat" and len(found) != 2 and not geometry:
        raise reject("coordinates", f"'projected' for points of {len(found)} columns", repr(coordinates))
    if geometry and coordinates != "projected":
        _require_degrees(reference_system(schema, found[0]))
        return PointColumns(found, degrees=True, geometry=True), True
    if coordinates is not None:
        return PointColumns(found, coordinates == "lonlat", geometry), True
    if _are_called(found, (LONGITUDE, LATITUDE)):
        return PointColumns(found, degrees=True), True
    return PointColumns(found, degrees=False), len(found) != 2 or _are_called(found, AXES)


def _guess(
    schema: pa.Schema, axes: tuple[int, ...], coordinates: str | None, *, lonlat: bool, hint: str = ""
) -> tuple[str, ...]:
    """Return the columns whose names fit, of as many axes as the first of `axes` for which there are any."""
    geometries = primary_geometry(schema) if 2 in axes else []
    if len(geometries) > 1:
        raise reject("columns", "named where several hold geometries", listed(geometries))
    if geometries:
        return (geometries[0],)
    kinds: list[tuple[tuple[str, ...], ...]] = [AXES[:count] for count in axes if count <= len(AXES)]
    if lonlat:
        kinds = [*kinds, (LONGITUDE, LATITUDE)] if coordinates == "projected" else [(LONGITUDE, LATITUDE), *kinds]
    for kind in kinds:
        named = [one_of(schema.names, aliases) for aliases in kind]
        if all(name is not None for name in named):
            return tuple(name for name in named if name is not None)
    wanted = " or ".join(", ".join(aliases[0] for aliases in kind) for kind in kinds) or f"{axes[0]} columns"
    inside = _inside_of(schema)
    raise reject(
        "columns", f"named (looked for {wanted}{hint})", f"a table of {listed(schema.names)}{inside and f'; {inside}'}"
    )


def _inside_of(schema: pa.Schema) -> str:
    """Return a sentence about the first column that has others inside, those of a point if they are known."""
    for field in schema:
        if NESTED in (field.metadata or {}):
            return f"`columns` may lead into objects: {listed([field.name + '.NAME'])}"
        if not pa.types.is_struct(field.type):
            continue
        names = [inner.name for inner in field.type]
        found = [one_of(names, aliases) for aliases in (LONGITUDE, LATITUDE)]
        if all(name is not None for name in found):
            return f"`columns` may be {listed([f'{field.name}.{name}' for name in found])}".replace(", ", ",")
    return ""


def _checked(schema: pa.Schema, n_axes: int, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        require_column("columns", schema.names, name)
    geometry = len(names) == 1 and holds_points(schema.field(names[0]))
    if not (n_axes == 2 if geometry else len(names) == n_axes):
        raise reject("columns", f"one name per axis, {n_axes} in all, or a column of points", ", ".join(names))
    return names


def _in_degrees(names: tuple[str, ...], mechanism: Mechanism, coordinates: str | None) -> bool:
    if coordinates == "lonlat" and mechanism.projection is None:
        raise reject("coordinates", "'projected' for a mechanism without a projection", repr(coordinates))
    if coordinates is not None or mechanism.projection is None:
        return coordinates == "lonlat"
    return not _are_called(names, AXES)


def _are_called(names: tuple[str, ...], kinds: Sequence[tuple[str, ...]]) -> bool:
    return all(last_word(name) in aliases for name, aliases in zip(names, kinds, strict=False))


def require_column(parameter: str, names: Sequence[str], name: str) -> None:
    """Refuse a name that no column has, or more than one."""
    count = list(names).count(name)
    if count == 0:
        raise reject(parameter, f"among the columns {listed(names)}", repr(name))
    if count > 1:
        msg = f"Column {name!r} appears {count} times; `{parameter}` needs unique names."
        raise InvalidInputError(msg)


def _require_degrees(system: Any) -> None:
    """Refuse geometries with another reference system than degrees; by the standard, none means degrees."""
    if isinstance(system, dict):
        degrees = system.get("type") == "GeographicCRS"
        name = str(system.get("name"))
    else:
        name = str(system)
        degrees = system is None or name.upper().startswith(("EPSG:4326", "OGC:CRS84", "GEOGCRS", "GEOGCS"))
    if not degrees:
        msg = (
            f"The geometries must be in longitude and latitude, got the reference system {name[:64]!r}; reproject them."
        )
        raise InvalidInputError(msg)
