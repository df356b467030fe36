"""The front door: a problem and ε in, a certified mechanism out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from metricdp._validation import choice, positive
from metricdp._version import __version__
from metricdp.certify import certify as prove
from metricdp.errors import InvalidInputError, NotCertified
from metricdp.lower_bound import lower_bound
from metricdp.mechanisms.base import Mechanism
from metricdp.methods.aipo import AipoOptions, fit_aipo
from metricdp.methods.auto import AutoOptions, fit_auto
from metricdp.methods.cellwise import ConstOptOptions, GridLpOptions, fit_constopt, fit_grid_lp
from metricdp.methods.closed_form import CLOSED_FORMS
from metricdp.methods.spline import SplineOptions, fit_spline
from metricdp.problem import Problem

__all__ = ["METHODS", "fit"]


@dataclass(frozen=True)
class _Method:
    design: Callable[..., Mechanism]
    options: type


METHODS: dict[str, _Method] = {
    "auto": _Method(fit_auto, AutoOptions),
    "spline": _Method(fit_spline, SplineOptions),
    **{name: _Method(partial(fit_aipo, method=name), AipoOptions) for name in ("aipo", "aipo-e", "aipo-r")},
    **{name: _Method(design, options) for name, (design, options) in CLOSED_FORMS.items()},
    "lp": _Method(fit_grid_lp, GridLpOptions),
    "copt": _Method(fit_constopt, ConstOptOptions),
}


def fit(
    problem: Problem,
    epsilon: float,
    method: str = "auto",
    *,
    certify: bool = True,
    bound_clusters: int | None = None,
    **options: Any,
) -> Mechanism:
    """Design a mechanism for `problem` that is (ε, d_p)-mDP on the whole box.

    Parameters
    ----------
    problem : Problem
        Records, outputs, loss, prior, norm and box.
    epsilon : float
        Privacy budget per unit of distance (per km for cities): no report is more than e^{ε d(x, x')} times
        likelier from x than from x'. Smaller is more private.
    method : str
        One of `metricdp.METHODS`.
    certify : bool
        Prove the guarantee before returning. Turn it off only to study methods that are not private.
    bound_clusters : int, optional
        Also compute `metricdp.lower_bound` with this many clusters and put it into the report: how far from the best
        that any private mechanism with these outputs can do.
    **options
        See the options of the method.

    Raises
    ------
    NotCertified
        If the guarantee could not be proved.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="aipo", cells=4)
    >>> bool(problem.floor <= mechanism.expected_loss(problem) <= problem.uniform_loss)
    True
    """
    if not isinstance(problem, Problem):
        msg = f"`problem` must be a metricdp.Problem, got {type(problem).__name__}."
        raise InvalidInputError(msg)
    budget = positive("epsilon", epsilon)
    chosen = METHODS[choice("method", method, tuple(METHODS))]
    mechanism = chosen.design(problem, budget, options=_options(method, chosen.options, options))
    mechanism = replace(mechanism, report={**mechanism.report, "library": __version__})
    if bound_clusters is not None:
        mechanism = _with_bound(mechanism, problem, bound_clusters)
    if not certify:
        return mechanism
    certificate = prove(mechanism)
    if not certificate.holds:
        msg = f"method {mechanism.method!r}: {certificate.claim} Pass certify=False to study it all the same."
        raise NotCertified(msg)
    return replace(mechanism, report={**mechanism.report, "certificate": certificate.to_dict()})


def _with_bound(mechanism: Mechanism, problem: Problem, clusters: int) -> Mechanism:
    """Add to the report how far the mechanism is from the best possible."""
    bound = lower_bound(problem, mechanism.epsilon, clusters=clusters)
    loss = mechanism.expected_loss(problem)
    excess = loss / bound - 1 if bound > 0 else float("inf")
    words = (
        f"within {100 * excess:.2g} % of the best any ({mechanism.epsilon:g}, d_{mechanism.p:g})-private mechanism "
        "with these outputs can do"
    )
    return replace(mechanism, report={**mechanism.report, "loss": loss, "lower_bound": bound, "optimality": words})


def _options(method: str, kind: type, given: dict[str, Any]) -> Any:
    known = tuple(option.name for option in fields(kind))
    for name in given:
        choice(f"option of method {method!r}", name, known)
    return kind(**given)
