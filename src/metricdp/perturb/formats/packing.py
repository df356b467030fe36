"""Compression of whole files: which endings there are, and how such files are read and written in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from metricdp.perturb import limits

__all__ = ["COMPRESSIONS", "Compression", "Xz", "compression_of"]

_GZIP_LEVEL = 4  # Arrow's own gzip stream has only the slowest level
_XZ_PRESET = 2


@dataclass(frozen=True)
class Compression:
    """How one kind of compressed file is read and written.

    unpack : takes a file of bytes, returns one of what was compressed.
    pack : takes a stream, returns a file whose bytes reach it compressed. Closing that leaves the stream open.
    native : whether `unpack` is Arrow's own, which runs outside of Python.
    """

    unpack: Callable[[Any], Any]
    pack: Callable[[pa.NativeFile], Any]
    native: bool = True


class Xz(io.RawIOBase):
    """An xz file that is read: Arrow has no such codec, and `lzma.open` lets a file claim gigabytes of memory."""

    def __init__(self, packed: Any) -> None:
        self._packed, self._given, self._ended = packed, b"", False
        self._decoder = self._new()

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Decompress some bytes into the buffer; none at the end."""
        while not self._ended:
            if self._decoder.eof and not self._next_stream():
                break
            if self._decoder.needs_input and not self._given:
                self._given = self._packed.read(limits.READ_BYTES)
                if not self._given:
                    msg = "the file ends inside of a stream"
                    raise EOFError(msg)
            content = self._decoder.decompress(self._given, len(buffer))
            self._given = b""
            if content:
                buffer[: len(content)] = content
                return len(content)
        return 0

    def close(self) -> None:
        """Close the packed file too."""
        self._packed.close()
        super().close()

    def _next_stream(self) -> bool:
        """Begin the stream that follows, after bytes of padding; return False at the end of the file."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest:
            more = self._packed.read(limits.READ_BYTES)
            if not more:
                self._ended = True
                return False
            rest = more.lstrip(b"\0")
        self._decoder, self._given = self._new(), rest
        return True

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.LARGEST_WINDOW)


class _KeptOpen(io.RawIOBase):
    """A stream that stays open when what writes to it closes it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._stream.write(content)
        return len(content)


def _arrow(codec: str) -> Callable[[Any], Any]:
    return lambda packed: pa.CompressedInputStream(packed, codec)


def _pack_xz(stream: pa.NativeFile) -> Any:
    return lzma.open(stream, "wb", preset=_XZ_PRESET)


# By the ending that follows the format's. Members or frames one after the other are one file.
COMPRESSIONS: dict[str, Compression] = {
    ".gz": Compression(
        _arrow("gzip"), lambda stream: gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)
    ),
    ".bz2": Compression(_arrow("bz2"), lambda stream: bz2.BZ2File(stream, "wb")),
    ".xz": Compression(Xz, _pack_xz, native=False),
    ".zst": Compression(
        _arrow("zstd"), lambda stream: pa.CompressedOutputStream(pa.PythonFile(_KeptOpen(stream), "w"), "zstd")
    ),
}


def compression_of(name: str) -> Compression | None:
    """Return the compression of a file of this name, or None."""
    return COMPRESSIONS.get(Path(name).suffix.casefold())
