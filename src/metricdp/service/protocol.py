"""HTTP connections whose headers must arrive in time and be of a decent size.

uvicorn has a limit for idle connections only: a client that sends a byte now and then could hold one for ever.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

__all__ = ["HeaderDeadline", "protocol_class", "with_deadline"]

_MOST_HEADER_BYTES = 65_536
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HeaderDeadline:
    """Goes before a protocol of uvicorn's: ends connections whose headers are not complete in time."""

    header_seconds: float
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)  # type: ignore[misc]
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Go on waiting, unless the headers of a request were completed."""
        before = self.cycle
        if self._deadline is None and (before is None or before.response_complete):
            self._arm()
        super().data_received(data)  # type: ignore[misc]
        if self.cycle is not before:
            # Another request has begun, so its headers are complete.
            self._disarm()
        elif self._deadline is not None:
            self._header_bytes += len(data)
            if self._header_bytes > _MOST_HEADER_BYTES:
                self.transport.write(_TOO_LARGE)
                self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._disarm()
        super().connection_lost(exc)  # type: ignore[misc]

    def _arm(self) -> None:
        self._header_bytes = 0
        self._deadline = self.loop.call_later(self.header_seconds, self._end)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self) -> None:
        self._disarm()
        if not self.transport.is_closing():
            self.transport.close()


def protocol_class(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's fastest protocol, with `seconds` for the headers of each request."""
    if importlib.util.find_spec("httptools") is not None:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415 - may be missing

        return with_deadline(HttpToolsProtocol, seconds)
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415 - the other is faster

    return with_deadline(H11Protocol, seconds)


def with_deadline(base: type[asyncio.Protocol], seconds: float) -> type[asyncio.Protocol]:
    """Return a protocol of uvicorn's with a deadline for headers."""
    return type(base.__name__, (HeaderDeadline, base), {"header_seconds": seconds})
