"""How much each key may ask per second."""

from __future__ import annotations

import math
import time

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from metricdp.service.keys import Key
from metricdp.service.problems import Problem

__all__ = ["Rates"]

# Whoever asks without a key, where none is needed.
_NOBODY = "-"


class Rates:
    """Counts requests and points per key, in memory.

    Windows of one second slide: what was asked in the second before counts in proportion to how much of it is still
    within the last second. That takes two numbers per key, where a list of times would take one per point.
    """

    def __init__(self, requests_per_second: int | None = None, points_per_second: int | None = None) -> None:
        self._default = {"requests": requests_per_second, "points": points_per_second}
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def take_request(self, key: Key | None) -> None:
        """Count a request, or raise 429."""
        await self._take("requests", key, None if key is None else key.requests_per_second, 1)

    async def take_points(self, key: Key | None, count: int) -> None:
        """Count the points of a request, or raise 429; 413 if there are more than a second allows."""
        await self._take("points", key, None if key is None else key.points_per_second, count)

    async def _take(self, kind: str, key: Key | None, own: int | None, cost: int) -> None:
        rate = self._default[kind] if own is None else own
        if rate is None:
            return
        if cost > rate:
            raise Problem(413, f"At most {rate} points per second are allowed, so no request may hold more.")
        item, name = RateLimitItemPerSecond(rate), _NOBODY if key is None else key.sha256
        if not await self._limiter.hit(item, kind, name, cost=cost):
            reset = (await self._limiter.get_window_stats(item, kind, name)).reset_time
            wait = max(1, math.ceil(reset - time.time()))
            raise Problem(429, f"At most {rate} {kind} per second are allowed.", headers={"Retry-After": str(wait)})
