"""Where probabilities become too small for floating point: one floor for every closed-form mechanism."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray

__all__ = ["LEAST_PROBABILITY", "raise_tails"]

# Below e^-708 float64 loses digits, so e^-700 is the least probability whose logarithm is still right.
LEAST_PROBABILITY = math.exp(-700)


def raise_tails(rows: FloatArray, possible: NDArray[np.bool_] | None = None) -> FloatArray:
    """Return max(z, e^-700) for the outputs that are `possible` at all (all of them by default).

    Without it an output could be impossible at one point and possible at the next, because e^-800 is zero in
    floating point. The maximum of two functions whose logarithms are Lipschitz is such a function again, so
    the floor costs no privacy; the sum of a row grows by K · e^-700, far less than its rounding error.
    """
    floor = LEAST_PROBABILITY if possible is None else np.where(possible, LEAST_PROBABILITY, 0.0)
    return np.maximum(rows, floor, out=rows)
