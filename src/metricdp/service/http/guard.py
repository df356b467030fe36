"""What every request passes before a route answers it: checks of host, key, size and time; errors; the access log."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metricdp.service.http.logs import AccessLog, frames
from metricdp.service.http.problem_details import MEDIA_TYPE, HttpProblem
from metricdp.service.http.rates import Rates
from metricdp.service.state.draws import BusyError
from metricdp.service.state.keys import Key, KeyRing
from metricdp.service.state.metrics import Metrics
from metricdp.service.state.settings import Settings

__all__ = ["BODY", "KEY", "Guard", "security_headers"]

_LOG = logging.getLogger("metricdp.service")

# Where a request's scope holds the key that it came with, and its body.
KEY, BODY = "metricdp.key", "metricdp.body"

# Paths that need a key and take their data from the body alone.
_API = "/v1/"

# Logged as the status of a request whose client closed the connection before its body was complete.
_CLIENT_GONE = 499

# One message whatever is wrong with a key, so that nobody learns which keys exist.
_UNAUTHORISED = "A valid API key is needed: `Authorization: Bearer mdp_…` or `X-API-Key: mdp_…`."

_CLOSE = {"Connection": "close"}


class Guard:
    """ASGI middleware around the whole service.

    paths : the service's paths that have no parameters, by which requests may be logged.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        keys: KeyRing | None,
        rates: Rates,
        metrics: Metrics,
        access_log: AccessLog | None,
        paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app, self._settings, self._paths = app, settings, paths
        self._keys, self._rates, self._metrics, self._access_log = keys, rates, metrics, access_log
        self._hosts = {name.lower() for name in settings.hosts}
        self._headers = security_headers(settings)
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            await self._serve(scope, receive, _Reply(send, self._headers))
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        started, held = time.perf_counter(), 0
        try:
            body = scope[BODY] = await self._admit(scope, receive)
            held = len(body)
            await self._app(scope, _replay(body, receive), reply)
        except HttpProblem as problem:
            await reply.problem(problem)
        except BusyError as busy:
            await reply.problem(HttpProblem.busy(str(busy)))
        except _ClientGoneError:
            reply.status = _CLIENT_GONE
        except Exception as error:  # noqa: BLE001 - the message of any error may quote what was sent
            incident = secrets.token_hex(8)
            _LOG.error("incident %s: %s at %s", incident, type(error).__name__, frames(error))
            await reply.problem(HttpProblem(500, f"Something went wrong in the service; its log calls it {incident}."))
        finally:
            self._held -= held
            self._note(scope, reply, time.perf_counter() - started)

    async def _admit(self, scope: Scope, receive: Receive) -> bytes:
        """Check a request and return its body, which is not read if the request can be refused without it."""
        headers = dict(scope["headers"])
        try:
            await self._check(scope, headers)
        except HttpProblem as problem:
            if b"content-length" in headers or b"transfer-encoding" in headers:
                # The body was not read and would be taken for the next request.
                problem.headers.update(_CLOSE)
            raise
        return await self._body(headers, receive)

    async def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        if self._hosts and _host(headers) not in self._hosts:
            # Somebody's page may call under its own name, which was made to resolve to this machine (DNS rebinding).
            raise HttpProblem(421, "The service is not known under this host name; see --allow-host.")
        if not _own_path(scope).startswith(_API):
            return
        if scope["query_string"]:
            raise HttpProblem(400, "Query parameters are not used here: coordinates and ids belong in the body.")
        key = scope[KEY] = self._key(headers)
        await self._rates.take_request(key)
        if scope["method"] == "POST" and not _is_json(headers):
            raise HttpProblem(415, "The body must be JSON, with `Content-Type: application/json`.")

    def _key(self, headers: Mapping[bytes, bytes]) -> Key | None:
        if self._keys is None:
            return None
        if not self._keys.refresh():
            raise HttpProblem.busy("The service cannot read its keys.")
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        text = token.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        key = self._keys.find(text.decode("latin-1")) if text else None
        if key is None:
            raise HttpProblem(401, _UNAUTHORISED, headers={"WWW-Authenticate": "Bearer"})
        return key

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        most = self._settings.max_body_bytes
        too_large = HttpProblem(413, f"The body may hold at most {most} bytes.", headers=_CLOSE)
        length = headers.get(b"content-length")
        if length is not None and (not length.isdigit() or len(length) > 18 or int(length) > most):
            raise too_large
        chunks: list[bytes] = []
        size, taken = 0, False
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _ClientGoneError
                    chunk, more = message.get("body", b""), message.get("more_body", False)
                    chunks.append(chunk)
                    size += len(chunk)
                    self._held += len(chunk)
                    if size > most:
                        raise too_large
                    if self._held > self._settings.max_held_bytes:
                        raise _too_busy()
            taken = True
        except TimeoutError:
            detail = f"The body was not complete within {self._settings.body_seconds:g} s."
            raise HttpProblem(408, detail, headers=_CLOSE) from None
        finally:
            if not taken:
                self._held -= size
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _note(self, scope: Scope, reply: _Reply, seconds: float) -> None:
        path, route, key = _own_path(scope), scope.get("route"), scope.get(KEY)
        # Only the service's own paths and templates (/v1/mechanisms/{id}): clients may put anything into a path.
        template = path if path in self._paths else getattr(route, "path_format", "unknown")
        method = scope["method"] if scope["method"].isalpha() and len(scope["method"]) <= 8 else "other"
        self._metrics.answered(method, template, reply.status, seconds)
        if self._access_log is not None:
            self._access_log.write(
                method, template, reply.status, seconds, reply.size, None if key is None else key.name
            )


class _ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


class _Reply:
    """Sends an answer with the service's headers, and remembers its status and size."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send, self._headers = send, headers
        self.status, self.size, self._started = 0, 0, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._started = message["status"], True
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        elif message["type"] == "http.response.body":
            self.size += len(message.get("body", b""))
        await self._send(message)

    async def problem(self, problem: HttpProblem) -> None:
        """Answer with a problem, unless an answer has begun, which is then left incomplete."""
        if self._started:
            return
        body = problem.body()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        ]
        await self({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def security_headers(settings: Settings) -> list[tuple[bytes, bytes]]:
    """Return the headers of every answer."""
    images = "'self' data:" + (f" {settings.tile_origin}" if settings.tile_origin else "")
    policy = (
        f"default-src 'self'; img-src {images}; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return [
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", policy.encode()),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


def _too_busy() -> HttpProblem:
    busy = HttpProblem.busy("The service holds as many requests as it can.")
    busy.headers.update(_CLOSE)
    return busy


def _own_path(scope: Scope) -> str:
    """Return the path within the service, which may be mounted under another application's."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _host(headers: Mapping[bytes, bytes]) -> str:
    """Return the name in the `Host` header without its port."""
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_json(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() == b"application/json"


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first gives the body, which was read already, and then calls the original one."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        return left.pop() if left else await receive()

    return replayed
