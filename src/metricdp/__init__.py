"""Design, certify and run metric-differential-privacy mechanisms on continuous and fine-grained data."""

from metricdp import cities
from metricdp._version import __version__
from metricdp.auditing.pairs import Audit, audit
from metricdp.auditing.sampler_check import SamplerCheck, check_sampler
from metricdp.auditing.samples import SampleAudit, audit_samples
from metricdp.bounds.lower_bounds import lower_bound
from metricdp.certificates.proving import Certificate, Metres, certify
from metricdp.drawing.randomness import InsecureSeed, NotPrivate
from metricdp.errors import InvalidInputError, NotCertified, ProblemTooLargeError, SolverError
from metricdp.evaluate import compare
from metricdp.files.storage import load
from metricdp.geometry.grid import Grid
from metricdp.ledger.budgets import Ledger
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.fitting import METHODS, fit, noise
from metricdp.problem import Problem

__all__ = [
    "METHODS",
    "Audit",
    "Certificate",
    "Grid",
    "InsecureSeed",
    "InvalidInputError",
    "Ledger",
    "Mechanism",
    "Metres",
    "NotCertified",
    "NotPrivate",
    "Problem",
    "ProblemTooLargeError",
    "SampleAudit",
    "SamplerCheck",
    "SolverError",
    "__version__",
    "audit",
    "audit_samples",
    "certify",
    "check_sampler",
    "cities",
    "compare",
    "fit",
    "load",
    "lower_bound",
    "noise",
]
