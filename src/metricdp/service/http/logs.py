"""The service's logs, which never hold a coordinate, a person, a key, a path or an address."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from contextlib import suppress
from typing import TextIO

__all__ = ["AccessLog", "ScrubbedFormatter", "frames", "log_to"]


def frames(error: BaseException) -> str:
    """Return where an error came from, as file, line and function of each frame, without its message."""
    steps = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{step.filename}:{step.lineno} {step.name}" for step in reversed(steps))


class ScrubbedFormatter(logging.Formatter):
    """Formats records without the messages of exceptions, which may quote what a client sent."""

    def __init__(self, *, as_json: bool = False) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        words = record.getMessage().replace("\n", " ")
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            words += f": {type(error).__name__} at {frames(error)}"
        level = record.levelname.lower()
        if self._as_json:
            return json.dumps({"time": _time(record.created), "level": level, "message": words})
        return f"{_time(record.created)} {level} {words}"


class AccessLog:
    """One line per request: time, method, route, status, milliseconds, bytes, name of the key."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False) -> None:
        self._stream, self._as_json = stream, as_json

    def write(self, method: str, route: str, status: int, seconds: float, size: int, key: str | None) -> None:
        """Write the line of a request."""
        stream = self._stream or sys.stderr
        now, milliseconds = _time(time.time()), round(seconds * 1000, 2)
        if self._as_json:
            entry = {
                "time": now,
                "method": method,
                "route": route,
                "status": status,
                "ms": milliseconds,
                "bytes": size,
                "key": key,
            }
            line = json.dumps(entry)
        else:
            line = f"{now} {method} {route} {status} {milliseconds} ms {size} B key={key or '-'}"
        # The service goes on if its log cannot be written, for instance because the reader of a pipe has ended.
        with suppress(OSError, ValueError):
            stream.write(f"{line}\n")


def log_to(stream: TextIO, *, as_json: bool) -> None:
    """Send the service's and the server's messages to a stream, scrubbed."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ScrubbedFormatter(as_json=as_json))
    for name, level in (
        ("metricdp.service", logging.INFO),
        ("uvicorn.error", logging.WARNING),
        ("asyncio", logging.WARNING),
    ):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    # uvicorn's access log holds paths and addresses.
    silent = logging.getLogger("uvicorn.access")
    silent.handlers, silent.propagate = [], False


def _time(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"
