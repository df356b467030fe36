"""The lattice to which points are rounded: multiples of one power of two, fine against the box."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, reject

__all__ = ["LARGEST_MULTIPLE", "coarsest_step", "lattice_step", "snap", "snap_inside", "to_integers"]

# About a millimetre where the unit is a kilometre.
_COARSEST_EXPONENT = -20

# A small box has at least this many binary digits along its shortest side.
_DIGITS = 20

# Multiples below this stay exact as floats and as 64-bit integers, with digits to spare for differences and halves.
LARGEST_MULTIPLE = 2.0**51


def lattice_step(bounds: FloatArray) -> float:
    """Return the spacing of the lattice for a (2, N) box: a power of two, at most 2^-20 of the unit.

    Examples
    --------
    >>> lattice_step(np.array([[0.0, 0.0], [30.0, 40.0]])) == 2.0**-20
    True
    >>> lattice_step(np.array([[0.0], [0.25]])) == 2.0**-22
    True
    """
    sides = bounds[1] - bounds[0]
    if not (np.isfinite(bounds).all() and (sides > 0).all()):
        raise reject("bounds", "a finite lower corner below a finite upper corner", bounds.tolist())
    # frexp gives 2^(exponent − 1) ≤ side < 2^exponent, without the rounding of a logarithm.
    exponent = min(_COARSEST_EXPONENT, math.frexp(float(sides.min()))[1] - 1 - _DIGITS)
    step = math.ldexp(1.0, exponent)
    farthest = float(np.abs(bounds).max())
    # The product is exact or underflows to where it cannot exceed; the quotient could overflow.
    if step == 0.0 or farthest >= LARGEST_MULTIPLE * step:
        rule = f"within 2^51 lattice steps of 2^{exponent} from the origin (shift the origin or rescale an axis)"
        raise reject("bounds", rule, bounds.tolist())
    return step


def coarsest_step(bounds: FloatArray) -> float:
    """Return the largest spacing that a lattice over a (2, N) box may have, for mechanisms from anywhere.

    Rounding to the lattice moves points, and a guarantee between lattice points says nothing of points that share one.
    So the spacing must be negligible: at most 2^-20 of the unit, and 2^-20 of the shortest side. (The box of a
    mechanism is that of its problem moved to the lattice, so its sides may have lost a few steps.)

    Examples
    --------
    >>> coarsest_step(np.array([[0.0, 0.0], [30.0, 40.0]])) == 2.0**-20
    True
    """
    shortest = float((bounds[1] - bounds[0]).min())
    return min(math.ldexp(1.0, _COARSEST_EXPONENT), math.ldexp(shortest * (1 + 2.0**-18), -_DIGITS))


def snap(points: FloatArray, step: float) -> FloatArray:
    """Return the nearest multiples of `step`, a power of two, so that dividing and multiplying by it are exact.

    Examples
    --------
    >>> snap(np.array([0.3, 0.8]), 0.5).tolist()
    [0.5, 1.0]
    """
    return np.asarray(np.rint(points / step) * step)


def snap_inside(points: FloatArray, bounds: FloatArray, step: float) -> FloatArray:
    """Return the nearest lattice points that lie in the box.

    The outermost multiples inside the box take the place of its edges, which need not be multiples: two different
    answers are then always at least `step` apart.

    Examples
    --------
    >>> snap_inside(np.array([[0.1], [0.9], [7.0]]), np.array([[0.3], [0.9]]), 0.25).ravel().tolist()
    [0.5, 0.75, 0.75]
    """
    return np.clip(snap(points, step), np.ceil(bounds[0] / step) * step, np.floor(bounds[1] / step) * step)


def to_integers(points: FloatArray, step: float) -> NDArray[np.int64]:
    """Return the multiples of `step` nearest to the points, as integers.

    Examples
    --------
    >>> to_integers(np.array([-1.5, 0.3]), 0.5).tolist()
    [-3, 1]
    """
    return np.rint(points / step).astype(np.int64)
