"""Proofs of privacy, one file per kind of mechanism; none knows how a mechanism was optimised."""

from metricdp.proofs import cellwise, closed_form, log_convex, spline  # noqa: F401 - each registers its proof
from metricdp.proofs.base import Finding, at_least, examine, refused

__all__ = ["Finding", "at_least", "examine", "refused"]
