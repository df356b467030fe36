"""Options of the commands that keep people within a budget: `perturb` and `serve`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from metricdp._validation import reject
from metricdp.cli._completion import one_of

__all__ = ["Beyond", "LedgerFile", "MaxEpsilon", "StickyKm", "refuse_without_ledger"]

LedgerFile = Annotated[Path | None, typer.Option("--ledger", help="File that records what each person has spent.")]
MaxEpsilon = Annotated[float | None, typer.Option(help="Budget of each person, in all.")]
Beyond = Annotated[
    str,
    typer.Option(
        help="Once the budget is spent: refuse (null), or repeat-last.",
        autocompletion=one_of("refuse", "repeat-last"),
    ),
]
StickyKm = Annotated[
    float | None, typer.Option(help="Repeat the last report while a person stays this close; see the docs first.")
]


def refuse_without_ledger(options: Mapping[str, object]) -> None:
    """Refuse options that have no meaning without a ledger."""
    for option, value in options.items():
        if value is not None:
            raise reject(option, "given together with --ledger", value)
