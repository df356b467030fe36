"""From control rows in floating point to a sparse integer table: tails of small probabilities become one floor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import sparse

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.mechanisms.spline.slopes import Integers, Slopes, Window, windows
from metricdp.mechanisms.spline.sparse_table import MOST_SPARSE_OUTPUTS, SUM_BITS, SparseTable

__all__ = ["SPARSE_FROM", "SPARSE_SHARE", "is_sparse", "thinned"]

# Dense tables of more weights than this, 32 MB of them, are thinned.
SPARSE_FROM = 2**22

# This probability, shared by all outputs, is taken off the weights of every row; what is left of them, if anything, is
# stored. Probabilities fall exponentially with distance, so half of it stores a few entries more, and all of it is far
# below what a loss can see.
_TAKEN_OFF = 4e-6

# Extras keep so many binary digits; zeros below them are what compression can use. The slopes that this disturbs, and
# those that the different sums of thinned rows disturb, are paid for by the share of ε that designs leave unspent.
_DIGITS = 24
SPARSE_SHARE = 2e-5


def is_sparse(n_sites: int, n_outputs: int) -> bool:
    """Return whether a table of so many sites and outputs is thinned."""
    return n_sites * n_outputs > SPARSE_FROM and n_outputs <= MOST_SPARSE_OUTPUTS


def thinned(
    extraction: sparse.csr_array,
    coefficients: FloatArray,
    breakpoints: Sequence[Integers],
    degree: int,
    limits: FloatArray,
    p: float,
) -> SparseTable:
    """Return integer control rows near those of B-spline coefficients, inside their cones.

    Parameters
    ----------
    extraction : (sites, coefficients)
        From coefficients to control rows.
    coefficients : (coefficients, outputs)
        Their rows are non-negative and sum to 1, and lie inside cones of (1 − SPARSE_SHARE)·ε.
    breakpoints : per axis
        Borders of the cells, in lattice steps.
    degree : int
        Of the spline.
    limits : (n_1, …, n_N)
        ε of each cell, per lattice step.
    p : float
        Order of the norm.
    """
    n_outputs = coefficients.shape[1]
    parts = [_thin(np.asarray(extraction[part] @ coefficients)) for part in chunks(extraction.shape[0], n_outputs)]
    counts, columns, extras = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    rough = SparseTable(n_outputs, 1, counts, columns, extras)
    floor = max(
        (
            _floor_for(window, degree, window.cells.of_sites(limits), p)
            for window in windows(rough, breakpoints, degree)
        ),
        default=1,
    )
    return SparseTable(n_outputs, max(1, floor), counts, columns, extras)


def _thin(rows: FloatArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, columns and extras of some control rows."""
    likely = np.maximum(rows / rows.sum(axis=1, keepdims=True) - _TAKEN_OFF / rows.shape[1], 0.0)
    scaled = likely * (2.0**SUM_BITS / likely.sum(axis=1, keepdims=True))
    extras = _rounded(scaled)
    # What rounding took from a row goes to its largest extra.
    largest = extras.argmax(axis=1)
    extras[np.arange(len(extras)), largest] += (1 << SUM_BITS) - extras.sum(axis=1)
    present = extras > 0
    return (
        present.sum(axis=1).astype(np.uint16),
        np.nonzero(present)[1].astype(np.uint16),
        extras[present],
    )


def _rounded(numbers: FloatArray) -> Integers:
    """Round to whole numbers of at most `_DIGITS` binary digits."""
    unit = np.exp2(np.maximum(np.frexp(numbers)[1] - _DIGITS, 0))
    return np.asarray(np.rint(numbers / unit) * unit).astype(np.int64)


def _floor_for(window: Window, degree: int, limits: FloatArray, p: float) -> int:
    """Return the least floor f with ‖g‖_q ≤ ε (f + e) at every site, and a little more for rounding."""
    slopes = Slopes.of(window.breakpoints, degree, window.extras)
    needed = slopes.sizes(p) / limits[:, None] - slopes.values
    # Floats of sizes up to 2^50 are off by less than one for each of a few dozen roundings.
    return math.ceil(float(needed.max()) + 64)
