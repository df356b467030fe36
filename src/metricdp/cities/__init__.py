"""Road networks: import, shortest paths, loss, projection and an embedded default city."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from metricdp.cities.helsinki import NAME as EMBEDDED
from metricdp.cities.helsinki import load_helsinki
from metricdp.cities.network import RoadNetwork
from metricdp.cities.place import from_place
from metricdp.cities.read_csv import read_folder
from metricdp.cities.read_graphml import read_graphml
from metricdp.cities.read_pbf import read_pbf
from metricdp.cities.save import save_folder
from metricdp.errors import InvalidInputError
from metricdp.geometry.projection import Equirectangular

__all__ = [
    "Equirectangular",
    "RoadNetwork",
    "available",
    "from_place",
    "load",
    "read_folder",
    "read_graphml",
    "read_pbf",
    "save_folder",
]

DATA_VARIABLE = "METRICDP_DATA"

# What reads files of each ending.
READERS: dict[str, Callable[[Path], RoadNetwork]] = {".graphml": read_graphml, ".xml": read_graphml, ".pbf": read_pbf}


def available() -> list[str]:
    """Return the names that `load` knows: the embedded city and the city folders in `$METRICDP_DATA`."""
    return sorted({EMBEDDED, *_data_folders()})


def load(name_or_path: str | os.PathLike[str]) -> RoadNetwork:
    """Return a road network by name or from a file. Never uses the internet; see `from_place` for that.

    Parameters
    ----------
    name_or_path : str or path
        "helsinki", the embedded default; the name of a folder in ``$METRICDP_DATA``; or the path of a folder
        with nodes.csv[.xz] and edges.csv[.xz], of an OSMnx GraphML file or of an .osm.pbf extract. To read a
        folder that has the name of a known city, write it as ``./rome``.
    """
    if isinstance(name_or_path, str):
        name = name_or_path.lower()
        if name == EMBEDDED:
            return load_helsinki()
        folders = _data_folders()
        if name in folders:
            return read_folder(folders[name], name)
    path = Path(name_or_path)
    if path.is_dir():
        return read_folder(path)
    if path.is_file():
        return _read_file(path)
    if isinstance(name_or_path, str) and path.name == name_or_path and not path.suffix:
        raise _unknown(name_or_path)
    raise InvalidInputError(f"`name_or_path` must be an existing file or folder, got {str(path)!r}.")


def _read_file(path: Path) -> RoadNetwork:
    for ending, read in READERS.items():
        if path.name.lower().endswith(ending):
            return read(path)
    endings = ", ".join(READERS)
    raise InvalidInputError(f"`name_or_path` must be a folder or a file that ends in {endings}, got {str(path)!r}.")


def _data_folders() -> dict[str, Path]:
    named = os.environ.get(DATA_VARIABLE, "")
    if not named or not Path(named).is_dir():
        return {}
    folders = sorted(path for path in Path(named).iterdir() if path.is_dir())
    return {path.name.lower(): path for path in folders if _holds_nodes(path)}


def _holds_nodes(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("nodes.csv", "nodes.csv.xz"))


def _unknown(name: str) -> InvalidInputError:
    named = os.environ.get(DATA_VARIABLE, "")
    if not named:
        hint = (
            "`metricdp cities import` makes more; "
            f"set the environment variable {DATA_VARIABLE} to the folder that they are in"
        )
    elif not Path(named).is_dir():
        hint = f"{DATA_VARIABLE} names {named!r}, which is not a folder"
    else:
        hint = f"more may be added as folders in {named!r}, which {DATA_VARIABLE} names"
    known = ", ".join(available())
    message = f"`name_or_path` must be a known city ({known}) or an existing path, got {name!r}; {hint}."
    return InvalidInputError(message)
