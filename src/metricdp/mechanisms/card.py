"""The card of a mechanism: what it promises and what it costs, in words and as plain data.

Loss and distances are in the mechanism's report, where the fit put them. In a mechanism that was read from a file they
are claims of that file; the card says so, and says whether the promise was proved here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import TYPE_CHECKING, Any

from metricdp._cards import Card
from metricdp._lengths import length_text

if TYPE_CHECKING:
    from metricdp.mechanisms.base import Mechanism

__all__ = ["card_facts", "map_facts", "mechanism_card", "promise"]

# What else a report may say is cut at this length.
_LONGEST_TEXT = 40

_FIGURES = (
    "report_distance_95",
    "report_distance_95_error",
    "report_distance_95_without_privacy",
    "loss",
    "loss_error",
    "loss_without_privacy",
    "loss_of_uniform_choice",
)


def promise(radius: float, ratio: float, unit: str) -> str:
    """Return what a protection radius means.

    Examples
    --------
    >>> promise(0.125, math.e, "km")
    'Within 125 m no report is more than e (about 2.72) times likelier from one place than from another.'
    """
    times = "e (about 2.72)" if ratio == math.e else f"{ratio:g}"
    within = length_text(radius, unit, ROUND_FLOOR)
    return f"Within {within} no report is more than {times} times likelier from one place than from another."


def card_facts(
    mechanism: Mechanism,
    *,
    certificate: Mapping[str, Any] | None = None,
    figures_from: str = "report",
    file: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a card says, as plain data with the same keys for every mechanism; see docs/choosing-epsilon.md.

    certificate : of a proof that was made here; None if none was.
    figures_from : who says loss and distances: "fit", if it was made here, "file" or "report".
    file : path, bytes, sha256, format and library of the mechanism's file.
    """
    epsilon, local = mechanism.straight_epsilon, map_facts(mechanism)
    figures = {name: _number(mechanism.report.get(name)) for name in _FIGURES}
    unit = "km" if mechanism.projection is not None else ""
    return {
        "promise": _promised(epsilon, local, unit) if math.isfinite(epsilon) else "",
        "proof": _proof(mechanism, certificate),
        "method": mechanism.method,
        "kind": mechanism.kind,
        "epsilon": mechanism.epsilon,
        "epsilon_map": local,
        "p": mechanism.p,
        "distance": mechanism.distance,
        "distance_unit": unit,
        "protection_radius_e": 1 / epsilon,
        "protection_radius_2": math.log(2) / epsilon,
        "rounding": mechanism.straight_rounding if math.isfinite(epsilon) else math.inf,
        "figures_from": figures_from,
        **figures,
        "loss_exact": exact if isinstance(exact := mechanism.report.get("loss_exact"), bool) else None,
        "loss_unit": _text(mechanism.report.get("loss_unit")),
        "outputs": mechanism.n_outputs,
        "box": mechanism.bounds.tolist(),
        "box_lonlat": None
        if mechanism.projection is None
        else mechanism.projection.to_lonlat(mechanism.bounds).tolist(),
        "file": None if file is None else dict(file),
    }


def map_facts(mechanism: Mechanism) -> dict[str, Any] | None:
    """Return the range of ε, and of the radii that it protects, where it varies over the box; None for one ε."""
    local = mechanism.epsilon_map
    if local is None or local.is_constant:
        return None
    straight = mechanism.straight_epsilon / mechanism.epsilon
    return {
        "least": local.min,
        "most": local.max,
        "radius_least": 1 / (local.max * straight),
        "radius_most": 1 / (local.min * straight),
        "cells": list(local.shape),
    }


def _promised(epsilon: float, local: Mapping[str, Any] | None, unit: str) -> str:
    words = promise(1 / epsilon, math.e, unit)
    if local is None:
        return words
    far = length_text(local["radius_most"], unit, ROUND_FLOOR)
    return f"{words[:-1]}; within {far} where ε is {local['least']:g} all the way between them."


def _proof(mechanism: Mechanism, certificate: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return whether the promise was proved here, whether it holds then, and whether the report has a certificate."""
    metres = None if certificate is None else certificate["metres"]
    return {
        "proved_here": certificate is not None,
        "holds": None if certificate is None else bool(certificate["holds"]),
        "claim": None if certificate is None else str(certificate["claim"]),
        "on_the_ground": None if metres is None else str(metres["statement"]),
        "certificate_in_report": isinstance(mechanism.report.get("certificate"), Mapping),
    }


def mechanism_card(facts: Mapping[str, Any]) -> Card:
    """Return the card that says `card_facts` in words."""
    said = {"fit": "", "file": " (says the file)", "report": " (says the report)"}[facts["figures_from"]]
    rows = [
        _promise_row(facts),
        ("protection radius", _radii(facts)),
        (f"95 % of reports{said}", _report_distance(facts)),
    ]
    if facts["outputs"]:
        rows += [(f"expected loss{said}", _loss(facts)), (f"for comparison{said}", _comparison(facts))]
    rows += [
        ("method", f"{facts['method']}, a mechanism of kind {facts['kind']}"),
        ("ε", _epsilon(facts)),
        ("outputs", str(facts["outputs"]) if facts["outputs"] else "none: it reports coordinates"),
        ("box", _box(facts)),
        ("certificate", _certificate(facts)),
    ]
    if facts["proof"]["on_the_ground"]:
        rows.append(("on the ground", facts["proof"]["on_the_ground"]))
    if facts["file"] is not None:
        file = facts["file"]
        rows.append(
            ("file", f"{file['path']}, {file['bytes']:,} bytes, format {file['format']}, by metricdp {file['library']}")
        )
        rows.append(("sha256", file["sha256"]))
    return Card(f"Mechanism {facts['method']}, ε = {_range(facts)}", tuple(rows))


def _promise_row(facts: Mapping[str, Any]) -> tuple[str, str]:
    if not facts["promise"]:
        return "promise", "None on the ground: its box reaches a pole or half around the Earth."
    if facts["proof"]["holds"] is False:
        return "promise", "None: what it claims could not be proved."
    return ("promise" if facts["proof"]["holds"] else "claim, not proved here"), facts["promise"]


def _radii(facts: Mapping[str, Any]) -> str:
    e, two = (
        length_text(facts[name], facts["distance_unit"], ROUND_FLOOR) if facts[name] else "none"
        for name in ("protection_radius_e", "protection_radius_2")
    )
    if facts["epsilon_map"] is not None:
        far = length_text(facts["epsilon_map"]["radius_most"], facts["distance_unit"], ROUND_FLOOR)
        e = f"from {e} to {far}, depending on the place,"
        two = f"at least {two}"
    words = f"{e} for a ratio of e, {two} for a ratio of 2"
    if not (facts["rounding"] and math.isfinite(facts["rounding"])):
        return words
    rounding = facts["rounding"] * 1e6 if facts["distance_unit"] else facts["rounding"]
    unit = " mm" if facts["distance_unit"] else ""
    return f"{words}; rounding counts for {length_text(rounding, '', ROUND_CEILING)}{unit} of it"


def _report_distance(facts: Mapping[str, Any]) -> str:
    distance, unit = facts["report_distance_95"], facts["distance_unit"]
    if distance is None or distance < 0:
        return "not known"
    error = facts["report_distance_95_error"]
    more = f" (estimate, standard error {length_text(error, unit, ROUND_CEILING, 2)})" if error else ""
    return f"within {length_text(distance, unit, ROUND_CEILING)} of where one is{more}"


def _loss(facts: Mapping[str, Any]) -> str:
    if facts["loss"] is None:
        return "not known"
    words = _with_unit(facts["loss"], facts)
    if facts["loss_exact"]:
        return f"{words}, exact"
    if facts["loss_error"] is None:
        return f"{words}; whether it is exact is not said"
    return f"{words} (estimate, standard error {facts['loss_error']:.2g})"


def _comparison(facts: Mapping[str, Any]) -> str:
    floor, uniform = facts["loss_without_privacy"], facts["loss_of_uniform_choice"]
    if floor is None or uniform is None:
        return "not known"
    return f"loss {_with_unit(floor, facts)} without privacy, {_with_unit(uniform, facts)} with reports at random"


def _with_unit(loss: float, facts: Mapping[str, Any]) -> str:
    return f"{loss:.4g} {facts['loss_unit']}".rstrip()


def _epsilon(facts: Mapping[str, Any]) -> str:
    per = {"ground": "true km", "plane": "km of the map" if facts["distance_unit"] else "unit of distance"}
    words = f"{_range(facts)} per {per[facts['distance']]}, measured in d_{facts['p']:g}"
    if facts["epsilon_map"] is None:
        return words
    cells = " x ".join(map(str, facts["epsilon_map"]["cells"]))
    return f"{words}; a map of {cells} cells, and a ledger charges the largest"


def _range(facts: Mapping[str, Any]) -> str:
    local = facts["epsilon_map"]
    return f"{facts['epsilon']:g}" if local is None else f"{local['least']:g} to {local['most']:g}"


def _box(facts: Mapping[str, Any]) -> str:
    low, high = facts["box"]
    if facts["box_lonlat"] is None:
        return " x ".join(f"[{a:.6g}, {b:.6g}]" for a, b in zip(low, high, strict=True))
    sides = " x ".join(f"{b - a:.4g}" for a, b in zip(low, high, strict=True))
    (west, south), (east, north) = facts["box_lonlat"]
    return f"{sides} km; longitude {west:.5f} to {east:.5f}, latitude {south:.5f} to {north:.5f}"


def _certificate(facts: Mapping[str, Any]) -> str:
    proof = facts["proof"]
    if proof["proved_here"]:
        return f"{'proved here' if proof['holds'] else 'NOT PROVED'}: {proof['claim']}"
    where = "file" if facts["file"] is not None else "report"
    if proof["certificate_in_report"]:
        return f"not proved here; the {where} says that it was proved when it was made"
    return f"not proved here, and the {where} has no certificate"


def _number(value: object) -> float | None:
    """Return a finite number of a report; a stranger's file may hold anything there."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _text(value: object) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""
