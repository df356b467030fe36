"""Counterexample for cellwise mechanisms: two points very close to each other on the two sides of a cell border."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.certificates.claims import Finding, proved
from metricdp.geometry.norms import norm
from metricdp.mechanisms.gridded.mechanism import Cellwise

__all__ = ["prove"]

# How far apart the points shown are, as a share of the smallest cell side. The ratio grows without bound as it shrinks;
# this is small enough to show a violation and large enough to compute with.
_APART = 1e-6

# Taken as the size of a jump that is smaller than the rounding of the logarithms.
_LEAST_JUMP = 5e-324


def prove(mechanism: Cellwise) -> Finding:
    """Show that a jump of |ln z_k| between cells that touch breaks mDP, unless there is none anywhere.

    Cells that share a corner, diagonal ones too, hold points that are arbitrarily close to each other, so any
    difference between their rows is an unbounded ratio.
    """
    logs = _logs(mechanism.table)
    jump, checked = 0.0, 0
    where: tuple[NDArray[np.intp], NDArray[np.intp], int] | None = None
    for lower, upper, first, second in _touching(mechanism):
        # Whether rows differ is decided by their numbers: logarithms of different numbers may round to the same.
        differ = mechanism.table[first] != mechanism.table[second]
        size = np.where(differ, np.maximum(_gap(logs[first], logs[second]), _LEAST_JUMP), 0.0)
        checked += size.size
        pair, output = np.unravel_index(int(size.argmax()), size.shape)
        if size[pair, output] > jump:
            jump, where = float(size[pair, output]), (lower[pair], upper[pair], int(output))
    if where is None:
        claim = proved(mechanism, "All cells have the same row. Assumed: the random bits are uniform.")
        return Finding(holds=True, claim=claim, worst_ratio=0.0, worst_where={}, checked=checked)
    ratio, found = _across(mechanism, *where)
    claim = (
        f"Not ({mechanism.epsilon}, d_{mechanism.p:g})-mDP: rows jump at cell borders, and the pair shown "
        "lies on the two sides of one. Only cell centres were optimised against each other."
    )
    return Finding(holds=False, claim=claim, worst_ratio=ratio, worst_where=found, checked=checked)


def _logs(rows: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):  # ln 0 = −∞ is meant
        return np.asarray(np.log(rows))


def _gap(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return |left − right|, with no gap between two impossible reports."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(left == right, 0.0, np.abs(left - right)))


def _touching(
    mechanism: Cellwise,
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
    """Yield all pairs of cells that share a corner: their places on the grid and their numbers."""
    shape = mechanism.grid.cells
    places = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
    for offset in itertools.product((-1, 0, 1), repeat=len(shape)):
        if offset <= (0,) * len(shape):
            continue  # each pair once
        other = places + np.array(offset)
        there = ((other >= 0) & (other < np.array(shape))).all(axis=1)
        if there.any():
            first, second = np.flatnonzero(there), np.ravel_multi_index(tuple(other[there].T), shape)
            yield places[there], other[there], first, np.asarray(second)


def _across(
    mechanism: Cellwise, here: NDArray[np.intp], there: NDArray[np.intp], output: int
) -> tuple[float, dict[str, Any]]:
    """Return the ratio of two points of two touching cells, from their actual probabilities."""
    pair = np.empty((2, len(here)))
    apart = _APART * min(float(np.diff(edges).min()) for edges in mechanism.grid.breakpoints)
    for axis, edges in enumerate(mechanism.grid.breakpoints):
        if here[axis] == there[axis]:
            pair[:, axis] = (edges[here[axis]] + edges[here[axis] + 1]) / 2
        else:
            # A border belongs to the upper cell.
            border = edges[max(here[axis], there[axis])]
            pair[int(here[axis] > there[axis]), axis] = border - apart
            pair[int(here[axis] < there[axis]), axis] = border
    logs = _logs(mechanism.probabilities(pair)[:, output])
    distance = float(norm(pair[1] - pair[0], mechanism.p))
    # Cells narrower than floating point can halve hold the same number on both sides.
    ratio = float(_gap(logs[0], logs[1])) / (float(mechanism.plane_epsilon) * distance) if distance else np.inf
    return ratio, {"points": pair.tolist(), "output": output, "distance": distance}
