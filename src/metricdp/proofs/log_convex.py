"""Proof for log-convex mechanisms: slopes between neighbouring anchors bound the slope everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricdp._validation import FloatArray
from metricdp.mechanisms.log_convex import LogConvex
from metricdp.metric import dual_exponent, norm
from metricdp.proofs.base import ROUNDING_SHARE, ROUNDOFF, Finding, examine
from metricdp.proofs.search import steepest_pair

__all__: list[str] = []


@examine.register
def _log_convex(mechanism: LogConvex) -> Finding:
    """Check Theorem 2 and Proposition 3: 2 ‖s‖_q ≤ ε, s_ℓ the steepest ℓ-neighbour slope of the log table.

    The table holds the numbers that `probabilities` uses, so no tolerance is needed; only the rounding of the
    rows computed from it is charged, as a share of ε.
    """
    slopes, where, checked = _steepest_slopes(mechanism)
    ratio = 2 * float(norm(slopes, dual_exponent(mechanism.p))) / mechanism.epsilon
    if ratio <= 1 - ROUNDING_SHARE:
        resolution = _log_convex_resolution(mechanism)
        claim = (
            f"({mechanism.epsilon}, d_{mechanism.p:g})-mDP on the whole box: twice the steepest slopes "
            f"between neighbouring anchors compose to {ratio:.6g} of epsilon (Theorem 2, Proposition 3). "
            "Probabilities are computed in floating point; pairs of points closer than "
            f"{resolution:.2g} are not claimed."
        )
        return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where=where, checked=checked)
    worst, where, tried = _steepest_interpolant(mechanism)
    claim = f"Not proved to be ({mechanism.epsilon}, d_{mechanism.p:g})-mDP"
    claim += "; the pair shown violates it." if worst > 1 else "; no violating pair was found either."
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=checked + tried)


def _steepest_slopes(mechanism: LogConvex) -> tuple[FloatArray, dict[str, Any], int]:
    grid, logs = mechanism.grid, mechanism.log_table
    slopes = np.empty(grid.n_axes)
    checked = 0
    where: dict[str, Any] = {}
    for axis in range(grid.n_axes):
        lower, upper, distance = grid.neighbours(axis)
        slope = np.abs(logs[upper] - logs[lower]) / distance[:, None]
        pair, output = np.unravel_index(int(slope.argmax()), slope.shape)
        slopes[axis] = slope[pair, output]
        checked += slope.size
        if slopes[axis] == slopes[: axis + 1].max():
            ends = [grid.anchors[lower[pair]].tolist(), grid.anchors[upper[pair]].tolist()]
            where = {"points": ends, "output": int(output)}
    # |difference| / distance is off by at most three roundings.
    return slopes * (1 + 4 * ROUNDOFF), where, checked


def _log_convex_resolution(mechanism: LogConvex) -> float:
    """Return the distance beyond which rounding cannot break the claim.

    A computed probability is off by a factor e^{±u} at most: u counts the roundings of the weights, of the
    sum of 2^N terms of size ≤ max |ln Z|, of exp and of the normalising sum. A pair at distance d is then
    off by 2u at most, and ε · d · share pays for it from d = 2u / (ε · share) on.
    """
    n_axes, n_outputs = mechanism.grid.n_axes, mechanism.n_outputs
    largest = float(np.abs(mechanism.log_table).max())
    operations = 2**n_axes + 4 * n_axes + 2
    u = ROUNDOFF * (2 * operations * largest + n_outputs + 8)
    return 2 * u / (mechanism.epsilon * ROUNDING_SHARE)


def _steepest_interpolant(mechanism: LogConvex, samples: int = 20_000) -> tuple[float, dict[str, Any], int]:
    """Look for the largest ‖∇ ln z_k‖_q / ε, near cell corners and at random; return a pair that shows it."""
    grid = mechanism.grid
    low, high = grid.bounds
    spread = np.random.default_rng(0).uniform(low, high, size=(samples, grid.n_axes))
    side = min(float(np.diff(points).min()) for points in grid.breakpoints)
    # A hair inside the cells, on every side of each anchor, where slopes are extreme.
    corners = grid.anchors[:, None, :] + 1e-3 * side * _signs(grid.n_axes)[None, :, :]
    points = np.clip(np.concatenate([spread, corners.reshape(-1, grid.n_axes)]), low, high)
    return steepest_pair(mechanism, points, 1e-4 * side)


def _signs(n_axes: int) -> FloatArray:
    return np.stack(np.meshgrid(*[[-1.0, 1.0]] * n_axes, indexing="ij"), axis=-1).reshape(-1, n_axes)
