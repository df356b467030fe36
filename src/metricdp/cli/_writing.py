"""Files that commands write beside mechanisms; each appears whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from metricdp._atomic import atomic_file
from metricdp._validation import reject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["require_folder", "write_figure", "write_text"]


def require_folder(option: str, path: Path | None) -> None:
    """Refuse a file whose folder does not exist, before the work that would be lost."""
    if path is not None and not path.parent.is_dir():
        raise reject(option, "a file in a folder that exists", repr(str(path)))
    if path is not None and path.is_dir():
        raise reject(option, "a file", f"the folder {str(path)!r}")


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic_file(path) as stream:
        stream.write(text.encode())


def write_figure(path: Path, figure: Figure) -> None:
    """Write a picture in the format that its suffix names."""
    with atomic_file(path) as stream:
        figure.savefig(stream, format=path.suffix[1:])
