"""Files that commands write beside mechanisms; each appears whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricdp._atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_figure", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def write_figure(path: Path, figure: Figure) -> None:
    """Write a picture in the format that its suffix names."""
    with atomic_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:])
