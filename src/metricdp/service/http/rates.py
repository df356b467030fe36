"""Limits on requests and points per second, for each key."""

from __future__ import annotations

import math
import time

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from metricdp.service.http.problem_details import HttpProblem
from metricdp.service.state.keys import Key

__all__ = ["Rates"]

# All callers together, where the service has no keys.
_NO_KEY = "-"


class Rates:
    """Counts requests and points per key, in memory.

    The limit holds for a sliding window of one second, approximated by two counters per key: the count of the second
    before is weighted by how much of that second is still inside the window. Exact times would need memory per point.
    """

    def __init__(self, requests_per_second: int | None = None, points_per_second: int | None = None) -> None:
        self._default = {"requests": requests_per_second, "points": points_per_second}
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def take_request(self, key: Key | None) -> None:
        """Count a request; raise `HttpProblem` with status 429 if there are too many."""
        await self._take("requests", key, None if key is None else key.requests_per_second, 1)

    async def take_points(self, key: Key | None, count: int) -> None:
        """Count the points of a request; raise `HttpProblem` with status 429, or 413 if no second allows so many."""
        await self._take("points", key, None if key is None else key.points_per_second, count)

    async def _take(self, kind: str, key: Key | None, own: int | None, cost: int) -> None:
        rate = self._default[kind] if own is None else own
        if rate is None:
            return
        if cost > rate:
            raise HttpProblem(413, f"At most {rate} points per second are allowed, so no request may hold more.")
        item, name = RateLimitItemPerSecond(rate), _NO_KEY if key is None else key.sha256
        if not await self._limiter.hit(item, kind, name, cost=cost):
            reset = (await self._limiter.get_window_stats(item, kind, name)).reset_time
            wait = max(1, math.ceil(reset - time.time()))
            raise HttpProblem(429, f"At most {rate} {kind} per second are allowed.", headers={"Retry-After": str(wait)})
