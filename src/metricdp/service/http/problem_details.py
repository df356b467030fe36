"""Errors as a client sees them: problem details (RFC 9457) that never repeat what was sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

__all__ = ["MEDIA_TYPE", "HttpProblem"]

MEDIA_TYPE = "application/problem+json"


class HttpProblem(Exception):  # noqa: N818 - the word of RFC 9457
    """A request that is answered with an error.

    status : of the answer.
    detail : one sentence for the caller; never a value that was sent.
    errors : for 422, which part broke which rule.
    headers : of the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.errors, self.headers = status, detail, list(errors), dict(headers or {})

    def body(self) -> bytes:
        """Return the problem as JSON."""
        answer: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            answer["errors"] = self.errors
        return json.dumps(answer).encode()

    @classmethod
    def invalid(cls, where: str, rule: str) -> HttpProblem:
        """Return the answer to one part of a body that broke a rule."""
        return cls(422, f"`{where}` must be {rule}.", errors=[{"where": where, "rule": f"must be {rule}"}])

    @classmethod
    def busy(cls, detail: str) -> HttpProblem:
        """Return the answer while the service cannot take more."""
        return cls(503, detail, headers={"Retry-After": "1"})
