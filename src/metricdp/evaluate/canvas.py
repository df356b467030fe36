"""Empty figures. Needs the extra `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricdp._optional import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["empty_figure"]


def empty_figure(width_in: float, height_in: float, dpi: int) -> Figure:
    """Return a figure that needs no screen and is not kept in pyplot's list."""
    backend = optional("matplotlib.backends.backend_agg", "plots", "A picture")
    figure: Figure = optional("matplotlib.figure", "plots", "A picture").Figure(
        figsize=(width_in, height_in), dpi=dpi, layout="constrained"
    )
    backend.FigureCanvasAgg(figure)
    return figure
