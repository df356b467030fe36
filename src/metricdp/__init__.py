"""Design, certify and run metric-differential-privacy mechanisms on continuous and fine-grained data."""

from metricdp import cities
from metricdp.certify import Certificate, certify
from metricdp.errors import InvalidInputError, NotCertified, ProblemTooLargeError, SolverError
from metricdp.files import load
from metricdp.fit import METHODS, fit
from metricdp.grid import Grid
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem
from metricdp.randomness import InsecureSeed

__all__ = [
    "METHODS",
    "Certificate",
    "Grid",
    "InsecureSeed",
    "InvalidInputError",
    "Mechanism",
    "NotCertified",
    "Problem",
    "ProblemTooLargeError",
    "SolverError",
    "certify",
    "cities",
    "fit",
    "load",
]

__version__ = "0.1.0"
