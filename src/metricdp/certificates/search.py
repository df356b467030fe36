"""A search for a pair of points that breaks the claim, for mechanisms whose proof failed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from metricdp._chunks import NUMBERS_AT_ONCE
from metricdp._validation import FloatArray
from metricdp.certificates.claims import Finding, refused
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.base import Mechanism

__all__ = ["steepest_pair", "too_steep"]


def steepest_pair(mechanism: Mechanism, points: FloatArray, step: float) -> tuple[float, dict[str, Any], int]:
    """Return the worst |ln z_k(x) − ln z_k(x')| / (ε d_p(x, x')) near `points`, its place, and the tries.

    Where ε varies, an upper bound of the path metric stands for ε d_p: what is above it breaks the promise.

    The gradient of ln z is taken by differences `step` to either side, inside the box; the pair returned lies
    along the direction in which Hölder's inequality is tight for d_p, and its ratio is that of its own
    probabilities.
    """
    low, high = mechanism.bounds
    # A search need not see every point, and must not take memory without bound.
    points = points[:: math.ceil(len(points) * mechanism.n_outputs * len(low) / NUMBERS_AT_ONCE)]
    gradient = np.empty((len(points), mechanism.n_outputs, len(low)))
    for axis in range(len(low)):
        move = np.zeros(len(low))
        move[axis] = step
        ahead = mechanism.snap(np.minimum(points + move, high))
        behind = mechanism.snap(np.maximum(points - move, low))
        change = _logs(mechanism, ahead) - _logs(mechanism, behind)
        gradient[:, :, axis] = change / (ahead - behind)[:, [axis]]
    size = norm(gradient, dual_exponent(mechanism.p))
    if mechanism.plane_map is not None:
        size /= mechanism.plane_map.at(points)[:, None]
    at, output = np.unravel_index(int(size.argmax()), size.shape)
    direction = _tight_direction(gradient[at, output], mechanism.p)
    move = step * direction / max(float(norm(direction, mechanism.p)), 1e-300)
    pair = mechanism.snap(np.clip(np.array([points[at] - move, points[at] + move]), low, high))
    allowed = float(replace(mechanism.promise, rounding=0.0).exponents(pair[:1], pair[1:])[0])
    rise = abs(float(np.diff(_logs(mechanism, pair)[:, output])[0]))
    ratio = rise / allowed if allowed else 0.0
    return ratio, {"points": pair.tolist(), "output": int(output)}, size.size


def _logs(mechanism: Mechanism, points: FloatArray) -> FloatArray:
    """Return ln z. An output with probability 0 has it at every point, so its logarithm cancels; use 0."""
    rows = mechanism.probabilities(points)
    return np.log(np.where(rows > 0, rows, 1.0))


def _tight_direction(gradient: FloatArray, p: float) -> FloatArray:
    q = dual_exponent(p)
    if math.isinf(q):
        return np.where(np.arange(len(gradient)) == np.abs(gradient).argmax(), np.sign(gradient), 0.0)
    scale = max(float(np.abs(gradient).max()), 1e-300)
    return np.asarray(np.sign(gradient) * np.abs(gradient / scale) ** (q - 1))


def too_steep(mechanism: Mechanism, ratio: float) -> Finding:
    """Return the finding of a mechanism whose rate is `ratio` times what is allowed, with a pair that shows it."""
    low, high = mechanism.bounds
    points = np.random.default_rng(0).uniform(low, high, size=(1000, len(low)))
    worst, where, tried = steepest_pair(mechanism, points, 1e-5 * float((high - low).min()))
    found = "the pair shown violates it." if worst > 1 else "no violating pair was found either."
    claim = refused(mechanism, f"the stored rate gives {ratio:.6g} of epsilon; {found}")
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=1 + tried)
