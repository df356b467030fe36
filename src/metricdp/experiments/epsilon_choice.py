"""Which ε? The largest that keeps a promise in words, and what it and others around it cost."""

from __future__ import annotations

import decimal
import math
import os
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from metricdp._cards import Card, html_table
from metricdp._lengths import length_text, rounded
from metricdp._progress import Tell, told
from metricdp._validation import choice, integer, positive, reject
from metricdp.errors import InvalidInputError
from metricdp.experiments.epsilon_search import Against, epsilon_against
from metricdp.geometry.norms import largest_ratio
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.card import promise
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.fitting import fit
from metricdp.problem import Problem

__all__ = ["EpsilonChoice", "choose_epsilon"]

# The ε that are compared, as multiples of the chosen one; powers of two keep short decimals short.
_LADDER = (0.25, 0.5, 1.0, 2.0, 4.0)

# Digits for the logarithm of the ratio, far more than an ε has.
_EXACT = decimal.Context(prec=60, rounding=decimal.ROUND_FLOOR)


@dataclass(frozen=True, eq=False)
class EpsilonChoice:
    """An ε, the promise that it keeps, and what it costs beside other ε.

    epsilon : per true km for problems with a projection, per unit of distance otherwise.
    radius, ratio : of the promise: within `radius` no report is more than `ratio` times likelier.
    distance_unit : "km", on the ground, or empty for the units of the problem.
    report_distance_95_without_privacy : that of reports with no privacy, each the best output for where one is.
    loss_unit : of the losses; empty where the problem does not say.
    loss_without_privacy, loss_of_uniform_choice : between these every loss lies that is worth its privacy.
    method : what the figures are for. A longer fit with "auto" may lose less.
    table : a row for each ε: `epsilon`; `chosen`; `radius_e` and `radius_2`, the distances within which the ratio is at
        most e and 2; `report_distance_95`, the distance from where one is that 5 % of reports exceed; `loss`; and
        `report_distance_95_error` and `loss_error`, standard errors that are 0 where figures are exact. If an adversary
        was to be kept off, also `inference_error`, how far off they are, and `inference_error_error`.
    error, reports : how far off an adversary still is after so many reports from one place, if ε was chosen by that.
    """

    epsilon: float
    radius: float
    ratio: float
    distance_unit: str
    report_distance_95_without_privacy: float
    loss_unit: str
    loss_without_privacy: float
    loss_of_uniform_choice: float
    method: str
    table: pd.DataFrame
    error: float | None = None
    reports: int | None = None

    @property
    def promise(self) -> str:
        """What the ε means, in words."""
        return promise(self.radius, self.ratio, self.distance_unit)

    @property
    def against(self) -> str:
        """What an adversary still does not know, in words; empty if ε was not chosen by that."""
        if self.error is None or self.reports is None:
            return ""
        count = "one report" if self.reports == 1 else f"{self.reports:,} reports from one place"
        off = length_text(self.error, self.distance_unit, ROUND_FLOOR)
        return (
            f"After {count} an adversary who knows the mechanism and the prior is still at least {off} off on average."
        )

    @property
    def exact(self) -> bool:
        """Whether every figure is exact, rather than an estimate with its standard error."""
        errors = ["report_distance_95_error", "loss_error"]
        return (
            not self.table[errors + [one for one in ("inference_error_error",) if one in self.table]].to_numpy().any()
        )

    @property
    def card(self) -> Card:
        """The choice and its costs in words."""
        (own,) = (row for row in self._rows if row["chosen"])
        unit = f" {self.loss_unit}" if self.loss_unit else ""
        kind = "exact" if self.exact else "estimates where there is a ±, one standard error"
        rows = (
            *((("adversary", self.against),) if self.against else ()),
            ("promise", self.promise),
            ("ε", f"{self.epsilon:g} per {'true km' if self.distance_unit else 'unit of distance'}"),
            ("95 % of reports", f"within {_distance_cell(own, self.distance_unit)} of where one is"),
            ("expected loss", f"{_loss_cell(own)}{unit}"),
            ("without privacy", f"within {self._best_distance}, expected loss {self.loss_without_privacy:.4g}{unit}"),
            ("reports at random", f"expected loss {self.loss_of_uniform_choice:.4g}{unit}"),
            ("figures", f"{kind}; for method {self.method}"),
        )
        return Card(f"Which ε? {self.epsilon:g}", rows)

    @property
    def words(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Heads and rows of the table, as they are shown."""
        unit = f", {self.loss_unit}" if self.loss_unit else ""
        heads: tuple[str, ...] = (
            "",
            "ε",
            "e times within",
            "2 times within",
            "95 % of reports within",
            f"expected loss{unit}",
        )
        if self.error is not None:
            heads = (*heads, "adversary off by")
        rows: list[tuple[str, ...]] = [
            (
                "→" if row["chosen"] else "",
                f"{row['epsilon']:g}",
                length_text(row["radius_e"], self.distance_unit, ROUND_FLOOR),
                length_text(row["radius_2"], self.distance_unit, ROUND_FLOOR),
                _distance_cell(row, self.distance_unit),
                _loss_cell(row),
                *(() if self.error is None else (_distance_cell(row, self.distance_unit, "inference_error"),)),
            )
            for row in self._rows
        ]
        return heads, rows

    @property
    def _best_distance(self) -> str:
        return length_text(self.report_distance_95_without_privacy, self.distance_unit, ROUND_CEILING)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return [{str(name): value for name, value in row.items()} for row in self.table.to_dict("records")]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`; the keys are documented in docs/choosing-epsilon.md."""
        names = ("epsilon", "promise", "radius", "ratio", "distance_unit", "report_distance_95_without_privacy")
        losses = ("loss_unit", "loss_without_privacy", "loss_of_uniform_choice", "method", "exact", "error", "reports")
        return {name: getattr(self, name) for name in (*names, *losses)} | {"table": self._rows}

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw losses and distances over ε and write the picture; its kind is that of the file's ending."""
        from metricdp.experiments.epsilon_figures import write_epsilon_figure  # noqa: PLC0415 - an extra

        write_epsilon_figure(self, Path(path))

    def _repr_html_(self) -> str:
        heads, rows = self.words
        return self.card.html() + html_table("What other ε would cost", heads, rows)


def choose_epsilon(
    problem: Problem,
    radius_km: float | None = None,
    ratio: float = math.e,
    *,
    method: str = "laplace-remap",
    error_km: float | None = None,
    reports: int = 1,
    progress: Tell | bool | None = None,
) -> EpsilonChoice:
    """Return the ε with which, within a radius, no report is more than `ratio` times likelier, and what it costs.

    ε = ln(ratio) / radius, rounded down to three digits so that the promise holds. What rounding of coordinates adds to
    a distance, about a millimetre, counts as a part of the radius.

    Or, with `error_km`, return an ε with which an adversary who has seen some reports from one place is still so far
    off on average (see `attack`): the largest that was found by attacking mechanisms of the method.

    Parameters
    ----------
    problem : Problem
        What to design for.
    radius_km : float
        The radius in true km on the ground, or in the problem's own units of d_p if it has no projection; 0.5 by
        default.
    ratio : float
        How many times likelier a report may be from one place than from another within the radius; above 1.
    method : str
        Whose costs are shown, one of `metricdp.METHODS`. The default is quick and comes close to the best that "auto"
        finds; it takes problems of one to four axes.
    error_km, reports : float and int, optional
        How far off the adversary should still be after so many reports, instead of a radius and a ratio; in true km, or
        straight distances in the problem's coordinates. It depends on the method, on the records and on their prior.
    progress : callable, bool or None
        Told how far the search for an ε is, see `fit`.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> found = mdp.choose_epsilon(problem, radius_km=0.5, ratio=2)
    >>> found.epsilon
    1.38
    >>> found.promise
    'Within 0.5 no report is more than 2 times likelier from one place than from another.'
    """
    if not isinstance(problem, Problem):
        raise reject("problem", "a metricdp.Problem", type(problem).__name__)
    choice("method", method, tuple(METHODS))
    if not METHODS[method].private:
        raise reject("method", "one whose mechanisms are private", repr(method))
    if error_km is not None:
        return _by_error(problem, radius_km, ratio, method, positive("error_km", error_km), reports, progress)
    if reports != 1:
        raise InvalidInputError("`reports` is about `error_km`, which is not given.")
    radius, times = positive("radius_km", 0.5 if radius_km is None else radius_km), positive("ratio", ratio)
    if times <= 1:
        raise reject("ratio", "above 1", repr(ratio))
    epsilon = largest_epsilon(radius, times, _straight(problem))
    fitted = [fit(problem, epsilon * factor, method) for factor in _LADDER]
    rows = [_row(one, chosen=one.epsilon == epsilon) for one in fitted]
    return _chosen(problem, fitted[0], epsilon, method=method, radius=radius, ratio=times, table=pd.DataFrame(rows))


def _by_error(
    problem: Problem,
    radius_km: float | None,
    ratio: float,
    method: str,
    error: float,
    reports: int,
    progress: Tell | bool | None,  # noqa: FBT001 - as every function takes it
) -> EpsilonChoice:
    """Return the choice by how far off an adversary still is."""
    if radius_km is not None or ratio != math.e:
        raise InvalidInputError("`error_km` chooses ε by itself; leave out `radius_km` and `ratio`.")
    against = Against(problem, method, error, integer("reports", reports, 1))
    with told(progress, "choosing ε") as tell:
        epsilon = epsilon_against(against, tell)
        tell(0.9, "what other ε would cost")
        found = [against.at(epsilon * factor) for factor in _LADDER]
    rows = [
        _row(one, chosen=one.epsilon == epsilon)
        | {"inference_error": seen.error, "inference_error_error": seen.standard_error}
        for one, seen in found
    ]
    radius = float(rounded(1 / (epsilon * _straight(problem)), ROUND_FLOOR))
    table = pd.DataFrame(rows)
    first = found[0][0]
    promised = {"radius": radius, "ratio": math.e, "error": error, "reports": reports}
    return _chosen(problem, first, epsilon, method=method, table=table, **promised)


def _chosen(problem: Problem, one: Mechanism, epsilon: float, **fields: Any) -> EpsilonChoice:
    return EpsilonChoice(
        epsilon=epsilon,
        distance_unit="km" if problem.projection is not None else "",
        report_distance_95_without_privacy=float(one.report["report_distance_95_without_privacy"]),
        loss_unit=problem.loss_unit,
        loss_without_privacy=problem.floor,
        loss_of_uniform_choice=problem.uniform_loss,
        **fields,
    )


def largest_epsilon(radius: float, ratio: float, straight: float = 1.0) -> float:
    """Return ln(ratio) / (radius · straight), rounded down to three digits.

    straight : the largest ratio of the distance that ε is per to the one that the radius is measured in.
    """
    logarithm = Decimal(1) if ratio == math.e else _EXACT.ln(Decimal(ratio))
    exact = _EXACT.divide(logarithm, _EXACT.multiply(Decimal(repr(radius)), Decimal(straight)))
    found = float(rounded(exact, ROUND_FLOOR))
    if not 0 < found < math.inf:
        raise InvalidInputError(f"`radius_km` of {radius:g} has no ε that a number can hold; take another.")
    return found


def _straight(problem: Problem) -> float:
    """Return the largest ratio of d_p to the distance in which people measure: straight ones on the ground."""
    return 1.0 if problem.projection is None else largest_ratio(problem.p, 2, problem.n_axes)


def _row(mechanism: Mechanism, *, chosen: bool) -> dict[str, Any]:
    epsilon, report = mechanism.straight_epsilon, mechanism.report
    figures = ("report_distance_95", "report_distance_95_error", "loss", "loss_error")
    return {
        "epsilon": mechanism.epsilon,
        "chosen": chosen,
        "radius_e": 1 / epsilon,
        "radius_2": math.log(2) / epsilon,
        **{name: float(report[name]) for name in figures},
    }


def _distance_cell(row: dict[str, Any], unit: str, name: str = "report_distance_95") -> str:
    error = row[f"{name}_error"]
    words = length_text(row[name], unit, ROUND_CEILING)
    return f"{words} ± {length_text(error, unit, ROUND_CEILING, 2)}" if error else words


def _loss_cell(row: dict[str, Any]) -> str:
    return f"{row['loss']:.4g} ± {row['loss_error']:.1g}" if row["loss_error"] else f"{row['loss']:.4g}"
