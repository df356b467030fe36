"""Proof for log-convex mechanisms: by Theorem 2 and Proposition 3, or by branch and bound within cells."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np

from metricdp._validation import FloatArray
from metricdp.certificates.claims import ROUNDOFF, Finding, float_below, proved, refused
from metricdp.certificates.search import steepest_pair
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.aipo.mechanism import LogConvex
from metricdp.mechanisms.aipo.slope_bound import Steepest, steepest_slope

__all__ = ["cell_slopes", "certified_ratio", "prove"]

# Half-lengths of the pairs tried where a proof fails, in cells.
_HALF_LENGTHS = (0.2, 0.05, 1e-2, 1e-3, 1e-4)

# Shorter pairs, in lattice steps, would show the rounding to the lattice rather than the slope.
_LEAST_STEPS = 64


def prove(mechanism: LogConvex) -> Finding:
    """Check 2‖s‖_q + rounding ≤ ε (Theorem 2, Proposition 3), or else sup ‖∇ ln z_k‖_q + rounding ≤ ε.

    The table holds the numbers that `probabilities` uses, so no tolerance is needed.
    """
    if mechanism.epsilon_map is not None:
        return _prove_by_cells(mechanism)
    slopes, where, checked = _steepest_slopes(mechanism)
    ratio = _with_rounding(mechanism, 2 * float(norm(slopes, dual_exponent(mechanism.p))))
    if ratio <= 1:
        reason = "By Theorem 2 and Proposition 3, twice the steepest slopes between neighbouring anchors compose to"
        claim = _claim(mechanism, ratio, reason)
        return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where=where, checked=checked)
    ratio, steepest = certified_ratio(mechanism)
    checked += steepest.compared
    if ratio <= 1:
        claim = _claim(mechanism, ratio, "A branch and bound within the cells shows that no slope exceeds")
        where = {"points": [steepest.point.tolist()], "output": steepest.output}
        return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where=where, checked=checked)
    worst, where = _worst_pair(mechanism, steepest)
    slope = f"slopes reach {ratio:.6g} of epsilon"
    claim = refused(
        mechanism,
        f"{slope}; the pair shown violates it." if worst > 1 else f"{slope}; no violating pair was found either.",
    )
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=checked)


def _prove_by_cells(mechanism: LogConvex) -> Finding:
    """Check 2‖∇ ln f_k‖_q + rounding ≤ ε at the corners of every cell, with the cell's own ε.

    On a cell each component of ∇ ln f_k is multilinear, so its norm is convex along every axis and largest at a corner.
    """
    assert mechanism.epsilon_map is not None
    grid = mechanism.grid
    slopes = cell_slopes(grid, mechanism.log_table, mechanism.p)
    limits = mechanism.epsilon_map.least_over(grid.breakpoints)
    levels, place = np.unique(limits, return_inverse=True)
    plane = [float_below(Fraction(repr(level)) * mechanism.plane_scale) for level in levels.tolist()]
    allowed = np.array(plane)[place].reshape(limits.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (2 * slopes + mechanism.rounding_cost) / allowed * (1 + 8 * ROUNDOFF)
    ratios = np.where(np.isfinite(ratios), ratios, math.inf)
    worst = np.unravel_index(int(ratios.argmax()), ratios.shape)
    ratio, checked = float(ratios[worst]), slopes.size * 2**grid.n_axes * mechanism.n_outputs
    centre = [(points[i] + points[i + 1]) / 2 for points, i in zip(grid.breakpoints, worst, strict=True)]
    if ratio <= 1:
        reason = "Twice the slopes of the weights' logarithms, largest at the corners of cells, reach at most"
        claim = _claim(mechanism, ratio, reason)
        return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where={"points": [centre]}, checked=checked)
    side = min(float(np.diff(points).min()) for points in grid.breakpoints)
    found, where, tried = steepest_pair(mechanism, np.array([centre]), max(1e-2 * side, _LEAST_STEPS * mechanism.step))
    shown = "the pair shown violates it." if found > 1 else "no violating pair was found either."
    claim = refused(mechanism, f"twice the slopes of weights reach {ratio:.6g} of a cell's own epsilon; {shown}")
    where = where if found > 1 else {"points": [centre]}
    return Finding(holds=False, claim=claim, worst_ratio=max(found, ratio), worst_where=where, checked=checked + tried)


def cell_slopes(grid: Grid, log_table: FloatArray, p: float) -> FloatArray:
    """Return the steepest ‖∇ ln f_k‖_q of each cell, over its corners and all outputs, rounded up."""
    shape = (*grid.anchor_shape, log_table.shape[1])
    logs, n_axes = log_table.reshape(shape), grid.n_axes
    found = np.zeros(grid.cells)
    edges = []
    for axis, points in enumerate(grid.breakpoints):
        sides = np.diff(points).reshape([-1 if other == axis else 1 for other in range(n_axes + 1)])
        edges.append(np.abs(np.diff(logs, axis=axis)) / sides)
    # Along axis ℓ a corner has the slope of the edge that starts or ends there, on its side of the other axes.
    for corner in itertools.product((0, 1), repeat=n_axes):
        parts = []
        for axis, slopes in enumerate(edges):
            view = tuple(
                slice(None) if other == axis else slice(side, side + grid.cells[other])
                for other, side in enumerate(corner)
            )
            parts.append(slopes[view])
        found = np.maximum(found, norm(np.stack(parts), dual_exponent(p), axis=0).max(axis=-1))
    # |difference| / side is off by three roundings at most, their norm by a few dozen.
    return np.asarray(found * (1 + 128 * ROUNDOFF))


def certified_ratio(mechanism: LogConvex) -> tuple[float, Steepest]:
    """Return (sup ‖∇ ln z_k‖_q + what rounding costs) / ε, and how steep the mechanism is.

    At most 1 means proved, and then it is an upper bound, within 0.1 % of the truth. Above 1 it is a slope that is
    reached, or an upper bound if the search gave up.
    """
    target = (float_below(mechanism.plane_epsilon) - mechanism.rounding_cost) * (1 - 8 * ROUNDOFF)
    steepest = steepest_slope(mechanism.grid, mechanism.log_table, mechanism.p, target=target)
    if steepest.lower > target:
        # Never 1 or less, whatever the rounding of a slope that is barely too steep.
        return max(_with_rounding(mechanism, steepest.lower), math.nextafter(1.0, math.inf)), steepest
    return _with_rounding(mechanism, steepest.upper), steepest


def _with_rounding(mechanism: LogConvex, slope: float) -> float:
    """Return (slope + what rounding costs) / ε, rounded up."""
    return (slope + mechanism.rounding_cost) / float_below(mechanism.plane_epsilon) * (1 + 4 * ROUNDOFF)


def _claim(mechanism: LogConvex, ratio: float, reason: str) -> str:
    share = mechanism.rounding_cost / float(mechanism.plane_epsilon)
    own = "epsilon" if mechanism.epsilon_map is None else "the cell's own epsilon"
    return proved(
        mechanism,
        f"Points are first rounded to multiples of 2^{round(math.log2(mechanism.step))}. {reason} {ratio:.6g} of "
        f"{own}, of which {share:.2g} pays for computing probabilities in floating point. Assumed: the random bits "
        "are uniform, and the platform's exp is within four units in the last place.",
    )


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
    # |difference| / distance is off by three roundings at most, their norm by a few dozen.
    return slopes * (1 + 128 * ROUNDOFF), where, checked


def _worst_pair(mechanism: LogConvex, steepest: Steepest) -> tuple[float, dict[str, Any]]:
    """Return the worst ratio of any pair of lattice points tried in the steepest cell, and the pair."""
    low, high = steepest.cell
    side = float((high - low).min())
    worst: tuple[float, dict[str, Any]] = (-1.0, {})
    for length in _HALF_LENGTHS:
        step = max(length * side, _LEAST_STEPS * mechanism.step)
        # Inside the cell, so that differences do not reach across its border, where slopes change.
        inside = np.clip(steepest.point, np.minimum(low + step, high), np.maximum(high - step, low))
        ratio, where, _ = steepest_pair(mechanism, inside[None, :], step)
        if ratio > worst[0]:
            worst = ratio, where
    return worst
