"""`metricdp epsilon`: which ε keeps a promise, and what it costs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from metricdp._lengths import length_km
from metricdp._validation import reject
from metricdp.cli import _problem as options
from metricdp.cli._by_density import settings_of, tell_map
from metricdp.cli._completion import methods, one_of
from metricdp.cli._console import named_as, out, print_json, progress_bar
from metricdp.cli._writing import require_folder
from metricdp.errors import InvalidInputError
from metricdp.experiments.canvas import picture_kind
from metricdp.experiments.epsilon_choice import EpsilonChoice, choose_epsilon
from metricdp.mechanisms.families import METHODS
from metricdp.problem import Problem

__all__ = ["epsilon_command"]

# What a column of a table takes besides its text: a line, and a space on both sides.
_BORDER = 3


@options.with_problem_options
def epsilon_command(
    *,
    radius: Annotated[
        str | None,
        typer.Option(help="The distance to protect: 500m or 0.5km on a map, a plain number for other coordinates."),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(help="Or: how far off an adversary should still be, written in the same way; see --reports."),
    ] = None,
    by_density: Annotated[
        str | None,
        typer.Option(
            help="Or: a map with an ε for each place, by how many people are near: people=500,least=2,most=8."
        ),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="Where to write the map of --by-density, for `fit --epsilon-map`.")
    ] = None,
    reports: Annotated[int, typer.Option(help="Reports from one place that the adversary of --error has seen.")] = 1,
    ratio: Annotated[
        str,
        typer.Option(
            help="How many times likelier a report may be within the radius: e, or a number above 1.",
            autocompletion=one_of("e", "2", "1.5"),
        ),
    ] = "e",
    method: Annotated[
        str, typer.Option(help=f"Whose costs are shown, one of: {', '.join(METHODS)}.", autocompletion=one_of(methods))
    ] = "laplace-remap",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", "--figures", help="Also draw losses and distances over ε, or the map, into this file."),
    ] = None,
    read_problem: options.ReadProblem,
    as_json: options.JsonFlag = False,
) -> None:
    """Choose ε from a distance that is to be protected, and show what it and others cost."""
    density = _density(by_density, {"--radius": radius, "--error": error}, out_file)
    times = _ratio(ratio)
    require_folder("--out", out_file)
    if plot is not None:
        with named_as({"path": "--plot"}):
            picture_kind(plot)  # before the work, not after it
        require_folder("--plot", plot)
    design, _ = read_problem()
    if density is not None:
        tell_map(design, density, out_file, plot, as_json=as_json)
        return
    distances = {
        "radius_km": None if radius is None else _distance("--radius", radius, design),
        "error_km": None if error is None else _distance("--error", error, design),
    }
    with named_as({"radius_km": "--radius", "error_km": "--error"}), progress_bar("choosing ε") as progress:
        found = choose_epsilon(design, ratio=times, method=method, reports=reports, progress=progress, **distances)
    if plot is not None:
        found.plot(plot)
    if as_json:
        print_json({**found.to_dict(), "plot": None if plot is None else str(plot)})
    else:
        _show(found, plot)


def _density(text: str | None, others: dict[str, str | None], out_file: Path | None) -> dict[str, Any] | None:
    """Return the settings of `--by-density`, or None; what is protected must be said in one way."""
    given = [option for option, value in others.items() if value is not None]
    if text is None:
        if not given:
            raise InvalidInputError(
                "Give `--radius`, a distance to protect, `--error`, how far off an adversary should be, "
                "or `--by-density`."
            )
        if out_file is not None:
            raise InvalidInputError("`--out` is about the map of `--by-density`, which is not given.")
        return None
    if given:
        raise InvalidInputError(f"`--by-density` and `{given[0]}` exclude each other; leave one of them out.")
    return settings_of(text)


def _ratio(text: str) -> float:
    try:
        ratio = math.e if text == "e" else float(text)
    except ValueError:
        ratio = math.nan
    if not (math.isfinite(ratio) and ratio > 1):
        raise reject("--ratio", "e or a number above 1, such as 2 or 1.5", repr(text))
    return ratio


def _distance(option: str, text: str, problem: Problem) -> float:
    """Return a distance in the problem's own unit; a unit only where there is a map to measure it on."""
    if problem.projection is not None:
        return length_km(option, text)
    try:
        distance = float(text)
    except ValueError:
        distance = math.nan
    if not (math.isfinite(distance) and distance > 0):
        rule = "a positive number without a unit, because this problem has no longitude and latitude"
        raise reject(option, rule, repr(text))
    return distance


def _show(found: EpsilonChoice, plot: Path | None) -> None:
    out.print(found.card.rich())
    out.print(_table(*found.words))
    if plot is not None:
        out.print(f"drawn to {plot}", markup=False, soft_wrap=True)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table in which no figure is cut, from 60 columns on.

    In a narrow terminal heads take up to three lines, and then standard errors a line of their own.
    """
    apart = [[cell.replace(" ± ", "\n± ") for cell in row] for row in rows]
    for cells, lines in ((rows, 1), (rows, 2), (rows, 3), (apart, 3)):
        widths = [
            max(_head_width(head, lines), *(cell_len(line) for cell in column for line in cell.split("\n")))
            for head, column in zip(heads, zip(*cells, strict=True), strict=True)
        ]
        if sum(widths) + _BORDER * len(widths) + 1 <= out.width:
            break
    table = Table(title="what other ε would cost", title_justify="left")
    for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(Text(head), justify="right" if index else "left", width=width)
    for row in cells:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    return table


def _head_width(head: str, lines: int) -> int:
    """Return the least width at which a head goes into so many lines without breaking a word."""
    ways = (textwrap.wrap(head, width, break_long_words=False) for width in range(1, len(head) + 1))
    return min((max(map(cell_len, way)) for way in ways if len(way) <= lines), default=0)
