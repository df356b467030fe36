"""The paper's measure of privacy: log-likelihood ratios per distance between all pairs of sampled places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.geometry.norms import pairwise_distances

__all__ = ["BIN_EDGES", "PUBLISHED_SLACK", "PairRatios", "compare_all_pairs"]

# What the public code adds to the allowed probability before it counts a violation.
PUBLISHED_SLACK = 0.01

# Histogram of PPR / ε; the last bin is open.
BIN_EDGES = np.linspace(0.0, 2.0, 101)


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
    """Compare the rows z(x) of all pairs of points (the paper's Eq. PPR); pairs of equal points are left out.

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
    for block in chunks(n, n * n_outputs):
        later = np.arange(n) > np.arange(n)[block, None]
        allowed = epsilon * pairwise_distances(points[block], points, p)
        here, there = np.nonzero(later & (allowed > 0))
        room = allowed[here, there][:, None]
        # An output that is impossible from both places does not change; from exactly one, it changes infinitely.
        with np.errstate(invalid="ignore"):
            change = np.abs(logs[block.start + here] - logs[there])
        change[np.isnan(change)] = 0.0
        low, high = _ordered(rows[block.start + here], rows[there])
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = high > np.nan_to_num(np.exp(room) * low, nan=0.0) + PUBLISHED_SLACK
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
