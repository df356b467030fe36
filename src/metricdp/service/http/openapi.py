"""The OpenAPI document. The routes read bodies themselves, so FastAPI is told here what they take and answer."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from metricdp.service.http.messages import BudgetRequest, PerturbRequest, ProbabilitiesRequest, ProblemDetails
from metricdp.service.http.problem_details import MEDIA_TYPE
from metricdp.service.state.catalogue import Catalogue

__all__ = [
    "BUDGET_ANSWER",
    "PERTURB_ANSWER",
    "answers",
    "budget_body",
    "mechanism_id",
    "needs_key",
    "openapi",
    "perturb_body",
    "probabilities_body",
]

_POINTS = [[24.9414, 60.1719], [24.9355, 60.1663]]
_OUTPUTS = [{"id": 3, "lon": 24.9402, "lat": 60.1707}, {"id": 11, "lon": 24.9371, "lat": 60.1668}]

PERTURB_ANSWER = {"outputs": _OUTPUTS, "mechanism": "helsinki", "sha256": "0f" * 32, "refused": 0}
BUDGET_ANSWER = {
    "spent": 16.0,
    "remaining": 184.0,
    "reports": 2,
    "affordable": 23,
    "frees_at": None,
    "mechanism": "helsinki",
    "sha256": "0f" * 32,
}

_PROBLEMS = {
    400: "A query was given.",
    401: "No valid key.",
    404: "Not there, or turned off.",
    408: "The body took too long.",
    413: "Too large.",
    415: "Not JSON.",
    422: "The body breaks a rule; `errors` says which, never what was sent.",
    429: "Too many requests or points for this key; see `Retry-After`.",
    503: "Busy, or the ledger or the keys cannot be read; see `Retry-After`.",
}

# Any route of the API may answer with these.
_COMMON = (400, 401, 429, 503)


def perturb_body(catalogue: Catalogue, max_points: int, *, charged: bool, timed: bool) -> dict[str, Any]:
    """Describe the body of POST /v1/perturb."""
    examples = {
        "one point": {"point": _POINTS[0], **({"user": "ann"} if charged else {})},
        "two points": {"points": _POINTS, **({"users": ["ann", "bob"]} if charged else {})},
    }
    body = _body(PerturbRequest, examples, catalogue, max_points)
    unknown = (() if charged else ("user", "users")) + (() if timed else ("time", "times"))
    for name in unknown:
        del body["requestBody"]["content"]["application/json"]["schema"]["properties"][name]
    return body


def probabilities_body(catalogue: Catalogue, max_points: int) -> dict[str, Any]:
    """Describe the body of POST /v1/probabilities."""
    return _body(ProbabilitiesRequest, {"two points": {"points": _POINTS}}, catalogue, max_points)


def budget_body(catalogue: Catalogue) -> dict[str, Any]:
    """Describe the body of POST /v1/budget."""
    return _described(BudgetRequest.model_json_schema(), {"one person": {"user": "ann"}}, catalogue)


def mechanism_id() -> dict[str, Any]:
    """Describe the parameter of GET /v1/mechanisms/{id}."""
    parameter = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}, "example": "helsinki"}
    return {"parameters": [parameter], **needs_key()}


def needs_key() -> dict[str, Any]:
    """Say that a key is needed where the service has keys."""
    return {"security": [{"bearer": []}, {"header": []}, {}]}


def answers(model: type[BaseModel], *problems: int, example: dict[str, Any] | None = None) -> dict[int | str, Any]:
    """Describe the answers of a route."""
    good: dict[str, Any] = {"model": model, "description": "The answer."}
    if example is not None:
        good["content"] = {"application/json": {"example": example}}
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    bad: dict[int | str, Any] = {
        status: {"description": _PROBLEMS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({*problems, *_COMMON})
    }
    return {200: good, **bad}


def file_answer(*problems: int) -> dict[int | str, Any]:
    """Describe the answers of a route that gives out a file."""
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {**answers(ProblemDetails, *problems), 200: {"description": "The file.", "content": content}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        problem = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update(problem.pop("$defs"), ProblemDetails=problem)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        app.openapi_schema = document
    return app.openapi_schema


def _body(model: type[BaseModel], examples: dict[str, Any], catalogue: Catalogue, max_points: int) -> dict[str, Any]:
    schema = model.model_json_schema()
    properties = schema["properties"]
    axes = {served.mechanism.bounds.shape[1] for served in catalogue.all()}
    for name in ("points", "users", "times"):
        for part in _arrays(properties.get(name, {})):
            part["maxItems"] = min(max_points, part.get("maxItems", max_points))
    points = [part["items"] for part in _arrays(properties["points"])]
    for part in (*points, *_arrays(properties.get("point", {}))):
        part.update(minItems=min(axes), maxItems=max(axes))
    return _described(schema, examples, catalogue)


def _described(schema: dict[str, Any], examples: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    schema["properties"]["mechanism"]["anyOf"][0]["enum"] = [served.id for served in catalogue.all()]
    shown = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": schema, "examples": shown}}
    return {"requestBody": {"required": True, "content": content}, **needs_key()}


def _arrays(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in (schema, *schema.get("anyOf", ())) if part.get("type") == "array"]
