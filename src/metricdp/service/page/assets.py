"""What the page is made of: its own files, the package that draws on the device, and the roads of a city."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import reject
from metricdp.errors import InvalidInputError

if TYPE_CHECKING:
    from metricdp.cities import RoadNetwork
    from metricdp.mechanisms.base import Mechanism

__all__ = ["MEDIA_TYPES", "as_json", "core_files", "page_files", "require_roads_near", "roads", "streets"]

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Roads are drawn a few pixels wide, so nobody sees a decimetre.
_METRES_PER_UNIT = 0.1


def page_files() -> dict[str, bytes]:
    """Read the page's own files, by name."""
    return _files(resources.files("metricdp.service.page") / "static", tuple(MEDIA_TYPES))


def core_files() -> dict[str, bytes]:
    """Read the modules of the package that proves and draws on the device, by name.

    A wheel has them beside the page. In a source tree, and where that is installed as editable, they are in `js/src`.
    """
    inside = resources.files("metricdp.service.page") / "core"
    found = _files(inside, (".js",)) or _files(Path(__file__).parents[4] / "js" / "src", (".js",))
    if not found:
        msg = "The modules that draw on the device are missing from this installation; install metricdp again."
        raise InvalidInputError(msg)
    return found


def _files(folder: Traversable, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    if not folder.is_dir():
        return {}
    return {item.name: item.read_bytes() for item in folder.iterdir() if PurePath(item.name).suffix in suffixes}


def roads(city: RoadNetwork | None) -> dict[str, Any]:
    """Return a city's roads as whole numbers: where the nodes are, and which two each road joins.

    Coordinates are multiples of `unit_m` metres east and north of the centre of the city's projection; `edges` lists
    each pair of joined nodes once.

    Examples
    --------
    >>> from metricdp.cities import RoadNetwork
    >>> lane = RoadNetwork("lane", [7, 8], [0.0, 0.001], [0.0, 0.0], [0, 1], [1, 0], [111.2, 111.2])
    >>> roads(lane)["nodes"], roads(lane)["edges"]
    ([-556, 0, 556, 0], [0, 1])
    """
    if city is None:
        return {"projection": None, "unit_m": _METRES_PER_UNIT, "nodes": [], "edges": []}
    nodes = np.rint(city.xy * (1000 / _METRES_PER_UNIT)).astype(np.int64)
    return {
        "projection": {"lon_deg": city.projection.lon_deg, "lat_deg": city.projection.lat_deg},
        "unit_m": _METRES_PER_UNIT,
        "nodes": nodes.ravel().tolist(),
        "edges": streets(city).ravel().tolist(),
    }


def require_roads_near(city: RoadNetwork | None, mechanisms: Iterable[Mechanism]) -> None:
    """Refuse a city whose roads do not reach into the box of any of the mechanisms."""
    if city is not None and not any(_meet(city, mechanism) for mechanism in mechanisms):
        raise reject(
            "city", "the city in which the mechanisms are, for its roads", f"{city.name!r}, which is elsewhere"
        )


def _meet(city: RoadNetwork, mechanism: Mechanism) -> bool:
    if mechanism.projection is None:
        return False
    nodes = mechanism.projection.to_xy_km(city.lon, city.lat)
    low, high = mechanism.bounds
    return bool((nodes.max(axis=0) >= low).all() and (nodes.min(axis=0) <= high).all())


def streets(city: RoadNetwork) -> NDArray[np.int64]:
    """Return each pair of joined nodes once, whatever the directions of travel."""
    ends = np.sort(np.column_stack([city.u, city.v]), axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def as_json(value: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()
