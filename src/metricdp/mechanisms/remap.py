"""Post-processing by a table of labels: what is drawn is replaced by what is reported."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from metricdp._validation import reject

__all__ = ["checked_labels", "merge_columns"]


def merge_columns(labels: NDArray[np.intp], n_outputs: int) -> sparse.csr_array:
    """Return the (draws, outputs) matrix that sums columns by label.

    Examples
    --------
    >>> merge_columns(np.array([1, 1, 0]), 2).toarray().tolist()
    [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    """
    ones = np.ones(len(labels))
    return sparse.csr_array((ones, (np.arange(len(labels)), labels)), shape=(len(labels), n_outputs))


def checked_labels(labels: ArrayLike, n_axes: int, n_outputs: int) -> NDArray[np.intp]:
    """Return labels, an array of `n_axes` axes, as indices of outputs."""
    given = np.asarray(labels)
    whole = np.issubdtype(given.dtype, np.integer)
    if given.ndim != n_axes or not whole or given.size == 0:
        rule = f"a non-empty array of whole numbers with {n_axes} axes"
        raise reject("labels", rule, f"{given.dtype} of shape {given.shape}")
    if given.min() < 0 or given.max() >= n_outputs:
        raise reject("labels", f"from 0 to {n_outputs - 1}", f"{given.min()} to {given.max()}")
    return given.astype(np.intp)
