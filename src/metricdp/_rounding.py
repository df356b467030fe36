"""Products that are never rounded below their exact value."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray

__all__ = ["product_above"]


def product_above(left: ArrayLike, right: ArrayLike) -> FloatArray:
    """Return numbers that are at least left · right, for numbers of at least 0; 0 only where a factor is.

    The next float above a rounded product is above the exact one, also where the product is so small that it has few
    digits left, or none; there a factor such as 1 + 1e-12 would change nothing. A product that is too large for floats
    is infinite, and so is one that is no number.

    Examples
    --------
    >>> product_above(0.3, [0.0, 5e-324, 1e308]).tolist()
    [0.0, 5e-324, 3.0000000000000003e+307]
    """
    one, other = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        found = one * other
    above = np.where(np.isnan(found), np.inf, np.nextafter(found, np.inf))
    return np.where((found == 0) & ((one == 0) | (other == 0)), 0.0, above)
