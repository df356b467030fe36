from . import cities, files, perturb
from ._version import __version__
from .auditing.pairs import Audit, audit
from .auditing.sampler_check import SamplerCheck, check_sampler
from .auditing.samples import SampleAudit, audit_samples
from .bounds.choosing import lower_bound
from .certificates.proving import Certificate, Metres, certify
from .drawing.randomness import InsecureSeed, NotPrivate
from .errors import InvalidInputError, NotCertified, ProblemTooLargeError, SolverError
from .experiments.comparing import compare
from .experiments.epsilon_choice import EpsilonChoice, choose_epsilon
from .files.reading import load
from .geometry.grid import Grid
from .ledger.budgets import Ledger
from .mechanisms.base import Mechanism
from .mechanisms.families import METHODS
from .mechanisms.fitting import fit, noise
from .problem import Problem

__all__ = [
    "METHODS",
    "Audit",
    "Certificate",
    "EpsilonChoice",
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
    "choose_epsilon",
    "cities",
    "compare",
    "files",
    "fit",
    "load",
    "lower_bound",
    "noise",
    "perturb",
]
