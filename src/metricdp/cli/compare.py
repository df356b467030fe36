"""`metricdp compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from metricdp._cache import cache_folder
from metricdp._validation import reject
from metricdp.cities import RoadNetwork
from metricdp.cli import _completion
from metricdp.cli import _problem as options
from metricdp.cli._console import out, print_json, progress_bar
from metricdp.cli._writing import require_folder, write_figure, write_text
from metricdp.experiments.canvas import require_plots
from metricdp.experiments.comparing import compare
from metricdp.experiments.comparison import Comparison
from metricdp.experiments.comparison_figures import loss_figure, map_figure, ppr_figure
from metricdp.experiments.comparison_tables import error_table, markdown_table, rich_table
from metricdp.files.reading import load
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.families import METHODS
from metricdp.mechanisms.fitting import fit
from metricdp.problem import Problem

__all__ = ["compare_command"]


@options.with_problem_options
def compare_command(
    *,
    epsilons: Annotated[str, typer.Option(help="Budgets: 0.2,0.4 or 0.2:1.6:0.2.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Some of: {','.join(METHODS)}; and mechanism files. All of the former by default.",
            autocompletion=_completion.some_of(_completion.methods, _completion.mechanism_files),
        ),
    ] = None,
    read_problem: options.ReadProblem,
    clusters: Annotated[int, typer.Option(help="Clusters of the lower bound; more are tighter and slower.")] = 300,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of finished results; an interrupted comparison goes on from it."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the losses as a Markdown table.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for pictures: loss against ε, PPR histograms, a map of one mechanism.")
    ] = None,
    as_json: options.JsonFlag = False,
) -> None:
    """Fit every method at every ε and compare loss, gap to the best possible, violations and time."""
    if figures is not None:
        require_plots()
        if figures.exists() and not figures.is_dir():
            raise reject("--figures", "a folder", f"the file {str(figures)!r}")
    require_folder("--csv", csv)
    require_folder("--markdown", markdown)
    design, network = read_problem()
    chosen = None if methods is None else [_method(one) for one in methods.split(",")]
    with progress_bar("comparing") as progress:
        frame = compare(
            design,
            options.numbers("--epsilons", epsilons),
            chosen,
            clusters=clusters,
            workers=workers,
            cache=cache_folder() / "compare" if cache is None else cache,
            progress=progress,
        )
    if csv is not None:
        write_text(csv, frame.to_csv(index=False))
    if markdown is not None:
        write_text(markdown, markdown_table(frame))
    if figures is not None:
        _draw(frame, design, network, figures, [one for one in chosen or () if not isinstance(one, str)])
    if as_json:
        print_json([dict(row) for _, row in frame.astype(object).where(frame.notna(), None).iterrows()])
    else:
        out.print(rich_table(frame, "expected loss"))
        unit = "" if design.projection is None else ", km"
        out.print(error_table(frame, f"how far off an adversary is after one report{unit}"))


def _method(text: str) -> str | tuple[str, Mechanism]:
    """Return the name of a method, or a mechanism file with its path as the name."""
    if text in METHODS:
        return text
    if not Path(text).is_file():
        raise reject("--methods", "made of mechanism files and of " + ", ".join(map(repr, METHODS)), repr(text))
    # Not proved before it is compared: the table says what is not.
    return text, load(text, certify=False)


def _draw(
    frame: Comparison, problem: Problem, city: RoadNetwork | None, folder: Path, own: list[tuple[str, Mechanism]]
) -> None:
    """Draw losses, the PPR of every method at the middle ε, and the best private method there."""
    folder.mkdir(parents=True, exist_ok=True)
    write_figure(folder / "loss.png", loss_figure(frame, problem))
    budgets = sorted(set(frame["epsilon"]))
    middle = budgets[len(budgets) // 2]
    ratios = {method: found for (method, epsilon), found in frame.ratios.items() if epsilon == middle}
    if ratios:
        write_figure(folder / "ppr.png", ppr_figure(ratios, middle))
    private = frame[(frame["epsilon"] == middle) & frame["certified"]]
    if problem.n_axes == 2 and len(private):
        method = str(private.sort_values("loss")["method"].iloc[0])
        place = problem.records[int(np.square(problem.records - problem.bounds.mean(axis=0)).sum(axis=1).argmin())]
        best = dict(own).get(method) or fit(problem, middle, method)
        write_figure(folder / "map.png", map_figure(best, place, city))
