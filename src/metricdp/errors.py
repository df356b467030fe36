"""The errors of the library, which callers may want to distinguish."""

from typing import Any

__all__ = ["ADVICE", "InvalidInputError", "NotCertified", "ProblemTooLargeError", "SolverError"]

# What `NotCertified` says last; the command line has words of its own for it.
ADVICE = "Pass certify=False to study it all the same."


class InvalidInputError(ValueError):
    """An argument broke a rule; the message names the parameter, the rule and the value."""


class ProblemTooLargeError(InvalidInputError):
    """The problem would not fit in memory; raised before anything large is allocated."""


class SolverError(RuntimeError):
    """An optimisation engine ended without an answer that can be used."""


class NotCertified(RuntimeError):  # noqa: N818 - the name is part of the public interface
    """A mechanism could not be shown to keep its claim.

    certificate : what was found instead of a proof, a `metricdp.Certificate`; its `worst_where` has the pair of points
        that breaks the claim, where one was found.
    """

    def __init__(self, message: str, certificate: Any = None) -> None:
        super().__init__(message)
        self.certificate = certificate
