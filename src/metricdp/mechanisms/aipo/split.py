"""How the privacy budget is split between axes (Theorem 1), and the search for the best split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.interpolate import RBFInterpolator

from metricdp._validation import FloatArray
from metricdp.geometry.norms import dual_exponent, norm

__all__ = ["budgets_from_shares", "compose", "equal_shares", "search_scale", "search_shares"]

# Splits closer than this to one already tried are not proposed: they would have nearly the same loss.
_RESOLUTION = 0.01
_LEAST_SHARE = 1e-3

# The search ends after this many steps in a row that each gained less than this share of the loss.
_PATIENCE = 4
_WORTHWHILE = 1e-4

# How much lower the surface is assumed per unit of distance from the nearest evaluation, over the range of losses.
_OPTIMISM = 2.0

# The search for a scale aims this far below what is allowed; it ends within twice that, or with a bracket this narrow.
_SCALE_MARGIN = 1e-3


def compose(budgets: FloatArray, p: float) -> float:
    """Theorem 1: per-axis Lipschitz constants ε_ℓ compose to ‖(ε_ℓ)‖_q in d_p, with q dual to p."""
    return float(norm(np.asarray(budgets), dual_exponent(p)))


def budgets_from_shares(shares: FloatArray, total: float, p: float) -> FloatArray:
    """Return ε_ℓ = total · share_ℓ^{1/q}: shares on the simplex are splits that compose to `total`.

    For p = 1 (q = ∞) every axis may spend all of it, whatever the shares.
    """
    q = dual_exponent(p)
    return np.full(len(shares), total) if math.isinf(q) else total * shares ** (1 / q)


def equal_shares(n_axes: int) -> FloatArray:
    """Return the split of AIPO-E: the same for every axis."""
    return np.full(n_axes, 1 / n_axes)


def search_shares(loss_of: Callable[[FloatArray], float | None], n_axes: int, evaluations: int) -> None:
    """Look for the shares of least loss by a response surface.

    The callback `loss_of` stores the best split itself, so nothing is returned.

    The paper's appendix on budget allocation: evaluate some splits, fit a surrogate U(shares), evaluate its
    minimiser, repeat. The surrogate is a cubic radial basis interpolant on the simplex (for N = 2 the
    paper's arc). `loss_of` is called at most `evaluations` times; its answer None ends the search.
    """
    first = list(_first_splits(n_axes))
    tried: list[FloatArray] = []
    losses: list[float] = []
    stale = 0
    while len(tried) < evaluations and stale < _PATIENCE:
        shares = first.pop(0) if first else _propose(np.array(tried), np.array(losses), optimistic=stale % 2 == 1)
        loss = loss_of(shares)
        if loss is None:
            return
        better = not losses or loss < min(losses) * (1 - _WORTHWHILE)
        stale = 0 if better or first else stale + 1
        tried.append(shares)
        losses.append(loss)


def search_scale(ratio_of: Callable[[float], float | None], start: float, evaluations: int) -> None:
    """Look for the largest scale in [start, 1] whose ratio is at most 1.

    The callback `ratio_of` stores what it finds itself, so nothing is returned.

    The ratio grows with the scale, about like s (1 + c s): slopes of the anchor table grow in proportion to s, and so
    does the share that normalising adds to them. `ratio_of` is called at most `evaluations` times, first at `start`;
    its answer None ends the search.
    """
    aim = 1 - _SCALE_MARGIN
    below, above = (0.0, 0.0), None
    scale = start
    for _ in range(evaluations):
        ratio = ratio_of(scale)
        if ratio is None:
            return
        if ratio <= 1:
            below = (scale, ratio)
        else:
            above = (scale, ratio)
        if below[0] == 1 or below[1] >= 1 - 2 * _SCALE_MARGIN or (above and above[0] - below[0] < _SCALE_MARGIN):
            return
        scale = _extrapolated(*below, aim) if above is None else _between(below, above, aim)


def _extrapolated(scale: float, ratio: float, aim: float) -> float:
    """Return s ≤ 1 where s (1 + c s) = aim, with c from one scale and its ratio."""
    bend = (ratio / scale - 1) / scale
    return 1.0 if bend <= 0 else min(1.0, (math.sqrt(1 + 4 * bend * aim) - 1) / (2 * bend))


def _between(below: tuple[float, float], above: tuple[float, float], aim: float) -> float:
    """Return where the line through two scales and their ratios takes the value `aim`; halfway if it falls outside."""
    (low, less), (high, more) = below, above
    guess = low + (high - low) * (aim - less) / (more - less)
    return guess if low < guess < high else (low + high) / 2


def _propose(tried: FloatArray, losses: FloatArray, *, optimistic: bool) -> FloatArray:
    """Return the split where the response surface is lowest, away from those tried.

    Every other time the surface is lowered far from all evaluations, so that a bad fit does not end the search.
    """
    proposals = _simplex_points(tried.shape[1])
    gap = np.linalg.norm(proposals[:, None, :] - tried[None, :, :], axis=2).min(axis=1)
    surface = RBFInterpolator(tried[:, :-1], losses, kernel="cubic", degree=1)(proposals[:, :-1])
    if optimistic:
        surface = surface - _OPTIMISM * np.ptp(losses) * gap
    return np.asarray(proposals[int(np.where(gap < _RESOLUTION, np.inf, surface).argmin())])


def _first_splits(n_axes: int) -> Iterator[FloatArray]:
    """Yield the equal split, then halfway towards and away from each vertex of the simplex."""
    centre = equal_shares(n_axes)
    yield centre
    for pull in (0.5, 0.25) if n_axes == 2 else (0.5,):
        for vertex in np.eye(n_axes):
            yield (1 - pull) * centre + pull * vertex
    if n_axes > 2:
        for vertex in np.eye(n_axes):
            opposite = (1 - vertex) / (n_axes - 1)
            yield 0.5 * centre + 0.5 * opposite


def _simplex_points(n_axes: int) -> FloatArray:
    """Return many splits to choose from: a fine arc for two axes, a fixed random cover for more."""
    if n_axes == 2:
        first = np.linspace(0.0, 1.0, 201)
        points = np.column_stack([first, 1 - first])
    else:
        points = np.random.default_rng(0).dirichlet(np.ones(n_axes), size=4000)
    # Along an axis without any budget the table would have to be constant. Solvers satisfy that only approximately, and
    # mixing with uniform cannot repair it.
    return (1 - n_axes * _LEAST_SHARE) * points + _LEAST_SHARE
