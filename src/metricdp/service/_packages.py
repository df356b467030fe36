"""What the service needs beyond the library."""

from __future__ import annotations

from metricdp._optional import optional

__all__ = ["require_packages"]


def require_packages() -> None:
    """Say how to install the service's packages if one is missing."""
    for package in ("fastapi", "limits", "prometheus_client", "uvicorn"):
        optional(package, "service", "The service")
