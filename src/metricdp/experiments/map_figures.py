"""The picture of a map of ε: how far protection reaches at every place. Needs the extra `plots`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.experiments.canvas import empty_figure, picture_kind
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["map_figure", "write_map_figure"]

# Records that are drawn; more would only make the ground grey.
_MOST_RECORDS = 20_000


def map_figure(local: EpsilonMap, problem: Problem) -> Figure:
    """Draw 1/ε of every cell, with the records and outputs of a problem of two axes."""
    if problem.n_axes != 2:
        raise reject("problem", "one with two axes, for a picture of a map", f"{problem.n_axes}")
    unit, factor = (", m", 1000.0) if problem.projection is not None else ("", 1.0)
    figure = empty_figure(7.0, 6.0, dpi=130)
    axes = figure.subplots()
    x, y = local.breakpoints
    shown = axes.pcolormesh(x, y, factor / local.values.T, cmap="Blues", norm="log")
    bar = figure.colorbar(shown, ax=axes, label=f"protection radius 1/ε{unit} (ratio e)")
    ticks = np.geomspace(factor / local.max, factor / local.min, 5)
    bar.set_ticks(list(ticks), labels=[f"{tick:.3g}" for tick in ticks], minor=False)
    bar.minorticks_off()
    few = slice(None, None, max(1, -(-problem.n_records // _MOST_RECORDS)))
    axes.plot(*problem.records[few].T, ".", color="0.35", markersize=1, alpha=0.4)
    axes.plot(*problem.outputs.T, "o", color="#e8730c", markersize=4, label="places that may be reported")
    axes.set(aspect="equal", xlim=problem.bounds[:, 0], ylim=problem.bounds[:, 1])
    axes.set(xlabel="km east" if unit else "x", ylabel="km north" if unit else "y")
    axes.legend(fontsize=8, loc="upper right")
    return figure


def write_map_figure(local: EpsilonMap, problem: Problem, path: Path) -> None:
    """Write the picture; the file appears whole or not at all."""
    kind = picture_kind(path)
    figure = map_figure(local, problem)
    with atomic_file(path) as stream:
        figure.savefig(stream, format=kind)
