"""Reading mechanism files, one reader for each format number; `load` also proves what it has read.

The formats are documented in docs/file-format.md. Reading runs no code from a file.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import reject
from metricdp.certificates.proving import require_proof
from metricdp.errors import InvalidInputError
from metricdp.files.archive import read_archive
from metricdp.files.header import plain, rebuild, require_types
from metricdp.files.places import PLACE_ARRAYS
from metricdp.files.writing import NO_HASH, digest, mechanism_hash, require_same
from metricdp.geometry.epsilon_map import MAP_ARRAYS
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.families import family_of

__all__ = ["READERS", "MechanismFile", "content_hash", "load", "read_file"]

# What the modules that take a file apart may raise if it is damaged.
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
    return mechanism_hash(source) if isinstance(source, Mechanism) else read_file(source).sha256


def read_file(path: str | Path) -> MechanismFile:
    """Read a mechanism file and check its hash, but prove nothing."""
    try:
        with np.errstate(all="ignore"):
            return _read(Path(path))
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        # The message may go to a terminal, where control characters from a file could do harm.
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason[:_LONGEST_REASON])
        msg = f"{os.fspath(path)!r} is not a mechanism file that can be read: {reason}"
        raise InvalidInputError(msg) from error


def _read(path: Path) -> MechanismFile:
    text, arrays = read_archive(path)
    # Strictly UTF-8, and no field twice: other readers might believe the other one.
    header = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    if not isinstance(header, dict):
        raise reject("header", "a JSON object", type(header).__name__)
    number = header["format"]
    if type(number) is not int or number not in READERS:
        msg = f"format {number!r} is not known to this version (it reads {', '.join(map(str, READERS))})"
        raise InvalidInputError(msg)
    mechanism, sha256 = READERS[number](header, text, arrays)
    return MechanismFile(mechanism, number, mechanism.report["library"], sha256 or mechanism_hash(mechanism))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise InvalidInputError("its header has a field twice")
    return fields


def _read_format_3(
    header: dict[str, Any], text: bytes, arrays: dict[str, NDArray[Any]]
) -> tuple[Mechanism, str | None]:
    _check_hash(header["sha256"], text, arrays)
    mechanism = _rebuilt(header, arrays)
    require_same(header, arrays, mechanism)
    return mechanism, header["sha256"]


def _read_format_2(
    header: dict[str, Any], text: bytes, arrays: dict[str, NDArray[Any]]
) -> tuple[Mechanism, str | None]:
    """Read a format that had no `distance`: every ε was per unit of the plane; and no sparse tables."""
    if any(array.dtype == np.uint16 for array in arrays.values()):
        raise InvalidInputError("format 2 has no arrays of 16-bit numbers")
    _refuse_maps(arrays, 2)
    _check_hash(header["sha256"], text, arrays)
    mechanism = _rebuilt(header | {"distance": "plane"}, arrays)
    require_same(header, arrays, mechanism)
    return mechanism, None


def _read_format_1(
    header: dict[str, Any], _text: bytes, arrays: dict[str, NDArray[Any]]
) -> tuple[Mechanism, str | None]:
    """Read a format that had no hash, had the box among the arrays and the certificate in the report."""
    unknown = set(header) ^ _FORMAT_1_FIELDS
    if unknown:
        raise reject(
            "header", f"made of {', '.join(sorted(_FORMAT_1_FIELDS))}", f"others: {', '.join(sorted(unknown))}"
        )
    require_types(header)
    _refuse_maps(arrays, 1)
    if any(name in arrays for name in PLACE_ARRAYS):
        raise reject("format", f"3 for a file with {' or '.join(PLACE_ARRAYS)}", 1)
    report = plain(header["report"])
    fields = {
        **header,
        "box": arrays.pop("bounds").tolist(),
        "library": _FORMAT_1_LIBRARY,
        "certificate": report.pop("certificate", None),
        "report": report,
        "distance": "plane",
    }
    return _rebuilt(fields, arrays), None


# By format number. A reader takes the header, its text and the arrays. It returns the mechanism, and the hash if the
# file is of the present format; the hash of an older file is that of the mechanism as it would be saved now.
READERS: dict[int, Callable[..., tuple[Mechanism, str | None]]] = {
    1: _read_format_1,
    2: _read_format_2,
    3: _read_format_3,
}
_FORMAT_1_FIELDS = {"epsilon", "format", "kind", "method", "p", "projection", "report", "settings"}

# The only library version that wrote format 1; its files do not say so.
_FORMAT_1_LIBRARY = "0.1.0"


def _rebuilt(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Mechanism:
    require_types(header)
    return rebuild(header, arrays, family_of(header["kind"], header["format"]).mechanism)


def _refuse_maps(arrays: Mapping[str, NDArray[Any]], number: int) -> None:
    if any(name in arrays for name in MAP_ARRAYS):
        raise reject("format", "3 for a file with a map of epsilon", number)


def _check_hash(given: Any, text: bytes, arrays: Mapping[str, NDArray[Any]]) -> None:
    if not isinstance(given, str) or len(given) != len(NO_HASH) or not given.isascii():
        raise reject("sha256", f"{len(NO_HASH)} hexadecimal digits", repr(given))
    if digest(text.replace(given.encode(), NO_HASH.encode()), arrays) != given:
        msg = "its contents do not match its hash; it was damaged or changed"
        raise InvalidInputError(msg)
