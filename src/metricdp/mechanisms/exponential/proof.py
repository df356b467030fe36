"""Proofs for mechanisms in closed form: the stored rate says it all, by the triangle inequality."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from metricdp.certificates.claims import Finding, examine, proved, refused
from metricdp.certificates.search import steepest_pair
from metricdp.geometry.lattice import coarsest_step
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.exponential.mechanism import Exponential
from metricdp.mechanisms.laplace.mechanism import LatticeLaplace
from metricdp.mechanisms.noise.mechanism import Noise

__all__: list[str] = []


@examine.register
def _exponential(mechanism: Exponential) -> Finding:
    """Check 2s ≤ ε: weights e^{−s·min(d_p, γ)} change by e^{s d} at most, and so does their sum."""
    ratio = 2 * Fraction(mechanism.rate) / mechanism.plane_epsilon
    if ratio > 1:
        return _too_steep(mechanism, float(ratio))
    reason = (
        f"Weights decay with distance at {float(ratio) / 2:.6g} of epsilon, and normalising them at most doubles that; "
        "what is done to a draw afterwards is post-processing. Probabilities are computed in floating point, which is "
        "counted in r. Assumed: the random bits are uniform, and the platform's exp is within four units in the last "
        "place."
    )
    claim = proved(mechanism, reason)
    return Finding(holds=True, claim=claim, worst_ratio=float(ratio), worst_where={}, checked=1)


@examine.register
def _lattice_laplace(mechanism: LatticeLaplace) -> Finding:
    """Check a ≤ ε·step for noise Pr[v] ∝ e^{−a ‖v‖_p} on the lattice, which changes by e^{a ‖v − v'‖_p} at most."""
    found = _lattice_noise(mechanism)
    # Elsewhere probabilities take too long for a search.
    if not found.holds and math.isfinite(found.worst_ratio) and mechanism.has_closed_form:
        return _too_steep(mechanism, found.worst_ratio)
    return found


@examine.register
def _noise(mechanism: Noise) -> Finding:
    """Check the same where the noisy point itself is the report."""
    return _lattice_noise(mechanism)


def _lattice_noise(mechanism: LatticeLaplace | Noise) -> Finding:
    if mechanism.step > coarsest_step(mechanism.bounds):
        claim = refused(mechanism, f"points are rounded to multiples of {mechanism.step:g}, which is too coarse.")
        return Finding(holds=False, claim=claim, worst_ratio=math.inf, worst_where={}, checked=1)
    ratio = mechanism.noise.rate / (mechanism.plane_epsilon * Fraction(mechanism.step))
    if ratio > 1:
        claim = refused(mechanism, f"the noise decays at {float(ratio):.6g} of epsilon.")
        return Finding(holds=False, claim=claim, worst_ratio=float(ratio), worst_where={}, checked=1)
    reason = (
        "Points are rounded to a lattice, and noise of that lattice is added whose probabilities are proportional to "
        f"exp(-{float(mechanism.noise.rate / Fraction(mechanism.step)):.6g} d), {float(ratio):.6g} of epsilon; it "
        "covers the whole lattice, so their sum is the same from everywhere. What is done to the noisy point "
        "afterwards is post-processing. The noise is drawn exactly. Assumed: the random bits are uniform."
    )
    claim = proved(mechanism, reason)
    return Finding(holds=True, claim=claim, worst_ratio=float(ratio), worst_where={}, checked=1)


def _too_steep(mechanism: Mechanism, ratio: float) -> Finding:
    low, high = mechanism.bounds
    points = np.random.default_rng(0).uniform(low, high, size=(1000, len(low)))
    worst, where, tried = steepest_pair(mechanism, points, 1e-5 * float((high - low).min()))
    found = "the pair shown violates it." if worst > 1 else "no violating pair was found either."
    claim = refused(mechanism, f"the stored rate gives {ratio:.6g} of epsilon; {found}")
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=1 + tried)
