"""From a solver's answer to a table that satisfies its constraints, with no tolerance."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray

__all__ = ["make_feasible"]

# Every entry stays at least this share of uniform: a solver's 1e-12 is noise, and as a ratio it could
# be anything. It also keeps logarithms, and so floating-point errors of interpolated rows, small.
_LEAST_MIX = 1e-9

# The violation itself is computed in floating point; a few roundings of numbers below 1.
_ROUNDING = 1e-15


def make_feasible(table: FloatArray, inequality: sparse.csr_array) -> tuple[FloatArray, float]:
    """Clip, renormalise, then mix with uniform until G·vec(Z) ≤ 0 holds; return the table and the mix.

    Uniform rows satisfy every constraint with room to spare, so with v the violation of a constraint and
    m > 0 what uniform leaves of it, η / (1 − η) = max v / m is enough (and what is needed).
    """
    n_outputs = table.shape[1]
    rows = np.clip(table, 0.0, None)
    sums = rows.sum(axis=1, keepdims=True)
    rows = np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), 1 / n_outputs)
    violation = inequality @ rows.ravel() + _ROUNDING
    room = -inequality.sum(axis=1) / n_outputs
    needed = float(np.max(violation / room, initial=0.0))
    mix = max(needed / (1 + needed), _LEAST_MIX)
    return (1 - mix) * rows + mix / n_outputs, mix
