"""Proofs for mechanisms in closed form: the stored rate says it all, by the triangle inequality."""

from __future__ import annotations

import numpy as np

from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.exponential import Exponential
from metricdp.mechanisms.laplace import LatticeLaplace
from metricdp.metric import norm
from metricdp.proofs.base import ROUNDING_SHARE, ROUNDOFF, Finding, examine
from metricdp.proofs.search import steepest_pair

__all__: list[str] = []


@examine.register
def _exponential(mechanism: Exponential) -> Finding:
    """Check 2s ≤ ε: weights e^{−s·min(d_p, γ)} change by e^{s d} at most, and so does their sum."""
    ratio = 2 * mechanism.rate / mechanism.epsilon
    if not ratio <= 1 - ROUNDING_SHARE:
        return _refuted(mechanism, ratio)
    extent = float(norm(mechanism.bounds[1] - mechanism.bounds[0], mechanism.p))
    reach = float(norm(mechanism.outputs - mechanism.bounds.mean(axis=0), mechanism.p).max()) + extent
    # The distance and its product with the rate, exp, the sum over outputs, the quotient, the sum over
    # labels.
    error = ROUNDOFF * (mechanism.rate * reach * (mechanism.bounds.shape[1] + 4) + 2 * mechanism.n_outputs + 8)
    claim = (
        f"{_statement(mechanism)} on the whole box: weights decay with distance at {ratio / 2:.6g} of "
        "epsilon, and normalising them at most doubles that; what is done to a draw afterwards is "
        "post-processing. Probabilities are computed in floating point; pairs of points closer than "
        f"{_resolution(mechanism, error):.2g} are not claimed."
    )
    return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where={}, checked=1)


@examine.register
def _lattice_laplace(mechanism: LatticeLaplace) -> Finding:
    """Check rate ≤ ε: the density e^{−rate·d_p} over the whole space changes by e^{rate·d} at most."""
    ratio = mechanism.rate / mechanism.epsilon
    if not ratio <= 1 - ROUNDING_SHARE:
        return _refuted(mechanism, ratio)
    claim = (
        f"{_statement(mechanism)} on the whole box: the noise has density proportional to "
        f"exp(-{mechanism.rate:.6g} d) over the whole space, {ratio:.6g} of epsilon; snapping it to a "
        "lattice and looking up a label are post-processing. Assumed, not proved: that noise drawn and added "
        "in floating point from 53-bit uniforms has this density once it is snapped."
    )
    return Finding(holds=True, claim=claim, worst_ratio=ratio, worst_where={}, checked=1)


def _statement(mechanism: Mechanism) -> str:
    return f"({mechanism.epsilon}, d_{mechanism.p:g})-mDP"


def _resolution(mechanism: Mechanism, error: float) -> float:
    """Return the distance from which on the share of ε kept back pays for a relative error in both rows."""
    return 2 * error / (mechanism.epsilon * ROUNDING_SHARE)


def _refuted(mechanism: Mechanism, ratio: float) -> Finding:
    low, high = mechanism.bounds
    points = np.random.default_rng(0).uniform(low, high, size=(1000, len(low)))
    worst, where, tried = steepest_pair(mechanism, points, 1e-5 * float((high - low).min()))
    claim = f"Not proved to be {_statement(mechanism)}: the stored rate gives {ratio:.6g} of epsilon"
    claim += "; the pair shown violates it." if worst > 1 else "; no violating pair was found either."
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=1 + tried)
