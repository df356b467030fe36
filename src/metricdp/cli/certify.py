"""`metricdp certify`: whether a mechanism file is private."""

from __future__ import annotations

import math

import typer

from metricdp.certify import Certificate, certify
from metricdp.cli._console import out, print_json
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.files import load

__all__ = ["certify_command"]


def certify_command(file: MechanismFile, *, as_json: JsonFlag = False) -> None:
    """Prove from the file alone that a mechanism is private; exit code 1 if that fails."""
    mechanism = load(file)
    certificate = certify(mechanism)
    if as_json:
        print_json(certificate.to_dict())
    else:
        _show(certificate, city=mechanism.projection is not None)
    if not certificate.holds:
        raise typer.Exit(1)


def _show(certificate: Certificate, *, city: bool) -> None:
    verdict = "[bold green]holds[/]" if certificate.holds else "[bold red]does not hold[/]"
    out.print(f"{verdict}: {certificate.claim}", soft_wrap=True)
    if certificate.holds and city:
        ratio = math.exp(certificate.epsilon * 0.5)
        out.print(
            f"Two people 500 m apart: no report is more than {ratio:.3g} times likelier from one than from the other."
        )
    out.print(f"worst ratio {certificate.worst_ratio:.6f} of ε at {certificate.worst_where}", soft_wrap=True)
    out.print(f"{certificate.checked:,} comparisons in {certificate.seconds:.2f} s")
