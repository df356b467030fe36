"""From a solver's answer to a table that satisfies its constraints, with no tolerance."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray
from metricdp.optimise.programs import SharedProgram, TensorProgram

__all__ = ["make_feasible", "make_shared_feasible", "make_tensor_feasible"]

# Every entry stays at least this share of uniform. Entries of 1e-12 are a solver's rounding errors, and their ratios
# are arbitrary. It also keeps logarithms, and so floating-point errors of interpolated rows, small.
_LEAST_MIX = 1e-9

# The violation itself is computed in floating point; a few roundings of numbers below 1.
_ROUNDING = 1e-15


def make_feasible(table: FloatArray, inequality: sparse.csr_array) -> tuple[FloatArray, float]:
    """Clip, renormalise, then mix with uniform until G·vec(Z) ≤ 0 holds; return the table and the mix."""
    rows = _distributions(np.clip(table, 0.0, None))
    return _mix(rows, inequality @ rows.ravel(), -inequality.sum(axis=1) / table.shape[1])


def make_shared_feasible(table: FloatArray, program: SharedProgram) -> tuple[FloatArray, float]:
    """Renormalise, then mix with uniform until every column lies in the cone; return the table and the mix.

    Entries may be negative: of splines only the control rows must not be, and the cones see to that.
    """
    rows = _distributions(table)
    uniform = np.full((len(table), 1), 1 / table.shape[1])
    return _mix(rows, program.excess(rows), -program.excess(uniform))


def make_tensor_feasible(table: FloatArray, program: TensorProgram) -> tuple[FloatArray, float]:
    """Do the same for a table (n_1, …, n_N, outputs) of tensor-product coefficients."""
    rows = _distributions(table.reshape(-1, table.shape[-1])).reshape(table.shape)
    mixed, mix = _mix(rows, np.array(program.worst_excess(rows)), np.array(1 / table.shape[-1]))
    return mixed, mix


def _distributions(table: FloatArray) -> FloatArray:
    sums = table.sum(axis=1, keepdims=True)
    return np.where(sums > 0, table / np.where(sums > 0, sums, 1.0), 1 / table.shape[1])


def _mix(rows: FloatArray, violation: FloatArray, room: FloatArray) -> tuple[FloatArray, float]:
    """Mix with uniform just enough.

    Uniform rows satisfy every constraint with room to spare, so with v the violation of a (convex, homogeneous)
    constraint and m > 0 what uniform leaves of it, η / (1 − η) = max v / m is enough.
    """
    needed = float(np.max((violation + _ROUNDING) / room, initial=0.0))
    mix = max(needed / (1 + needed), _LEAST_MIX)
    return (1 - mix) * rows + mix / rows.shape[-1], mix
