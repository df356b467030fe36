"""What all pictures share: empty figures, and how a method looks. Needs the extra `plots`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricdp._optional import optional
from metricdp.mechanisms.families import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["empty_figure", "method_line"]


def empty_figure(width_in: float, height_in: float, dpi: int) -> Figure:
    """Return a figure that needs no screen and is not kept in pyplot's list."""
    backend = optional("matplotlib.backends.backend_agg", "plots", "A picture")
    figure: Figure = optional("matplotlib.figure", "plots", "A picture").Figure(
        figsize=(width_in, height_in), dpi=dpi, layout="constrained"
    )
    backend.FigureCanvasAgg(figure)
    return figure


def method_line(name: str, *, proved: bool = True) -> dict[str, Any]:
    """Return colour, label, line and marker of a method, as the registry has them.

    Methods that are not private, or were not proved private where they should be, are dotted, and their label says so.
    """
    method = METHODS[name]
    solid = method.private and proved
    return {
        "color": method.colour,
        "label": method.label if solid else f"{method.label} ({'not proved' if method.private else 'not private'})",
        "linestyle": "-" if solid else ":",
        "marker": "o" if solid else "x",
    }
