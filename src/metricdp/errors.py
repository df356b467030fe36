"""The errors a caller may want to tell apart."""

__all__ = ["InvalidInputError", "NotCertified", "ProblemTooLargeError", "SolverError"]


class InvalidInputError(ValueError):
    """An argument broke a rule; the message names the parameter, the rule and the value."""


class ProblemTooLargeError(InvalidInputError):
    """The problem would not fit in memory; raised before anything large is allocated."""


class SolverError(RuntimeError):
    """An optimisation engine ended without an answer that can be used."""


class NotCertified(RuntimeError):  # noqa: N818 - the name is part of the public interface
    """The fitted mechanism could not be shown to be (ε, d_p)-mDP."""
