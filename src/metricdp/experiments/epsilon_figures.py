"""The picture of a choice of ε: what it protects and what it costs. Needs the extra `plots`."""

from __future__ import annotations

from decimal import ROUND_FLOOR
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricdp._atomic import atomic_file
from metricdp._lengths import length_text
from metricdp.experiments.canvas import empty_figure, method_line, picture_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from metricdp.experiments.epsilon_choice import EpsilonChoice

__all__ = ["epsilon_figure", "write_epsilon_figure"]


_FLOOR = {"color": "0.5", "linestyle": "-.", "linewidth": 1, "label": "no privacy"}


def epsilon_figure(choice: EpsilonChoice) -> Figure:
    """Draw the distance of reports and the expected loss over ε, with the radii of protection below."""
    figure = empty_figure(9.0, 4.4, dpi=130)
    distance, loss = figure.subplots(1, 2)
    line = method_line(choice.method)
    table, unit = choice.table, choice.distance_unit
    _draw(distance, choice, "report_distance_95", {**line, "label": "95 % of reports fall within"})
    distance.plot(table["epsilon"], table["radius_e"], color="0.4", linestyle="--", label="protection radius (ratio e)")
    if choice.error is not None:
        off = {"color": "tab:purple", "marker": "^", "label": f"the adversary is off by (n = {choice.reports})"}
        _draw(distance, choice, "inference_error", off)
        distance.axhline(choice.error, color="tab:purple", linestyle=":", linewidth=1)
    distance.axhline(choice.report_distance_95_without_privacy, **_FLOOR)
    distance.set_ylabel(f"distance{f', {unit}' if unit else ''}")
    distance.set_ylim(bottom=0)
    _draw(loss, choice, "loss", line)
    loss.axhline(choice.loss_without_privacy, **_FLOOR)
    loss.axhline(choice.loss_of_uniform_choice, color="0.5", linestyle=":", linewidth=1, label="reports at random")
    words = choice.loss_unit.replace("$", r"\$")  # a dollar would begin mathematics
    loss.set_ylabel(f"expected loss{f', {words}' if words else ''}")
    for axes in (distance, loss):
        _finish(axes, choice)
    figure.suptitle(f"ε = {choice.epsilon:g}: {choice.against or choice.promise}", fontsize=9)
    return figure


def write_epsilon_figure(choice: EpsilonChoice, path: Path) -> None:
    """Write the picture; the file appears whole or not at all."""
    kind = picture_kind(path)
    figure = epsilon_figure(choice)
    with atomic_file(path) as stream:
        figure.savefig(stream, format=kind)


def _draw(axes: Any, choice: EpsilonChoice, name: str, line: dict[str, Any]) -> None:
    table = choice.table
    axes.errorbar(table["epsilon"], table[name], yerr=table[f"{name}_error"], capsize=3, **line)


def _finish(axes: Any, choice: EpsilonChoice) -> None:
    table, unit = choice.table, choice.distance_unit
    radii = [length_text(radius, unit, ROUND_FLOOR) for radius in table["radius_e"]]
    axes.axvline(choice.epsilon, color="crimson", linewidth=1, label="chosen ε")
    axes.set_xscale("log")
    ticks = [f"{epsilon:g}\n{radius}" for epsilon, radius in zip(table["epsilon"], radii, strict=True)]
    axes.set_xticks(list(table["epsilon"]), ticks, fontsize=8)
    axes.minorticks_off()
    axes.set_xlabel(f"ε{' per km' if unit else ''}, and its protection radius (smaller ε is more private)", fontsize=8)
    axes.grid(color="0.92")
    axes.legend(fontsize=8)
