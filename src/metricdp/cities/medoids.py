"""Choosing K of many candidates so that every record has one that costs little (k-medoids)."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from metricdp._validation import FloatArray
from metricdp.cities._checks import IntArray

__all__ = ["medoids"]

MOST_SWAPS = 1000


def medoids(cost: FloatArray, weight: FloatArray, k: int) -> IntArray:
    """Return k columns of `cost` that make Σ_i weight_i · min_k cost[i, k] small.

    Greedy start, then the best single swap again and again until none helps (PAM, in the formulation of
    Schubert and Rousseeuw, 2019). Deterministic.

    Parameters
    ----------
    cost : (s, c) array
        What each candidate costs each record.
    weight : (s,) array
        How much each record counts.
    k : int
        How many to choose, at most c.

    Examples
    --------
    >>> place = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    >>> sorted(medoids(abs(place[:, None] - place), np.ones(6), 2).tolist())
    [1, 4]
    """
    chosen = _greedy(cost, weight, k)
    for _ in range(MOST_SWAPS):
        change = _swap_changes(cost, weight, chosen)
        slot, candidate = np.unravel_index(int(change.argmin()), change.shape)
        # A change of the size of rounding could swap back and forth for ever.
        if change[slot, candidate] >= -1e-12 * float(weight @ cost.max(axis=1)):
            break
        chosen[slot] = candidate
    return chosen


def _greedy(cost: FloatArray, weight: FloatArray, k: int) -> IntArray:
    chosen = np.empty(k, dtype=np.int64)
    best = np.full(len(cost), np.inf)
    for slot in range(k):
        total = weight @ np.minimum(cost, best[:, None])
        total[chosen[:slot]] = np.inf
        chosen[slot] = total.argmin()
        best = np.minimum(best, cost[:, chosen[slot]])
    return chosen


def _swap_changes(cost: FloatArray, weight: FloatArray, chosen: IntArray) -> FloatArray:
    """Return (k, c): how the total changes when medoid k makes room for candidate c."""
    own = cost[:, chosen]
    nearest = own.argmin(axis=1)
    rows = np.arange(len(cost))
    first = own[rows, nearest]
    own[rows, nearest] = np.inf
    second = own.min(axis=1) if len(chosen) > 1 else np.full(len(cost), np.inf)
    gain = np.minimum(cost - first[:, None], 0)
    # Only records that lose their own medoid can end up worse off, with the candidate or their second best.
    loss = np.minimum(cost, second[:, None]) - first[:, None] - gain
    member = csr_array((weight, (nearest, rows)), shape=(len(chosen), len(cost)))
    return np.asarray(member @ loss + weight @ gain)
