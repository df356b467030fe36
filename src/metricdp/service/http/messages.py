"""The JSON of requests and answers, as pydantic models, and the reading of request bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metricdp.service.http.problem_details import HttpProblem

__all__ = [
    "BudgetAnswer",
    "BudgetRequest",
    "MapMessage",
    "MechanismDetailMessage",
    "MechanismListMessage",
    "MechanismMessage",
    "PerturbAnswer",
    "PerturbRequest",
    "ProbabilitiesAnswer",
    "ProbabilitiesRequest",
    "ProblemDetails",
    "read",
]

# Long enough for any id. The ledger would grow with longer ones.
_LONGEST_USER = 256

# An answer lists at most so many broken rules.
_MOST_ERRORS = 8

Point = Annotated[list[float], Field(min_length=1, max_length=16, fail_fast=True)]
Points = Annotated[list[Point], Field(min_length=1, fail_fast=True)]
FewPoints = Annotated[list[Point], Field(min_length=1, max_length=1000, fail_fast=True)]
# The ledger refuses ids with NUL. They are refused here, since all requests of a transaction would fail with it.
_UserName = Annotated[str, Field(min_length=1, max_length=_LONGEST_USER, pattern=r"^[^\x00]*$")]
User = _UserName | Annotated[int, Field(ge=-(2**63), lt=2**63)]
Id = Annotated[str, Field(min_length=1, max_length=256)]
Coordinates = Literal["lonlat", "projected"]
Outside = Literal["clamp", "error"]

_POINTS_NOTE = "Longitude and latitude in degrees, or the mechanism's own coordinates (usually km): see `coordinates`."
_COORDINATES_NOTE = "`lonlat` by default where the mechanism has a projection, `projected` otherwise."
_ID_NOTE = "The output's own id, text or an integer of up to 64 bits, if the mechanism has ids; otherwise its index."
_NAME_NOTE = "What people call the place, if the mechanism has names. Any text: escape it before you show it."
_TIME_NOTE = (
    "When the points were, in unix seconds: for keys that are trusted with it, within the skew that the key allows "
    "(`metricdp keys add --clock-skew-seconds`). By default the service's own clock says when."
)
_OUTSIDE_NOTE = "Take points outside the mechanism's box to its nearest point, or refuse the request."


# Strict, since "24.9" is not a number. Errors hide the values, since they may be printed somewhere.
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class _Request(BaseModel):
    model_config = _STRICT

    mechanism: Id | None = Field(None, description="Id of the mechanism; the first one by default.")
    coordinates: Coordinates | None = Field(None, description=_COORDINATES_NOTE)
    outside: Outside = Field("clamp", description=_OUTSIDE_NOTE)


class PerturbRequest(_Request):
    """Points for which to report outputs; exactly one of `point` and `points`."""

    point: Point | None = Field(None, description="One point.")
    points: Points | None = Field(None, description=_POINTS_NOTE)
    user: User | None = Field(None, description="Whose points they are: required with a ledger, refused without.")
    users: Annotated[list[User], Field(min_length=1, fail_fast=True)] | None = Field(
        None, description="One id per point, instead of `user`."
    )
    time: float | None = Field(None, description=_TIME_NOTE)
    times: Annotated[list[float], Field(min_length=1, fail_fast=True)] | None = Field(
        None, description="One time per point, instead of `time`."
    )
    count_outside: bool | None = Field(
        None, description="Say how many points lie outside the box. By default only for 20 points or more."
    )


class BudgetRequest(BaseModel):
    """The person whose budget is asked for; in the body, since addresses end up in logs along the way."""

    model_config = _STRICT

    mechanism: Id | None = Field(None, description="Id of the mechanism; the first one by default.")
    user: User = Field(description="Whose budget it is.")


class ProbabilitiesRequest(_Request):
    """Points at which to compute the probabilities of all outputs."""

    points: FewPoints = Field(description=_POINTS_NOTE)


class OutputMessage(BaseModel):
    """A place that was reported: `lon`, `lat`, or `x`, `y`, or `point` where there are not two axes."""

    model_config = ConfigDict(extra="forbid")

    id: int | str = Field(description=_ID_NOTE)
    name: str | None = Field(None, description=_NAME_NOTE)
    lon: float | None = None
    lat: float | None = None
    x: float | None = None
    y: float | None = None
    point: list[float] | None = None


class PerturbAnswer(BaseModel):
    """One output per point, in order; null where the person's budget is spent."""

    outputs: list[OutputMessage | None]
    mechanism: str
    sha256: str
    refused: int
    outside: int | None = Field(None, description="How many points lie outside the box, where that was counted.")
    hint: str | None = Field(None, description="A sentence if all coordinates seem to be swapped.")


class BudgetAnswer(BaseModel):
    """What was charged for a person through the key of the request, or in all where the service has no keys.

    With a window, it is what counts now.
    """

    spent: float
    remaining: float = Field(description="At most so much is left: others may have spent some of it.")
    reports: int
    affordable: int = Field(description="At most so many more reports of the mechanism.")
    frees_at: float | None = Field(
        None, description="Unix seconds at which the first of these charges stops counting; null without a window."
    )
    mechanism: str
    sha256: str


class ProbabilitiesAnswer(BaseModel):
    """Pr[output | point], one row per point."""

    probabilities: list[list[float]]
    mechanism: str
    sha256: str


class ProjectionMessage(BaseModel):
    """Centre of the equirectangular projection."""

    lon_deg: float
    lat_deg: float


class MapRangeMessage(BaseModel):
    """The range of a map of ε. The map itself is at /v1/mechanisms/{id}/epsilon-map."""

    least: float
    most: float
    radius_least: float = Field(description="1/most: within it the ratio is at most e anywhere; in `unit`.")
    radius_most: float = Field(description="1/least: the same where ε is least all the way between two places.")
    cells: list[int] = Field(description="Cells along each axis.")


class MechanismMessage(BaseModel):
    """A mechanism; `loss` and `lower_bound` are copied from the file, and nobody has checked them."""

    id: str
    method: str
    label: str = Field(description="What people call the method.")
    epsilon: float = Field(description="Where ε varies over the box, the largest: what a ledger charges.")
    epsilon_map: MapRangeMessage | None = Field(description="Null where one ε holds everywhere.")
    plane_epsilon: float = Field(description="ε per unit of the projected coordinates, by which the page measures.")
    rounding: float = Field(description="What rounding adds to a distance, in projected coordinates.")
    p: float | Literal["inf"]
    sha256: str
    n_outputs: int
    n_axes: int
    bounds: list[list[float]]
    projection: ProjectionMessage | None
    unit: Literal["km"] | None
    loss: float | None
    lower_bound: float | None
    loaded_at: str
    certified: bool
    claim: str
    reports_per_person: int | None = Field(
        description="Reports that a budget pays for, in all or in a window; null without a ledger."
    )


class CertificateMessage(BaseModel):
    """The proof that this service made when it loaded the file."""

    holds: bool
    claim: str
    worst_ratio: float
    checked: int
    seconds: float


class PlaceMessage(BaseModel):
    """What an output is called."""

    model_config = ConfigDict(extra="forbid")

    id: int | str = Field(description=_ID_NOTE)
    name: str | None = Field(None, description=_NAME_NOTE)


class MechanismDetailMessage(MechanismMessage):
    """A mechanism with its outputs and its certificate."""

    outputs: dict[str, Any] | None = Field(
        description="GeoJSON FeatureCollection with the properties `id` and, if there are names, `name`; "
        "null without a projection."
    )
    outputs_projected: list[list[float]]
    places: list[PlaceMessage] | None = Field(description="One per output; null without ids and names of outputs.")
    on_device: list[str] = Field(description="What devices can do with its file: `draw`, compute `probabilities`.")
    certificate: CertificateMessage


class MapMessage(BaseModel):
    """A map of ε. It is public, so a device looks up its own place and tells nobody.

    `values`, `plane_values` and `radii` have one axis per axis of the box: [i][j] is the cell between breakpoints i and
    i + 1 of the first axis, and j and j + 1 of the second.
    """

    mechanism: str
    sha256: str
    unit: Literal["km"] | None
    breakpoints: list[list[float]] = Field(description="Borders of cells in projected coordinates, per axis.")
    breakpoints_lonlat: list[list[float]] | None = Field(description="The same in degrees; null without a projection.")
    values: list[Any] = Field(description="ε of each cell, per true km where there is a projection.")
    plane_values: list[Any] = Field(description="ε per unit of the projected coordinates.")
    radii: list[Any] = Field(
        description="A distance in `unit` for each cell: between any place of the cell and any place of the box within "
        "that distance of it, no report is more than e ≈ 2.72 times likelier from one than from the other."
    )


class MechanismListMessage(BaseModel):
    """All mechanisms; the first is the default."""

    mechanisms: list[MechanismMessage]


class BrokenRule(BaseModel):
    """A part of the body and the rule that it broke; never its value."""

    where: str
    rule: str


class ProblemDetails(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[BrokenRule] | None = None


Request = TypeVar("Request", bound=BaseModel)

# Our words for each kind of error, because pydantic's own messages may quote what was sent.
_RULES = {
    "missing": "must be given",
    "list_type": "must be a list",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "model_type": "must be a JSON object",
    "literal_error": "must be one of the values that the API allows",
    "too_short": "is too short",
    "too_long": "is too long",
    "string_too_short": "must not be empty",
    "string_too_long": f"must have at most {_LONGEST_USER} letters",
    "string_pattern_mismatch": "must not hold the character NUL",
    "greater_than_equal": "is out of range",
    "less_than": "is out of range",
    "json_invalid": "must be valid JSON",
}
# Names of the types in a union, which pydantic adds to the location of an error.
_BRANCHES = ("constrained-str", "constrained-int", "str", "int")


def read(model: type[Request], body: bytes) -> Request:
    """Return the request that a body holds, or raise the `HttpProblem` that tells which rules it breaks."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_ERRORS]
    rules = _RULES | {"extra_forbidden": f"has a field that is not known; known are {', '.join(model.model_fields)}"}
    errors = [
        {"where": _where(one["type"], one["loc"]), "rule": rules.get(one["type"], "is not valid")} for one in found
    ]
    raise HttpProblem(422, "The body is not a request that this service understands.", errors=errors)


def _where(kind: str, location: tuple[int | str, ...]) -> str:
    # The client chose the name of an unknown field, so it is left out.
    parts = location[:-1] if kind == "extra_forbidden" else location
    return ".".join(str(part) for part in parts if part not in _BRANCHES and "[" not in str(part)) or "body"
