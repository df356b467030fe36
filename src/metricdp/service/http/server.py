"""Running the service with uvicorn: what is refused at the start, signals, and orderly ends."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metricdp.errors import InvalidInputError
from metricdp.service import create_app
from metricdp.service.http.deadlines import Deadlines
from metricdp.service.http.logs import log_to
from metricdp.service.state.settings import Settings

__all__ = ["run"]

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

# Seconds that an idle connection stays open for the client's next request.
_KEEP_ALIVE_SECONDS = 15

# Further handles to the listening socket, beside the first.
_MORE_LISTENERS = 15


def run(
    settings: Settings, host: str = "127.0.0.1", port: int = 8080, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are finished first. SIGHUP loads all files again.

    Parameters
    ----------
    host, port :
        Where to listen; port 0 takes a free one.
    on_ready : callable, optional
        Called with the address once requests can be answered.

    Raises
    ------
    InvalidInputError
        If other machines could call the service without a key, unless `settings.open`.
    NotCertified
        If a mechanism could not be proved to be as private as its file says.
    """
    loopback = _is_loopback(host)
    if not loopback and settings.keys is None and not settings.open:
        msg = f"Other machines could call the service at `host` {host!r}: give `keys`, or `open` if everybody may ask."
        raise InvalidInputError(msg)
    if loopback:
        settings = replace(settings, hosts=(*_LOOPBACK_NAMES, host, *settings.hosts))
    log_to(sys.stderr, as_json=settings.json_logs)
    app = create_app(settings)
    with _listening(host, port) as listener, _quiet_signals():
        address = _address(listener, host)
        server = _Server(_config(app, settings, lambda: on_ready and on_ready(address)))
        # uvloop accepts one connection per socket in each turn of its loop, and a turn takes long under load.
        server.run(sockets=[listener, *(listener.dup() for _ in range(_MORE_LISTENERS))])


class _Server(uvicorn.Server):
    """Waits for requests under way after a first signal, and ends at once after a second one.

    uvicorn itself does so for SIGINT only. Nothing is lost: a budget is charged before a report is released.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take note of a signal."""
        self.force_exit = self.force_exit or self.should_exit
        super().handle_exit(sig, frame)


def _config(app: FastAPI, settings: Settings, on_ready: Callable[[], object]) -> uvicorn.Config:
    limited = Deadlines(
        _announced(app, on_ready), header_seconds=settings.header_seconds, read_seconds=settings.read_seconds
    )
    return uvicorn.Config(
        limited,
        http=cast("type[asyncio.Protocol]", limited.protocol),  # called as a class would be
        loop="auto",  # uvloop where it is installed
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the service uses no addresses, so it need not believe anybody about them
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


def _announced(app: FastAPI, on_ready: Callable[[], object]) -> ASGIApp:
    """Return the application, which calls `on_ready` once it has started; the socket takes connections before that."""

    async def announced(scope: Scope, receive: Receive, send: Send) -> None:
        async def noticed(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                _reload_on_hangup(app)
                # What was loaded stays in memory. The garbage collector would look through it again and again, and hold
                # up requests meanwhile.
                gc.collect()
                gc.freeze()
                on_ready()
            await send(message)

        await app(scope, receive, noticed if scope["type"] == "lifespan" else send)

    return announced


def _reload_on_hangup(app: FastAPI) -> None:
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def reload() -> None:
        if app.state.keys is not None:
            app.state.keys.refresh(at_once=True)
        task = loop.create_task(app.state.catalogue.reload(unchanged=True))
        tasks.add(task)  # the loop itself holds no more than a weak reference
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        listener = socket.create_server((bare, port), family=family, backlog=2048)
    except OSError as error:
        msg = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise OSError(msg) from error
    with listener:
        yield listener


def _address(listener: socket.socket, host: str) -> str:
    bare = host.strip("[]")
    return f"http://{f'[{bare}]' if ':' in bare else bare}:{listener.getsockname()[1]}"


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM after uvicorn has ended: it raises the signal that stopped it once more then."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(_signal: int, _frame: FrameType | None) -> Any:
        return None

    before = {number: signal.signal(number, ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"
