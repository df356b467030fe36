"""The routes under /v1, and those for health and metrics."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from metricdp._validation import FloatArray
from metricdp.mechanisms.families import family_of
from metricdp.mechanisms.outside import FEWEST_POINTS
from metricdp.service.http import messages, openapi
from metricdp.service.http.guard import BODY, KEY
from metricdp.service.http.problem_details import HttpProblem
from metricdp.service.http.rates import Rates
from metricdp.service.state.answers import LARGEST_DEGREES, Outside
from metricdp.service.state.catalogue import Catalogue, Served
from metricdp.service.state.draws import Draws
from metricdp.service.state.keys import Key, KeyRing
from metricdp.service.state.metrics import CONTENT_TYPE, Metrics
from metricdp.service.state.settings import Settings

__all__ = ["api_routes", "health_routes"]


class _PlainRoute(APIRoute):
    """A route whose function takes the request itself, since resolving its parameters would cost time for nothing."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function itself."""
        return self.endpoint


def api_routes(catalogue: Catalogue, draws: Draws, rates: Rates, metrics: Metrics, settings: Settings) -> APIRouter:
    """Return the routes under /v1."""
    router = APIRouter(prefix="/v1", tags=["v1"], route_class=_PlainRoute)
    charged = settings.ledger is not None
    _add_mechanism_routes(router, catalogue, draws)
    _add_file_route(router, catalogue, settings)

    @router.post(
        "/perturb",
        summary="Report an output for every point",
        openapi_extra=openapi.perturb_body(catalogue, settings.max_points, charged=charged, timed=draws.timed),
        responses=openapi.answers(messages.PerturbAnswer, 408, 413, 415, 422, example=openapi.PERTURB_ANSWER),
    )
    async def perturb(request: Request) -> Response:
        asked = messages.read(messages.PerturbRequest, request.scope[BODY])
        if (asked.point is None) == (asked.points is None):
            raise HttpProblem.invalid("points", "given, or else `point`, and not both")
        listed = [asked.point] if asked.point is not None else asked.points or []
        if len(listed) > settings.max_points:
            raise HttpProblem.invalid("points", f"at most {settings.max_points} points")
        users = _users(asked, len(listed), charged=charged)
        times = _times(asked, len(listed), request.scope[KEY], timed=draws.timed)
        served = _served(catalogue, asked.mechanism)
        points, degrees = _points(served, listed, asked.coordinates, asked.outside, one=asked.point is not None)
        await rates.take_points(request.scope[KEY], len(points))
        drawn = await draws.draw(served, points, degrees=degrees, users=users, times=times, caller=_caller(request))
        count = len(points) >= FEWEST_POINTS if asked.count_outside is None else asked.count_outside
        outside = Outside.of(served.mechanism, points, degrees=degrees) if count else None
        body, refused = served.answers.drawn(drawn, degrees=degrees, outside=outside)
        metrics.perturbed(served.id, len(points), refused)
        return Response(body, media_type="application/json")

    @router.post(
        "/budget",
        summary="What a person has spent through this key, and what remains",
        openapi_extra=openapi.budget_body(catalogue),
        responses=openapi.answers(messages.BudgetAnswer, 404, 408, 413, 415, 422, example=openapi.BUDGET_ANSWER),
    )
    async def budget(request: Request) -> Response:
        if not charged:
            raise HttpProblem(404, "This service has no ledger and keeps no budgets.")
        asked = messages.read(messages.BudgetRequest, request.scope[BODY])
        served = _served(catalogue, asked.mechanism)
        found = await draws.budget(served, asked.user, _caller(request))
        return _json({**asdict(found), "mechanism": served.id, "sha256": served.sha256})

    @router.post(
        "/probabilities",
        summary="Pr[output | point]; for looking on your own machine, off by default",
        openapi_extra=openapi.probabilities_body(catalogue, settings.max_points),
        responses=openapi.answers(messages.ProbabilitiesAnswer, 404, 408, 413, 415, 422),
    )
    async def probabilities(request: Request) -> Response:
        if not settings.probabilities:
            detail = "Probabilities are off, because a row of them gives the true point away: see --probabilities."
            raise HttpProblem(404, detail)
        asked = messages.read(messages.ProbabilitiesRequest, request.scope[BODY])
        served = _served(catalogue, asked.mechanism)
        points, degrees = _points(served, asked.points, asked.coordinates, asked.outside)
        await rates.take_points(request.scope[KEY], len(points))
        plane = _plane(served, points, degrees=degrees)
        rows = await asyncio.to_thread(served.mechanism.probabilities, plane)
        return Response(await asyncio.to_thread(served.answers.probabilities, rows), media_type="application/json")

    return router


def _add_mechanism_routes(router: APIRouter, catalogue: Catalogue, draws: Draws) -> None:
    """Add the routes that tell what is served; all that they answer is public."""

    @router.get(
        "/mechanisms",
        summary="All mechanisms, the default first",
        responses=openapi.answers(messages.MechanismListMessage),
        openapi_extra=openapi.needs_key(),
    )
    async def mechanisms(_: Request) -> Response:
        listed = [
            {**served.answers.summary, "reports_per_person": draws.reports_per_person(served)}
            for served in catalogue.all()
        ]
        return _json({"mechanisms": listed})

    @router.get(
        "/mechanisms/{id}",  # noqa: FAST003 - the function takes it from the request
        summary="One mechanism with its outputs and its certificate",
        responses=openapi.answers(messages.MechanismDetailMessage, 404),
        openapi_extra=openapi.mechanism_id(),
    )
    async def mechanism(request: Request) -> Response:
        served = _served(catalogue, request.path_params["id"], status=404)
        body = served.answers.detailed(draws.reports_per_person(served))
        return Response(body, media_type="application/json")

    @router.get(
        "/mechanisms/{id}/epsilon-map",  # noqa: FAST003 - the function takes it from the request
        summary="The ε and the protection radius of every part of the box, where they vary",
        responses=openapi.answers(messages.MapMessage, 404),
        openapi_extra=openapi.mechanism_id(),
    )
    async def epsilon_map(request: Request) -> Response:
        served = _served(catalogue, request.path_params["id"], status=404)
        if served.answers.summary["epsilon_map"] is None:
            raise HttpProblem(404, "This mechanism has one ε for its whole box; see `epsilon` of the mechanism.")
        return Response(await asyncio.to_thread(getattr, served, "map_answer"), media_type="application/json")


def _add_file_route(router: APIRouter, catalogue: Catalogue, settings: Settings) -> None:
    """Add the route that gives out files of mechanisms that devices can draw from."""

    @router.get(
        "/mechanisms/{id}/file",  # noqa: FAST003 - the function takes it from the request
        summary="The file of a mechanism that devices can draw from; off unless probabilities are on",
        responses=openapi.file_answer(404),
        openapi_extra=openapi.mechanism_id(),
    )
    async def mechanism_file(request: Request) -> Response:
        served = _served(catalogue, request.path_params["id"], status=404)
        if not settings.probabilities:
            raise HttpProblem(404, "Files are not given out: see --probabilities.")
        if "draw" not in family_of(served.mechanism.kind).on_device:
            raise HttpProblem(404, "Devices cannot draw from a mechanism of this kind.")
        try:
            body = await asyncio.to_thread(served.path.read_bytes)
        except OSError:
            raise HttpProblem(404, "The file of this mechanism is not there any more.") from None
        return Response(body, media_type="application/octet-stream")


def health_routes(catalogue: Catalogue, draws: Draws, keys: KeyRing | None, metrics: Metrics) -> APIRouter:
    """Return /healthz, /readyz and /metrics. None of them needs a key, and none tells what any request held."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="Whether the process lives")
    async def healthz() -> Response:
        return _json({"alive": True})

    @router.get("/readyz", summary="Whether requests can be answered", responses={503: {"description": "Not ready."}})
    async def readyz() -> Response:
        ledger, readable = await draws.ledger_usable(), keys is None or keys.refresh()
        answer = {
            "ready": ledger and readable,
            "mechanisms": [served.id for served in catalogue.all()],
            "stale": sorted(catalogue.stale),
            "unaffordable": [one.id for one in catalogue.all() if draws.reports_per_person(one) == 0],
            "ledger_usable": ledger,
            "keys_readable": readable,
        }
        return _json(answer, 200 if answer["ready"] else 503)

    @router.get("/metrics", summary="Counts and times for Prometheus", response_class=Response)
    async def show_metrics() -> Response:
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return router


def _served(catalogue: Catalogue, name: str | None, *, status: int = 422) -> Served:
    try:
        return catalogue.served(name)
    except KeyError:
        if status == 404:
            raise HttpProblem(404, "There is no mechanism of this id.") from None
        raise HttpProblem.invalid("mechanism", "the id of a mechanism, see GET /v1/mechanisms") from None


def _caller(request: Request) -> str | None:
    """Return what a ledger knows of a key: a part of its hash, since its name may be somebody else's later on."""
    key = request.scope[KEY]
    return None if key is None else str(key.sha256[:32])


def _users(asked: messages.PerturbRequest, count: int, *, charged: bool) -> Sequence[str | int] | None:
    """Return the person to charge for each point; None if the service has no ledger."""
    given = [name for name in ("user", "users") if getattr(asked, name) is not None]
    if not charged:
        if given:
            # A caller that names a person expects a budget to be kept.
            raise HttpProblem.invalid(given[0], "left out, since this service has no ledger and keeps no budgets")
        return None
    if len(given) != 1:
        raise HttpProblem.invalid("user", "given, or else `users`, and not both: the ledger must know whom to charge")
    if asked.user is not None:
        return [asked.user] * count
    users = asked.users or []
    if len(users) != count:
        raise HttpProblem.invalid("users", f"as many as there are points, {count}")
    return users


def _times(asked: messages.PerturbRequest, count: int, key: Key | None, *, timed: bool) -> FloatArray | None:
    """Return when each point was, if the key is trusted with that; None for the clock of the service.

    A client that may choose its time empties every window, so the time must be close to the service's own.
    """
    given = [name for name in ("time", "times") if getattr(asked, name) is not None]
    if not given:
        return None
    if not timed:
        raise HttpProblem.invalid(given[0], "left out, since this service has no ledger with a window or a schedule")
    if key is None or key.clock_skew_seconds is None:
        raise HttpProblem.invalid(given[0], "left out, since this key is not trusted with the time")
    if len(given) != 1:
        raise HttpProblem.invalid("times", "left out where `time` is given")
    times = np.full(count, asked.time) if asked.times is None else np.array(asked.times, dtype=np.float64)
    if len(times) != count:
        raise HttpProblem.invalid("times", f"as many as there are points, {count}")
    if not (np.abs(times - time.time()) <= key.clock_skew_seconds).all():
        raise HttpProblem.invalid(given[0], f"within {key.clock_skew_seconds} s of the service's clock")
    return times


def _points(
    served: Served, listed: list[list[float]], coordinates: str | None, outside: str, *, one: bool = False
) -> tuple[FloatArray, bool]:
    """Check points and return them as an array in the coordinates they came in, and whether those are degrees."""
    mechanism = served.mechanism
    n_axes = mechanism.bounds.shape[1]
    name = "point" if one else "points"
    if set(map(len, listed)) != {n_axes}:
        first = next(index for index, point in enumerate(listed) if len(point) != n_axes)
        raise HttpProblem.invalid(name if one else f"{name}.{first}", f"a list of {n_axes} numbers")
    points = np.fromiter(chain.from_iterable(listed), np.float64, len(listed) * n_axes).reshape(-1, n_axes)
    degrees = mechanism.projection is not None if coordinates is None else coordinates == "lonlat"
    if degrees:
        if mechanism.projection is None:
            raise HttpProblem.invalid("coordinates", "'projected', since the mechanism has no projection")
        wrong = np.abs(points) > LARGEST_DEGREES
        if wrong.any():
            row, axis = np.unravel_index(int(wrong.argmax()), wrong.shape)
            rule = (
                "a longitude between -180 and 180"
                if axis == 0
                else "a latitude between -90 and 90, after the longitude"
            )
            raise HttpProblem.invalid(f"{name}.{axis}" if one else f"{name}.{row}.{axis}", rule)
    if outside == "error":
        found = Outside.of(mechanism, points, degrees=degrees)
        if found.count:
            rule = f"inside the box of the mechanism, and {found.count} of {found.total} are not"
            swapped = found.swapped and len(points) >= FEWEST_POINTS
            raise HttpProblem.invalid(name, f"{rule}; are their coordinates swapped" if swapped else rule)
    return points, degrees


def _plane(served: Served, points: FloatArray, *, degrees: bool) -> FloatArray:
    return np.asarray(served.mechanism.projection.to_xy_km(*points.T)) if degrees else points


def _json(answer: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(answer, separators=(",", ":")), status, media_type="application/json")
