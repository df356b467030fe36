"""`metricdp audit`: look for violations of a mechanism file's claim."""

from __future__ import annotations

from typing import Annotated

import typer

from metricdp.auditing.pairs import audit
from metricdp.auditing.samples import SampleAudit, audit_samples
from metricdp.cli._console import out, print_json, progress_bar
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.errors import InvalidInputError
from metricdp.files.reading import load
from metricdp.mechanisms.base import Mechanism

__all__ = ["audit_command"]

_PAIRS = 100_000


def audit_command(
    file: MechanismFile,
    *,
    pairs: Annotated[int | None, typer.Option(help=f"Pairs of points to compare; {_PAIRS:,} by default.")] = None,
    slack: Annotated[
        float | None, typer.Option(help="Count as the paper's code does, with this slack in probability.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Judge by this many draws alone, blind to probabilities (a black box).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Search for pairs of points that break the guarantee; exit code 1 if any is found."""
    for option, value in (("--pairs", pairs), ("--slack", slack)):
        if samples is not None and value is not None:
            msg = f"`--samples` compares no probabilities, so `{option}` has no meaning with it; leave one of them out."
            raise InvalidInputError(msg)
    mechanism = load(file, certify=False)
    if samples is None:
        violates = _by_probabilities(mechanism, _PAIRS if pairs is None else pairs, slack, as_json=as_json)
    else:
        violates = _by_samples(mechanism, samples, as_json=as_json)
    if violates:
        raise typer.Exit(1)


def _by_probabilities(mechanism: Mechanism, pairs: int, slack: float | None, *, as_json: bool) -> bool:
    with progress_bar("auditing"):
        found = audit(mechanism, pairs=pairs, slack=slack)
    if as_json:
        print_json(found.to_dict())
    else:
        out.print(
            f"{found.compared:,} comparisons: {found.violation_ratio:.4%} violate; "
            f"worst ratio {found.max_ratio:.6f} of ε"
        )
    return found.violation_ratio > 0


def _by_samples(mechanism: Mechanism, samples: int, *, as_json: bool) -> bool:
    with progress_bar("auditing") as progress:
        found = audit_samples(mechanism, samples=samples, progress=progress)
    if as_json:
        print_json(found.to_dict())
    else:
        out.print(_in_words(found, " km" if mechanism.projection is not None else ""), markup=False, soft_wrap=True)
    return found.violates


def _in_words(found: SampleAudit, unit: str) -> str:
    """Say what was proved, and from which draws."""
    verdict = "violated" if found.violates else "consistent"
    worst = found.worst_pair
    event = ", ".join(map(str, worst["event"]))
    here, there = worst["seen"]
    return (
        f"samples alone show ε ≥ {found.epsilon_lower:.3g} per{unit or ' unit of distance'} "
        f"(claimed {found.epsilon:g}): {verdict}\n"
        f"confidence {100 * found.confidence:.6g}% from {found.samples:,} draws; from points "
        f"{worst['distance']:.3g}{unit} apart, outputs {{{event}}} were seen {here:,} and {there:,} times "
        f"in {worst['draws']:,} draws each"
    )
