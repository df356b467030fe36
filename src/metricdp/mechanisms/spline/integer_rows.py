"""From rows in floating point to integer weights with one common sum, which can be checked and drawn from exactly."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, reject
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import dual_exponent

__all__ = ["MOST_OUTPUTS", "fineness", "integer_rows", "rounding_mix"]

# The common sum is K·2^b. 2^-40 of uniform is far below what any loss can see; differences of weights, six times
# their size at most, must fit 64 bits.
_FINEST, _LARGEST_SUM_BITS = 40, 58

# Beyond 2^18 outputs every doubling costs one bit of b; at this many outputs b is 38, which is still fine. Alias tables
# would allow more: what a column keeps (b + 1 bits) and its alias take at most 59 of the 63 bits of an entry.
MOST_OUTPUTS = 2**20


def fineness(n_outputs: int) -> int:
    """Return b: weights of K outputs sum to K·2^b.

    Examples
    --------
    >>> fineness(20), fineness(2**20)
    (40, 38)
    """
    if not 1 <= n_outputs <= MOST_OUTPUTS:
        raise reject("outputs", f"at most {MOST_OUTPUTS}", n_outputs)
    return min(_FINEST, _LARGEST_SUM_BITS - (n_outputs - 1).bit_length())


def integer_rows(rows: FloatArray) -> NDArray[np.int64]:
    """Return weights near rows·K·2^b that sum to K·2^b exactly, each off by little more than one.

    Examples
    --------
    >>> int(integer_rows(np.array([[0.5, 0.3, 0.2]])).sum()) == 3 * 2**40
    True
    """
    n_outputs = rows.shape[1]
    total = n_outputs << fineness(n_outputs)
    scaled = rows * float(total)
    weights = np.floor(scaled).astype(np.int64)
    # Flooring leaves the sum short. The difference is shared out evenly, and its rest goes to the largest remainders.
    missing = total - weights.sum(axis=1)
    each, rest = np.divmod(missing, n_outputs)
    rank = np.argsort(np.argsort(weights - scaled, axis=1, kind="stable"), axis=1)
    return np.asarray(weights + each[:, None] + (rank < rest[:, None]))


def rounding_mix(grid: Grid, degree: int, n_outputs: int, epsilon: float, p: float) -> float:
    """Return the share of uniform that pays for rounding the control rows of a spline to integers.

    An error of e in every weight moves a slope's control value by 2me/h along each axis and the value itself by e.
    Uniform rows, 2^b in every weight, have no slopes; a share of them adds ε·share·2^b to what the cone allows.
    """
    # Floor and largest remainder are off by one, floating point by a few of its units; twice that is plenty.
    error = 4 + 16 * (n_outputs << fineness(n_outputs)) * 2.0**-52
    shortest = min(float(np.diff(points).min()) for points in grid.breakpoints)
    q = dual_exponent(p)
    axes = 1.0 if math.isinf(q) else grid.n_axes ** (1 / q)
    return error * (axes * 2 * degree / (shortest * epsilon) + 1) / 2.0 ** fineness(n_outputs)
