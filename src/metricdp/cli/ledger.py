"""`metricdp ledger`: what people have spent."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from metricdp.cli._console import errors, out, print_json
from metricdp.cli._ledger import UnixTime, UserKeyFile, read_user_key
from metricdp.cli._problem import JsonFlag
from metricdp.files.reading import load
from metricdp.ledger.exporting import export_ledger
from metricdp.ledger.reading import Enrolled, LedgerView, declare_moved, read_ledger
from metricdp.ledger.times import seconds, span, span_text, unix_seconds

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="What people have spent: show, look up, export; and say that a ledger was moved.", no_args_is_help=True
)

LedgerPath = Annotated[Path, typer.Argument(metavar="FILE", help="The ledger. Looking at it changes nothing.")]

_SHARES = (0.0, 0.25, 0.5, 0.75, 0.95, 1.0)
_STANDARD = "-"
_UNITS = {"ground": "true km", "own": "unit of its coordinates", None: "unit not known"}


@ledger_app.command("show")
def show_command(file: LedgerPath, *, time: UnixTime = None, as_json: JsonFlag = False) -> None:
    """Show the budget, how many people have had how many reports, and how much is spent; names nobody."""
    facts = read_ledger(file, _facts, now=unix_seconds("time", time))
    if as_json:
        print_json(facts | {"mechanisms": [asdict(one) for one in facts["mechanisms"]]})
    else:
        _show(facts)


@ledger_app.command("user")
def user_command(
    file: LedgerPath,
    user: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The person's id; - reads it from stdin, so that no list of processes shows it."
        ),
    ],
    *,
    mechanism: Annotated[
        Path | None, typer.Option(help="Say how many more reports of this mechanism the rest pays for.")
    ] = None,
    user_key_file: UserKeyFile = None,
    time: UnixTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a person has spent and what remains; somebody who never reported has spent nothing."""
    name = sys.stdin.readline().rstrip("\r\n") if user == _STANDARD else user
    key, wanted = read_user_key(user_key_file), None if mechanism is None else load(mechanism)
    budget, terms = read_ledger(
        file, lambda view: (view.budget(name, wanted, key), view.terms), now=unix_seconds("time", time)
    )
    if as_json:
        print_json(asdict(budget))
        return
    within = "" if terms.window is None else f" in the last {span_text(terms.window)}"
    words = f"spent ε = {budget.spent:g} on {_reports(budget.reports)}{within}; {budget.remaining:g} remains"
    out.print(words, highlight=False)
    if budget.frees_at is not None:
        out.print(f"the first of them stops counting at {_moment(budget.frees_at)}", highlight=False)
    if budget.affordable is not None:
        words = f"that pays for {_reports(budget.affordable, 'more ')} of {mechanism}"
        out.print(words, markup=False, highlight=False)


@ledger_app.command("export")
def export_command(
    file: LedgerPath,
    target: Annotated[Path, typer.Argument(metavar="OUT", help="A new file: .csv, .parquet or .json.")],
    *,
    last_output: Annotated[
        Path | None,
        typer.Option(
            help="Add the last output that each person got from this mechanism. It says where they were "
            "reported to be, so it is left out by default."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    time: UnixTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Write one row per person: user, spent, remaining, reports, and frees_at with a window. Only you may read it."""
    mechanism = None if last_output is None else load(last_output)
    people = export_ledger(file, target, last_output_of=mechanism, overwrite=overwrite, time=time)
    if as_json:
        print_json({"out": str(target), "people": people})
    else:
        out.print(f"{people:,} people written to {target}", markup=False, highlight=False, soft_wrap=True)


@ledger_app.command("moved")
def moved_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ledger, where it is now.")],
    *,
    as_json: JsonFlag = False,
) -> None:
    """Say that a ledger was moved or restored on purpose, and that the one at the old path is not used any more."""
    old = declare_moved(file)
    if as_json:
        print_json({"file": str(file.resolve()), "belonged_at": old})
    elif old is None:
        out.print(f"{file} is where it belongs; nothing was changed", markup=False, highlight=False, soft_wrap=True)
    else:
        words = f"{file} belongs here now. What was spent since it was copied from {old!r} is not known to it."
        out.print(words, markup=False, highlight=False, soft_wrap=True)


def _facts(view: LedgerView) -> dict[str, Any]:
    mechanisms, spent = view.mechanisms(), view.spent()
    total = float(spent.sum())
    shares = np.quantile(spent, _SHARES, method="inverted_cdf").tolist() if len(spent) else [0.0] * len(_SHARES)
    limit = view.terms.max_epsilon or 0.0
    return {
        "file": str(view.path),
        "max_epsilon": limit,
        "window_seconds": seconds(view.terms.window),
        "every_seconds": seconds(view.terms.every),
        "time": None if view.terms.window is None else seconds(view.now),
        "frees_at": view.frees_at(),
        "sticky_km": view.terms.sticky_km,
        "hashed_ids": view.terms.key_check is not None,
        "moved": view.moved,
        "belongs_at": view.home,
        "p": mechanisms[0].p if mechanisms else None,
        "epsilon_per": _UNITS[mechanisms[0].unit] if mechanisms else None,
        "people": len(spent),
        "reports": sum(one.reports for one in mechanisms),
        "spent": total,
        "spent_quantiles": dict(zip((f"{share:.0%}" for share in _SHARES), shares, strict=True)),
        "people_who_spent_all": int(np.count_nonzero(spent >= limit)),
        "mechanisms": mechanisms,
    }


def _show(facts: dict[str, Any]) -> None:
    def say(words: str) -> None:
        out.print(words, markup=False, highlight=False, soft_wrap=True)

    if facts["moved"]:
        words = (
            f"warning: the ledger belongs at {facts['belongs_at']!r} and is refused here; see `metricdp ledger moved`."
        )
        errors.print(words, markup=False, highlight=False, soft_wrap=True)
    sticky = "" if facts["sticky_km"] is None else f", sticky within {facts['sticky_km']:g} km"
    measured = "" if facts["p"] is None else f" per {facts['epsilon_per']}, p = {facts['p']:g}"
    window, every = (_length(facts[name]) for name in ("window_seconds", "every_seconds"))
    within, schedule = window and f" in {window}", every and f", one draw per {every}"
    say(
        f"everybody may spend ε = {facts['max_epsilon']:g}{within}{measured}{schedule}{sticky}; "
        f"ids are {_id_kind(facts)}"
    )
    until = f"in the {window} before {_moment(facts['time'])}" if window else "in all"
    had = f"{facts['people']:,} people had {facts['reports']:,} reports and"
    say(f"{had} spent {facts['spent']:g} {until}")
    if facts["frees_at"] is not None:
        say(f"the first of these charges stops counting at {_moment(facts['frees_at'])}")
    if facts["people"]:
        say("spent by each: " + ", ".join(f"{share} {value:g}" for share, value in facts["spent_quantiles"].items()))
        say(f"{facts['people_who_spent_all']:,} people have spent all")
    if facts["mechanisms"]:
        out.print(_table(facts["mechanisms"]))


def _length(length: float | None) -> str:
    return span_text(span("every", length)) or ""


def _reports(count: int, more: str = "") -> str:
    return f"{count:,} {more}report{'' if count == 1 else 's'}"


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _id_kind(facts: dict[str, Any]) -> str:
    return "stored as keyed hashes" if facts["hashed_ids"] else "stored as they are"


def _table(mechanisms: list[Enrolled]) -> Table:
    shown = Table("mechanism", "ε", "people", "reports", "spent")
    for one in mechanisms:
        shown.add_row(one.sha256[:12], f"{one.epsilon:g}", f"{one.people:,}", f"{one.reports:,}", f"{one.spent:g}")
    return shown
