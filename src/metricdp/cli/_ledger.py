"""Options of the commands that keep people within a budget: `perturb` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp._validation import reject
from metricdp.cli._completion import one_of
from metricdp.cli._shared_options import SharedOptions, sharing
from metricdp.ledger.options import LedgerOptions

__all__ = ["LEDGER_OPTIONS", "UnixTime", "UserKeyFile", "read_user_key", "with_ledger_options"]

UserKeyFile = Annotated[
    Path | None, typer.Option(help="File of 16 to 64 secret bytes, for a ledger that holds hashes instead of ids.")
]

UnixTime = Annotated[
    float | None,
    typer.Option("--time", help="Unix seconds at which windows are looked at; now by default."),
]

LEDGER_OPTIONS: SharedOptions = {
    "ledger": (
        Annotated[Path | None, typer.Option("--ledger", help="File that records what each person has spent.")],
        None,
    ),
    "max_epsilon": (
        Annotated[float | None, typer.Option(help="Budget of each person, in all or in each --window.")],
        None,
    ),
    "window": (
        Annotated[str | None, typer.Option(help="The budget is for each such length of time: 24h, 90min, 7d.")],
        None,
    ),
    "every": (
        Annotated[str | None, typer.Option(help="Draw once per such period and repeat the answer in it: 10min.")],
        None,
    ),
    "beyond": (
        Annotated[
            str,
            typer.Option(
                help="Once the budget is spent: refuse (null), or repeat-last.",
                autocompletion=one_of("refuse", "repeat-last"),
            ),
        ],
        LedgerOptions.beyond,
    ),
    "sticky_km": (
        Annotated[
            float | None,
            typer.Option(help="Repeat the last report while a person stays this close; see the docs first."),
        ],
        None,
    ),
    "user_key_file": (UserKeyFile, None),
}


def read_user_key(path: Path | None) -> bytes | None:
    """Return the key for ids that a file holds."""
    return None if path is None else path.read_bytes()


def _options(ledger: Path | None, user_key_file: Path | None, **terms: Any) -> LedgerOptions | None:
    if ledger is not None:
        return LedgerOptions(ledger, user_key=read_user_key(user_key_file), **terms)
    for name, value in {**terms, "user_key_file": user_key_file}.items():
        if value != LEDGER_OPTIONS[name][1]:
            raise reject(name, "given together with --ledger", value)
    return None


# Gives a command the options of a ledger; its parameter `ledger` is called with `LedgerOptions`, or None.
with_ledger_options = sharing("ledger", LEDGER_OPTIONS, _options)
