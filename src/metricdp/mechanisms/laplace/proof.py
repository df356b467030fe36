"""Proof for Laplace noise with outputs: that of the noise itself; squares and labels are post-processing."""

from __future__ import annotations

import math

from metricdp.certificates.claims import Finding
from metricdp.certificates.search import too_steep
from metricdp.mechanisms.laplace.mechanism import LatticeLaplace
from metricdp.mechanisms.noise import proof as noise_proof

__all__ = ["prove"]


def prove(mechanism: LatticeLaplace) -> Finding:
    """Prove the noise private; where that fails, look for a pair of points that shows it."""
    found = noise_proof.prove(mechanism)
    # Elsewhere probabilities take too long for a search.
    if not found.holds and math.isfinite(found.worst_ratio) and mechanism.has_closed_form:
        return too_steep(mechanism, found.worst_ratio)
    return found
