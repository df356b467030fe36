"""One wording for bad input: the parameter, the rule, the value."""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp.errors import InvalidInputError

__all__ = [
    "checked_box",
    "choice",
    "finite_array",
    "fraction",
    "freeze_arrays",
    "integer",
    "norm_order",
    "outside_rule",
    "positive",
    "reject",
    "table",
    "unit_sum",
]

FloatArray = NDArray[np.float64]


def reject(name: str, rule: str, value: object) -> InvalidInputError:
    """Build the error for parameter `name`, which broke `rule` with `value`."""
    return InvalidInputError(f"`{name}` must be {rule}, got {value}.")


def positive(name: str, value: Any) -> float:
    """Return `value` as a positive finite float."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise reject(name, "a positive finite number", repr(value)) from None
    if not (math.isfinite(number) and number > 0):
        raise reject(name, "a positive finite number", repr(value))
    return number


def fraction(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    number = positive(name, value)
    if number >= 1:
        raise reject(name, "strictly between 0 and 1", repr(value))
    return number


def norm_order(value: Any) -> float:
    """Return p as a float in [1, ∞]."""
    rule = "a number in [1, inf] (the order of the norm)"
    try:
        p = float(value)
    except (TypeError, ValueError):
        raise reject("p", rule, repr(value)) from None
    if math.isnan(p) or p < 1:
        raise reject("p", rule, repr(value))
    return p


def integer(name: str, value: Any, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise reject(name, f"a whole number of at least {minimum}", repr(value)) from None
    if number < minimum:
        raise reject(name, f"a whole number of at least {minimum}", number)
    return number


def choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`."""
    if value not in allowed:
        raise reject(name, "one of " + ", ".join(repr(a) for a in allowed), repr(value))
    return value


def outside_rule(value: str, *more: str) -> str:
    """Return what to do with points outside the box: "clamp", "error" or one of `more`.

    "raise" is the old word for "error".
    """
    if value == "raise":
        # Blamed on the caller of the public function that calls the caller of this one.
        warnings.warn('`outside="raise"` is now called `outside="error"`.', DeprecationWarning, stacklevel=4)
        return "error"
    return choice("outside", value, ("clamp", *more, "error"))


def finite_array(name: str, value: ArrayLike) -> FloatArray:
    """Return a fresh float64 array without NaN or infinity."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise reject(name, "an array of numbers", type(value).__name__) from None
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        # The place only: the numbers around it may be somebody's coordinates.
        raise reject(name, "finite everywhere", f"{array[where]} at index {where}")
    return array


def table(name: str, value: ArrayLike, columns: int | None = None) -> FloatArray:
    """Return a non-empty finite (rows, columns) array; a flat one is taken as one column."""
    array = finite_array(name, value)
    if array.ndim == 1 and columns in (None, 1):
        array = array[:, None]
    rule = f"an array of shape (rows, {columns or 'columns'})"
    if array.ndim != 2 or (columns is not None and array.shape[1] != columns):
        raise reject(name, rule, f"shape {array.shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise reject(name, "non-empty", f"shape {array.shape}")
    return array


def checked_box(bounds: ArrayLike | None) -> FloatArray:
    """Return a box (2, axes) that is wider than zero everywhere."""
    box = finite_array("bounds", bounds if bounds is not None else np.nan)
    if box.ndim != 2 or len(box) != 2 or not box.size:
        raise reject("bounds", "of shape (2, axes), lower corner first", f"shape {box.shape}")
    for axis, (low, high) in enumerate(box.T):
        if not low < high:
            raise reject("bounds", "wider than zero on every axis", f"[{low}, {high}] on axis {axis}")
    return box


def freeze_arrays(owner: object) -> None:
    """Make the arrays of an immutable object read-only; copies and unpickled arrays start as writable ones."""
    for value in vars(owner).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def unit_sum(name: str, value: ArrayLike, length: int) -> FloatArray:
    """Return a non-negative vector of the given length, scaled to sum to 1."""
    vector = finite_array(name, value)
    if vector.shape != (length,):
        raise reject(name, f"of shape ({length},)", f"shape {vector.shape}")
    if vector.min() < 0:
        where = int(vector.argmin())
        raise reject(name, "non-negative", f"{vector[where]} at index {where}")
    if vector.max() == 0:
        raise reject(name, "positive somewhere", "zeros only")
    vector /= vector.max()  # so that the sum cannot overflow
    return vector / vector.sum()
