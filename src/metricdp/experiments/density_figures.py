"""The picture of a density: shares of people, and how well each is known. Needs the extra `plots`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricdp._atomic import atomic_file
from metricdp.errors import InvalidInputError
from metricdp.estimating.density import Density
from metricdp.experiments.canvas import empty_figure, picture_kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["density_figure", "write_density_figure"]


def density_figure(found: Density) -> Figure:
    """Draw shares with bars over a line, or two maps, of shares and of their standard errors."""
    figure = empty_figure(9.0, 4.2, dpi=130)
    if len(found.shape) == 1:
        axes = figure.add_subplot()
        middle = (found.lower + found.upper)[:, 0] / 2
        bars = [100 * (found.share - found.low), 100 * (found.high - found.share)]
        axes.errorbar(middle, 100 * found.share, yerr=bars, fmt="o", capsize=3)
        axes.set_ylabel("share of people, %")
        return figure
    if len(found.shape) != 2:
        raise InvalidInputError("A density is drawn over one axis or two.")
    (left, bottom), (right, top) = found.lower[0], found.upper[-1]
    maps = (("share of people, %", found.share), ("standard error, %", found.standard_error))
    for axes, (words, values) in zip(figure.subplots(1, 2), maps, strict=True):
        drawn = axes.imshow(100 * values.reshape(found.shape).T, origin="lower", extent=(left, right, bottom, top))
        figure.colorbar(drawn, ax=axes, shrink=0.8, label=words)
        axes.set_xlabel("km east" if found.projection is not None else "first coordinate")
        axes.set_ylabel("km north" if found.projection is not None else "second coordinate")
    return figure


def write_density_figure(found: Density, path: Path) -> None:
    """Write the picture; the file appears whole or not at all."""
    kind = picture_kind(path)
    figure = density_figure(found)
    with atomic_file(path) as stream:
        figure.savefig(stream, format=kind)
