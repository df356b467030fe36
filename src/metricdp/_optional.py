"""Packages of the extras, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["optional"]


def optional(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or say that `purpose` needs the package and which extra brings it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A module missing inside an installed package is that package's fault, and its own message says so.
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        message = f"{purpose} needs the package {package}; install it with: pip install 'metricdp[{extra}]'"
        raise ModuleNotFoundError(message, name=package) from error
