"""Pictures: loss against ε, PPR histograms, a map of one mechanism. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray, table
from metricdp.auditing.pairs import Ratios
from metricdp.experiments.canvas import empty_figure, method_line
from metricdp.geometry.norms import norm
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from metricdp.cities import RoadNetwork

__all__ = ["loss_figure", "map_figure", "ppr_figure"]


def loss_figure(frame: pd.DataFrame, problem: Problem, unit: str = "km") -> Figure:
    """Draw loss against ε, with the floor (no privacy) and the bound that no private mechanism can beat."""
    figure, axes = _figure(7.0, 4.6)
    order = frame.groupby("method")["loss"].mean().sort_values(ascending=False).index
    for method in order:
        rows = frame[frame["method"] == method].sort_values("epsilon")
        if rows["loss"].isna().all():
            continue  # the method does not apply to this problem
        proved = bool(rows["certified"][rows["loss"].notna()].all())
        axes.plot(rows["epsilon"], rows["loss"], **method_line(method, proved=proved))
    bounds = frame.drop_duplicates("epsilon").sort_values("epsilon")
    axes.fill_between(bounds["epsilon"], bounds["lower_bound"], problem.floor * 0.9, color="0.9", zorder=0)
    axes.plot(bounds["epsilon"], bounds["lower_bound"], color="0.3", label="no private mechanism below")
    axes.axhline(problem.floor, color="0.5", linestyle="--", linewidth=1, label="no privacy")
    axes.set_xlabel(f"ε per {unit} (smaller is more private)")
    axes.set_ylabel(f"expected loss, {unit}")
    axes.set_xscale("log")
    axes.set_xticks(list(bounds["epsilon"]), [f"{epsilon:g}" for epsilon in bounds["epsilon"]])
    axes.minorticks_off()
    axes.set_ylim(bottom=problem.floor * 0.9)
    axes.legend(fontsize=8)
    return figure


def ppr_figure(ratios: Mapping[str, Ratios], epsilon: float) -> Figure:
    """Draw, per method, the distribution of |ln z_k(x) − ln z_k(x')| / d(x, x'); beyond ε is a violation."""
    figure, axes = _figure(7.0, 4.0)
    for name, found in ratios.items():
        edges, counts = np.array(found.edges), np.array(found.counts)
        # The last bin is open; it is drawn as wide as the others.
        ends = np.append(edges, 2 * edges[-1] - edges[-2])
        line = {key: value for key, value in method_line(name).items() if key != "marker"}
        axes.stairs(counts / (counts.sum() * np.diff(ends)), ends, **line)
    axes.axvline(epsilon, color="crimson", linestyle="--", label="ε: beyond is a violation")
    axes.set_yscale("log")
    axes.set_xlabel("log-likelihood ratio per unit of distance")
    axes.set_ylabel("density over pairs and outputs")
    axes.legend(fontsize=8)
    return figure


def map_figure(mechanism: Mechanism, point: ArrayLike, city: RoadNetwork | None = None) -> Figure:
    """Draw where reports from one point go: outputs sized by probability, and the radius 1/ε of protection."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - an extra

    figure, axes = _figure(6.4, 6.8)
    here = table("point", np.atleast_2d(np.asarray(point, dtype=np.float64)), columns=2)[0]
    row = mechanism.probabilities(here[None, :])[0]
    if city is not None and city.n_edges:
        ends = np.stack([city.xy[city.u], city.xy[city.v]], axis=1)
        axes.add_collection(LineCollection(list(ends), colors="0.82", linewidths=0.6, zorder=0))
    dots = axes.scatter(*mechanism.outputs.T, s=30 + 900 * row, c=row, cmap="viridis", alpha=0.85, zorder=2)
    axes.plot(*here, marker="*", markersize=16, color="crimson", zorder=3, label="true place")
    radius = 1 / mechanism.epsilon
    words = f"protection radius {radius:.2g} km: no place\ninside is more than e times likelier"
    axes.plot(*(here + radius * _unit_ball(mechanism.p)).T, color="crimson", linewidth=1.2, label=words)
    figure.colorbar(dots, ax=axes, label="probability of the report", shrink=0.75)
    axes.set_aspect("equal")
    axes.set_xlabel("km east")
    axes.set_ylabel("km north")
    axes.set_title(f"{mechanism.method}, ε = {mechanism.epsilon:g} per km")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _unit_ball(p: float) -> FloatArray:
    """Return a closed curve around the unit ball of the plane's ℓ_p norm."""
    angle = np.linspace(0, 2 * np.pi, 361)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    return ring / norm(ring, p)[:, None]


def _figure(width_in: float, height_in: float) -> tuple[Figure, Any]:
    """Return a figure with one panel."""
    figure = empty_figure(width_in, height_in, dpi=130)
    return figure, figure.add_subplot()
