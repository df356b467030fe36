"""Ids and names of outputs as arrays of a mechanism file: integers, or the bytes of text with one line per output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from metricdp._places import LONGEST_TEXT
from metricdp._validation import reject

if TYPE_CHECKING:
    from metricdp.mechanisms.base import Mechanism

__all__ = ["PLACE_ARRAYS", "pack_places", "unpack_places"]

PLACE_ARRAYS = ("output_ids", "output_names")

# UTF-8 takes at most four bytes for a character, and a line feed ends every text.
_LONGEST_LINE = 4 * LONGEST_TEXT + 1


def pack_places(mechanism: Mechanism) -> dict[str, NDArray[Any]]:
    """Return the arrays of the ids and names that a mechanism has."""
    given = {name: getattr(mechanism, name) for name in PLACE_ARRAYS}
    return {name: _packed(values) for name, values in given.items() if values is not None}


def unpack_places(arrays: Mapping[str, NDArray[Any]], count: int) -> dict[str, Any]:
    """Return ids and names of `count` outputs, None where there are none; the mechanism checks each of them itself."""
    found: dict[str, Any] = dict.fromkeys(PLACE_ARRAYS)
    for name in set(PLACE_ARRAYS) & set(arrays):
        array = arrays[name]
        if name == "output_ids" and array.dtype == np.int64 and array.shape == (count,):
            found[name] = tuple(array.tolist())
        else:
            found[name] = _lines(name, array, count)
    return found


def _packed(values: tuple[Any, ...]) -> NDArray[Any]:
    if isinstance(values[0], int):
        return np.array(values, dtype=np.int64)
    return np.frombuffer("".join(f"{text}\n" for text in values).encode(), dtype=np.uint8)


def _lines(name: str, array: NDArray[Any], count: int) -> tuple[str, ...]:
    """Return the lines of a text. Their number and size are checked first, so that a file cannot ask for memory."""
    whole = array.dtype == np.uint8 and array.ndim == 1 and array.size <= count * _LONGEST_LINE
    if not whole or np.count_nonzero(array == ord("\n")) != count or array[-1:].tobytes() != b"\n":
        integers = "integers or " if name == "output_ids" else ""
        rule = f"{integers}bytes of text with one line for each of the {count} outputs"
        raise reject(name, rule, f"{array.dtype} of shape {array.shape}")
    try:
        text = array.tobytes().decode()
    except UnicodeDecodeError as error:
        raise reject(name, "UTF-8", f"other bytes at index {error.start}") from None
    return tuple(text.split("\n")[:-1])
