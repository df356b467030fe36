"""The routes: /v1, health and metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from itertools import chain
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from metricdp._validation import FloatArray
from metricdp.mechanisms.base import SLACK
from metricdp.service import docs, messages
from metricdp.service.draws import Draws
from metricdp.service.guard import BODY, KEY
from metricdp.service.keys import KeyRing
from metricdp.service.limits import Rates
from metricdp.service.metrics import CONTENT_TYPE, Metrics
from metricdp.service.problems import Problem
from metricdp.service.registry import Registry, Served
from metricdp.service.settings import Settings

__all__ = ["api_routes", "health_routes"]

# Largest longitude and latitude.
_DEGREES = np.array([180.0, 90.0])


class _PlainRoute(APIRoute):
    """A route whose function takes the request as it is; there is nothing for FastAPI to look up first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function itself."""
        return self.endpoint


def api_routes(registry: Registry, draws: Draws, rates: Rates, metrics: Metrics, settings: Settings) -> APIRouter:
    """Return the routes under /v1."""
    router = APIRouter(prefix="/v1", tags=["v1"], route_class=_PlainRoute)
    charged = settings.ledger is not None

    @router.post(
        "/perturb",
        summary="Report an output for every point",
        openapi_extra=docs.perturb_body(registry, settings.max_points, charged=charged),
        responses=docs.answers(messages.PerturbAnswer, 408, 413, 415, 422, example=docs.PERTURB_ANSWER),
    )
    async def perturb(request: Request) -> Response:
        asked = messages.read(messages.PerturbRequest, request.scope[BODY])
        if (asked.point is None) == (asked.points is None):
            raise Problem.invalid("points", "given, or else `point`, and not both")
        listed = [asked.point] if asked.point is not None else asked.points or []
        if len(listed) > settings.max_points:
            raise Problem.invalid("points", f"at most {settings.max_points} points")
        users = _users(asked, len(listed), charged=charged)
        served = _served(registry, asked.mechanism)
        points, degrees = _points(served, listed, asked.coordinates, asked.outside, one=asked.point is not None)
        await rates.take_points(request.scope[KEY], len(points))
        drawn = await draws.draw(served, points, degrees=degrees, users=users)
        body, refused = served.answers.drawn(drawn, degrees=degrees)
        metrics.perturbed(served.id, len(points), refused)
        return Response(body, media_type="application/json")

    @router.get(
        "/mechanisms",
        summary="All mechanisms, the default first",
        responses=docs.answers(messages.Mechanisms),
        openapi_extra=docs.needs_key(),
    )
    async def mechanisms(_: Request) -> Response:
        return _json({"mechanisms": [served.answers.summary for served in registry.all()]})

    @router.get(
        "/mechanisms/{id}",  # noqa: FAST003 - taken from the request, without FastAPI's help
        summary="One mechanism with its outputs and its certificate",
        responses=docs.answers(messages.MechanismDetail, 404),
        openapi_extra=docs.mechanism_id(),
    )
    async def mechanism(request: Request) -> Response:
        served = _served(registry, request.path_params["id"], status=404)
        return Response(served.answers.detail, media_type="application/json")

    @router.post(
        "/probabilities",
        summary="Pr[output | point]; for looking on your own machine, off by default",
        openapi_extra=docs.probabilities_body(registry, settings.max_points),
        responses=docs.answers(messages.ProbabilitiesAnswer, 404, 408, 413, 415, 422),
    )
    async def probabilities(request: Request) -> Response:
        if not settings.probabilities:
            detail = "Probabilities are off, because a row of them gives the true point away: see --probabilities."
            raise Problem(404, detail)
        asked = messages.read(messages.ProbabilitiesRequest, request.scope[BODY])
        served = _served(registry, asked.mechanism)
        points, degrees = _points(served, asked.points, asked.coordinates, asked.outside)
        await rates.take_points(request.scope[KEY], len(points))
        plane = _plane(served, points, degrees=degrees)
        rows = await asyncio.to_thread(served.mechanism.probabilities, plane)
        return Response(await asyncio.to_thread(served.answers.probabilities, rows), media_type="application/json")

    return router


def health_routes(registry: Registry, draws: Draws, keys: KeyRing | None, metrics: Metrics) -> APIRouter:
    """Return /healthz, /readyz and /metrics; none of them needs a key or says anything about requests."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Whether the process lives")
    async def healthz() -> Response:
        return _json({"alive": True})

    @router.get("/readyz", summary="Whether requests can be answered", responses={503: {"description": "Not ready."}})
    async def readyz() -> Response:
        ledger, readable = await draws.ledger_usable(), keys is None or keys.refresh()
        answer = {
            "ready": ledger and readable,
            "mechanisms": [served.id for served in registry.all()],
            "stale": sorted(registry.stale),
            "ledger_usable": ledger,
            "keys_readable": readable,
        }
        return _json(answer, 200 if answer["ready"] else 503)

    @router.get("/metrics", summary="Counts and times for Prometheus", response_class=Response)
    async def show_metrics() -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return router


def _served(registry: Registry, name: str | None, *, status: int = 422) -> Served:
    try:
        return registry.served(name)
    except KeyError:
        if status == 404:
            raise Problem(404, "There is no mechanism of this id.") from None
        raise Problem.invalid("mechanism", "the id of a mechanism, see GET /v1/mechanisms") from None


def _users(asked: messages.PerturbRequest, count: int, *, charged: bool) -> Sequence[str | int] | None:
    """Return who asks, one per point; None where nobody counts."""
    given = [name for name in ("user", "users") if getattr(asked, name) is not None]
    if not charged:
        if given:
            # Whoever names a person believes that a budget is kept.
            raise Problem.invalid(given[0], "left out, since this service has no ledger and keeps no budgets")
        return None
    if len(given) != 1:
        raise Problem.invalid("user", "given, or else `users`, and not both: the ledger must know whom to charge")
    if asked.user is not None:
        return [asked.user] * count
    users = asked.users or []
    if len(users) != count:
        raise Problem.invalid("users", f"as many as there are points, {count}")
    return users


def _points(
    served: Served, listed: list[list[float]], coordinates: str | None, outside: str, *, one: bool = False
) -> tuple[FloatArray, bool]:
    """Return points as they were given, checked, and whether they are degrees."""
    mechanism = served.mechanism
    n_axes = mechanism.bounds.shape[1]
    name = "point" if one else "points"
    if set(map(len, listed)) != {n_axes}:
        wrong = next(index for index, point in enumerate(listed) if len(point) != n_axes)
        raise Problem.invalid(name if one else f"{name}.{wrong}", f"a list of {n_axes} numbers")
    points = np.fromiter(chain.from_iterable(listed), np.float64, len(listed) * n_axes).reshape(-1, n_axes)
    degrees = mechanism.projection is not None if coordinates is None else coordinates == "lonlat"
    if degrees:
        if mechanism.projection is None:
            raise Problem.invalid("coordinates", "'projected', since the mechanism has no projection")
        beyond = np.abs(points) > _DEGREES
        if beyond.any():
            row, axis = np.unravel_index(int(beyond.argmax()), beyond.shape)
            rule = "a longitude between -180 and 180" if axis == 0 else "a latitude between -90 and 90"
            raise Problem.invalid(f"{name}.{axis}" if one else f"{name}.{row}.{axis}", rule)
    if outside == "error":
        count = int(mechanism.beyond(_plane(served, points, degrees=degrees), SLACK).sum())
        if count:
            raise Problem.invalid(name, f"inside the box of the mechanism, and {count} of {len(points)} are not")
    return points, degrees


def _plane(served: Served, points: FloatArray, *, degrees: bool) -> FloatArray:
    return np.asarray(served.mechanism.projection.to_xy_km(*points.T)) if degrees else points


def _json(answer: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(answer, separators=(",", ":")), status, media_type="application/json")
