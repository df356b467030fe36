"""The bytes of a file: from the disk, a URL or stdin, unpacked, and in UTF-8 whatever the file's encoding is."""

from __future__ import annotations

import codecs
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from metricdp.perturb import limits
from metricdp.perturb.formats.packing import compression_of
from metricdp.perturb.remote import file_name, is_url, open_url

__all__ = ["STANDARD", "Bytes", "open_raw", "share_read", "unpacked"]

# Stands for stdin and stdout, which are CSV.
STANDARD = "-"

# Seconds after which a thread that waits for stdin looks whether anybody still wants it.
_PATIENCE = 0.1

# Byte order marks, the longer ones first: UTF-32's begins like UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def open_raw(path: str | Path) -> Any:
    """Open a file on the disk or at a URL, to be read from any place."""
    return open_url(str(path)) if is_url(path) else Path(path).open("rb")


def unpacked(path: str | Path) -> tuple[Any, Any]:
    """Open a file; return its bytes as they are, and the same file with its compression undone."""
    raw = _StandardInput() if str(path) == STANDARD else _from_disk_or_url(path)
    compression = compression_of(file_name(path))
    try:
        return raw, raw if compression is None else compression.unpack(raw)
    except BaseException:
        raw.close()
        raise


def _from_disk_or_url(path: str | Path) -> Any:
    return open_url(str(path)) if is_url(path) else pa.OSFile(str(path))


class Bytes:
    """What a file holds, unpacked and in UTF-8 without a byte order mark; read by line, then in blocks.

    native : whether Arrow can read and unpack the file without Python.
    taken : bytes, a mark included, before the next one of `readline`; they are the file's own if it is native.

    Arrow's reader of CSV reads in a thread of its own. A thread that is inside Python when the interpreter ends, after
    an error, would abort the process; so it never waits for long, and finds the end as soon as this is closed.
    """

    def __init__(self, path: str | Path, encoding: str | None = None) -> None:
        self._held, self.taken, self.closed = b"", 0, False
        self._reading = threading.Lock()
        self._decoder: codecs.IncrementalDecoder | None = None
        self._raw, self._stream = unpacked(path)
        try:
            found = self._marked(encoding)
            if found is not None:
                self._decoder = codecs.getincrementaldecoder(found)()
                self._held = self._decoder.decode(self._held).encode()
        except BaseException:
            self.close()
            raise
        compression = compression_of(file_name(path))
        self.native = found is None and isinstance(self._raw, pa.NativeFile) and getattr(compression, "native", True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the input, and wait until no thread is inside `read`."""
        self.closed = True
        if isinstance(self._raw, _StandardInput):
            self._raw.close()
        with self._reading:
            self._held = b""
            self._stream.close()
            self._raw.close()

    def readable(self) -> bool:
        """Whether it can be read, which Arrow asks."""
        return True

    def fraction(self) -> float | None:
        """Return the share of the file's bytes that were taken from it, None if that is not known."""
        return None if self.closed else share_read(self._raw)

    def readline(self, limit: int) -> bytes:
        """Return a line, or `limit` bytes of it."""
        while b"\n" not in self._held and len(self._held) < limit and (more := self._next(limits.READ_BYTES)):
            self._held += more
        end = min(self._held.find(b"\n") + 1 or len(self._held), limit)
        line, self._held = self._held[:end], self._held[end:]
        self.taken += end
        return line

    def peek(self, count: int) -> bytes:
        """Return some of the next bytes without taking them, none at the end."""
        self._held = self._held or self._next(max(count, limits.READ_BYTES))
        return self._held[:count]

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer only at the end."""
        with self._reading:
            blocks, missing = [self._held[:count]], count - len(self._held[:count])
            self._held = self._held[count:]
            while missing > 0 and (block := self._next(missing)):
                # Text may be longer in UTF-8 than in the file.
                blocks.append(block[:missing])
                self._held = block[missing:]
                missing -= len(block)
            return b"".join(blocks)

    def _marked(self, encoding: str | None) -> str | None:
        """Look for a byte order mark, which counts for more than `encoding`; return None for UTF-8."""
        longest = max(map(len, _MARKS))
        while len(self._held) < longest and (more := self._stream.read(longest - len(self._held))):
            self._held += more
        mark = next((mark for mark in _MARKS if self._held.startswith(mark)), b"")
        self._held, self.taken = self._held[len(mark) :], len(mark)
        named = codecs.lookup(_MARKS.get(mark) or encoding or "utf-8").name
        return None if named in ("utf-8", "utf-8-sig", "ascii") else named

    def _next(self, most: int) -> bytes:
        """Wait for some bytes and return them; none at the end."""
        while not self.closed:
            raw: bytes = self._stream.read(most)
            if self._decoder is None:
                return raw
            text = self._decoder.decode(raw, final=not raw)
            if text or not raw:
                return text.encode()
        return b""


class _StandardInput:
    """Standard input, which can be closed while another thread waits for it."""

    size = None

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def read(self, most: int) -> bytes:
        while not self.closed:
            if os.name == "nt" or select.select([self._handle], [], [], _PATIENCE)[0]:
                return os.read(self._handle, most)
        return b""


def share_read(raw: Any) -> float | None:
    """Return the share of a file's bytes that were read, None if that is not known."""
    try:
        size = raw.size() if callable(raw.size) else raw.size
        return None if size is None else float(raw.tell() / max(1, size))
    except ValueError:  # it is closed, perhaps by the reader's thread, which has come to the end meanwhile
        return None
