"""Ids, names and coordinates of the places that may be reported: one set of rules for arguments and for files."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from metricdp._validation import reject

__all__ = ["LONGEST_TEXT", "PlaceIds", "axis_names", "checked_ids", "checked_names"]

PlaceIds = tuple[str, ...] | tuple[int, ...]

# Characters (code points) of an id or a name.
LONGEST_TEXT = 256

# What could act on a terminal or reorder a line, and what is not Unicode: control characters, separators of lines and
# paragraphs, characters that embed, override or isolate a direction of writing, and lone surrogates. A fixed list
# means the same in every reader of files, whatever its version of Unicode.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_LEAST_INTEGER, _LARGEST_INTEGER = -(2**63), 2**63 - 1


def checked_ids(values: Any, count: int) -> PlaceIds:
    """Return `count` different ids, all of them text or all of them integers of 64 bits."""
    given = _one_per_output("output_ids", values, count)
    if any(isinstance(one, str) for one in given):
        ids: PlaceIds = tuple(_text("output_ids", one, where, shortest=1) for where, one in enumerate(given))
    else:
        ids = tuple(_integer(one, where) for where, one in enumerate(given))
    if len(set(ids)) < len(ids):
        first: dict[object, int] = {}
        again = next(where for where, one in enumerate(ids) if first.setdefault(one, where) != where)
        got = f"{_short(ids[again])} at index {first[ids[again]]} and {again}"
        raise reject("output_ids", "different from each other", got)
    return ids


def checked_names(values: Any, count: int) -> tuple[str, ...]:
    """Return `count` names, which may be equal or empty."""
    given = _one_per_output("output_names", values, count)
    return tuple(_text("output_names", one, where) for where, one in enumerate(given))


def axis_names(n_axes: int) -> tuple[str, ...]:
    """Return what coordinates without a projection are called: x, y, z, or from four axes on x0, x1, and so on."""
    return ("x", "y", "z")[:n_axes] if n_axes <= 3 else tuple(f"x{axis}" for axis in range(n_axes))


def _one_per_output(parameter: str, values: Any, count: int) -> list[Any]:
    # A text is a collection of letters, a table one of its columns, and sets have no order.
    listed = isinstance(values, Collection) and not isinstance(values, (str, bytes, Mapping, AbstractSet))
    if not listed or getattr(values, "ndim", 1) != 1:
        raise reject(parameter, "a list with one entry for each output", type(values).__name__)
    if len(values) != count:
        raise reject(parameter, f"of length {count}, one for each output", f"length {len(values)}")
    return list(values)


def _text(parameter: str, value: Any, where: int, shortest: int = 0) -> str:
    if not isinstance(value, str):
        mixed = ", all of them text or all of them integers" if parameter == "output_ids" else ""
        raise reject(parameter, f"made of text{mixed}", f"{_short(value)} at index {where}")
    if not shortest <= len(value) <= LONGEST_TEXT:
        got = f"{len(value)} at index {where}"
        raise reject(parameter, f"made of texts of {shortest} to {LONGEST_TEXT} characters", got)
    unsafe = _UNSAFE.search(value)
    if unsafe is not None:
        rule = "free of control characters, line breaks, overrides of the writing direction and lone surrogates"
        raise reject(parameter, rule, f"{unsafe[0]!r} at index {where}")
    return value[:]  # plain text, of numpy.str_ too


def _integer(value: Any, where: int) -> int:
    rule = "made of text or of integers of 64 bits"
    try:
        number = operator.index(value)
    except TypeError:
        raise reject("output_ids", rule, f"{_short(value)} at index {where}") from None
    if isinstance(value, bool) or not _LEAST_INTEGER <= number <= _LARGEST_INTEGER:
        raise reject("output_ids", rule, f"{_short(value)} at index {where}")
    return number


def _short(value: Any) -> str:
    """Return a value for a message; `repr` escapes what could act on a terminal."""
    words = repr(value)
    return words if len(words) <= 40 else f"{words[:40]}…"
