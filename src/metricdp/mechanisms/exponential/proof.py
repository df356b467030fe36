"""Proof for the exponential mechanism: the stored rate bounds all ratios, by the triangle inequality."""

from __future__ import annotations

import math
from fractions import Fraction

from metricdp.certificates.claims import Finding, proved, refused
from metricdp.certificates.search import too_steep
from metricdp.mechanisms.exponential.mechanism import Exponential

__all__ = ["prove"]


def prove(mechanism: Exponential) -> Finding:
    """Check 2s ≤ ε: weights e^{−s·min(d_p, γ)} change by e^{s d} at most, and so does their sum."""
    if not 0 < mechanism.rate < math.inf:
        claim = refused(mechanism, "its rate is not a positive finite number.")
        return Finding(holds=False, claim=claim, worst_ratio=math.inf, worst_where={}, checked=1)
    ratio = 2 * Fraction(mechanism.rate) / mechanism.plane_epsilon
    if ratio > 1:
        return too_steep(mechanism, float(ratio))
    reason = (
        f"Weights decay with distance at {float(ratio) / 2:.6g} of epsilon, and normalising them at most doubles that; "
        "what is done to a draw afterwards is post-processing. Probabilities are computed in floating point, which is "
        "counted in r. Assumed: the random bits are uniform, and the platform's exp and pow are within four units in "
        "the last place."
    )
    claim = proved(mechanism, reason)
    return Finding(holds=True, claim=claim, worst_ratio=float(ratio), worst_where={}, checked=1)
