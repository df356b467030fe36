"""`metricdp fit`: design a mechanism and write it to a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp._lengths import length_km
from metricdp._validation import choice, reject
from metricdp.cli import _problem as options
from metricdp.cli._completion import methods, one_of
from metricdp.cli._console import note, out, print_json, progress_bar
from metricdp.cli._epsilon_map import EpsilonElsewhere, EpsilonMapFile, require_one, the_one_given
from metricdp.cli._writing import require_folder
from metricdp.errors import InvalidInputError
from metricdp.files.header import FORMAT
from metricdp.files.reading import content_hash
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.card import card_facts, mechanism_card
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.fitting import fit
from metricdp.optimise.engines import ENGINES

__all__ = ["fit_command"]

_ENGINES = ", ".join(engine.name for engine in ENGINES)


def _budget(text: str) -> float:
    """Read ε; whoever gives a distance is told which command turns it into ε."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        length_km("--epsilon", text)
    except InvalidInputError:
        msg = f"{text!r} is not a number."
    else:
        msg = f"{text!r} is a distance; `metricdp epsilon --radius {text.replace(' ', '')}` says which ε protects it."
    raise typer.BadParameter(msg)


@options.with_problem_options
def fit_command(
    *,
    epsilon: Annotated[
        float | None,
        typer.Option(
            parser=_budget,
            metavar="<float>",
            help="Privacy budget, per km on a map; smaller is more private. See `metricdp epsilon`.",
        ),
    ] = None,
    epsilon_map: EpsilonMapFile = None,
    epsilon_elsewhere: EpsilonElsewhere = None,
    out_file: Annotated[Path, typer.Option("--out", help="Where to write the mechanism.")] = Path("mechanism.mdp"),
    method: Annotated[
        str, typer.Option(help=f"One of: {', '.join(METHODS)}.", autocompletion=one_of(methods))
    ] = "auto",
    read_problem: options.ReadProblem,
    cells: Annotated[str | None, typer.Option(help="Cells per axis: 16, or 15,16.")] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            help=f"auto, or an engine that the method can use, of: {_ENGINES}.",
            autocompletion=one_of("auto", *_ENGINES.split(", ")),
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="Where auto and the engine tiles solve their tiles: dask://HOST:PORT; here by default."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds; the best certified answer by then. A minute for auto.")
    ] = None,
    refine: Annotated[bool | None, typer.Option("--refine", help="Descend on the true loss (AIPO).")] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="Share of epsilon that AIPO may spend: up to 1, or certified.", autocompletion=one_of("certified")
        ),
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Design a mechanism, prove that it is private, and write it to a file."""
    require_folder("--out", out_file)
    require_one(epsilon, epsilon_map, epsilon_elsewhere)
    design, _ = read_problem()
    given = {
        "cells": _cells(cells), "solver": solver, "executor": _cluster(executor), "time_limit": time_limit,
        "refine": refine, "scale": _scale(scale),
    }  # fmt: skip
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _refuse_unknown(method, chosen, tuple(given))
    budget = the_one_given(epsilon, epsilon_map, epsilon_elsewhere, design)
    with progress_bar(f"fitting {method}") as progress:
        mechanism = fit(design, budget, method, progress=progress, **chosen)
    if isinstance(said := mechanism.report.get("epsilon_map"), str):
        note(f"{said}.")
    if (longer := mechanism.report.get("longer_time_limit")) is not None:
        note(f"A finer spline may lose less than this; it takes about `--time-limit {longer:g}`.")
    mechanism.save(out_file)
    card = _card(mechanism, out_file)
    if as_json:
        print_json(_summary(mechanism) | {"file": str(out_file), "card": card})
    else:
        out.print(mechanism_card(card).rich())
        out.print(f"written to {out_file}", markup=False, soft_wrap=True)


def _refuse_unknown(method: str, chosen: Iterable[str], known: tuple[str, ...]) -> None:
    """Refuse options that the method does not have."""
    taken = {option.name for option in fields(METHODS[choice("method", method, tuple(METHODS))].options)}
    for name in chosen:
        if name not in taken:
            others = ", ".join(_flag(one) for one in known if one in taken)
            msg = f"Method {method!r} has no option `{_flag(name)}`; it has {others}."
            raise InvalidInputError(msg)


def _cluster(text: str | None) -> str | None:
    if text is not None and not re.fullmatch("dask://.+", text):
        raise reject("--executor", "dask://HOST:PORT", repr(text))
    return text


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _summary(mechanism: Mechanism) -> dict[str, Any]:
    """Return what a user wants to know of a fit, as plain data."""
    losses = ("loss", "loss_error", "loss_exact", "loss_without_privacy", "loss_of_uniform_choice")
    return {
        "method": mechanism.method,
        "epsilon": mechanism.epsilon,
        "p": mechanism.p,
        **{name: mechanism.report[name] for name in losses},
        "report": dict(mechanism.report),
    }


def _card(mechanism: Mechanism, file: Path) -> dict[str, Any]:
    """Return what the card of a mechanism says that was fitted and proved here, and written to a file."""
    written = {
        "path": os.fspath(file),
        "bytes": file.stat().st_size,
        "sha256": content_hash(mechanism),
        "format": FORMAT,
        "library": mechanism.report["library"],
    }
    return card_facts(mechanism, certificate=mechanism.report["certificate"], figures_from="fit", file=written)


def _cells(text: str | None) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise reject("--cells", "whole numbers such as 16 or 15,16", repr(text)) from None
    return counts[0] if len(counts) == 1 else counts


def _scale(text: str | None) -> float | str | None:
    """Return a number where there is one; other words are for the method to judge."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text
