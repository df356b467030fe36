"""`metricdp perturb`: run a mechanism over a file or a folder of points."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from metricdp._point_names import printable
from metricdp._validation import reject
from metricdp.cli._completion import one_of
from metricdp.cli._console import errors, out, print_json, rows_bar, warn
from metricdp.cli._ledger import with_ledger_options
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.cli._signals import said_when_stopped
from metricdp.errors import InvalidInputError
from metricdp.files.reading import load
from metricdp.ledger.options import LedgerOptions
from metricdp.perturb.folder import perturb_folder
from metricdp.perturb.formats import STANDARD
from metricdp.perturb.job import perturb_file
from metricdp.perturb.options import Options
from metricdp.perturb.remote import is_url, located, shown
from metricdp.perturb.summary import Summary

__all__ = ["perturb_command"]


@with_ledger_options
def perturb_command(
    mechanism: MechanismFile,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="CSV, TSV, JSON lines, Parquet, GeoJSON, Arrow, GeoPackage, a folder, a URL, or - (stdin, CSV).",
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="OUT", help="A new file or folder, a URL, or - (stdout, CSV).")],
    *,
    columns: Annotated[
        str | None, typer.Option(help="Columns of the point: lon,lat or x,y or geometry. Guessed by default.")
    ] = None,
    coordinates: Annotated[
        str | None,
        typer.Option(
            help="lonlat (degrees) or projected (the mechanism's own, km). Guessed by default.",
            autocompletion=one_of("lonlat", "projected"),
        ),
    ] = None,
    copy: Annotated[
        str | None,
        typer.Option(help="Other columns to copy: id,time, or all (all numbers and texts; see the docs first)."),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Encoding of text files: utf-16-le, latin-1, cp1252, … UTF-8 by default.")
    ] = Options.encoding,
    outside: Annotated[
        str,
        typer.Option(
            help="Points outside the box: clamp, drop or error.", autocompletion=one_of("clamp", "drop", "error")
        ),
    ] = Options.outside,
    keep_input: Annotated[
        bool, typer.Option("--keep-input", help="Copy the true coordinates too. The output is then not private.")
    ] = Options.keep_input,
    user_column: Annotated[str | None, typer.Option(help="Column that says whose point it is, for the ledger.")] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Column of unix seconds or timestamps, for a ledger with --window or --every.")
    ] = None,
    ledger: LedgerOptions | None = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run was cut off.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT if it exists.")] = False,
    cluster: Annotated[
        str | None, typer.Option(help="Do a folder on a Dask cluster: tcp://HOST:PORT of its scheduler.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report an output for every point of a file; the true coordinates go nowhere."""
    _check_places(source, target, cluster=cluster, overwrite=overwrite, as_json=as_json)
    options = Options(
        columns=_names(columns),
        coordinates=coordinates,
        copy="all" if copy == "all" else _names(copy) or (),
        outside=outside,
        keep_input=keep_input,
        user_column=user_column,
        time_column=time_column,
        encoding=encoding,
    )
    loaded = load(mechanism)
    opened = nullcontext() if ledger is None else ledger.open()
    chosen: dict[str, Any] = {"resume": resume, "warn": warn}
    direct = STANDARD in (source, target) or is_url(located(target))
    advice = "stopped" if direct else "stopped; the same command with --resume goes on"
    with said_when_stopped(advice), opened as book, rows_bar("perturbing") as progress:
        if Path(located(source)).is_dir():
            summary = perturb_folder(
                loaded, source, target, options, ledger=book, cluster=cluster, progress=progress, **chosen
            )
        else:
            summary = perturb_file(
                loaded, source, target, options, ledger=book, overwrite=overwrite, progress=progress, **chosen
            )
    if as_json:
        print_json({"out": shown(target), **summary.to_dict()})
    elif target != STANDARD:
        _show(summary, shown(target))
    else:
        _show_counts(summary, errors)
        if copy == "all":
            _show_columns(summary, errors)


def _check_places(source: str, target: str, *, cluster: str | None, overwrite: bool, as_json: bool) -> None:
    folder = Path(located(source)).is_dir()
    if as_json and target == STANDARD:
        msg = "`--json` cannot be used where the output goes to stdout, since both would be written there."
        raise InvalidInputError(msg)
    if cluster is not None and not folder:
        raise reject("--cluster", "used with a folder, whose files are given to the workers", shown(source))
    if overwrite and folder:
        raise reject("--overwrite", "used with a single file", source)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(text.split(","))


def _show(summary: Summary, target: str) -> None:
    counts = summary.counts
    if summary.already_complete:
        out.print(f"{target} is complete; nothing was done", markup=False, soft_wrap=True)
        return
    files = f" in {summary.files:,} files" if summary.files > 1 else ""
    out.print(
        f"{counts.rows_out:,} rows{files} written to {target} in {summary.seconds:.1f} s, "
        f"{summary.rows_per_second:,.0f} rows/s",
        markup=False,
        soft_wrap=True,
    )
    _show_counts(summary, out)
    _show_columns(summary, out)


def _show_counts(summary: Summary, console: Console) -> None:
    """Say how many rows were not simply drawn; the counts are exact, so they are not private."""
    counts = summary.counts
    said = {
        "had been drawn before": summary.resumed,
        "had no point and have no output": counts.nulls,
        "were outside the box": counts.outside,
        "were not finite and were dropped": counts.not_finite,
        "were refused, because their budget was spent": counts.refused,
        "were refused, because their time is before that of their person's last draw": counts.late,
    }
    for words, count in said.items():
        if count:
            console.print(f"{count:,} {words}", highlight=False)


def _show_columns(summary: Summary, console: Console) -> None:
    """Name the columns that were copied, and those that `--copy all` left out."""
    names = ", ".join(map(printable, summary.copied))
    left_out = ", ".join(f"{printable(name)} ({reason})" for name, reason in summary.not_copied.items())
    for words, listed in (("copied as they are", names), ("not copied", left_out)):
        if listed:
            console.print(f"{words}: {listed}", markup=False, highlight=False, soft_wrap=True)
