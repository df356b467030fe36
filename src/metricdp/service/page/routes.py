"""The page's own routes: its files, the roads of the city and what the service can do."""

from __future__ import annotations

import gzip
import json
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, HTTPException, Request, Response
from numpy.typing import NDArray

from metricdp._version import __version__

if TYPE_CHECKING:
    from metricdp.cities import RoadNetwork
    from metricdp.service.state.settings import Settings

__all__ = ["page_routes", "roads"]

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Roads are drawn a few pixels wide, so nobody sees a decimetre.
_METRES_PER_UNIT = 0.1


def page_routes(settings: Settings) -> APIRouter:
    """Return the routes of the page: `/`, its files under `/page/`, `/page/config` and `/page/roads`.

    All that the page shows of mechanisms comes from the routes under /v1.
    """
    router = APIRouter(include_in_schema=False)
    files = _static_files()
    city = settings.city
    config_text = _json(
        {
            "city": None if city is None else city.name,
            "n_roads": 0 if city is None else len(_streets(city)),
            "tiles": settings.tiles,
            "ledger": settings.ledger is not None,
            "keys": settings.keys is not None,
            "probabilities": settings.probabilities,
            "version": __version__,
        }
    )

    @cache
    def packed_roads() -> bytes:
        return gzip.compress(_json(roads(city)), mtime=0)

    @router.get("/")
    def index() -> Response:
        return _file(files, "index.html")

    @router.get("/page/config")
    def config() -> Response:
        return Response(config_text, media_type="application/json")

    @router.get("/page/roads")
    def road_lines(request: Request) -> Response:
        packed = packed_roads()
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(gzip.decompress(packed), media_type="application/json")
        return Response(packed, media_type="application/json", headers={"Content-Encoding": "gzip"})

    @router.get("/page/{name}")
    def asset(name: str) -> Response:
        return _file(files, name)

    return router


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
        "edges": _streets(city).ravel().tolist(),
    }


def _streets(city: RoadNetwork) -> NDArray[np.int64]:
    """Return each pair of joined nodes once, whatever the directions of travel."""
    ends = np.sort(np.column_stack([city.u, city.v]), axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)


def _static_files() -> dict[str, bytes]:
    """Read the page's files once. No other file can be requested, since requests only look in this dictionary."""
    folder = resources.files("metricdp.service.page") / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if PurePath(item.name).suffix in _MEDIA_TYPES}


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        raise HTTPException(404, "The page has no such file.")
    return Response(files[name], media_type=_MEDIA_TYPES[PurePath(name).suffix])


def _json(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode()
