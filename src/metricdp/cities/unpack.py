"""Compressed files, unpacked as they are read and never to much more than their own size."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any, BinaryIO

from metricdp.errors import InvalidInputError

__all__ = ["open_table"]

CHUNK_BYTES = 8192

# Tables of real cities shrink to a fifth or a tenth; files made to fill the memory shrink to a thousandth and less.
MOST_TIMES, MOST_BESIDES = 50, 16 * 2**20

# What `xz -9` needs is 65 MB. A file may ask for gigabytes.
MEMORY_BYTES = 128 * 2**20


def open_table(path: Path) -> BinaryIO:
    """Open a file for reading; one whose name ends in .xz is unpacked on the way."""
    file = path.open("rb")
    if path.suffix != ".xz":
        return file
    return io.BufferedReader(_Unpacked(file, path))


class _Unpacked(io.RawIOBase):
    """The contents of an xz file, of all its streams, as far as the limit allows."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._left = MOST_BESIDES + MOST_TIMES * path.stat().st_size
        self._decoder = _decoder()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Unpack some of the file into `buffer`; return how many bytes, zero at the end."""
        view = memoryview(buffer).cast("B")
        while True:
            if self._decoder.eof and not self._next_stream():
                return 0
            packed = b""
            if self._decoder.needs_input:
                packed = self._file.read(CHUNK_BYTES)
                if not packed:
                    raise EOFError("the compressed file ends too early")
            plain = self._decoder.decompress(packed, len(view))
            if plain:
                self._left -= len(plain)
                if self._left < 0:
                    limit = f"{MOST_TIMES} times its size (and {MOST_BESIDES:,} bytes)"
                    raise InvalidInputError(f"{self._path} unpacks to more than {limit}; unpack it yourself.")
                view[: len(plain)] = plain
                return len(plain)

    def _next_stream(self) -> bool:
        """Begin with the next stream, after the zeros that may lie between; return whether there is one."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest:
            read = self._file.read(CHUNK_BYTES)
            if not read:
                return False
            rest = read.lstrip(b"\0")
        self._decoder = _decoder()
        # The decoder has no way to push bytes back, so the file goes back to where the stream begins.
        self._file.seek(-len(rest), io.SEEK_CUR)
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=MEMORY_BYTES)
