"""Pairs of inputs and their constraints, for the optimal mechanism on finitely many inputs (Bordenabe et al. 2014)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from metricdp._validation import FloatArray

__all__ = [
    "LEAST_COEFFICIENT",
    "NO_PAIRS",
    "START_NEIGHBOURS",
    "Indices",
    "Pairs",
    "every_output",
    "nearest_pairs",
    "pair_inequalities",
]

Pairs = NDArray[np.intp]
Indices = NDArray[np.intp]

# HiGHS takes a coefficient below 1e-9 as zero (its `small_matrix_value`) and says so with a warning. A pair
# this far apart allows a factor of 1e8, so leaving it out costs at most 1e-8 in probability, which the
# repair mends.
LEAST_COEFFICIENT = 1e-8

# Enough that few rounds follow and few enough that the first is quick.
START_NEIGHBOURS = 8

NO_PAIRS = np.empty((0, 2), dtype=np.intp)


def nearest_pairs(points: FloatArray, p: float, neighbours: int) -> Pairs:
    """Return the ordered pairs (i, j), both ways, of each point and its `neighbours` nearest ones."""
    count = min(neighbours + 1, len(points))
    if count < 2:
        return NO_PAIRS
    _, near = cKDTree(points).query(points, k=count, p=p)
    first = np.repeat(np.arange(len(points)), count)
    pairs = np.column_stack([first, np.asarray(near).ravel()])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def every_output(pairs: Pairs, n_outputs: int) -> tuple[Pairs, Indices]:
    """Return each pair once for every output: repeated pairs, and their outputs."""
    return np.repeat(pairs, n_outputs, axis=0), np.tile(np.arange(n_outputs), len(pairs))


def pair_inequalities(pairs: Pairs, outputs: Indices, shrink: FloatArray, shape: tuple[int, int]) -> sparse.csr_array:
    """Return shrink · Z_ik − Z_jk ≤ 0 as rows of G, one for each ordered pair (i, j) with its output k.

    With shrink = e^{−ε d_ij} it is Z_ik ≤ e^{ε d_ij} Z_jk, divided so that entries stay within [−1, 1].
    """
    n_rows, n_outputs = shape
    count = len(pairs)
    ends = np.arange(0, 2 * count + 1, 2)
    values = np.column_stack([shrink, np.full(count, -1.0)]).ravel()
    columns = (pairs * n_outputs + outputs[:, None]).ravel()
    return sparse.csr_array((values, columns, ends), shape=(count, n_rows * n_outputs))
