"""Files of movement models: one JSON header and plain arrays, read without trusting them."""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.files.archive import read_archive, write_archive
from metricdp.geometry.projection import Equirectangular

__all__ = ["projection_fields", "projection_from", "read_model", "write_model"]

_FORMAT, _KIND = 1, "movement"
_LONGEST_REASON = 300

# What the modules that take a file apart may raise if it is damaged.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, LookupError, TypeError, AttributeError, ValueError,
    OverflowError, RuntimeError,
)  # fmt: skip

Model = TypeVar("Model")


def write_model(path: str | Path, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model; the file appears whole or not at all."""
    header = {"format": _FORMAT, "kind": _KIND, **fields}
    text = json.dumps(header, indent=1, sort_keys=True, allow_nan=False).encode()
    with atomic_file(path) as stream:
        write_archive(stream, text, arrays)


def read_model(path: str | Path, build: Callable[[dict[str, Any], dict[str, NDArray[Any]]], Model]) -> Model:
    """Return what `build` makes of the fields and arrays of a file."""
    try:
        with np.errstate(all="ignore"):
            text, arrays = read_archive(Path(path))
            fields = json.loads(text)
            if not isinstance(fields, dict) or fields.pop("kind", None) != _KIND:
                raise reject("kind", repr(_KIND), "something else")
            number = fields.pop("format", None)
            if number != _FORMAT:
                raise InvalidInputError(f"it has format {number!r}; this version reads format {_FORMAT}")
            return build(fields, arrays)
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        # The message may go to a terminal, where control characters from a file could do harm.
        reason = "".join(letter if letter.isprintable() else "?" for letter in reason[:_LONGEST_REASON])
        msg = f"{os.fspath(path)!r} is not a movement model that can be read: {reason}"
        raise InvalidInputError(msg) from error


def projection_fields(projection: Any) -> dict[str, Any] | None:
    """Return what a file says of a projection."""
    return None if projection is None else projection.to_dict()


def projection_from(fields: dict[str, Any] | None) -> Equirectangular | None:
    """Return the projection that a file describes."""
    return None if fields is None else Equirectangular.from_dict(fields)
