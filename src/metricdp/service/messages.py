"""What requests may say and how answers look."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metricdp.service.problems import Problem

__all__ = [
    "Mechanism",
    "MechanismDetail",
    "Mechanisms",
    "PerturbAnswer",
    "PerturbRequest",
    "ProbabilitiesAnswer",
    "ProbabilitiesRequest",
    "ProblemAnswer",
    "read",
]

# Long enough for any id; a bound keeps the ledger small.
_LONGEST_USER = 256

# More than anybody needs to mend a request.
_MOST_ERRORS = 8

Point = Annotated[list[float], Field(min_length=1, max_length=16, fail_fast=True)]
Points = Annotated[list[Point], Field(min_length=1, fail_fast=True)]
FewPoints = Annotated[list[Point], Field(min_length=1, max_length=1000, fail_fast=True)]
# The ledger refuses NUL. It must not come so far: requests share transactions, and all would be refused with it.
_UserName = Annotated[str, Field(min_length=1, max_length=_LONGEST_USER, pattern=r"^[^\x00]*$")]
User = _UserName | Annotated[int, Field(ge=-(2**63), lt=2**63)]
Id = Annotated[str, Field(min_length=1, max_length=256)]
Coordinates = Literal["lonlat", "projected"]
Outside = Literal["clamp", "error"]

_POINTS_NOTE = "Longitude and latitude in degrees, or the mechanism's own coordinates (usually km): see `coordinates`."
_COORDINATES_NOTE = "`lonlat` by default where the mechanism has a projection, `projected` otherwise."
_OUTSIDE_NOTE = "Take points outside the mechanism's box to its nearest point, or refuse the request."


class _Request(BaseModel):
    # Strict: "24.9" is no number. Values must not show in errors, whoever prints them.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    mechanism: Id | None = Field(None, description="Id of the mechanism; the first one by default.")
    coordinates: Coordinates | None = Field(None, description=_COORDINATES_NOTE)
    outside: Outside = Field("clamp", description=_OUTSIDE_NOTE)


class PerturbRequest(_Request):
    """Points to report in private; exactly one of `point` and `points`."""

    point: Point | None = Field(None, description="One point.")
    points: Points | None = Field(None, description=_POINTS_NOTE)
    user: User | None = Field(None, description="Whose points they are: required with a ledger, refused without.")
    users: Annotated[list[User], Field(min_length=1, fail_fast=True)] | None = Field(
        None, description="One id per point, instead of `user`."
    )


class ProbabilitiesRequest(_Request):
    """Points whose probabilities to show."""

    points: FewPoints = Field(description=_POINTS_NOTE)


class Output(BaseModel):
    """A place that was reported: `lon`, `lat`, or `x`, `y`, or `point` where there are not two axes."""

    model_config = ConfigDict(extra="forbid")

    id: int
    lon: float | None = None
    lat: float | None = None
    x: float | None = None
    y: float | None = None
    point: list[float] | None = None


class PerturbAnswer(BaseModel):
    """One output per point, in order; null where the person's budget is spent."""

    outputs: list[Output | None]
    mechanism: str
    sha256: str
    refused: int


class ProbabilitiesAnswer(BaseModel):
    """Pr[output | point], one row per point."""

    probabilities: list[list[float]]
    mechanism: str
    sha256: str


class Projection(BaseModel):
    """Centre of the equirectangular projection."""

    lon_deg: float
    lat_deg: float


class Mechanism(BaseModel):
    """What a mechanism is; `loss` and `lower_bound` are the word of who made the file."""

    id: str
    method: str
    epsilon: float
    p: float | Literal["inf"]
    sha256: str
    n_outputs: int
    n_axes: int
    bounds: list[list[float]]
    projection: Projection | None
    unit: Literal["km"] | None
    loss: float | None
    lower_bound: float | None
    loaded_at: str
    certified: bool
    claim: str


class Certificate(BaseModel):
    """The proof that this service made when it loaded the file."""

    holds: bool
    claim: str
    worst_ratio: float
    checked: int
    seconds: float


class MechanismDetail(Mechanism):
    """A mechanism with its outputs and its certificate."""

    outputs: dict[str, Any] | None = Field(description="GeoJSON FeatureCollection; null without a projection.")
    outputs_projected: list[list[float]]
    certificate: Certificate


class Mechanisms(BaseModel):
    """All mechanisms; the first is the default."""

    mechanisms: list[Mechanism]


class PartialError(BaseModel):
    """A part of the body and the rule that it broke; never its value."""

    where: str
    rule: str


class ProblemAnswer(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[PartialError] | None = None


Request = TypeVar("Request", bound=_Request)

# pydantic's own messages may quote what was sent, so each kind of error has words of ours.
_RULES = {
    "missing": "must be given",
    "extra_forbidden": "has a field that is not known",
    "list_type": "must be a list",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "int_type": "must be a whole number",
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
# The branches of a choice of types, which pydantic adds to the place of an error.
_BRANCHES = ("constrained-str", "constrained-int", "str", "int")


def read(model: type[Request], body: bytes) -> Request:
    """Return the request in a body, or raise the problem with it."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_ERRORS]
    errors = [
        {"where": _where(one["type"], one["loc"]), "rule": _RULES.get(one["type"], "is not valid")} for one in found
    ]
    raise Problem(422, "The body is not a request that this service understands.", errors=errors)


def _where(kind: str, location: tuple[int | str, ...]) -> str:
    # A field that is not known has a name that the client chose.
    parts = location[:-1] if kind == "extra_forbidden" else location
    return ".".join(str(part) for part in parts if part not in _BRANCHES and "[" not in str(part)) or "body"
