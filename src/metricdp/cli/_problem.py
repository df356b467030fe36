"""The options that describe a design problem: a city, an `.npz` file, or files of places."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from metricdp import cities
from metricdp._validation import reject
from metricdp.cities import RoadNetwork
from metricdp.cli import _completion
from metricdp.cli._console import named_as
from metricdp.cli._problem_files import Files, own_places, read_problem
from metricdp.cli._shared_options import SharedOptions, sharing
from metricdp.errors import InvalidInputError
from metricdp.problem import Problem

__all__ = [
    "City",
    "Columns",
    "Coordinates",
    "Encoding",
    "JsonFlag",
    "MechanismFile",
    "Prior",
    "ReadProblem",
    "Records",
    "design_problem",
    "numbers",
    "with_problem_options",
]

# What is drawn from a city unless options say otherwise.
_N_OUTPUTS, _N_TASKS, _SEED = 20, 50, 0

# The problem that options describe, and the city if it came from one; the files are read when it is called.
ReadProblem = Callable[[], tuple[Problem, RoadNetwork | None]]

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
MechanismFile = Annotated[Path, typer.Argument(help="A mechanism file.")]
ProblemFile = Annotated[
    Path | None,
    typer.Argument(help="An .npz with arrays records, outputs and optionally loss, prior, bounds."),
]
City = Annotated[
    str | None,
    typer.Option(
        help="A city by name, or the path of a network: see `metricdp cities`.",
        autocompletion=_completion.one_of(_completion.cities),
    ),
]
# Without a default, so that one that is given where there is no city to draw from can be refused.
NOutputs = Annotated[
    int | None, typer.Option("--n-outputs", help=f"Places of the city that may be reported; {_N_OUTPUTS} by default.")
]
NTasks = Annotated[
    int | None, typer.Option("--n-tasks", help=f"Places of the city that people travel to; {_N_TASKS} by default.")
]
Seed = Annotated[int | None, typer.Option(help=f"Which outputs and tasks are drawn; {_SEED} by default.")]
Norm = Annotated[
    float,
    typer.Option(
        "--p",
        help="Order of the norm that measures distance: 1, 2, inf, …",
        autocompletion=_completion.one_of("1", "2", "inf"),
    ),
]
Records = Annotated[
    str | None, typer.Option(help="File of records, of any format that `perturb` reads; instead of an .npz.")
]
Outputs = Annotated[
    str | None,
    typer.Option(help="File of places to report; or cells: h3:8, geohash:6, square:500m. Also with --city."),
]
Loss = Annotated[
    str | None,
    typer.Option(
        help="euclidean, squared, or a CSV (records x outputs).",
        autocompletion=_completion.one_of("euclidean", "squared"),
    ),
]
Prior = Annotated[Path | None, typer.Option(help="CSV with one weight per record.")]
Columns = Annotated[
    str | None, typer.Option(help="Columns of the point in --records: lon,lat or x,y or geometry. Guessed by default.")
]
OutputColumns = Annotated[str | None, typer.Option(help="The same for --outputs.")]
Coordinates = Annotated[
    str | None,
    typer.Option(
        help="lonlat (degrees) or projected (plain coordinates, km). Guessed by default.",
        autocompletion=_completion.one_of("lonlat", "projected"),
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Encoding of --records and --outputs: utf-16-le, latin-1, cp1252, … UTF-8 by default."),
]
IdColumn = Annotated[str | None, typer.Option(help="Column of --outputs with the ids that reports carry.")]
NameColumn = Annotated[str | None, typer.Option(help="Column of --outputs with names for people.")]
Bounds = Annotated[
    str | None,
    typer.Option(help="Box of the guarantee: west,south,east,north. Records outside are left out."),
]


def design_problem(
    file: Path | None,
    city: str | None,
    *,
    n_outputs: int | None,
    n_tasks: int | None,
    seed: int | None,
    p: float,
    **places: Any,
) -> tuple[Problem, RoadNetwork | None]:
    """Return the problem that the options describe, and the city if it came from one.

    places : the fields of `Files`.
    """
    files = Files(**places)
    if city is None:
        _refuse({"--n-outputs": n_outputs, "--n-tasks": n_tasks, "--seed": seed}, "is about a `--city`")
        return read_problem(file, files, p), None
    if files.outputs is not None:
        _refuse({"--n-outputs": n_outputs}, "is about places drawn from the city, and `--outputs` names yours")
    others = {
        "--records": files.records, "--columns": files.columns, "--loss": files.loss, "--prior": files.prior,
        "--bounds": files.bounds, str(file): file,
    }  # fmt: skip
    for other, given in others.items():
        if given is not None:
            raise InvalidInputError(f"`--city` brings its own records and loss; leave out `{other}`.")
    network = cities.load(city)
    # The method of a network calls these two as the options for files are called.
    said = "--n-outputs" if files.outputs is None else "--outputs"
    with named_as(
        {"outputs": said, "tasks": "--n-tasks", "output_ids": "--id-column", "output_names": "--name-column"}
    ):
        places = own_places(files) or {"outputs": _N_OUTPUTS if n_outputs is None else n_outputs}
        tasks = _N_TASKS if n_tasks is None else n_tasks
        return network.problem(**places, tasks=tasks, seed=_SEED if seed is None else seed, p=p), network


def _refuse(options: dict[str, int | None], reason: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidInputError(f"`{option}` {reason}; leave it out.")


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


def _reader(problem: Path | None, city: str | None, **chosen: Any) -> ReadProblem:
    return functools.partial(design_problem, problem, city, **chosen)


_PROBLEM_OPTIONS: SharedOptions = {
    "problem": (ProblemFile, None),
    "city": (City, None),
    "n_outputs": (NOutputs, None),
    "n_tasks": (NTasks, None),
    "seed": (Seed, None),
    "p": (Norm, 2.0),
    "records": (Records, None),
    "outputs": (Outputs, None),
    "loss": (Loss, None),
    "prior": (Prior, None),
    "columns": (Columns, None),
    "output_columns": (OutputColumns, None),
    "coordinates": (Coordinates, None),
    "encoding": (Encoding, None),
    "id_column": (IdColumn, None),
    "name_column": (NameColumn, None),
    "bounds": (Bounds, None),
}

# Gives a command the options that describe a problem; calling its parameter `read_problem` reads the files.
with_problem_options = sharing("read_problem", _PROBLEM_OPTIONS, _reader)
