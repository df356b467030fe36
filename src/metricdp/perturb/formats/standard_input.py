"""Standard input as something that can be closed while another thread waits for it."""

from __future__ import annotations

import os
import select
import sys
import threading

__all__ = ["StandardInput"]

# Seconds between looks at whether anybody still listens.
_PATIENCE = 0.1

_CHUNK = 2**16


class StandardInput:
    """What comes from stdin, first line by line and then in blocks.

    Arrow's reader of CSV reads in a thread of its own. A thread that still waits for input when the interpreter ends
    would abort the process, so it never waits for long, and is told that the input has ended as soon as it is closed.
    """

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._held = b""
        self._reading = threading.Lock()
        self.closed = False

    def close(self) -> None:
        """Let whoever reads find the end, and wait until nobody is inside `read`."""
        self.closed = True
        with self._reading:
            self._held = b""

    def readable(self) -> bool:
        """Whether it can be read, which Arrow asks."""
        return True

    def readline(self, limit: int) -> bytes:
        """Return a line, or `limit` bytes of it."""
        while b"\n" not in self._held and len(self._held) < limit and (more := self._next(_CHUNK)):
            self._held += more
        end = self._held.find(b"\n") + 1 or len(self._held)
        line, self._held = self._held[: min(end, limit)], self._held[min(end, limit) :]
        return line

    def peek(self, count: int) -> bytes:
        """Return a beginning of what is left without taking it, nothing at the end."""
        self._held = self._held or self._next(max(count, _CHUNK))
        return self._held[:count]

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer only at the end."""
        with self._reading:
            blocks, missing = [self._held[:count]], count - len(self._held[:count])
            self._held = self._held[count:]
            while missing and (block := self._next(missing)):
                blocks.append(block)
                missing -= len(block)
            return b"".join(blocks)

    def _next(self, most: int) -> bytes:
        """Return what is there, waiting for something to be; nothing at the end."""
        while not self.closed:
            if os.name == "nt" or select.select([self._handle], [], [], _PATIENCE)[0]:
                return os.read(self._handle, most)
        return b""
