"""Zip archives of one JSON text and plain arrays, read without trusting them: no pickle, no code, bounded memory."""

from __future__ import annotations

import io
import math
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from metricdp.errors import InvalidInputError

__all__ = ["LARGEST_HEADER", "array_bytes", "read_archive", "write_archive"]

_HEADER = "header.json"
_ARRAY_NAME = re.compile(r"([a-z][a-z0-9_]{0,39})\.npy")

# Deflated data may unpack to a thousand times its size. So its size is limited: to this many bytes, or to this many
# times the size of the file, whichever is more. Stored data is as large as its file.
LARGEST_HEADER = 2**20
_LARGEST_DEFLATED, _LARGEST_GROWTH = 2**26, 16
_LARGEST_FILE = 2**33
_MOST_ENTRIES = 64
_LONGEST_DIRECTORY = 2**16
_ENCRYPTED = 0x1

# An extra field with another name of the entry, which some readers believe (Python from 3.12 on) and others do not.
_OTHER_NAME = 0x7075

# The only array headers that are read: no Python literal is evaluated, and no type but these four exists.
_MAGIC = b"\x93NUMPY\x01\x00"
_ARRAY_HEADER = re.compile(
    rb"\{'descr': '(<f8|<i8|<u2|\|u1)', 'fortran_order': (True|False), "
    rb"'shape': \((\d{1,12}(?:, \d{1,12}){0,7}),?\), \} *\n"
)

# The oldest date a zip can hold: equal contents make equal files.
_DATE = (1980, 1, 1, 0, 0, 0)


def array_bytes(array: NDArray[Any]) -> tuple[str, bytes]:
    """Return the type and the numbers of an array as every file holds them: little-endian, last axis fastest."""
    form = array.dtype.kind if array.dtype.kind in "fi" else f"{array.dtype.kind}{array.dtype.itemsize}"
    kind = {"f": "<f8", "i": "<i8", "u2": "<u2", "u1": "|u1"}.get(form)
    if kind is None:
        msg = f"arrays must hold float64, int64 or uint16 numbers or bytes of text, got {array.dtype}"
        raise InvalidInputError(msg)
    return kind, np.ascontiguousarray(array, dtype=kind).tobytes()


def write_archive(stream: BinaryIO, header: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the archive, deflated unless it would then unpack to more than readers allow."""
    total = len(header) + sum(array.nbytes + 1024 for array in arrays.values())
    _write(stream, header, arrays, zipfile.ZIP_DEFLATED)
    if total > _deflated_allowed(stream.tell()):
        stream.seek(0)
        stream.truncate()
        _write(stream, header, arrays, zipfile.ZIP_STORED)


def _write(stream: BinaryIO, header: bytes, arrays: Mapping[str, NDArray[Any]], method: int) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER, _DATE), header, compress_type=method)
        for name, array in sorted(arrays.items()):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _DATE), _npy(array), compress_type=method)


def _deflated_allowed(file_size: int) -> int:
    """Return how many bytes a file of this size may unpack to."""
    return max(_LARGEST_DEFLATED, _LARGEST_GROWTH * file_size)


def _npy(array: NDArray[Any]) -> bytes:
    kind, numbers = array_bytes(array)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": kind, "fortran_order": False, "shape": array.shape})
    return buffer.getvalue() + numbers


def read_archive(path: Path) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """Return the JSON text and the arrays by name.

    Memory is allocated only for sizes that fit the limits and the file's own size. A damaged file raises
    `InvalidInputError` or one of the errors of `zipfile`.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
        msg = f"not a file of at most {_LARGEST_FILE:,} bytes"
        raise InvalidInputError(msg)
    with _BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
        file.longest_read = status.st_size
        entries = _checked_entries(archive.infolist(), status.st_size)
        header = _content(archive, entries.pop(_HEADER))
        return header, {_array_name(name): _array(name, _content(archive, entries[name])) for name in entries}


class _BoundedFile(io.FileIO):
    """A file that refuses long reads: `zipfile` would read an archive's directory of entries whatever its length."""

    longest_read = _LONGEST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `longest_read` bytes at once."""
        if size is not None and size > self.longest_read:
            msg = f"the archive asks for {size:,} bytes at once"
            raise InvalidInputError(msg)
        return super().read(size)


def _checked_entries(infos: list[zipfile.ZipInfo], file_size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the entries by name if what they declare is within the limits."""
    entries = {info.filename: info for info in infos}
    deflated = sum(info.file_size for info in infos if info.compress_type == zipfile.ZIP_DEFLATED)
    problems = {
        "too many entries, or two of one name": len(infos) > _MOST_ENTRIES or len(entries) < len(infos),
        f"no {_HEADER}": _HEADER not in entries,
        # Overlapping entries could together be far larger than the file.
        "entries larger than the file": sum(info.compress_size for info in infos) > file_size,
        "an entry that is encrypted or neither stored nor deflated": not all(map(_plainly_packed, infos)),
        "an entry of two names": any(map(_has_two_names, infos)),
        f"more than {_deflated_allowed(file_size):,} deflated bytes": deflated > _deflated_allowed(file_size),
        f"a header of more than {LARGEST_HEADER:,} bytes": any(
            info.file_size > LARGEST_HEADER for info in infos if info.filename == _HEADER
        ),
    }
    for problem, found in problems.items():
        if found:
            msg = f"the archive has {problem}"
            raise InvalidInputError(msg)
    return entries


def _plainly_packed(info: zipfile.ZipInfo) -> bool:
    if info.flag_bits & _ENCRYPTED:
        return False
    stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
    return stored or info.compress_type == zipfile.ZIP_DEFLATED


def _has_two_names(info: zipfile.ZipInfo) -> bool:
    """Return whether readers may disagree on what an entry is called; `zipfile` cuts names at a zero byte."""
    rest = info.extra
    while len(rest) >= 4:
        kind, length = struct.unpack("<HH", rest[:4])
        if kind == _OTHER_NAME:
            return True
        rest = rest[4 + length :]
    return info.filename != info.orig_filename


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as stream:
        # Reading one byte more than declared shows a lie about the size without unpacking the rest.
        content = stream.read(info.file_size + 1)
    if len(content) != info.file_size:
        msg = f"{info.filename} is not as long as declared"
        raise InvalidInputError(msg)
    return content


def _array_name(entry: str) -> str:
    match = _ARRAY_NAME.fullmatch(entry)
    if match is None:
        msg = f"the archive has an entry of unknown name {entry!r}"
        raise InvalidInputError(msg)
    return match[1]


def _array(name: str, content: bytes) -> NDArray[Any]:
    start = len(_MAGIC) + 2
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    match = _ARRAY_HEADER.fullmatch(content[start:end])
    if not content.startswith(_MAGIC) or match is None:
        msg = f"{name} is not an array of float64, int64 or uint16 numbers or of bytes in .npy format 1.0"
        raise InvalidInputError(msg)
    kind, fortran, sides = match.groups()
    dtype = np.dtype(kind.decode())
    shape = tuple(int(side) for side in sides.split(b","))
    if math.prod(shape) * dtype.itemsize != len(content) - end:
        msg = f"{name} does not hold as many numbers as its shape {shape} says"
        raise InvalidInputError(msg)
    numbers = np.frombuffer(content, dtype=dtype, offset=end)
    array = numbers.reshape(shape[::-1]).T if fortran == b"True" else numbers.reshape(shape)
    return array.astype(array.dtype.newbyteorder("="), order="C")
