"""Design, certify and run metric-differential-privacy mechanisms on continuous and fine-grained data."""

from metricdp import cities
from metricdp._version import __version__
from metricdp.audit import Audit, audit
from metricdp.black_box import SampleAudit, audit_samples
from metricdp.certify import Certificate, Metres, certify
from metricdp.errors import InvalidInputError, NotCertified, ProblemTooLargeError, SolverError
from metricdp.evaluate import compare
from metricdp.files import load
from metricdp.fit import METHODS, fit, noise
from metricdp.grid import Grid
from metricdp.ledger import Ledger
from metricdp.lower_bound import lower_bound
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem
from metricdp.randomness import InsecureSeed, NotPrivate
from metricdp.sampler_check import SamplerCheck, check_sampler

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
