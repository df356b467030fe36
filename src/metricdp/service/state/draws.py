"""Draws for many requests at once: those that arrive together, or while the ledger writes, share one call."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.errors import InvalidInputError
from metricdp.ledger.budgets import Ledger
from metricdp.ledger.units import Budget
from metricdp.service.state.catalogue import Served

__all__ = ["BusyError", "Draws"]

_LOG = logging.getLogger("metricdp.service")

Indices = NDArray[np.integer[Any]]

# Draws that take longer than this go to a thread, since all other requests wait for those made in the event loop.
_INLINE_SECONDS = 0.004

# For how long after a failed transaction /readyz says that the ledger cannot be used.
_FAILING_SECONDS = 5.0

# Most points of a transaction, unless a single request has more: nobody should wait long for the points of others.
_MOST_TOGETHER = 20_000


@dataclass(eq=False)
class _Asked:
    points: FloatArray
    degrees: bool
    users: Sequence[str | int] | None
    times: FloatArray | None
    caller: str | None
    answer: asyncio.Future[Indices]


@dataclass(eq=False)
class _Group:
    """Requests for one mechanism that wait for the same call; all of them have times of their own, or none has."""

    served: Served
    timed: bool = False
    asked: list[_Asked] = field(default_factory=list)
    n_points: int = 0

    def add(self, one: _Asked) -> None:
        self.asked.append(one)
        self.n_points += len(one.points)

    def points(self) -> FloatArray:
        """Return the points of all requests in the mechanism's coordinates, clamped to its box.

        `sample` would warn, in the service's log, of requests with many points outside.
        """
        together = np.concatenate([one.points for one in self.asked])
        degrees = np.repeat([one.degrees for one in self.asked], [len(one.points) for one in self.asked])
        if degrees.any():
            # One call for all requests: its checks take longer than everything else that a single point needs.
            together[degrees] = self.served.mechanism.projection.to_xy_km(*together[degrees].T)
        return self.served.mechanism.clamp(together)

    def users(self) -> NDArray[np.object_]:
        names: list[str | int] = []
        for one in self.asked:
            names.extend(one.users or ())
        together = np.empty(len(names), dtype=object)
        together[:] = names
        return together

    def callers(self) -> list[str] | None:
        """Return through whom each point came; None if the service has no keys."""
        named = [(one.caller, len(one.points)) for one in self.asked if one.caller is not None]
        return [caller for caller, count in named for _ in range(count)] or None

    def times(self) -> FloatArray | None:
        """Return when each point was; None for the clock, which the ledger reads when it is its turn."""
        given = [one.times for one in self.asked if one.times is not None]
        return np.concatenate(given) if given else None

    def sampled(self) -> Indices:
        return self.served.mechanism.sample(self.points())

    def charged(self, ledger: Ledger) -> Indices:
        return ledger.sample(
            self.served.mechanism, self.users(), self.points(), times=self.times(), callers=self.callers()
        )

    def release(self, drawn: Indices) -> None:
        start = 0
        for one in self.asked:
            end = start + len(one.points)
            if not one.answer.done():  # done already if the request was cancelled
                one.answer.set_result(drawn[start:end])
            start = end

    def fail(self, error: Exception) -> None:
        for one in self.asked:
            if not one.answer.done():
                one.answer.set_exception(error)


class BusyError(Exception):
    """Nothing was drawn, since too many points wait or the ledger cannot be used; the caller may try again."""


class Draws:
    """Draws outputs, with or without a ledger.

    Parameters
    ----------
    ledger : Ledger, optional
        Charges every draw.
    max_waiting : int
        Most points that may wait for the ledger.
    on_transaction : callable
        Called after each transaction with its numbers of requests and points.

    Guarantee
    ---------
    Every output is an independent exact draw at its own point (`Mechanism.sample`), as if each request had been alone.
    With a ledger, an output is released only after the transaction that charges for it is on the disk. Requests
    of one person are charged in the order in which they arrived, per mechanism.
    """

    def __init__(
        self,
        ledger: Ledger | None = None,
        *,
        max_waiting: int = 1_000_000,
        on_transaction: Callable[[int, int], None] = lambda _requests, _points: None,
    ) -> None:
        self._ledger, self._max_waiting, self._on_transaction = ledger, max_waiting, on_transaction
        self._open: dict[Served, _Group] = {}
        self._waiting: list[_Group] = []
        self._n_waiting = 0
        self._writer: asyncio.Task[None] | None = None
        self._aside: set[asyncio.Task[None]] = set()
        # One thread: the ledger does one transaction at a time anyway.
        self._ledger_thread = ThreadPoolExecutor(1, "ledger")
        self._probe: asyncio.Task[bool] | None = None
        self._failed_at = -math.inf

    async def draw(
        self,
        served: Served,
        points: FloatArray,
        *,
        degrees: bool = False,
        users: Sequence[str | int] | None = None,
        times: FloatArray | None = None,
        caller: str | None = None,
    ) -> Indices:
        """Return an output per point; -1 where the ledger refuses. Points and users must have been checked.

        Parameters
        ----------
        served : Served
            The mechanism.
        points : (m, N) array
            In the mechanism's coordinates, or longitudes and latitudes.
        degrees : bool
            Whether the points are longitudes and latitudes.
        users : sequence, optional
            The person whom the ledger charges for each point.
        times : (m,) array, optional
            When each point was, in unix seconds, for a ledger that wants to know; by default the clock says.
        caller : str, optional
            Through whom the request came, for `budget`.

        Raises
        ------
        BusyError
            If too many points wait, or the ledger cannot be used. No output was released then.
        """
        asked = _Asked(points, degrees, users, times, caller, asyncio.get_running_loop().create_future())
        if self._ledger is not None:
            self._queue(served, asked)
        else:
            self._join(served, asked)
        return await asked.answer

    @property
    def timed(self) -> bool:
        """Whether there is a ledger with a window or a schedule."""
        return self._ledger is not None and self._ledger.timed

    async def budget(self, served: Served, user: str | int, caller: str | None) -> Budget:
        """Return where a person stands, by what was charged through one caller, or in all if there are no callers.

        Raises
        ------
        BusyError
            If too many requests wait, or the ledger cannot be used.
        """
        assert self._ledger is not None
        self._refuse_too_many(1)
        self._n_waiting += 1
        look_up = partial(self._ledger.budget, user, served.mechanism, caller=caller)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._ledger_thread, look_up)
        except (TimeoutError, OSError, InvalidInputError, ValueError) as error:
            raise self._unusable(error) from None
        finally:
            self._n_waiting -= 1

    def reports_per_person(self, served: Served) -> int | None:
        """Return how many reports of a mechanism everybody can afford, in all or in a window; None without a ledger."""
        if self._ledger is None:
            return None
        try:
            return self._ledger.affordable(served.mechanism)
        except InvalidInputError:  # a mechanism that no ledger can charge for
            return 0

    def warn_if_unaffordable(self, served: Served) -> None:
        """Log that nobody can afford a report of a mechanism."""
        if self._ledger is None:
            return
        try:
            # Told here and so not once more by `sample`, as a Python warning beside the log.
            self._ledger.warn_if_unaffordable(
                served.mechanism, lambda words: _LOG.warning("mechanism %s: %s", served.id, words)
            )
        except InvalidInputError:  # a mechanism that no ledger can charge for
            _LOG.warning("mechanism %s: no ledger can charge for its reports, so all fail", served.id)

    def _join(self, served: Served, asked: _Asked) -> None:
        group = self._open.get(served)
        if group is None:
            group = self._open[served] = _Group(served)
            # Drawn after the requests whose bytes have arrived by now have been read, so that they join this group.
            asyncio.get_running_loop().call_soon(self._draw_group, group)
        group.add(asked)

    def _draw_group(self, group: _Group) -> None:
        del self._open[group.served]
        if group.n_points * group.served.seconds_per_point > _INLINE_SECONDS:
            task = asyncio.create_task(self._draw_aside(group))
            self._aside.add(task)  # the loop itself holds no more than a weak reference
            task.add_done_callback(self._aside.discard)
            return
        try:
            group.release(group.sampled())
        except Exception as error:  # noqa: BLE001 - each request reports it
            group.fail(error)

    async def _draw_aside(self, group: _Group) -> None:
        try:
            group.release(await asyncio.to_thread(group.sampled))
        except Exception as error:  # noqa: BLE001 - each request reports it
            group.fail(error)

    def _queue(self, served: Served, asked: _Asked) -> None:
        count = len(asked.points)
        self._refuse_too_many(count)
        self._n_waiting += count
        # The last group of this mechanism, so that no request of a person is charged before an earlier one.
        group = next((one for one in reversed(self._waiting) if one.served is served), None)
        timed = asked.times is not None
        if group is None or group.timed != timed or group.n_points + count > _MOST_TOGETHER:
            group = _Group(served, timed)
            self._waiting.append(group)
        group.add(asked)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    def _refuse_too_many(self, count: int) -> None:
        if self._n_waiting and self._n_waiting + count > self._max_waiting:
            raise BusyError("Too many points wait for the ledger.")

    def _unusable(self, error: Exception) -> BusyError:
        self._failed_at = time.monotonic()
        # The ledger's messages name its file, which is no business of clients.
        _LOG.error("the ledger could not be used: %s", type(error).__name__)
        return BusyError("The ledger could not be used; nothing was released.")

    async def _write(self) -> None:
        """Write one transaction after the other, each with the requests that arrived during the one before."""
        # Requests that arrived together with the first join its transaction.
        await asyncio.sleep(0)
        try:
            while self._waiting:
                group = self._waiting.pop(0)
                await self._transaction(group)
                self._n_waiting -= group.n_points
        finally:
            self._writer = None

    async def _transaction(self, group: _Group) -> None:
        assert self._ledger is not None
        loop = asyncio.get_running_loop()
        try:
            drawn = await loop.run_in_executor(self._ledger_thread, group.charged, self._ledger)
        except (TimeoutError, OSError, InvalidInputError, ValueError) as error:
            group.fail(self._unusable(error))
        except Exception as error:  # noqa: BLE001 - each request reports it
            group.fail(error)
        else:
            self._failed_at = -math.inf
            self._on_transaction(len(group.asked), group.n_points)
            group.release(drawn)

    async def ledger_usable(self, seconds: float = 2.0) -> bool:
        """Return whether the ledger can be read within `seconds` and no transaction failed in the last few seconds."""
        if self._ledger is None:
            return True
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._read_ledger())
        done, _ = await asyncio.wait([self._probe], timeout=seconds)
        # A failure must not count for ever: a service that is not ready gets no requests, and so no transaction that
        # would show that the ledger works again.
        failing = time.monotonic() - self._failed_at < _FAILING_SECONDS
        return bool(done) and self._probe.result() and not failing

    async def _read_ledger(self) -> bool:
        assert self._ledger is not None
        try:
            await asyncio.to_thread(self._ledger.spent, "readyz")
        except (TimeoutError, OSError, InvalidInputError, ValueError):
            return False
        return True

    async def close(self) -> None:
        """Finish the transactions of requests that wait, then close the ledger."""
        if self._writer is not None:
            await self._writer
        if self._probe is not None:
            await asyncio.wait([self._probe], timeout=2.0)
        self._ledger_thread.shutdown(wait=True)
        if self._ledger is not None:
            self._ledger.close()
