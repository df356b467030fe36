"""Running the service: uvicorn with time limits for headers, orderly ends and signals."""

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
from typing import TYPE_CHECKING, Any

from metricdp._validation import reject
from metricdp.service._packages import require_packages
from metricdp.service.settings import Settings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

__all__ = ["run"]

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

# Seconds that an idle connection stays open for the client's next request.
_KEEP_ALIVE_SECONDS = 15

# Further handles to the listening socket.
_MORE_DOORS = 15


def run(
    settings: Settings, host: str = "127.0.0.1", port: int = 8080, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; requests under way are finished first. SIGHUP loads all files again.

    Parameters
    ----------
    host, port :
        Where to listen; port 0 takes a free one.
    on_ready : callable, optional
        Told the address once requests can be answered.

    Raises
    ------
    InvalidInputError
        If others than this machine could ask without a key, unless `settings.open`.
    NotCertified
        If a mechanism could not be shown to be as private as it says.
    """
    loopback = _is_loopback(host)
    if not loopback and settings.keys is None and not settings.open:
        rule = "this machine's own (127.0.0.1) unless --keys says who may ask, or --open that everybody may"
        raise reject("host", rule, repr(host))
    if loopback:
        settings = replace(settings, hosts=(*_LOOPBACK_NAMES, host, *settings.hosts))
    require_packages()
    from metricdp.service import create_app  # noqa: PLC0415 - an extra
    from metricdp.service.logs import log_to  # noqa: PLC0415 - an extra

    log_to(sys.stderr, as_json=settings.json_logs)
    app = create_app(settings)
    with _listening(host, port) as listener, _quiet_signals():
        # uvloop lets in one connection per socket and turn of its loop, and a turn takes long under load.
        doors = [listener, *(listener.dup() for _ in range(_MORE_DOORS))]
        _server(app, settings, _address(listener, host), on_ready).run(sockets=doors)


def _server(app: FastAPI, settings: Settings, address: str, on_ready: Callable[[str], None] | None) -> uvicorn.Server:
    import uvicorn  # noqa: PLC0415 - an extra

    from metricdp.service.protocol import protocol_class  # noqa: PLC0415 - an extra

    config = uvicorn.Config(
        app,
        http=protocol_class(settings.header_seconds, settings.read_seconds),
        loop="auto",  # uvloop where it is installed
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # no address is used, so none is believed
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            if not self.started:
                return
            _reload_on_hangup(app)
            # What was loaded stays; looking through it for garbage again and again would hold up requests.
            gc.collect()
            gc.freeze()
            if on_ready is not None:
                on_ready(address)

    return Server(config)


def _reload_on_hangup(app: FastAPI) -> None:
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def reload() -> None:
        if app.state.keys is not None:
            app.state.keys.refresh(at_once=True)
        task = loop.create_task(app.state.registry.reload(unchanged=True))
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
    """Let the process end in order: uvicorn raises the signal that stopped it once more when it is done."""
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
