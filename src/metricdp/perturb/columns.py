"""Which columns hold the point: as the caller says, or guessed from names and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.geometries import holds_points, primary_geometry, reference_system

__all__ = ["PointColumns", "find_columns", "listed", "point_names", "printable", "require_column"]

_LONGITUDE = ("lon", "lng", "long", "longitude")
_LATITUDE = ("lat", "latitude")
_AXES = (("x", "x_km", "value"), ("y", "y_km"), ("z", "z_km"))

_ALL_NAMES = {*_LONGITUDE, *_LATITUDE}.union(*_AXES)


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
    found = _guess(schema, mechanism, coordinates) if names is None else _checked(schema, mechanism, tuple(names))
    geometry = len(found) == 1 and holds_points(schema.field(found[0]))
    degrees = _in_degrees(found, mechanism, coordinates)
    if geometry and degrees:
        _require_degrees(reference_system(schema, found[0]))
    return PointColumns(found, degrees, geometry)


def point_names(names: Iterable[str]) -> list[str]:
    """Return the names that look like an axis of a point."""
    return [name for name in names if _last_word(name) in _ALL_NAMES]


def _guess(schema: pa.Schema, mechanism: Mechanism, coordinates: str | None) -> tuple[str, ...]:
    n_axes = mechanism.bounds.shape[1]
    geometries = primary_geometry(schema) if n_axes == 2 else []
    if len(geometries) > 1:
        raise reject("columns", "named where several hold geometries", listed(geometries))
    if geometries:
        return (geometries[0],)
    kinds: list[tuple[tuple[str, ...], ...]] = [_AXES[:n_axes]] if n_axes <= len(_AXES) else []
    if mechanism.projection is not None:
        kinds = [*kinds, (_LONGITUDE, _LATITUDE)] if coordinates == "projected" else [(_LONGITUDE, _LATITUDE), *kinds]
    for kind in kinds:
        named = [_one_of(schema.names, aliases) for aliases in kind]
        if all(name is not None for name in named):
            return tuple(name for name in named if name is not None)
    wanted = " or ".join(", ".join(aliases[0] for aliases in kind) for kind in kinds) or f"{n_axes} columns"
    hint = "" if mechanism.projection is not None else " in the mechanism's own coordinates; it has no projection"
    raise reject("columns", f"named (looked for {wanted}{hint})", f"a table of {listed(schema.names)}")


def _checked(schema: pa.Schema, mechanism: Mechanism, names: tuple[str, ...]) -> tuple[str, ...]:
    n_axes = mechanism.bounds.shape[1]
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
    return not all(_last_word(name) in aliases for name, aliases in zip(names, _AXES, strict=False))


def require_column(parameter: str, names: Sequence[str], name: str) -> None:
    """Refuse a name that no column has, or more than one."""
    count = list(names).count(name)
    if count == 0:
        raise reject(parameter, f"among the columns {listed(names)}", repr(name))
    if count > 1:
        msg = f"Column {name!r} appears {count} times; `{parameter}` needs unique names."
        raise InvalidInputError(msg)


def _one_of(names: Iterable[str], aliases: tuple[str, ...]) -> str | None:
    """Return the one column with such a name, or the one whose last word is such a name."""
    for spelled in (str.casefold, _last_word):
        matching = [name for name in names if spelled(name) in aliases]
        if len(matching) > 1:
            raise reject("columns", "named where several could be meant", listed(matching))
        if matching:
            return matching[0]
    return None


def _last_word(name: str) -> str:
    """Return `longitude` for `pickup_longitude` or `pickupLongitude`."""
    if name.casefold() in _ALL_NAMES:
        return name.casefold()
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.split(r"[\s_.\-]+", spaced.strip())[-1].casefold()


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, without those that are long or have many digits: they may be data, not names."""
    shown = [printable(name) if sum(map(str.isdigit, name)) < 3 and len(name) <= 64 else "…" for name in names[:most]]
    return ", ".join(shown) + (", …" if len(names) > most else "")


def printable(name: str) -> str:
    """Return a name with its control characters escaped, so that it cannot act on a terminal."""
    return name if name.isprintable() else repr(name)[1:-1]


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
