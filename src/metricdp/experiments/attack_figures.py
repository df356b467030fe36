"""Pictures of attacks: how far off adversaries are, how often they are near, and what they believe. Needs `plots`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from metricdp._cards import visible
from metricdp.attacking.adversary import Attack, posterior
from metricdp.drawing.randomness import InsecureSeed
from metricdp.experiments.canvas import empty_figure, method_line
from metricdp.geometry.ground import Ground
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["attack_figure", "posterior_figure"]

_MARKERS = "osD^vP*X"


def attack_figure(attacks: Mapping[str, Attack]) -> Figure:
    """Draw the adversary's error, and the chance to be near, over the number of reports."""
    figure = empty_figure(9.0, 4.4, dpi=130)
    error, near = figure.subplots(1, 2)
    unit = next(iter(attacks.values())).distance_unit
    for (name, found), marker in zip(attacks.items(), _MARKERS * len(attacks), strict=False):
        rows = found.table[1:]
        reports = [one.reports for one in rows]
        line = {**method_line(found.method), "label": visible(name).replace("$", r"\$"), "marker": marker}
        bars = [2 * one.standard_error for one in rows]
        drawn = error.errorbar(reports, [one.error for one in rows], yerr=bars, capsize=3, **line)
        for index, (radius, _) in enumerate(found.last.within):
            chances = [100 * one.within[index][1] for one in rows]
            label = f"{line['label']}, within {found.radius_words(radius)}"
            dashes = ("-", "--", ":", "-.")[index % 4]
            near.plot(reports, chances, marker=marker, color=drawn.lines[0].get_color(), linestyle=dashes, label=label)
    without = next(iter(attacks.values())).error_without_reports
    error.axhline(without, color="0.5", linestyle="--", linewidth=1, label="no report")
    error.set_ylabel(f"the adversary is off by{f', {unit}' if unit else ''}")
    error.set_ylim(bottom=0)
    near.set_ylabel("guesses that near, %")
    near.set_ylim(0, 102)
    for axes in (error, near):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("reports from one place")
        axes.grid(color="0.92")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    return figure


def posterior_figure(mechanism: Mechanism, problem: Problem, reports: int, seed: int = 0) -> Figure:
    """Draw what is believed after one report and after several from the record in the middle of a map."""
    figure = empty_figure(9.0, 4.8, dpi=130)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    middle = problem.bounds.mean(axis=0)
    truth = int(np.square(problem.records - middle).sum(axis=1).argmin())
    where = np.repeat(problem.records[truth][None, :], reports, axis=0)
    # A picture of what would be believed of a public place, not of anybody's; a seed makes it repeatable.
    said = np.asarray(mechanism.sample(where, rng=InsecureSeed(seed)))
    ground = Ground.over(problem.projection, problem.bounds)
    places = ground.plane(problem.records)
    for axes, count in zip(panels, (1, reports), strict=True):
        believed = posterior(mechanism, problem, said[:count])
        order = believed.argsort()
        dots = axes.scatter(*places[order].T, c=100 * believed[order], s=9, cmap="viridis", rasterized=True)
        axes.plot(*places[truth], marker="*", markersize=14, color="crimson", label="true place")
        figure.colorbar(dots, ax=axes, shrink=0.75, label="belief, %")
        axes.set_title(f"after {'one report' if count == 1 else f'{count} reports'}", fontsize=9)
        axes.set_aspect("equal")
        axes.set_xlabel("km east" if ground.unit else "first coordinate")
    panels[0].set_ylabel("km north" if ground.unit else "second coordinate")
    panels[0].legend(fontsize=8)
    return figure
