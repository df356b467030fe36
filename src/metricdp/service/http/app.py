"""The ASGI application, put together from its settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from metricdp._version import __version__
from metricdp.service.http.guard import Guard
from metricdp.service.http.logs import AccessLog, frames
from metricdp.service.http.openapi import openapi
from metricdp.service.http.problem_details import MEDIA_TYPE, HttpProblem
from metricdp.service.http.rates import Rates
from metricdp.service.http.routes import api_routes, health_routes
from metricdp.service.page.assets import require_roads_near
from metricdp.service.state.catalogue import Catalogue, Served
from metricdp.service.state.draws import Draws
from metricdp.service.state.keys import KeyRing
from metricdp.service.state.metrics import Metrics
from metricdp.service.state.settings import Settings

__all__ = ["build"]

_LOG = logging.getLogger("metricdp.service")

# FastAPI's own traces and logs would hold paths, queries and the messages of errors.
_NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)

_DESCRIPTION = (
    "Reports places under metric differential privacy. True coordinates travel in request bodies only, and are neither "
    "kept nor logged."
)


def build(settings: Settings) -> FastAPI:
    """Return the application; see `metricdp.service.create_app`."""
    metrics = Metrics()
    charged = settings.ledger is not None
    tell: list[Callable[[Served], None]] = [metrics.loaded]

    def loaded(served: Served) -> None:
        for listener in tell:
            listener(served)

    catalogue = Catalogue(settings.files, one_distance=charged, on_load=loaded, on_failure=metrics.failed)
    if settings.page:
        require_roads_near(settings.city, (served.mechanism for served in catalogue.all()))
    keys = None if settings.keys is None else KeyRing(settings.keys)
    rates = Rates(settings.requests_per_second, settings.points_per_second)
    ledger = None if settings.ledger is None else settings.ledger.open()
    draws = Draws(ledger, max_waiting=settings.max_waiting_points, on_transaction=metrics.transaction)
    for served in catalogue.all():
        draws.warn_if_unaffordable(served)
    tell.append(draws.warn_if_unaffordable)  # of mechanisms that take the place of others

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_scrubbed)
        watcher = asyncio.create_task(catalogue.watch(settings.poll_seconds))
        yield
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        await draws.close()

    app = FastAPI(
        title="metricdp",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        telemetry=_NO_TELEMETRY,
        exception_handlers={HTTPException: _http_problem, RequestValidationError: _unreadable},
    )
    app.state.catalogue, app.state.draws, app.state.keys, app.state.metrics = catalogue, draws, keys, metrics
    app.include_router(api_routes(catalogue, draws, rates, metrics, settings))
    app.include_router(health_routes(catalogue, draws, keys, metrics))
    if settings.page:
        from metricdp.service.page.routes import page_routes  # noqa: PLC0415 - not needed without the page

        app.include_router(page_routes(settings))
    app.add_middleware(
        Guard,
        settings=settings,
        keys=keys,
        rates=rates,
        metrics=metrics,
        access_log=AccessLog(as_json=settings.json_logs) if settings.access_log else None,
        paths=frozenset(_fixed_paths(app)),
    )
    if settings.cors:
        # Outside the guard: browsers send preflight requests without a key, and pages must be able to read refusals.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key"],
        )
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


def _fixed_paths(app: FastAPI) -> Iterator[str]:
    yield "/openapi.json"
    yield from (path for path in openapi(app)["paths"] if "{" not in path)


async def _http_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = HttpProblem(error.status_code, error.detail, headers=error.headers)
    return Response(problem.body(), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def _unreadable(_: Request, _error: Exception) -> Response:
    # FastAPI's own answer would repeat what was sent.
    problem = HttpProblem(422, "The request is not one that this service understands.")
    return Response(problem.body(), problem.status, media_type=MEDIA_TYPE)


def _scrubbed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error outside any request without its message, which asyncio would print and which may quote a request."""
    error = context.get("exception")
    where = "" if error is None else f"{type(error).__name__} at {frames(error)}"
    _LOG.error("an error outside any request: %s", where)
