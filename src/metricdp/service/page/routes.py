"""The page's own routes: its files, the roads of the city and what the service can do."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

from fastapi import APIRouter, HTTPException, Request, Response

from metricdp._version import __version__
from metricdp.service.page.assets import MEDIA_TYPES, as_json, core_files, page_files, roads, streets

if TYPE_CHECKING:
    from metricdp.service.state.settings import Settings

__all__ = ["page_routes", "roads"]


def page_routes(settings: Settings) -> APIRouter:
    """Return the routes of the page: `/`, its files and modules under `/page/`, `/page/config` and `/page/roads`.

    All that the page shows of mechanisms comes from the routes under /v1.
    """
    router = APIRouter(include_in_schema=False)
    # Read once. No other file can be requested, since requests only look in these dictionaries.
    files, core = page_files(), core_files()
    city = settings.city
    config_text = as_json(
        {
            "city": None if city is None else city.name,
            "n_roads": 0 if city is None else len(streets(city)),
            "tiles": settings.tiles,
            "ledger": settings.ledger is not None,
            "keys": settings.keys is not None,
            "probabilities": settings.probabilities,
            "version": __version__,
        }
    )

    @cache
    def packed_roads() -> bytes:
        return gzip.compress(as_json(roads(city)), mtime=0)

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

    @router.get("/page/core/{name}")
    def module(name: str) -> Response:
        return _file(core, name)

    @router.get("/page/{name}")
    def asset(name: str) -> Response:
        return _file(files, name)

    return router


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        raise HTTPException(404, "The page has no such file.")
    return Response(files[name], media_type=MEDIA_TYPES[PurePath(name).suffix])
