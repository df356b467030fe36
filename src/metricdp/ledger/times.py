"""Moments and lengths of time in whole microseconds, so that windows and periods begin and end exactly."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import reject

__all__ = ["Ticks", "clock", "seconds", "span", "span_text", "ticks", "unix_seconds"]

Ticks = NDArray[np.int64]

_PER_SECOND = 1_000_000

# The last second of the year 9999, beyond which Python has no dates. Milliseconds in place of seconds are far beyond.
_LAST_SECOND = 253_402_300_799
_LAST_YEAR = 9999 - 1970

# Units of datetime64 that reach no further than 107 days from 1970.
_TOO_FINE = ("ps", "fs", "as")

_TIMES_RULE = f"unix seconds from 0 to {_LAST_SECOND} (the year 9999)"
_SPAN_RULE = 'a length of time from 1 s to 100 years, such as "24h", "10min", "90s" or "7d"'
# Our own words, not those of pandas: there "24" is 24 nanoseconds, and "d" changes with the version.
_UNITS = {"h": 3600, "min": 60, "s": 1, "d": 86_400}
_LONGEST_SPAN = 36_525 * 86_400


def span(name: str, value: object) -> int | None:
    """Return a length of time in ticks: text such as "24h", a number of seconds, or a `timedelta`; None stays None."""
    if value is None:
        return None
    length = _span_seconds(value)
    if length is None or not 1 <= length <= _LONGEST_SPAN or (length * _PER_SECOND).denominator != 1:
        raise reject(name, _SPAN_RULE, repr(value))
    return int(length * _PER_SECOND)


def _span_seconds(value: object) -> Fraction | None:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(s|min|h|d)\s*", value, re.ASCII)
        return None if found is None else Fraction(found[1]) * _UNITS[found[2]]
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), _PER_SECOND)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return Fraction(int(value))
    if not isinstance(value, (float, np.floating)):
        return None
    # As its shortest text says, like ε: 0.1 is a tenth.
    return Fraction(repr(float(value))) if math.isfinite(value) else None


def span_text(length: int | None) -> str | None:
    """Return a length of time in ticks as text that `span` reads.

    Examples
    --------
    >>> span_text(span("window", "24h")), span_text(span("every", 600)), span_text(span("every", 1.5))
    ('24h', '10min', '1.5s')
    """
    if length is None:
        return None
    for unit in ("h", "min", "s"):
        if length % (_UNITS[unit] * _PER_SECOND) == 0:
            return f"{length // (_UNITS[unit] * _PER_SECOND)}{unit}"
    return f"{length // _PER_SECOND}.{length % _PER_SECOND:06d}".rstrip("0") + "s"


def seconds(length: int | None) -> float | None:
    """Return a moment or a length of time in ticks as seconds, the nearest float; `ticks` gives the tick back."""
    return None if length is None else length / _PER_SECOND


def clock() -> int:
    """Return the moment that the system's clock shows."""
    return (time.time_ns() + 500) // 1000


def unix_seconds(name: str, value: object) -> int:
    """Return one moment in ticks, now if it is None."""
    if value is None:
        return clock()
    rows: Any = [value]
    try:
        return int(ticks(rows, 1)[0])
    except ValueError:
        raise reject(name, _TIMES_RULE, repr(value)) from None


def _at_index(index: int) -> str:
    return f"at index {index}"


def ticks(
    times: ArrayLike, count: int, name: str = "times", where: Callable[[int], str] = _at_index, *, quoted: bool = True
) -> Ticks:
    """Return moments in whole microseconds since 1970, halves rounded up.

    Rounding keeps the order of moments. From 1970-01-13 on it is exact: the tick is floor(10⁶·t + 1/2) of the very
    number t that the float holds. So two moments whose ticks are more than w ticks apart are themselves more than
    w microseconds apart.

    Parameters
    ----------
    times : (count,) array, or one number
        Unix seconds, as whole numbers or floats; or numpy's datetime64, which is taken to be UTC.
    count : int
        How many there must be; one number stands for all.
    name, where
        What messages call the moments, and how they say which of them is wrong.
    quoted : bool
        Whether messages show the wrong moment. Columns of files have no say in what they hold: where another column
        was named by mistake, it may be somebody's longitude.
    """
    try:
        values = np.asarray(times)
    except ValueError:  # lists of lists of several lengths
        raise reject(name, f"one moment for each of {count} points", "something else") from None
    if values.ndim == 0:
        values = np.broadcast_to(values, (count,))
    if values.shape != (count,):
        raise reject(name, f"one moment for each of {count} points", f"shape {values.shape}")
    if values.dtype == object:
        # Whole numbers too large for numpy, fractions, decimals, None.
        values = np.array([_number(value) for value in values.tolist()], dtype=np.float64)
    if values.dtype.kind == "M":
        if np.datetime_data(values.dtype)[0] in _TOO_FINE:
            raise reject(name, _TIMES_RULE, f"an array of {values.dtype}; convert it to datetime64[us]")
        # By years first: numpy would let dates far away overflow.
        years = values.astype("datetime64[Y]").astype(np.int64)
        _refuse(name, where, np.isnat(values) | (years < 0) | (years > _LAST_YEAR), values, quoted=quoted)
        return _of_dates(values)
    if values.dtype.kind not in "iuf":
        raise reject(name, _TIMES_RULE, f"an array of {values.dtype}")
    # Compared as they are: as floats, whole numbers just above the last second would be equal to it.
    _refuse(name, where, ~((values >= 0) & (values <= _LAST_SECOND)), values, quoted=quoted)
    if values.dtype.kind in "iu":
        return values.astype(np.int64) * _PER_SECOND
    # The whole and the rest of a float are exact, their product with 10⁶ together would not be.
    exact = values.astype(np.float64)
    whole = np.floor(exact)
    return whole.astype(np.int64) * _PER_SECOND + np.floor((exact - whole) * _PER_SECOND + 0.5).astype(np.int64)


def _number(value: object) -> float:
    """Return a number as a float, NaN for everything that is none."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def _of_dates(values: NDArray[Any]) -> Ticks:
    if np.datetime_data(values.dtype) == ("ns", 1):
        return (values.astype(np.int64) + 500) // 1000
    return values.astype("datetime64[us]").astype(np.int64)


def _refuse(
    name: str, where: Callable[[int], str], wrong: NDArray[np.bool_], values: NDArray[Any], *, quoted: bool
) -> None:
    if not wrong.any():
        return
    index = int(wrong.argmax())
    found = values[index]
    hint = ""
    if values.dtype.kind in "iuf" and _LAST_SECOND < found < math.inf:
        hint = ", which may be milliseconds or less: divide by 1000"
    raise reject(name, _TIMES_RULE, f"{found if quoted else 'something else'} {where(index)}{hint}")
