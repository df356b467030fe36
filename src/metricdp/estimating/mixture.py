"""Shares of a mixture whose parts are known: maximum likelihood, how far it is from the best, and what is known of it.

With parts Z_c(y) = Pr[y | cell c] and counts n_y of N reports, the log-likelihood Σ_y n_y ln Σ_c f_c Z_c(y) is concave
in the shares f. The step of expectation maximisation is f_c ← f_c D_c, with D_c = Σ_y n_y Z_c(y) / (N p_y) and
p = Σ f_c Z_c. Since ln is concave, the best log-likelihood exceeds the present one by at most N ln(max D): the
iteration knows how far it has to go, and stops when that is a small part of what chance makes of it.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from metricdp._progress import Tell
from metricdp._validation import FloatArray
from metricdp.errors import InvalidInputError, SolverError

__all__ = ["covariance", "shares"]

# By how much the log-likelihood may still rise. Shares that are off by one standard error lower it by a half.
_GAP = 0.02

# Steps of expectation maximisation, which do where cells are easily told apart, and of Newton's method after them.
_STEPS, _NEWTON_STEPS = 60, 100

# How far a step goes towards the border of the positive shares, and the share of the complementarity that it aims at.
_TO_BORDER, _CENTRING = 0.95, 0.1

# The smallest share of the largest eigenvalue of the information that is told from 0.
_SINGULAR = 1e-13


def shares(rows: FloatArray, counts: FloatArray, tell: Tell) -> tuple[FloatArray, float, int]:
    """Return the shares, by how much the log-likelihood may still rise at most, and the steps taken.

    Steps of expectation maximisation, extrapolated as by Varadhan and Roland (2008) wherever that raises the
    likelihood. Where cells are hard to tell apart it would take many thousands of them; then an interior-point method
    goes on, for the same maximum.
    """
    seen = counts > 0
    parts, weights = np.ascontiguousarray(rows[:, seen]), counts[seen]
    total = float(weights.sum())
    # Thousands of short products: threads would wait for each other for longer than they work.
    with threadpool_limits(1):
        return _iterated(parts, weights, total, tell)


def _iterated(parts: FloatArray, weights: FloatArray, total: float, tell: Tell) -> tuple[FloatArray, float, int]:
    here = np.full(len(parts), 1 / len(parts))
    for step in range(_STEPS):
        first, rise = _step(parts, weights, total, here)
        if total * np.log(rise) <= _GAP:
            return here, float(total * np.log(rise)), step
        second, _ = _step(parts, weights, total, first)
        here = _extrapolated(parts, weights, here, first, second)
        if step % 20 == 0:
            tell(0.4 * step / _STEPS, f"step {step}, the log-likelihood may rise by {total * np.log(rise):.3g}")
    return _newton(parts, weights, total, here, tell)


def _newton(
    parts: FloatArray, weights: FloatArray, total: float, here: FloatArray, tell: Tell
) -> tuple[FloatArray, float, int]:
    """Go on by a primal-dual interior-point method.

    Maximising Σ n_y ln p_y − N Σ f_c over f ≥ 0 gives shares that sum to 1. With slacks s = N − N D ≥ 0, its conditions
    are N D_c − N + s_c = 0 and f_c s_c = 0; the latter becomes f_c s_c = μ, and μ is lowered.
    """
    here = np.maximum(here, 1e-3 / len(here))
    slack = np.full(len(here), 1.0)
    for step in range(_NEWTON_STEPS):
        chance = here @ parts
        gradient = parts @ (weights / chance)
        rise = total * np.log(float(gradient.max()) * here.sum() / total)
        if rise <= _GAP:
            return here / here.sum(), max(rise, 0.0), _STEPS + step
        tell(0.4 + 0.5 * step / _NEWTON_STEPS, f"step {_STEPS + step}, the log-likelihood may rise by {rise:.3g}")
        target = _CENTRING * float(here @ slack) / len(here)
        curvature = (parts * (weights / chance**2)) @ parts.T
        curvature[np.diag_indices(len(here))] += slack / here
        move = linalg.solve(curvature, gradient - total + target / here, assume_a="pos")
        change = (target - here * slack - slack * move) / here
        here, slack = _moved(here, move), _moved(slack, change)
    msg = "The shares did not converge; the cells are too small to be told apart by these reports. Take larger ones."
    raise SolverError(msg)


def _moved(positive: FloatArray, move: FloatArray) -> FloatArray:
    """Return positive numbers moved, as far as they stay positive."""
    shrink = np.where(move < 0, -positive / np.minimum(move, -1e-300), np.inf)
    return positive + min(1.0, _TO_BORDER * float(shrink.min())) * move


def _step(parts: FloatArray, weights: FloatArray, total: float, here: FloatArray) -> tuple[FloatArray, float]:
    """Return the next shares, and the largest D, whose logarithm bounds how far the likelihood may rise."""
    factor = parts @ (weights / (here @ parts)) / total
    new = here * factor
    return new / new.sum(), float(factor.max())


def _extrapolated(
    parts: FloatArray, weights: FloatArray, here: FloatArray, first: FloatArray, second: FloatArray
) -> FloatArray:
    change, bend = first - here, second - 2 * first + here
    length = -np.sqrt(float(change @ change) / max(float(bend @ bend), 1e-300))
    if length > -1:
        return second
    # Shares stay positive: a share of 0 would never come back.
    far = np.maximum(here - 2 * length * change + length**2 * bend, here * 1e-3)
    far /= far.sum()
    return far if weights @ np.log(far @ parts) >= weights @ np.log(second @ parts) else second


def covariance(rows: FloatArray, found: FloatArray, total: float) -> FloatArray:
    """Return the inverse of the Fisher information N Σ_y Z(y) Z(y)ᵀ / p_y, for shares that sum to 1.

    No unbiased estimate has smaller variances (Cramér and Rao), and maximum likelihood has these for many reports.
    """
    chance = found @ rows
    likely = chance > 0
    scaled = rows[:, likely] / np.sqrt(chance[likely])
    information = total * (scaled @ scaled.T)
    values, vectors = linalg.eigh(information)
    if values[0] <= _SINGULAR * values[-1]:
        msg = (
            "The reports cannot tell all cells apart: there are too few outputs for so many cells, or the cells are "
            "too small. Take larger ones."
        )
        raise InvalidInputError(msg)
    inverse = (vectors / values) @ vectors.T
    sums = inverse.sum(axis=1)
    return np.asarray(inverse - np.outer(sums, sums) / sums.sum())
