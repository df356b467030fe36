"""The options that describe a design problem: a city, an `.npz` file, or CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricdp import cities
from metricdp._validation import reject
from metricdp.cities import RoadNetwork
from metricdp.cli._console import named_as
from metricdp.cli._problem_files import read_problem
from metricdp.errors import InvalidInputError
from metricdp.problem import Problem

__all__ = [
    "City",
    "JsonFlag",
    "Loss",
    "MechanismFile",
    "NOutputs",
    "NTasks",
    "Norm",
    "Outputs",
    "Prior",
    "ProblemFile",
    "Records",
    "Seed",
    "design_problem",
    "numbers",
]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
MechanismFile = Annotated[Path, typer.Argument(help="A mechanism file.")]
ProblemFile = Annotated[
    Path | None,
    typer.Argument(help="An .npz with arrays records, outputs and optionally loss, prior, bounds."),
]
City = Annotated[str | None, typer.Option(help="A city by name, or the path of a network: see `metricdp cities`.")]
NOutputs = Annotated[int, typer.Option("--n-outputs", help="Places of the city that may be reported.")]
NTasks = Annotated[int, typer.Option("--n-tasks", help="Places of the city that people travel to.")]
Seed = Annotated[int, typer.Option(help="Which outputs and tasks are drawn.")]
Norm = Annotated[float, typer.Option("--p", help="Order of the norm that measures distance: 1, 2, inf, …")]
Records = Annotated[Path | None, typer.Option(help="CSV of records, instead of an .npz.")]
Outputs = Annotated[Path | None, typer.Option(help="CSV of outputs.")]
Loss = Annotated[str | None, typer.Option(help="euclidean, squared, or a CSV (records x outputs).")]
Prior = Annotated[Path | None, typer.Option(help="CSV with one weight per record.")]


def design_problem(
    file: Path | None,
    city: str | None,
    *,
    n_outputs: int,
    n_tasks: int,
    seed: int,
    p: float,
    records: Path | None,
    outputs: Path | None,
    loss: str | None,
    prior: Path | None,
) -> tuple[Problem, RoadNetwork | None]:
    """Return the problem that the options describe, and the city if it came from one."""
    if city is None:
        return read_problem(file, records=records, outputs=outputs, loss=loss, prior=prior, p=p), None
    others = {"--records": records, "--outputs": outputs, "--loss": loss, "--prior": prior, str(file): file}
    for other, given in others.items():
        if given is not None:
            raise InvalidInputError(f"`--city` brings its own records, outputs and loss; leave out `{other}`.")
    network = cities.load(city)
    # The method of a network calls these two as the options for files are called.
    with named_as({"outputs": "--n-outputs", "tasks": "--n-tasks"}):
        return network.problem(outputs=n_outputs, tasks=n_tasks, seed=seed, p=p), network


def numbers(option: str, text: str) -> list[float]:
    """Read "0.2,0.4" or "0.2:1.6:0.2" (from, to, step)."""
    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            count = round((last - first) / step)
            return [round(first + index * step, 12) for index in range(count + 1)]
        return [float(part) for part in text.split(",")]
    except (ValueError, ZeroDivisionError):
        raise reject(option, "numbers such as 0.2,0.4 or 0.2:1.6:0.2", repr(text)) from None
