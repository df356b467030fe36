"""Writing mechanism files, and the hash of their contents. Knows no kind of mechanism by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.files.archive import LARGEST_HEADER, array_bytes, write_archive
from metricdp.files.header import describe, rebuild

if TYPE_CHECKING:
    from metricdp.mechanisms.base import Mechanism

__all__ = ["NO_HASH", "digest", "mechanism_hash", "require_same", "save"]

# Stands in the header in place of the hash while the hash is computed.
NO_HASH = "0" * 64


def save(mechanism: Mechanism, path: str | Path) -> None:
    """Write `mechanism` to `path`; the file appears whole or not at all."""
    header, arrays = describe(mechanism)
    text, _ = _sealed(header, arrays)
    # A file that could not be read again is refused now, while the mechanism still exists.
    require_same(header, arrays, rebuild(json.loads(text), arrays, type(mechanism)))
    with atomic_file(path) as stream:
        write_archive(stream, text, arrays)


def mechanism_hash(mechanism: Mechanism) -> str:
    """Return the SHA-256 of the file that a mechanism would be saved as."""
    return _sealed(*describe(mechanism))[1]


def require_same(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], mechanism: Mechanism) -> None:
    """Raise unless saving the mechanism gives this header and these arrays: contradictory fields would not."""
    again, numbers = describe(mechanism, header["format"])
    given = {name: value for name, value in header.items() if name != "sha256"}
    if _text(again) != _text(given) or set(numbers) != set(arrays):
        raise InvalidInputError("its fields are not those that its mechanism would be saved with")
    if any(array_bytes(numbers[name]) != array_bytes(array) for name, array in arrays.items()):
        raise InvalidInputError("its arrays are not those that its mechanism would be saved with")


def digest(text: bytes, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a header's text, with zeros for the hash, and of all arrays."""
    found = hashlib.sha256(text)
    for name, array in sorted(arrays.items()):
        kind, numbers = array_bytes(array)
        found.update(f"{name} {kind} {','.join(map(str, array.shape))}\n".encode())
        found.update(numbers)
    return found.hexdigest()


def _sealed(header: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[bytes, str]:
    """Return the header's text with the hash in its place, and the hash."""
    text = _text(header | {"sha256": NO_HASH})
    if len(text) > LARGEST_HEADER:
        raise reject("report", f"short enough for a header of {LARGEST_HEADER:,} bytes", f"{len(text):,} bytes")
    sha256 = digest(text, arrays)
    return _text(header | {"sha256": sha256}), sha256


def _text(header: Mapping[str, Any]) -> bytes:
    return (json.dumps(header, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
