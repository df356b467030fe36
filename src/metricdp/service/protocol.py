"""HTTP connections whose headers must arrive in time and be of a decent size, and whose answers must be read in time.

uvicorn has a limit for idle connections only: a client that sends a byte now and then, or never reads its answer, could
hold one for ever.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

__all__ = ["Deadlines", "protocol_class"]

_MOST_HEADER_BYTES = 65_536
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Deadlines:
    """Goes before a protocol of uvicorn's: ends connections of clients that send headers or read answers too slowly."""

    header_seconds: float
    read_seconds: float
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _unread: asyncio.TimerHandle | None = None

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
        self._forget_unread()
        super().connection_lost(exc)  # type: ignore[misc]

    def pause_writing(self) -> None:
        """Begin to wait for the client to read, since more has been written than the system takes."""
        super().pause_writing()  # type: ignore[misc]
        if self._unread is None:
            self._unread = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no more: the client has read."""
        self._forget_unread()
        super().resume_writing()  # type: ignore[misc]

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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


def protocol_class(header_seconds: float, read_seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's fastest protocol with deadlines for the headers of each request and for reading its answer."""
    if importlib.util.find_spec("httptools") is not None:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as base  # noqa: N813, PLC0415 - may be missing
    else:
        from uvicorn.protocols.http.h11_impl import H11Protocol as base  # type: ignore[assignment]  # noqa: N813, PLC0415
    return type(base.__name__, (Deadlines, base), {"header_seconds": header_seconds, "read_seconds": read_seconds})
