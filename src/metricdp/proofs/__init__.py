"""Proofs of privacy, one file per kind of mechanism; none knows how a mechanism was optimised."""

from metricdp.proofs import cellwise, closed_form, log_convex, spline  # noqa: F401 - each registers its proof
from metricdp.proofs.base import Finding, examine

__all__ = ["Finding", "examine"]
