"""The embedded default: central Helsinki, which the package carries in the folder `data`."""

from __future__ import annotations

from pathlib import Path

from metricdp.cities.network import RoadNetwork
from metricdp.cities.read_csv import read_folder

__all__ = ["NAME", "load_helsinki"]

NAME = "helsinki"

_FOLDER = Path(__file__).parent / "data" / NAME


def load_helsinki() -> RoadNetwork:
    """Return the largest component of central Helsinki's driving network, nodes in the order of their ids."""
    return read_folder(_FOLDER, NAME)
