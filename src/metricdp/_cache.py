"""Where results are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/metricdp`, by default `~/.cache/metricdp`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "metricdp"
