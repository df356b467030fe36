"""One rule for times: unix seconds, finite and not milliseconds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray, finite_array, reject

__all__ = ["checked_times", "require_seconds"]

# The year 5138. Today's milliseconds are 17 times more, and would make every gap so long that all is forgotten.
_LATEST_S = 1e11


def require_seconds(name: str, times: ArrayLike) -> FloatArray:
    """Return times that can be unix seconds."""
    seconds = finite_array(name, times)
    if seconds.size and np.abs(seconds).max() > _LATEST_S:
        raise reject(name, f"seconds since 1970, at most {_LATEST_S:g}", "larger ones; are they milliseconds?")
    return seconds


def checked_times(unix_s: ArrayLike, count: int) -> FloatArray:
    """Return `count` increasing times."""
    times = require_seconds("unix_s", unix_s)
    if times.shape != (count,):
        raise reject("unix_s", f"of shape ({count},), one for each report", f"shape {times.shape}")
    late = np.flatnonzero(np.diff(times) <= 0)
    if len(late):
        raise reject("unix_s", "increasing", f"a time that is not after the one before it at index {late[0] + 1}")
    return times
