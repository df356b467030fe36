"""Connections must send the headers of a request, and read the answer to it, within a given time.

uvicorn (0.54) limits how long a connection may be idle between requests (`timeout_keep_alive`) and, with the slower of
its two parsers, the size of headers (`h11_max_incomplete_event_size`). A client that sends a byte now and then, or that
never reads its answer, could hold a connection for ever. ASGI middleware cannot help, since it is called only when the
headers are complete. So these limits are kept here, between the event loop and uvicorn's protocol, and through public
interfaces alone: `asyncio.Protocol` on one side, `uvicorn.Config(http=…)` and ASGI on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol  # httptools if it is installed, h11 otherwise

__all__ = ["Deadlines"]

_MOST_HEADER_BYTES = 65_536
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

# Both ends of a connection, which no two open connections have in common.
_Ends = tuple[tuple[str, int], tuple[str, int]]


class Deadlines:
    """Closes connections of clients that send headers or read answers too slowly, or send too large headers.

    An instance is the ASGI application to serve: that it is called tells that the headers of a request are complete.
    Its method `protocol` makes the protocol of a connection.

    Parameters
    ----------
    app : ASGI application
        Answers the requests.
    header_seconds, read_seconds : float
        How long a client may take to send the headers of a request, and to read its answer.
    """

    def __init__(self, app: ASGIApp, *, header_seconds: float, read_seconds: float) -> None:
        self._app = app
        self.header_seconds, self.read_seconds = header_seconds, read_seconds
        self.open: dict[_Ends, _Connection] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        connection = None
        if scope["type"] == "http" and scope.get("client") and scope.get("server"):
            connection = self.open.get((tuple(scope["client"]), tuple(scope["server"])))
        if connection is None:
            await self._app(scope, receive, send)
            return
        connection.request_begins()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.request_ends()

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """Return the protocol of a new connection; `options` are uvicorn's own."""
        make: Callable[..., asyncio.Protocol] = AutoHTTPProtocol
        return _Connection(make(**options), self)


class _Timer:
    """Calls a function after some seconds, unless it is stopped before."""

    def __init__(self, seconds: float, action: Callable[[], object]) -> None:
        self._seconds, self._action = seconds, action
        self._handle: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._action)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Connection(asyncio.Protocol):
    """One connection: passes everything on to uvicorn's protocol, and keeps the time."""

    def __init__(self, inner: asyncio.Protocol, limits: Deadlines) -> None:
        self._inner, self._limits = inner, limits
        self._requests = self._header_bytes = 0

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._headers = _Timer(self._limits.header_seconds, transport.close)
        self._reading = _Timer(self._limits.read_seconds, transport.abort)
        client, server = (transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        self._ends = (client[:2], server[:2])
        self._limits.open[self._ends] = self
        self._inner.connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._requests == 0 and not self._headers.running:
            self._expect_headers()
        self._inner.data_received(data)
        if self._headers.running:
            self._header_bytes += len(data)
            if self._header_bytes > _MOST_HEADER_BYTES:
                # Not at once: if these bytes completed the headers, uvicorn has scheduled the application just now.
                asyncio.get_running_loop().call_soon(self._refuse_headers)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers.stop()
        self._reading.stop()
        if self._limits.open.get(self._ends) is self:
            del self._limits.open[self._ends]
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        # The buffers towards the client are full, so it must read.
        self._inner.pause_writing()
        if not self._reading.running:
            self._reading.start()

    def resume_writing(self) -> None:
        self._reading.stop()
        self._inner.resume_writing()

    def request_begins(self) -> None:
        self._requests += 1
        self._headers.stop()

    def request_ends(self) -> None:
        self._requests -= 1

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._headers.start()

    def _refuse_headers(self) -> None:
        if self._headers.running and not self._transport.is_closing():
            self._transport.write(_TOO_LARGE)
            self._transport.close()
