"""The paper's measure of privacy: log-likelihood ratios per distance between all pairs of sampled places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._validation import FloatArray
from metricdp.geometry.norms import pairwise_distances

__all__ = ["SLACK", "PairRatios", "compare_all_pairs"]

# What the public code adds, in probability, before it counts a violation.
SLACK = 0.01

# Histogram of PPR / ε; the last bin is open.
BIN_EDGES = np.linspace(0.0, 2.0, 101)

# Numbers held at once: 16 MB, of which a few copies live together.
_CHUNK_NUMBERS = 2**21


@dataclass(frozen=True, kw_only=True)
class PairRatios:
    """What all pairs of some places show.

    compared : (pair, output) comparisons, each pair of different places once.
    violations : of those, |ln z_k(x) − ln z_k(x')| > ε d_p(x, x'), with no tolerance.
    slack_violations : of those, z_k(x) > e^{ε d_p} z_k(x') + 0.01 either way round, as in the public code.
    largest : the largest PPR / ε.
    counts : histogram of PPR / ε, by `BIN_EDGES`.
    """

    compared: int
    violations: int
    slack_violations: int
    largest: float
    counts: list[int]


def compare_all_pairs(rows: FloatArray, points: FloatArray, epsilon: float, p: float) -> PairRatios:
    """Compare the rows z(x) of all pairs of points (the paper's Eq. PPR); equal points say nothing.

    Examples
    --------
    >>> rows = np.array([[0.5, 0.5], [0.9, 0.1]])
    >>> found = compare_all_pairs(rows, np.array([[0.0], [1.0]]), epsilon=1.0, p=2)
    >>> found.compared, found.violations, found.slack_violations
    (2, 1, 1)
    """
    n, n_outputs = rows.shape
    with np.errstate(divide="ignore"):
        logs = np.log(rows)
    totals = np.zeros(3, dtype=np.int64)
    counts = np.zeros(len(BIN_EDGES), dtype=np.int64)
    largest = 0.0
    step = max(1, _CHUNK_NUMBERS // (n * n_outputs))
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        later = np.arange(n) > np.arange(n)[block, None]
        allowed = epsilon * pairwise_distances(points[block], points, p)
        here, there = np.nonzero(later & (allowed > 0))
        room = allowed[here, there][:, None]
        # Impossible from both places is no change; from exactly one, an infinite one.
        with np.errstate(invalid="ignore"):
            change = np.abs(logs[start + here] - logs[there])
        change[np.isnan(change)] = 0.0
        low, high = _ordered(rows[start + here], rows[there])
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = high > np.nan_to_num(np.exp(room) * low, nan=0.0) + SLACK
        ratio = (change / room).ravel()
        totals += (ratio.size, int((change > room).sum()), int(beyond.sum()))
        counts += np.bincount(np.searchsorted(BIN_EDGES, ratio, side="right") - 1, minlength=len(BIN_EDGES))
        largest = max(largest, float(ratio.max(initial=0.0)))
    return PairRatios(
        compared=int(totals[0]),
        violations=int(totals[1]),
        slack_violations=int(totals[2]),
        largest=largest,
        counts=counts.tolist(),
    )


def _ordered(left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.minimum(left, right), np.maximum(left, right)
