"""The HTTP service: mechanism files in, private reports out. Needs the extra `service`.

`http` holds requests and answers, `state` what lives between requests, `page` the page for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricdp._optional import optional
from metricdp.ledger.options import LedgerOptions
from metricdp.service.state.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["LedgerOptions", "Settings", "create_app", "require_packages"]


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI application, its mechanisms loaded and certified.

    Raises
    ------
    NotCertified
        If a mechanism could not be proved to be as private as its file says.
    InvalidInputError
        If a file is damaged or a setting breaks a rule.
    ModuleNotFoundError
        If the extra `service` is not installed.
    """
    require_packages()
    from metricdp.service.http.app import build  # noqa: PLC0415 - an extra

    return build(settings)


def require_packages() -> None:
    """Raise ModuleNotFoundError, which says how to install the extra `service`, if one of its packages is missing."""
    for package in ("fastapi", "limits", "prometheus_client", "uvicorn"):
        optional(package, "service", "The service")
