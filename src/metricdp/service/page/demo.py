"""The mechanisms of `metricdp serve --demo`: central Helsinki at four ε, by four methods, and one with a map of ε."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricdp import cities
from metricdp._version import __version__
from metricdp.bounds.choosing import lower_bound
from metricdp.errors import InvalidInputError
from metricdp.files.reading import read_file
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.fitting import fit
from metricdp.problem import Problem

__all__ = ["fit_demo"]

CITY = "helsinki"
_PROBLEM: dict[str, Any] = {"outputs": 20, "tasks": 50, "seed": 0}

# Protection radii 1/ε from 500 m down to 60 m; central Helsinki is about 1 x 1.7 km.
_EPSILONS = (2.0, 4.0, 8.0, 16.0)

# Grids are coarser than by default, so that fitting takes a third of a minute.
_METHODS: dict[str, dict[str, Any]] = {
    "spline": {"cells": [16, 26]},
    "laplace-remap": {},
    "aipo-e": {"cells": 8},
    "em": {},
}
_BOUND_CLUSTERS = 200

# The spline with a map: everybody among 50 road nodes, at least as private as ε = 8 and at most as ε = 2.
_MAP: dict[str, Any] = {"people": 50, "least": 2.0, "most": 8.0, "cells": [8, 13]}
_MAP_METHOD = "spline"

# The page opens with the first file.
_FIRST = ("spline", 8.0)


@dataclass(frozen=True)
class _Wanted:
    """One file of the demo and all that its contents depend on."""

    method: str
    epsilon: float | None  # None: that of the map

    @property
    def name(self) -> str:
        return f"{CITY}-{self.method}-{'map' if self.epsilon is None else format(self.epsilon, 'g')}.mdp"

    @property
    def words(self) -> str:
        return f"{self.method} {'with a map of ε' if self.epsilon is None else f'at ε = {self.epsilon:g} per km'}"

    def budget(self, problem: Problem) -> float | EpsilonMap:
        """Return ε, or the map of it."""
        return EpsilonMap.by_density(problem, **_MAP) if self.epsilon is None else self.epsilon

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "city": CITY,
            **_PROBLEM,
            "method": self.method,
            "epsilon": _MAP if self.epsilon is None else self.epsilon,
            "options": _METHODS[self.method],
            "bound_clusters": _BOUND_CLUSTERS,
            "library": __version__,
        }

    def is_in(self, path: Path) -> bool:
        """Return whether the file is sound and was fitted with these settings."""
        try:
            return bool(read_file(path).mechanism.report.get("demo") == self.settings)
        except (FileNotFoundError, InvalidInputError):
            return False


def fit_demo(folder: Path, progress: Callable[[float, str], None] | None = None) -> list[Path]:
    """Fit the demo's mechanisms into `folder` and return their files, the one to show first in front.

    Each report tells the loss and a lower bound for its ε. Files of an earlier call are kept if they were made with
    the same settings by the same version of the library. About half a minute on two cores otherwise.

    Parameters
    ----------
    folder : Path
        Where to write; made if it is not there.
    progress : callable, optional
        Called with the fraction done and a few words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [_Wanted(method, epsilon) for epsilon in _EPSILONS for method in _METHODS]
    wanted.append(_Wanted(_MAP_METHOD, None))
    missing = [one for one in wanted if not one.is_in(folder / one.name)]
    for done, (one, mechanism) in enumerate(_fitted(missing), start=1):
        mechanism.save(folder / one.name)
        if progress is not None:
            progress(done / len(missing), one.words)
    wanted.sort(key=lambda one: (one.method, one.epsilon) != _FIRST)
    return [folder / one.name for one in wanted]


def _fitted(wanted: list[_Wanted]) -> Iterator[tuple[_Wanted, Mechanism]]:
    if not wanted:
        return
    problem = cities.load(CITY).problem(**_PROBLEM)
    bounds: dict[float | None, float] = {}
    for one in wanted:
        budget = one.budget(problem)
        if one.epsilon not in bounds:
            bounds[one.epsilon] = lower_bound(problem, budget, clusters=_BOUND_CLUSTERS, progress=False)
        mechanism = fit(problem, budget, one.method, progress=False, **_METHODS[one.method])
        loss = mechanism.expected_loss(problem)
        yield one, mechanism.with_report(loss=loss, lower_bound=bounds[one.epsilon], demo=one.settings)
