"""The cities of the paper's experiments: what plans, keys and reports need to know of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from metricdp import cities
from metricdp._validation import reject
from metricdp.cities import RoadNetwork
from metricdp.errors import InvalidInputError

__all__ = ["Place", "digest", "in_title", "survey"]


@dataclass(frozen=True)
class Place:
    """A city.

    source : what `metricdp.cities.load` takes; `name` is what tables call it.
    network : a hash of nodes and edges: results of another network are not results of this one.
    """

    name: str
    source: str
    network: str
    nodes: int
    edges: int
    width_km: float
    height_km: float

    def cells_of_side(self, side_km: float) -> tuple[int, int]:
        """Return cells along each axis, no wider than the given side.

        Examples
        --------
        >>> Place("rome", "rome", "", 43_160, 89_739, 47.4, 49.1).cells_of_side(3.18)
        (15, 16)
        """
        return math.ceil(self.width_km / side_km), math.ceil(self.height_km / side_km)

    def square_cells(self, across: int) -> tuple[int, int]:
        """Return cells along each axis, about square, `across` of them from west to east."""
        return across, max(1, round(self.height_km / (self.width_km / across)))


def survey(names: Iterable[str]) -> tuple[Place, ...]:
    """Load every city once and describe it, so that unknown ones are refused before anything is computed."""
    asked = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not asked:
        raise reject("cities", "non-empty", "nothing")
    places = tuple(_place(name) for name in asked)
    twice = [place.name for place in places]
    if len(set(twice)) < len(twice):
        raise reject("cities", "of different names", ", ".join(asked))
    return places


def _place(source: str) -> Place:
    try:
        network = cities.load(source)
    except InvalidInputError as error:
        hint = "With `quick` only Helsinki is needed, which comes with the extra `cities`."
        raise InvalidInputError(f"City {source!r} could not be loaded: {error} {hint}") from error
    width, height = np.ptp(network.xy, axis=0)
    known = source.lower() in cities.available()
    return Place(
        name=source.lower() if known else network.name,
        # Absolute, since workers may run in another folder.
        source=source.lower() if known else str(Path(source).resolve()),
        network=digest(network),
        nodes=network.n_nodes,
        edges=network.n_edges,
        width_km=float(width),
        height_km=float(height),
    )


def in_title(city: object) -> str:
    """Return a city's name as titles have it.

    Examples
    --------
    >>> in_title("rome"), in_title("nyc")
    ('Rome', 'NYC')
    """
    return "NYC" if city == "nyc" else str(city).capitalize()


def digest(network: RoadNetwork) -> str:
    """Return a hash of where nodes are and how edges join them."""
    digest = hashlib.sha256()
    arrays = [network.lon, network.lat, network.u, network.v, network.length_m]
    if network.task_distance_m is not None:
        arrays.append(network.task_distance_m)
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
