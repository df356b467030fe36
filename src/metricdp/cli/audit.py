"""`metricdp audit`: look for violations of a mechanism file's claim."""

from __future__ import annotations

from typing import Annotated

import typer

from metricdp.audit import audit
from metricdp.cli._console import out, print_json, progress_bar
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.files import load

__all__ = ["audit_command"]


def audit_command(
    file: MechanismFile,
    *,
    pairs: Annotated[int, typer.Option(help="Pairs of points to compare.")] = 100_000,
    slack: Annotated[
        float | None, typer.Option(help="Count as the paper's code does, with this slack in probability.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for pairs of points that break the guarantee; exit code 1 if any is found."""
    with progress_bar("auditing"):
        found = audit(load(file), pairs=pairs, slack=slack)
    if as_json:
        print_json(found.to_dict())
    else:
        out.print(
            f"{found.compared:,} comparisons: {found.violation_ratio:.4%} violate; "
            f"worst ratio {found.max_ratio:.6f} of ε"
        )
    if found.violation_ratio > 0:
        raise typer.Exit(1)
