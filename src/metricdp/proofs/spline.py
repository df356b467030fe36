"""Proof for spline mechanisms: the gradient's control values lie in the cone at every site of every cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from metricdp._validation import FloatArray
from metricdp.mechanisms.spline import Spline
from metricdp.metric import dual_exponent, norm
from metricdp.proofs.base import ROUNDING_SHARE, ROUNDOFF, Finding, examine
from metricdp.proofs.search import steepest_pair

__all__: list[str] = []

# Row sums may be off by rounding; what that adds to slopes is charged to the share of ε kept back.
_SUM_ERROR = 1e-12


@examine.register
def _spline(mechanism: Spline) -> Finding:
    """Check ‖g‖_q ≤ ε b at every site of every cell, with the rounding of g and b counted against it."""
    table = mechanism.table
    size, value = _gradient_bounds(mechanism)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(value > 0, size / (mechanism.epsilon * value), np.inf)
    site, output = np.unravel_index(int(ratio.argmax()), ratio.shape)
    worst = float(ratio[site, output])
    where = {"points": [_site_place(mechanism, int(site)).tolist()], "output": int(output)}
    statement = f"({mechanism.epsilon}, d_{mechanism.p:g})-mDP"
    sums_to_one = float(np.abs(table.sum(axis=1) - 1).max()) <= _SUM_ERROR
    if worst <= 1 - ROUNDING_SHARE and sums_to_one and bool((table > 0).all()):
        claim = (
            f"{statement} on the whole box: at each of {ratio.shape[0]:,} control sites, for every output, the control "
            f"values of the gradient are at most {worst:.6g} of epsilon times the control value, rounding included. "
            "Probabilities are computed in floating point; pairs of points closer than "
            f"{_resolution(mechanism):.2g} are not claimed."
        )
        return Finding(holds=True, claim=claim, worst_ratio=worst, worst_where=where, checked=ratio.size)
    low, high = mechanism.bounds
    side = min(float(np.diff(points).min()) for points in mechanism.grid.breakpoints)
    spread = np.random.default_rng(0).uniform(low, high, size=(20_000, len(low)))
    # Whatever is wrong is wrong near the worst site.
    near = _site_place(mechanism, int(site)) + side * np.random.default_rng(1).normal(size=(2_000, len(low)))
    found, pair, tried = steepest_pair(mechanism, np.clip(np.concatenate([spread, near]), low, high), 1e-4 * side)
    claim = f"Not proved to be {statement}: the gradient's control values reach {worst:.6g} of epsilon"
    claim += "; the pair shown violates it." if found > 1 else "; no violating pair was found either."
    if found > 1:
        worst, where = found, pair
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=ratio.size + tried)


def _gradient_bounds(mechanism: Spline) -> tuple[FloatArray, FloatArray]:
    """Return an upper bound of ‖g‖_q and a lower bound of b at every (site, output)."""
    table = mechanism.table
    value_operator, *slope_operators = mechanism.spline.site_operators()
    # Each slope is a sum of at most four products; its rounding error is a few units of the sum of sizes.
    slopes = [np.abs(slope @ table) + 16 * ROUNDOFF * (abs(slope) @ np.abs(table)) for slope in slope_operators]
    size = norm(np.stack(slopes, axis=-1), dual_exponent(mechanism.p)) * (1 + 16 * ROUNDOFF)
    return size, np.asarray(value_operator @ table) * (1 - 4 * ROUNDOFF)


def _resolution(mechanism: Spline) -> float:
    """Return the distance beyond which rounding cannot break the claim.

    All terms of a probability are non-negative, so its relative error counts the roundings of weights and sums.
    """
    n_axes = mechanism.grid.n_axes
    operations = (mechanism.degree + 1) ** n_axes + 8 * n_axes * mechanism.degree + 8
    return float(4 * ROUNDOFF * operations / (mechanism.epsilon * ROUNDING_SHARE))


def _site_place(mechanism: Spline, site: int) -> FloatArray:
    """Return where a site of a cell lies: control sites divide each side of a cell evenly."""
    m = mechanism.degree
    shape = tuple(axis.n_cells * (m + 1) for axis in mechanism.spline.axes)
    place: list[Any] = []
    for number, points in zip(np.unravel_index(site, shape), mechanism.grid.breakpoints, strict=True):
        cell, a = divmod(int(number), m + 1)
        place.append(points[cell] + (points[cell + 1] - points[cell]) * a / m)
    return np.array(place)
