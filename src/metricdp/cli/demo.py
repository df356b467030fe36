"""`metricdp demo`: the whole path on a real city, in under two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from metricdp import cities
from metricdp.certificates.proving import certify
from metricdp.cli._console import out, print_json, progress_bar
from metricdp.cli._problem import JsonFlag
from metricdp.cli._writing import write_figure, write_text
from metricdp.experiments.canvas import require_plots
from metricdp.experiments.comparing import compare
from metricdp.experiments.comparison_figures import loss_figure, map_figure
from metricdp.experiments.comparison_tables import markdown_table, rich_table
from metricdp.files.reading import load
from metricdp.mechanisms.fitting import fit

__all__ = ["demo_command"]

# Central Helsinki is about 1 x 1.7 km, so that 1/ε from 500 m down to 60 m spans it.
_EPSILONS = (2.0, 4.0, 8.0, 16.0)
_CHOSEN = 8.0

# Every private method, and one that is not. Coarser grids than by default keep the demo short.
_METHODS = ("em", "em-remap", "laplace", "laplace-remap", "aipo-e", "aipo", "lp", "auto")
_OPTIONS: dict[str, dict[str, Any]] = {
    "aipo-e": {"cells": 8},
    "aipo": {"cells": 8, "splits": 6},
    "lp": {"cells": 6},
    "auto": {"time_limit": 8},
}


def demo_command(
    folder: Annotated[Path, typer.Option("--out", help="Where to write the mechanism and the pictures.")] = Path(
        "demo"
    ),
    *,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Fit, certify and compare mechanisms for central Helsinki, and draw them."""
    require_plots()
    folder.mkdir(parents=True, exist_ok=True)
    city = cities.load("helsinki")
    problem = city.problem(outputs=20, tasks=50, seed=0)
    with progress_bar("fitting") as progress:
        mechanism = fit(problem, _CHOSEN, time_limit=8, progress=progress)
    mechanism.save(folder / "helsinki.mdp")
    certificate = certify(load(folder / "helsinki.mdp"))
    with progress_bar("comparing") as progress:
        frame = compare(
            problem,
            _EPSILONS,
            _METHODS,
            options=_OPTIONS,
            clusters=200,
            pairs=4000,
            workers=workers,
            progress=progress,
        )
    write_text(folder / "comparison.csv", frame.to_csv(index=False))
    write_text(folder / "comparison.md", markdown_table(frame))
    write_figure(folder / "loss.png", loss_figure(frame, problem))
    middle = problem.records[int(np.square(problem.records).sum(axis=1).argmin())]
    write_figure(folder / "map.png", map_figure(mechanism, middle, city))
    report = mechanism.sample(middle[None, :])[0]
    place = city.projection.to_lonlat(mechanism.outputs[[report]])[0]
    files = [str(folder / name) for name in ("helsinki.mdp", "map.png", "loss.png", "comparison.csv")]
    answer: dict[str, Any] = {
        "city": city.info(),
        "epsilon_per_km": _CHOSEN,
        "method": mechanism.method,
        "loss_km": mechanism.report["loss"],
        "certificate": certificate.to_dict(),
        "one_report": {"output": int(report), "lon": float(place[0]), "lat": float(place[1])},
        "files": files,
    }
    if as_json:
        print_json(answer)
        return
    out.print(f"Central Helsinki: {city.n_nodes:,} road nodes, 20 places that may be reported.")
    out.print(rich_table(frame, "expected error of travel distance, km"))
    out.print(f"[bold]{mechanism.method}[/] at ε = {_CHOSEN:g} per km: {certificate.claim}", soft_wrap=True)
    out.print(f"Someone in the middle of town reported: {place[0]:.5f}, {place[1]:.5f}")
    out.print("written: " + ", ".join(files), soft_wrap=True)
