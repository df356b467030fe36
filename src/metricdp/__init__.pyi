from . import cities, files, perturb, traces
from ._version import __version__
from .attacking.adversary import Attack, attack, posterior
from .attacking.tracks import TraceAttack, attack_traces
from .auditing.pairs import Audit, audit
from .auditing.sampler_check import SamplerCheck, check_sampler
from .auditing.samples import SampleAudit, audit_samples
from .bounds.choosing import lower_bound
from .certificates.proving import Certificate, Metres, PathClaim, certify
from .drawing.randomness import InsecureSeed, NotPrivate
from .errors import InvalidInputError, NotCertified, ProblemTooLargeError, SolverError
from .estimating.density import Density, estimate_density
from .experiments.comparing import compare
from .experiments.epsilon_choice import EpsilonChoice, choose_epsilon
from .files.reading import load
from .geometry.epsilon_map import EpsilonMap
from .geometry.grid import Grid
from .ledger.budgets import Ledger
from .mechanisms.base import Mechanism
from .mechanisms.families import METHODS
from .mechanisms.fitting import fit, noise
from .problem import Problem

__all__ = [
    "METHODS",
    "Attack",
    "Audit",
    "Certificate",
    "Density",
    "EpsilonChoice",
    "EpsilonMap",
    "Grid",
    "InsecureSeed",
    "InvalidInputError",
    "Ledger",
    "Mechanism",
    "Metres",
    "NotCertified",
    "NotPrivate",
    "PathClaim",
    "Problem",
    "ProblemTooLargeError",
    "SampleAudit",
    "SamplerCheck",
    "SolverError",
    "TraceAttack",
    "__version__",
    "attack",
    "attack_traces",
    "audit",
    "audit_samples",
    "certify",
    "check_sampler",
    "choose_epsilon",
    "cities",
    "compare",
    "estimate_density",
    "files",
    "fit",
    "load",
    "lower_bound",
    "noise",
    "perturb",
    "posterior",
    "traces",
]
