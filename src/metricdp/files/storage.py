"""Mechanism files: documented in docs/file-format.md, hashed, written whole; loading runs no code and proves anew."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.certificates.proving import require_proof
from metricdp.errors import InvalidInputError
from metricdp.files.archive import LARGEST_HEADER, array_bytes, read_archive, write_archive
from metricdp.files.header import FORMAT, FORMATS, describe, from_format_1, rebuild
from metricdp.mechanisms.base import Mechanism

__all__ = ["MechanismFile", "content_hash", "load", "read_file", "save"]

# Stands in the header where the hash will be, while the hash is taken.
_NO_HASH = "0" * 64

# How a damaged file shows in the modules that take it apart.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    OverflowError,
    RuntimeError,  # encrypted entries and JSON nested too deeply among them
)
_LONGEST_REASON = 300


@dataclass(frozen=True)
class MechanismFile:
    """What a file holds; nothing is said of whether the mechanism is private.

    format : version of the file's format.
    library : version of metricdp that first wrote the mechanism.
    sha256 : hash of the contents, see `content_hash`.
    """

    mechanism: Mechanism
    format: int
    library: str
    sha256: str


def save(mechanism: Mechanism, path: str | Path) -> None:
    """Write `mechanism` to `path`; the file appears whole or not at all."""
    text, arrays, _ = _sealed(mechanism)
    # What could not be read again is refused while the mechanism is still at hand.
    _rebuilt(json.loads(text), arrays)
    with atomic_file(path) as stream:
        write_archive(stream, text, arrays)


def load(path: str | Path, *, certify: bool = True) -> Mechanism:
    """Read a mechanism file and prove anew that the mechanism is private.

    The hash of a file tells of accidents only, since whoever changes a file can hash it again; so the proof is made
    from the numbers that were read. The certificate in the report is the one that came with the file.

    Parameters
    ----------
    path : str or Path
        A file written by `Mechanism.save`, of this or an earlier format.
    certify : bool
        Prove the guarantee before returning. Turn it off only to study mechanisms that are not private.

    Raises
    ------
    InvalidInputError
        If the file is damaged or is no mechanism file.
    NotCertified
        If the mechanism could not be shown to be as private as it says.
    """
    mechanism = read_file(path).mechanism
    if certify:
        with np.errstate(all="ignore"):  # numbers from elsewhere may overflow; the proof fails then
            require_proof(mechanism, repr(os.fspath(path)))
    return mechanism


def content_hash(source: Mechanism | str | Path) -> str:
    """Return the SHA-256 of all that a mechanism file says, as 64 hexadecimal digits.

    A mechanism and a file saved from it have the same hash, as has the mechanism loaded from that file. A file of an
    earlier format has the hash that its mechanism would be saved with now.
    """
    return _sealed(source)[2] if isinstance(source, Mechanism) else read_file(source).sha256


def read_file(path: str | Path) -> MechanismFile:
    """Read a mechanism file and check its hash, but prove nothing."""
    try:
        with np.errstate(all="ignore"):
            return _read(Path(path))
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        # What a file says goes to a terminal only as far as it can do no harm there.
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason[:_LONGEST_REASON])
        msg = f"`path` must be a metricdp mechanism file, got {os.fspath(path)!r}: {reason}"
        raise InvalidInputError(msg) from error


def _read(path: Path) -> MechanismFile:
    text, arrays = read_archive(path)
    header = json.loads(text)
    if not isinstance(header, dict):
        raise reject("header", "a JSON object", type(header).__name__)
    number = header["format"]
    if type(number) is not int or number not in FORMATS:
        msg = f"format {number!r} is not known to this version (it reads {', '.join(map(str, FORMATS))})"
        raise InvalidInputError(msg)
    if number > 1:
        _check_hash(header["sha256"], text, arrays)
        mechanism = _rebuilt(header, arrays)
    else:
        mechanism = rebuild(from_format_1(header, arrays), arrays)
    return MechanismFile(mechanism, number, mechanism.report["library"], content_hash(mechanism))


def _rebuilt(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Mechanism:
    """Return the mechanism, if saving it would give the same file: a header that contradicts its arrays does not."""
    mechanism = rebuild(header, arrays)
    if _sealed(mechanism, header["format"])[2] != header["sha256"]:
        msg = "its fields are not those that its mechanism would be saved with"
        raise InvalidInputError(msg)
    return mechanism


def _check_hash(given: Any, text: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:
    if not isinstance(given, str) or len(given) != len(_NO_HASH) or not given.isascii():
        raise reject("sha256", f"{len(_NO_HASH)} hexadecimal digits", repr(given))
    if _digest(text.replace(given.encode(), _NO_HASH.encode()), arrays) != given:
        msg = "its contents do not match its hash; it was damaged or changed"
        raise InvalidInputError(msg)


def _sealed(mechanism: Mechanism, number: int = FORMAT) -> tuple[bytes, dict[str, NDArray[Any]], str]:
    """Return the text of the header in format `number` with the hash in its place, the arrays, and the hash."""
    header, arrays = describe(mechanism, number)
    text = _text(header | {"sha256": _NO_HASH})
    if len(text) > LARGEST_HEADER:
        raise reject("report", f"short enough for a header of {LARGEST_HEADER:,} bytes", f"{len(text):,} bytes")
    sha256 = _digest(text, arrays)
    return _text(header | {"sha256": sha256}), arrays, sha256


def _text(header: dict[str, Any]) -> bytes:
    return (json.dumps(header, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _digest(text: bytes, arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(text)
    for name, array in sorted(arrays.items()):
        kind, numbers = array_bytes(array)
        digest.update(f"{name} {kind} {','.join(map(str, array.shape))}\n".encode())
        digest.update(numbers)
    return digest.hexdigest()
