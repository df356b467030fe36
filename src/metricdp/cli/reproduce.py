"""`metricdp reproduce`: the paper's experiments, recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp._validation import choice
from metricdp.cli import _completion
from metricdp.cli._console import errors, out, print_json
from metricdp.cli._problem import JsonFlag, numbers
from metricdp.cli._signals import said_when_stopped
from metricdp.experiments.engine.progress import board_on
from metricdp.experiments.paper.plan import COMPARED, EXPERIMENTS
from metricdp.experiments.paper.reproducing import Reproduction, reproduce

__all__ = ["reproduce_command"]


def reproduce_command(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Some of: {', '.join(EXPERIMENTS)}; or all, which is the default.",
            autocompletion=_completion.one_of(*EXPERIMENTS, "all"),
        ),
    ] = None,
    *,
    cities: Annotated[
        str | None,
        typer.Option(
            help="Names or paths, as `metricdp cities` knows them. [rome,london,nyc]",
            autocompletion=_completion.some_of(_completion.cities),
        ),
    ] = None,
    epsilons: Annotated[str | None, typer.Option(help="Budgets per km. [0.2:1.6:0.2]")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Some of: {','.join(COMPARED)}. All by default.", autocompletion=_completion.some_of(*COMPARED)
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often outputs and tasks are drawn; the paper's code has 20.")] = 1,
    workers: Annotated[
        int | None, typer.Option(help="Processes, fewer where memory is short. [as many as processors]")
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the report and of finished jobs; a stopped run goes on from it.")
    ] = Path("reproduce"),
    executor: Annotated[str, typer.Option(help="local, or dask://HOST:PORT for a Dask cluster.")] = "local",
    auto_seconds: Annotated[float, typer.Option(help="Seconds for each fit of the method auto.")] = 60.0,
    quick: Annotated[bool, typer.Option("--quick", help="Small versions of everything, on Helsinki.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Recompute the paper's tables and figures and say where they come out differently, and why.

    Stop it at any moment and run the same command again: finished jobs are not computed twice. Exit code 1 if a
    mechanism that the paper calls private broke its guarantee, or a job failed.
    """
    with said_when_stopped("stopped; the same command goes on from here"), board_on(errors) as board:
        found = reproduce(
            _experiments(experiments),
            out=folder,
            cities=None if cities is None else cities.split(","),
            epsilons=None if epsilons is None else numbers("--epsilons", epsilons),
            methods=COMPARED if methods is None else methods.split(","),
            repeats=repeats,
            workers=workers,
            executor=executor,
            auto_seconds=auto_seconds,
            quick=quick,
            board=board,
        )
    if as_json:
        print_json(_answer(found))
    else:
        _show(found)
    if found.checks.broken or found.checks.failed:
        raise typer.Exit(1)


def _experiments(asked: list[str] | None) -> list[str]:
    for name in asked or []:
        choice("experiments", name, (*EXPERIMENTS, "all"))
    return list(EXPERIMENTS) if not asked or "all" in asked else list(dict.fromkeys(asked))


def _answer(found: Reproduction) -> dict[str, Any]:
    return {
        "private_as_claimed": found.checks.private,
        "broken": list(found.checks.broken),
        "failed_jobs": found.checks.failed,
        "losses": found.evidence.losses.astype(object).where(found.evidence.losses.notna(), None).to_dict("records"),
        "files": found.files,
    }


def _show(found: Reproduction) -> None:
    for city, rows in found.evidence.losses.groupby("city", sort=False):
        wide = rows.pivot_table(index="method", columns="epsilon", values="loss", sort=False)
        out.print(f"[bold]{city}[/], expected loss in km")
        out.print(wide.to_string(float_format="%.3f"), highlight=False, markup=False)
    verdict = "[green]none broke mDP[/]" if found.checks.private else "[red]broken: " + "; ".join(found.checks.broken)
    out.print(f"mechanisms that the paper calls private: {verdict}", soft_wrap=True)
    if found.checks.failed:
        out.print(f"[red]{found.checks.failed} jobs failed[/]; the report names them")
    out.print("written: " + ", ".join(found.files.values()), soft_wrap=True)
