"""ℓ_p distances, norms and dual exponents."""

from __future__ import annotations

import math

import numpy as np
from scipy.spatial.distance import cdist

from metricdp._rounding import product_above
from metricdp._validation import FloatArray

__all__ = ["dual_exponent", "largest_ratio", "norm", "norm_above", "pairwise_distances"]

# `norm` errs by a few roundings.
_ROUNDED_UP = 1 + 1e-14


def dual_exponent(p: float) -> float:
    """Return q with 1/p + 1/q = 1.

    Examples
    --------
    >>> dual_exponent(2), dual_exponent(1), dual_exponent(float("inf"))
    (2.0, inf, 1.0)
    """
    if p == 1:
        return math.inf
    return 1.0 if math.isinf(p) else p / (p - 1)


def largest_ratio(p: float, q: float, n_axes: int) -> float:
    """Return the largest ‖v‖_p / ‖v‖_q, N^max(0, 1/p − 1/q), not rounded below it.

    Examples
    --------
    >>> largest_ratio(2, 2, 2), largest_ratio(float("inf"), 2, 2), round(largest_ratio(1, 2, 2), 12)
    (1.0, 1.0, 1.414213562373)
    """
    exponent = 1 / p - 1 / q
    return 1.0 if exponent <= 0 else n_axes**exponent * (1 + 1e-15)


def norm(vectors: FloatArray, p: float, axis: int = -1) -> FloatArray:
    """Return the ℓ_p norm along `axis`, for any p in [1, ∞].

    Dividing by the largest entry first keeps large p from under- or overflowing.
    """
    size = np.abs(vectors)
    largest = size.max(axis=axis, keepdims=True)
    if math.isinf(p):
        return np.asarray(largest.squeeze(axis))
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray((scale * ((size / scale) ** p).sum(axis=axis, keepdims=True) ** (1 / p)).squeeze(axis))


def norm_above(vectors: FloatArray, p: float) -> FloatArray:
    """Return numbers that are at least the ℓ_p norms along the last axis; 0 for zeros only.

    Examples
    --------
    >>> norm_above(np.array([[0.0, 0.0], [5e-324, 5e-324]]), 2).tolist()
    [0.0, 1e-323]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return product_above(norm(vectors, p), _ROUNDED_UP)


def pairwise_distances(left: FloatArray, right: FloatArray, p: float) -> FloatArray:
    """Return d_p between every row of `left` and every row of `right`."""
    if p == 1:
        return cdist(left, right, "cityblock")
    if p == 2:
        return cdist(left, right, "euclidean")
    if math.isinf(p):
        return cdist(left, right, "chebyshev")
    # As in `norm`, and for the same reason; an axis at a time, so that nothing larger than the answer is held.
    largest = cdist(left, right, "chebyshev")
    scale = np.where(largest > 0, largest, 1.0)
    total = np.zeros_like(largest)
    for axis in range(left.shape[1]):
        total += (np.abs(left[:, axis, None] - right[None, :, axis]) / scale) ** p
    return np.asarray(scale * total ** (1 / p))
