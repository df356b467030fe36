"""Pictures of a report, as PNG. Needs the extra `plots`."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricdp.experiments.canvas import empty_figure, method_line
from metricdp.experiments.paper.ratios import BIN_EDGES
from metricdp.mechanisms.families import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["budget_picture", "granularity_picture", "loss_picture", "mismatch_picture", "ppr_picture"]

_BOUNDS = {"tight bound": ("#333333", "-"), "paper bound": ("#999999", "--")}


def loss_picture(table: pd.DataFrame, city: str) -> bytes:
    """Draw loss against ε, ours and the paper's side by side on one scale."""
    rows = table[table["city"] == city]
    printed = rows["paper_mean"].notna().any()
    figure, axes = _canvas(1, 2 if printed else 1, 5.6, 4.6, share="all")
    _losses(axes[0], rows, "loss", "computed here")
    if printed:
        _losses(axes[1], rows, "paper_mean", "as printed in the paper")
    axes[0].set_ylabel("expected loss, km")
    axes[0].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if printed else 3, fontsize=8)
    return _png(figure)


def _losses(axes: Any, rows: pd.DataFrame, column: str, title: str) -> None:
    for method, line in rows.groupby("method", sort=False):
        points = line.dropna(subset=[column]).sort_values("epsilon")
        if not len(points):
            continue
        if method in _BOUNDS:
            colour, style = _BOUNDS[str(method)]
            axes.plot(points["epsilon"], points[column], color=colour, linestyle=style, label=method)
            continue
        axes.plot(points["epsilon"], points[column], markersize=4, **method_line(str(method)))
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("ε per km")


def mismatch_picture(table: pd.DataFrame, city: str) -> bytes:
    """Draw each baseline done right, with outputs that do not belong to the loss, and as printed."""
    rows = table[table["city"] == city]
    methods = list(dict.fromkeys(rows["method"]))
    figure, axes = _canvas(1, len(methods), 3.0, 3.2, share="all")
    for panel, method in zip(axes, methods, strict=True):
        line = rows[rows["method"] == method].sort_values("epsilon")
        panel.plot(line["epsilon"], line["loss"], color="#2ca02c", marker="o", markersize=4, label="its own outputs")
        panel.plot(
            line["epsilon"], line["mismatched_loss"], color="#d62728", marker="x", label="outputs drawn independently"
        )
        if line["paper_mean"].notna().any():
            panel.plot(line["epsilon"], line["paper_mean"], color="#1f77b4", linestyle="--", label="the paper")
        panel.plot(line["epsilon"], line["uniform_loss"], color="0.6", linestyle=":", label="uniform choice")
        panel.set_title(METHODS[method].label, fontsize=10)
        panel.set_xlabel("ε per km")
    axes[0].set_ylabel("expected loss, km")
    axes[0].set_ylim(bottom=0)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return _png(figure)


def ppr_picture(table: pd.DataFrame, city: str) -> bytes:
    """Draw the distribution of PPR / ε for each method; beyond 1 is a violation."""
    rows = table[table["city"] == city]
    methods = list(dict.fromkeys(rows["method"]))
    columns = min(4, len(methods))
    figure, axes = _canvas(math.ceil(len(methods) / columns), columns, 2.9, 2.2, share="all")
    # The last bin is open; it is drawn as wide as the others.
    ends = np.append(BIN_EDGES, 2 * BIN_EDGES[-1] - BIN_EDGES[-2])
    for panel, method in zip(axes, methods, strict=False):
        counts = rows[rows["method"] == method]["count"].to_numpy(dtype=float)
        panel.stairs(counts / (counts.sum() * np.diff(ends)), ends, fill=True, color=METHODS[method].colour, alpha=0.8)
        panel.axvline(1.0, color="crimson", linestyle="--", linewidth=1)
        panel.set_yscale("log")
        panel.set_ylim(bottom=1e-4)
        panel.minorticks_off()
        panel.set_title(METHODS[method].label, fontsize=9)
        panel.tick_params(labelsize=7)
    for panel in axes[len(methods) :]:
        panel.set_visible(False)
    figure.supxlabel("PPR / ε; beyond 1 is a violation", fontsize=9)
    figure.supylabel("density", fontsize=9)
    return _png(figure)


def budget_picture(table: pd.DataFrame, city: str) -> bytes:
    """Draw AIPO's loss against the first axis's budget, one panel per ε."""
    rows = table[table["city"] == city]
    budgets = sorted(set(rows["epsilon"]))
    columns = min(4, len(budgets))
    figure, axes = _canvas(math.ceil(len(budgets) / columns), columns, 2.9, 2.2, share="none")
    for panel, epsilon in zip(axes, budgets, strict=False):
        line = rows[rows["epsilon"] == epsilon].sort_values("epsilon_1")
        panel.plot(line["epsilon_1"], line["loss"], marker="o", markersize=3, color=METHODS["aipo"].colour)
        best = line.loc[line["loss"].idxmin()]
        panel.plot([best["epsilon_1"]], [best["loss"]], marker="*", markersize=11, color="crimson")
        panel.axvline(epsilon / 2 / math.sqrt(2), color="0.6", linestyle=":", linewidth=1)
        panel.set_title(f"ε = {epsilon:g}", fontsize=9)
        panel.tick_params(labelsize=7)
    for panel in axes[len(budgets) :]:
        panel.set_visible(False)
    figure.supxlabel("ε₁, of √(ε₁² + ε₂²) = ε/2; dotted: the equal split; star: the best", fontsize=9)
    figure.supylabel("expected loss, km", fontsize=9)
    return _png(figure)


def granularity_picture(table: pd.DataFrame, city: str) -> bytes:
    """Draw loss, seconds and anchors against the cells from west to east."""
    rows = table[table["city"] == city]
    figure, axes = _canvas(1, 3, 3.9, 3.2, share="none")
    for method, line in rows.groupby("method", sort=False):
        style = method_line(str(method))
        axes[0].plot(line["across"], line["loss"], markersize=4, **style)
        axes[1].plot(line["across"], line["seconds"], markersize=4, **style)
    anchors = rows.dropna(subset=["anchors"])
    axes[2].plot(anchors["across"], anchors["anchors"].astype(float), markersize=4, **method_line("aipo"))
    for panel, words in zip(axes, ("expected loss, km", "seconds", "anchors of AIPO"), strict=True):
        panel.set_xlabel("cells from west to east")
        panel.set_ylabel(words)
    axes[1].set_yscale("log")
    axes[0].legend(fontsize=8)
    return _png(figure)


def _canvas(rows: int, columns: int, width_in: float, height_in: float, *, share: str) -> tuple[Figure, list[Any]]:
    """Return a figure and its panels in reading order."""
    figure = empty_figure(columns * width_in, rows * height_in, dpi=110)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share == "all", sharey=share == "all")
    return figure, list(panels.ravel())


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()
