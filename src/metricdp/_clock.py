"""Time limits."""

from __future__ import annotations

import math
import time

__all__ = ["Clock"]


class Clock:
    """Seconds spent and left of a time limit."""

    def __init__(self, limit: float | None) -> None:
        self.started = time.perf_counter()
        self.limit = limit

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.started

    @property
    def left(self) -> float | None:
        """Seconds left, None without a limit; never below a millisecond, so that solvers accept it."""
        return None if self.limit is None else max(self.limit - self.spent, 1e-3)

    @property
    def over(self) -> bool:
        """Whether the limit has passed."""
        return self.limit is not None and self.spent >= self.limit

    def at_most(self, seconds: float) -> float:
        """Return `seconds`, or what is left if that is less."""
        return min(seconds, math.inf if self.left is None else self.left)

    def stop(self) -> None:
        """Declare the limit passed, so that threads that look at this clock end their work."""
        self.limit = 0.0
