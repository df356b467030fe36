"""What all pictures share: empty figures, and how a method looks. Needs the extra `plots`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricdp._optional import optional
from metricdp._validation import reject
from metricdp.mechanisms.families import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["empty_figure", "method_line", "picture_kind", "require_plots"]


def require_plots() -> None:
    """Raise ModuleNotFoundError if there is no matplotlib; called before long work that ends in a picture."""
    optional("matplotlib", "plots", "A picture")


def empty_figure(width_in: float, height_in: float, dpi: int) -> Figure:
    """Return a figure that needs no screen and is not kept in pyplot's list."""
    backend = optional("matplotlib.backends.backend_agg", "plots", "A picture")
    figure: Figure = optional("matplotlib.figure", "plots", "A picture").Figure(
        figsize=(width_in, height_in), dpi=dpi, layout="constrained"
    )
    backend.FigureCanvasAgg(figure)
    return figure


def picture_kind(path: Path) -> str:
    """Return the kind of picture that a file's ending asks for; refuse one that cannot be drawn."""
    kinds = optional("matplotlib.backend_bases", "plots", "A picture").FigureCanvasBase.get_supported_filetypes()
    ending = path.suffix.lower().removeprefix(".")
    if ending not in kinds:
        raise reject(
            "path", f"a file that ends in one of {', '.join(f'.{one}' for one in sorted(kinds))}", repr(path.name)
        )
    return ending


def method_line(name: str, *, proved: bool = True) -> dict[str, Any]:
    """Return colour, label, line and marker of a method, as the registry has them.

    Methods that are not private, or were not proved private where they should be, are dotted, and their label says so.
    Methods that are not in the registry have dashes, and a colour that the figure chooses.
    """
    method = METHODS.get(name)
    private = method is None or method.private
    label = name.replace("$", r"\$") if method is None else method.label  # a dollar would begin mathematics
    solid = private and proved
    return {
        **({} if method is None else {"color": method.colour}),
        "label": label if solid else f"{label} ({'not proved' if private else 'not private'})",
        "linestyle": ":" if not solid else "-" if method is not None else "--",
        "marker": "o" if solid else "x",
    }
