"""Proof for exact noise on a lattice: its probabilities decay no faster than the claim allows."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from metricdp.certificates.claims import Finding, proved, refused
from metricdp.geometry.lattice import coarsest_step
from metricdp.mechanisms.noise.mechanism import NoisyMechanism

__all__ = ["prove"]


def prove(mechanism: NoisyMechanism) -> Finding:
    """Check a ≤ ε·step for noise Pr[v] ∝ e^{−a ‖v‖_p} on the lattice, which changes by e^{a ‖v − v'‖_p} at most."""
    step, noise = mechanism.step, mechanism.noise
    if step > coarsest_step(mechanism.bounds):
        claim = refused(mechanism, f"points are rounded to multiples of {step:g}, which is too coarse.")
        return Finding(holds=False, claim=claim, worst_ratio=math.inf, worst_where={}, checked=1)
    ratio = noise.rate / (mechanism.plane_epsilon * Fraction(step))
    if ratio > 1:
        claim = refused(mechanism, f"the noise decays at {float(ratio):.6g} of epsilon; the pair shown violates it.")
        return Finding(holds=False, claim=claim, worst_ratio=float(ratio), worst_where=_corners(mechanism), checked=1)
    reason = (
        "Points are rounded to a lattice, and noise of that lattice is added whose probabilities are proportional to "
        f"exp(-{float(noise.rate / Fraction(step)):.6g} d), {float(ratio):.6g} of epsilon; it "
        "covers the whole lattice, so their sum is the same from everywhere. What is done to the noisy point "
        "afterwards is post-processing. The noise is drawn exactly. Assumed: the random bits are uniform."
    )
    claim = proved(mechanism, reason)
    return Finding(holds=True, claim=claim, worst_ratio=float(ratio), worst_where={}, checked=1)


def _corners(mechanism: NoisyMechanism) -> dict[str, Any]:
    """Return two points between which the noisy point, at the first of them, is as much likelier as noise allows."""
    points = mechanism.snap(mechanism.bounds).tolist()
    return {"points": points, "noisy_point": points[0]}
