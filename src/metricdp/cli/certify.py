"""`metricdp certify`: whether a mechanism file is private."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import typer

from metricdp.certificates.proving import Certificate, certify
from metricdp.cli._console import out, print_json
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.files.reading import MechanismFile as Contents
from metricdp.files.reading import read_file

__all__ = ["certify_command"]

# How far apart the two people of the answer are, where distances are kilometres.
_KILOMETRES = 0.5

# Larger exponents have no number that says more than they do.
_LARGEST_EXPONENT = 20.0


def certify_command(file: MechanismFile, *, as_json: JsonFlag = False) -> None:
    """Prove from the file alone that a mechanism is private; exit code 1 if that fails."""
    contents = read_file(file)
    with np.errstate(all="ignore"):  # numbers from elsewhere may overflow; the proof fails then
        certificate = certify(contents.mechanism)
    if as_json:
        print_json({"file": str(file), **_identity(contents), **certificate.to_dict()})
    else:
        _show(contents, certificate)
    if not certificate.holds:
        raise typer.Exit(1)


def _identity(contents: Contents) -> dict[str, Any]:
    return {
        "method": contents.mechanism.method,
        "kind": contents.mechanism.kind,
        "format": contents.format,
        "library": contents.library,
        "sha256": contents.sha256,
    }


def _show(contents: Contents, certificate: Certificate) -> None:
    verdict = "[bold green]holds[/]" if certificate.holds else "[bold red]does not hold[/]"
    out.print(f"{verdict}: {certificate.claim}", soft_wrap=True)
    if certificate.holds:
        out.print(_in_words(certificate), soft_wrap=True)
    stored = "as stored" if contents.format > 1 else "not stored"
    lines = [
        f"worst ratio {certificate.worst_ratio:.6f} of ε{_place(certificate.worst_where)}",
        f"{certificate.checked:,} comparisons in {certificate.seconds:.2f} s",
        f"box {_box(contents)}; {contents.mechanism.n_outputs} outputs",
        f"method {contents.mechanism.method}; file format {contents.format}, metricdp {contents.library}",
        f"sha256 {contents.sha256[:16]}…, {stored}",
    ]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _in_words(certificate: Certificate) -> str:
    """Say what ε means for two people at a distance that is easy to imagine: 500 m, or that of a factor e."""
    metres = certificate.metres
    if metres is None:
        distance = 1 / certificate.epsilon
        who, exponent = f"Two points {distance:.3g} (1/ε) apart", certificate.epsilon * distance
    else:
        who, exponent = "Two people 500 m apart", metres.epsilon_per_km * _KILOMETRES
    ratio = f"{math.exp(exponent):.3g}" if exponent <= _LARGEST_EXPONENT else f"e^{exponent:.3g}"
    words = f"{who}: no report is more than {ratio} times likelier from one than from the other."
    return words if metres is None else f"{metres.statement}\n{words}"


def _place(where: dict[str, Any]) -> str:
    if not where:
        return ""  # a bound that is the same everywhere
    points = " and ".join("(" + ", ".join(f"{x:.10g}" for x in point) + ")" for point in where["points"])
    return f" at {points}, output {where['output']}" if "output" in where else f" at {points}"


def _box(contents: Contents) -> str:
    sides = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in contents.mechanism.bounds.T)
    return f"{sides} km" if contents.mechanism.projection is not None else sides
