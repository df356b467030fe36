"""`metricdp attack`: what an adversary learns from reports."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from metricdp import cities
from metricdp._cards import visible
from metricdp._lengths import length_km
from metricdp._validation import integer, positive, reject
from metricdp.attacking.adversary import Attack, attack, everywhere
from metricdp.attacking.tracks import TraceAttack, attack_traces
from metricdp.cli import _problem as options
from metricdp.cli._console import note, out, print_json, progress_bar, warn
from metricdp.cli._problem_files import Files, read_people
from metricdp.cli._traces import read_traces_file
from metricdp.cli._writing import write_figure
from metricdp.errors import InvalidInputError
from metricdp.experiments.attack_figures import attack_figure, posterior_figure
from metricdp.experiments.canvas import require_plots
from metricdp.files.reading import load
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem
from metricdp.traces.movement import Movement

__all__ = ["attack_command"]


def attack_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="One or more mechanism files.")],
    *,
    reports: Annotated[
        str, typer.Option(help="Numbers of reports from one place, with commas between them.")
    ] = "1,10,100",
    within: Annotated[
        str | None, typer.Option(help="Distances whose chances are given: 100m,500m; plain numbers without a map.")
    ] = None,
    nights: Annotated[
        int | None, typer.Option(help="Also infer a home from so many nights; see --per-night and --away.")
    ] = None,
    per_night: Annotated[int, typer.Option(help="Reports in each night.")] = 1,
    away: Annotated[float, typer.Option(help="Chance that a report is from elsewhere.")] = 0.0,
    draws: Annotated[int, typer.Option(help="People who are simulated where sums would take too long.")] = 1000,
    problem: Annotated[
        Path | None, typer.Option(help="Where people may be: an .npz with records and optionally prior.")
    ] = None,
    city: options.City = None,
    records: options.Records = None,
    prior: options.Prior = None,
    columns: options.Columns = None,
    coordinates: options.Coordinates = None,
    encoding: options.Encoding = None,
    traces: Annotated[
        str | None, typer.Option(help="Also follow people along these traces: a file of id, unix_s, lon, lat.")
    ] = None,
    public: Annotated[
        str | None, typer.Option(help="Traces of others, from which the adversary learns how people move.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between the reports of a trace.")] = 60.0,
    cell: Annotated[str, typer.Option(help="Side of the cells on which movement is learned.")] = "200m",
    id_column: Annotated[str, typer.Option(help="Column of the traces that says whose they are.")] = "id",
    time_column: Annotated[str, typer.Option(help="Column of the traces with unix seconds.")] = "unix_s",
    figures: Annotated[Path | None, typer.Option(help="Folder for pictures of errors and of what is believed.")] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Compute how far off an adversary is after one report or many, and how often their guess is near."""
    if figures is not None:
        require_plots()
        if figures.exists() and not figures.is_dir():
            raise reject("--figures", "a folder", f"the file {str(figures)!r}")
    counts = _counts(reports, nights, per_night)
    if (traces is None) != (public is None):
        raise InvalidInputError("`--traces` and `--public` belong together; give both of them, or neither.")
    known = _people(
        problem, city, Files(records=records, prior=prior, columns=columns, coordinates=coordinates, encoding=encoding)
    )
    mechanisms = {visible(path): load(path, certify=False) for path in files}
    found, people = {}, {}
    for name, mechanism in mechanisms.items():
        people[name] = known or everywhere(mechanism)
        with progress_bar(f"attacking {name}") as progress, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found[name] = attack(
                mechanism, people[name], counts, within=_radii(within, people[name]), away=away, draws=draws,
                progress=progress,
            )  # fmt: skip
        for one in caught:
            warn(f"{name}: {one.message}")
    if known is None:
        note("Nothing says where people are, so every place of the box is as likely; see `--records` and `--city`.")
    followed: dict[str, TraceAttack] = {}
    if traces is not None and public is not None:
        moves, others = (
            read_traces_file(option, path, id_column, time_column)
            for option, path in (("--public", public), ("--traces", traces))
        )
        followed = _followed(
            mechanisms, Movement.fit(moves, positive("every", every), length_km("--cell", cell)), others
        )
    drawn = [] if figures is None else _draw(figures, found, mechanisms, people)
    if as_json:
        _print(found, followed, mechanisms, known, drawn)
    else:
        _show(found, followed, mechanisms, drawn)


def _counts(reports: str, nights: int | None, per_night: int) -> list[int]:
    numbers = options.numbers("--reports", reports)
    if any(not one.is_integer() or one < 1 for one in numbers):
        raise reject("--reports", "whole numbers of at least 1 with commas between them", repr(reports))
    found = [int(one) for one in numbers]
    if nights is not None:
        found.append(integer("nights", nights, 1) * integer("per_night", per_night, 1))
    elif per_night != 1:
        raise InvalidInputError("`--per-night` is about `--nights`, which is not given.")
    return found


def _radii(within: str | None, problem: Problem) -> list[float] | None:
    if within is None:
        return None
    if problem.projection is not None:
        return [length_km("--within", one) for one in within.split(",")]
    return [positive("within", one) for one in within.split(",")]


def _people(source: Path | None, city: str | None, files: Files) -> Problem | None:
    """Return the places where people may be, None if no option says so."""
    given = {"--problem": source, "--city": city, "--records": files.records}
    if sum(value is not None for value in given.values()) > 1:
        msg = f"{', '.join(f'`{name}`' for name in given)} each say where people may be; give one of them."
        raise InvalidInputError(msg)
    if city is None:
        return read_people(source, files)
    for option, value in (
        ("--prior", files.prior),
        ("--columns", files.columns),
        ("--coordinates", files.coordinates),
        ("--encoding", files.encoding),
    ):
        if value is not None:
            raise InvalidInputError(f"`{option}` is about `--records`, which is not given.")
    network = cities.load(city)
    return Problem(network.xy, network.xy[:1], np.zeros((network.n_nodes, 1)), projection=network.projection)


def _followed(mechanisms: dict[str, Mechanism], movement: Movement, others: Any) -> dict[str, TraceAttack]:
    found = {}
    for name, mechanism in mechanisms.items():
        with progress_bar(f"following people through {name}") as progress:
            found[name] = attack_traces(mechanism, movement, others, progress=progress)
    return found


def _draw(
    folder: Path, found: dict[str, Attack], mechanisms: dict[str, Mechanism], people: dict[str, Problem]
) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "attack.png"]
    write_figure(written[0], attack_figure(found))
    for number, (name, mechanism) in enumerate(mechanisms.items(), 1):
        if people[name].n_axes == 2 and people[name].projection == mechanism.projection:
            path = folder / ("belief.png" if len(mechanisms) == 1 else f"belief-{number}.png")
            write_figure(path, posterior_figure(mechanism, people[name], max(found[name].last.reports, 2)))
            written.append(path)
    return [str(path) for path in written]


def _print(
    found: dict[str, Attack],
    followed: dict[str, TraceAttack],
    mechanisms: dict[str, Mechanism],
    known: Problem | None,
    drawn: list[str],
) -> None:
    rows: list[dict[str, Any]] = [
        {"file": name, "epsilon": mechanisms[name].epsilon, **one.to_dict()} for name, one in found.items()
    ]
    along = [{"file": name, **one.to_dict()} for name, one in followed.items()]
    print_json({"attacks": rows, "followed": along, "uniform": known is None, "figures": drawn})


def _show(
    found: dict[str, Attack], followed: dict[str, TraceAttack], mechanisms: dict[str, Mechanism], drawn: list[str]
) -> None:
    for name, one in found.items():
        _show_one(f"{name}: {mechanisms[name].method}", one, _how(one))
        if name in followed:
            along = followed[name]
            how = f"Reports every {along.every_s:g} s along {along.traces:,} traces; ± is one standard error."
            _show_one(f"{name}: along traces", along, how)
    for path in drawn:
        out.print(f"drawn to {path}", markup=False, soft_wrap=True)


def _show_one(title: str, one: Attack | TraceAttack, how: str) -> None:
    heads, rows = one.shown
    table = Table(title=Text(title), title_justify="left")
    for head in heads:
        table.add_column(Text(head), justify="right")
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=True) for cell in row))
    out.print(table)
    for line in (one.words, how):
        out.print(line, markup=False, soft_wrap=True)


def _how(one: Attack) -> str:
    if one.exact:
        return f"Sums over all reports from {one.records:,} places."
    return f"Means over {one.draws:,} people drawn from {one.records:,} places; ± is one standard error."
