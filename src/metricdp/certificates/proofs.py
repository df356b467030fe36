"""Proofs of privacy, one file per kind of mechanism; none knows how a mechanism was optimised."""

from metricdp.certificates.claims import Finding, at_least, examine, refused
from metricdp.mechanisms.aipo import proof as log_convex  # noqa: F401 - each registers its proof
from metricdp.mechanisms.exponential import proof as closed_form  # noqa: F401 - each registers its proof
from metricdp.mechanisms.gridded import proof as cellwise  # noqa: F401 - each registers its proof
from metricdp.mechanisms.spline import proof as spline  # noqa: F401 - each registers its proof

__all__ = ["Finding", "at_least", "examine", "refused"]
