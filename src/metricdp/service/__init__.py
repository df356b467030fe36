"""The HTTP service: mechanism files in, private reports out. Needs the extra `service`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricdp.service.settings import LedgerOptions, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["LedgerOptions", "Settings", "create_app"]


def create_app(settings: Settings) -> FastAPI:
    """Return the service as an ASGI application, its mechanisms loaded and certified.

    Raises
    ------
    NotCertified
        If a mechanism could not be shown to be as private as it says.
    InvalidInputError
        If a file is damaged or a setting breaks a rule.
    ModuleNotFoundError
        If the extra `service` is not installed.
    """
    from metricdp.service._packages import require_packages  # noqa: PLC0415 - settings and keys need no extra

    require_packages()
    from metricdp.service.app import build  # noqa: PLC0415 - an extra

    return build(settings)
