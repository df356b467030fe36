"""Pairs of inputs and their constraints, for the optimal mechanism on finitely many inputs (Bordenabe et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.geometry.norms import norm

__all__ = [
    "LEAST_COEFFICIENT",
    "NO_PAIRS",
    "START_NEIGHBOURS",
    "Indices",
    "Pairs",
    "every_output",
    "nearest_pairs",
    "pair_inequalities",
    "ranked_pairs",
    "spanning_pairs",
]

Pairs = NDArray[np.intp]
Indices = NDArray[np.intp]

# HiGHS takes a coefficient below 1e-9 as zero (its `small_matrix_value`) and says so with a warning. A pair this far
# apart allows a factor of 1e8, so leaving it out violates its constraint by at most 1e-8, which the repair corrects.
LEAST_COEFFICIENT = 1e-8

# Enough that few rounds follow and few enough that the first is quick.
START_NEIGHBOURS = 8

NO_PAIRS = np.empty((0, 2), dtype=np.intp)


def nearest_pairs(points: FloatArray, p: float, neighbours: int) -> Pairs:
    """Return the ordered pairs (i, j), both ways, of each point and its `neighbours` nearest ones."""
    return ranked_pairs(points, p, range(1, neighbours + 1))


def ranked_pairs(points: FloatArray, p: float, ranks: Sequence[int]) -> Pairs:
    """Return the ordered pairs (i, j), both ways, of each point and its neighbours of these ranks, 1 the nearest."""
    wanted = [rank + 1 for rank in ranks if rank < len(points)]
    if not wanted:
        return NO_PAIRS
    # A point is its own nearest, or one of several that coincide with it.
    _, near = cKDTree(points).query(points, k=[1, *wanted], p=p)
    first = np.repeat(np.arange(len(points)), len(wanted) + 1)
    pairs = np.column_stack([first, np.asarray(near).ravel()])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def spanning_pairs(points: FloatArray, p: float, neighbours: int, stretch: float) -> Pairs:
    """Return ordered pairs (i, j), both ways, whose chains join each point to its `neighbours` nearest ones.

    Constraints along a chain imply one for its ends, with the chain's length in place of their distance. So pairs are
    taken from near to far, and one that is joined already by a chain at most 1 + `stretch` times as long is left out.
    """
    count = min(neighbours + 1, len(points))
    chosen = NO_PAIRS
    distances, near = map(np.asarray, cKDTree(points).query(points, k=np.arange(1, count + 1), p=p))
    edge = 1
    while edge < count:
        ranks = slice(edge, min(edge + max(4, edge // 2), count))
        first, lengths = np.repeat(np.arange(len(points)), ranks.stop - ranks.start), distances[:, ranks].ravel()
        candidates = np.column_stack([first, near[:, ranks].ravel()])
        open_ = _chain_lengths(points, p, chosen, candidates, (1 + stretch) * lengths.max()) > (1 + stretch) * lengths
        added = candidates[open_ & (candidates[:, 0] != candidates[:, 1])]
        chosen = np.unique(np.concatenate([chosen, added, added[:, ::-1]]), axis=0)
        edge = ranks.stop
    return chosen


def _chain_lengths(points: FloatArray, p: float, pairs: Pairs, wanted: Pairs, longest: float) -> FloatArray:
    """Return the length of the shortest chain of `pairs` that joins each wanted pair; infinite beyond `longest`."""
    lengths = norm(points[pairs[:, 0]] - points[pairs[:, 1]], p)
    # `dijkstra` of scipy before 1.15 takes 32-bit indices only, and there are never so many points.
    graph: Any = sparse.csr_array((lengths, pairs.T.astype(np.int32)), shape=(len(points), len(points)))
    found = np.empty(len(wanted))
    for part in chunks(len(points), len(points)):
        rows = slice(*np.searchsorted(wanted[:, 0], [part.start, part.stop]))
        paths = dijkstra(graph, indices=np.arange(part.start, part.stop), limit=longest)
        found[rows] = paths[wanted[rows, 0] - part.start, wanted[rows, 1]]
    return found


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
