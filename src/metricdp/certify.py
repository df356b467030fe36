"""Proofs that a mechanism is (ε, d_p)-mDP, from its numbers alone: nothing here knows how it was optimised."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from metricdp._validation import FloatArray
from metricdp.metric import dual_exponent, norm
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.log_convex import LogConvex

__all__ = ["Certificate", "certify"]

# Unit roundoff of float64.
_ROUNDOFF = 2.0**-53

# Share of ε that pays for rounding errors of computed probabilities; see `_log_convex_resolution`.
_ROUNDING_SHARE = 2e-6


@dataclass(frozen=True)
class Certificate:
    """What was proved, or the worst counterexample found.

    holds : whether the claim was proved.
    claim : the statement, with its domain and its assumptions, in words.
    worst_ratio : for a proof, a bound on |ln z_k(x) − ln z_k(x')| / (ε d_p(x, x')) over the whole domain; otherwise
        the worst value found.
    worst_where : where that is: points and output.
    checked : how many comparisons the proof or the search made.
    """

    holds: bool
    epsilon: float
    p: float
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class _Finding:
    holds: bool
    claim: str
    worst_ratio: float
    worst_where: dict[str, Any]
    checked: int


def certify(mechanism: Mechanism) -> Certificate:
    """Prove the mechanism's privacy, or say that it could not be proved and show the worst pair found."""
    started = time.perf_counter()
    found = _examine(mechanism)
    return Certificate(
        holds=found.holds,
        epsilon=mechanism.epsilon,
        p=mechanism.p,
        claim=found.claim,
        worst_ratio=found.worst_ratio,
        worst_where=found.worst_where,
        checked=found.checked,
        seconds=time.perf_counter() - started,
    )


@singledispatch
def _examine(mechanism: Mechanism) -> _Finding:
    msg = f"no proof is known for mechanisms of kind {mechanism.kind!r}"
    raise TypeError(msg)


@_examine.register
def _examine_log_convex(mechanism: LogConvex) -> _Finding:
    """Check Theorem 2 and Proposition 3: 2 ‖s‖_q ≤ ε, with s_ℓ the steepest ℓ-neighbour slope of the log table.

    The table holds the numbers that `probabilities` uses, so no tolerance is needed; only the rounding of the
    rows computed from it is charged, as a share of ε.
    """
    slopes, where, checked = _steepest_slopes(mechanism)
    ratio = 2 * float(norm(slopes, dual_exponent(mechanism.p))) / mechanism.epsilon
    if ratio <= 1 - _ROUNDING_SHARE:
        resolution = _log_convex_resolution(mechanism)
        claim = (
            f"({mechanism.epsilon}, d_{mechanism.p:g})-mDP on the whole box: twice the steepest slopes between "
            f"neighbouring anchors compose to {ratio:.6g} of epsilon (Theorem 2, Proposition 3). Probabilities are computed "
            f"in floating point; pairs of points closer than {resolution:.2g} are not claimed."
        )
        return _Finding(True, claim, ratio, where, checked)
    worst, where, tried = _steepest_interpolant(mechanism)
    claim = f"Not proved to be ({mechanism.epsilon}, d_{mechanism.p:g})-mDP"
    claim += "; the pair shown violates it." if worst > 1 else "; no violating pair was found either."
    return _Finding(False, claim, worst, where, checked + tried)


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
    return slopes * (1 + 4 * _ROUNDOFF), where, checked


def _log_convex_resolution(mechanism: LogConvex) -> float:
    """Return the distance beyond which rounding cannot break the claim.

    A computed probability is off by a factor e^{±u} at most: u counts the roundings of the weights, of the sum of 2^N
    terms of size ≤ max |ln Z|, of exp and of the normalising sum. A pair at distance d is then off by 2u at
    most, and ε · d · share pays for it from d = 2u / (ε · share) on.
    """
    n_axes, n_outputs = mechanism.grid.n_axes, mechanism.n_outputs
    largest = float(np.abs(mechanism.log_table).max())
    operations = 2**n_axes + 4 * n_axes + 2
    u = _ROUNDOFF * (2 * operations * largest + n_outputs + 8)
    return 2 * u / (mechanism.epsilon * _ROUNDING_SHARE)


def _steepest_interpolant(mechanism: LogConvex, samples: int = 20_000) -> tuple[float, dict[str, Any], int]:
    """Look for the largest ‖∇ ln z_k‖_q / ε, near the corners of cells and at random; return a pair that shows it."""
    grid = mechanism.grid
    low, high = grid.bounds
    spread = np.random.default_rng(0).uniform(low, high, size=(samples, grid.n_axes))
    side = min(float(np.diff(points).min()) for points in grid.breakpoints)
    # A hair inside the cells, on every side of each anchor, where slopes are extreme.
    corners = grid.anchors[:, None, :] + 1e-3 * side * _signs(grid.n_axes)[None, :, :]
    points = np.clip(np.concatenate([spread, corners.reshape(-1, grid.n_axes)]), low, high)
    step = 1e-4 * side
    gradient = np.empty((len(points), mechanism.n_outputs, grid.n_axes))
    for axis in range(grid.n_axes):
        move = np.zeros(grid.n_axes)
        move[axis] = step
        ahead, behind = np.minimum(points + move, high), np.maximum(points - move, low)
        change = np.log(mechanism.probabilities(ahead)) - np.log(mechanism.probabilities(behind))
        gradient[:, :, axis] = change / (ahead - behind)[:, [axis]]
    size = norm(gradient, dual_exponent(mechanism.p))
    at, output = np.unravel_index(int(size.argmax()), size.shape)
    pair = _pair_along(points[at], gradient[at, output], mechanism.p, step, grid.bounds)
    logs = np.log(mechanism.probabilities(pair)[:, output])
    distance = float(norm(pair[1] - pair[0], mechanism.p))
    ratio = abs(float(logs[1] - logs[0])) / (mechanism.epsilon * distance)
    return ratio, {"points": pair.tolist(), "output": int(output)}, size.size


def _signs(n_axes: int) -> FloatArray:
    return np.stack(np.meshgrid(*[[-1.0, 1.0]] * n_axes, indexing="ij"), axis=-1).reshape(-1, n_axes)


def _pair_along(point: FloatArray, gradient: FloatArray, p: float, step: float, bounds: FloatArray) -> FloatArray:
    """Return two points around `point` in the direction that Hölder's inequality makes tight for d_p."""
    q = dual_exponent(p)
    if np.isinf(q):
        direction = np.where(np.arange(len(gradient)) == np.abs(gradient).argmax(), np.sign(gradient), 0.0)
    else:
        direction = np.sign(gradient) * np.abs(gradient / np.abs(gradient).max()) ** (q - 1)
    move = step * direction / norm(direction, p)
    return np.clip(np.array([point - move, point + move]), bounds[0], bounds[1])
