"""`metricdp epsilon --by-density`: a map of ε that hides everybody among equally many people."""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR
from pathlib import Path
from typing import Any

import numpy as np

from metricdp._cards import Card
from metricdp._lengths import length_text
from metricdp._validation import reject
from metricdp.cli._console import named_as, out, print_json
from metricdp.errors import InvalidInputError
from metricdp.experiments.map_figures import write_map_figure
from metricdp.files.map_files import map_as_dict, write_map
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.norms import largest_ratio
from metricdp.problem import Problem

__all__ = ["settings_of", "tell_map"]

_NEEDED, _MORE = ("people", "least", "most"), ("population", "ratio", "cells")
_RULE = "settings such as people=500,least=2,most=8"

# Shares of people, of whom the card says how far their protection reaches at least.
_SHARES = (0.95, 0.5, 0.05)


def settings_of(text: str) -> dict[str, Any]:
    """Read "people=500,least=2,most=8" and what may follow: population, ratio, cells."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in (*_NEEDED, *_MORE) or not equals or name in found:
            known = ", ".join((*_NEEDED, *_MORE))
            raise reject("--by-density", f"{_RULE}; known are {known}, each once", repr(text))
        found[name] = _number(name, value, text)
    missing = [name for name in _NEEDED if name not in found]
    if missing:
        raise InvalidInputError(f"`--by-density` needs {' and '.join(missing)} too: {_RULE}.")
    return found


def _number(name: str, value: str, text: str) -> float | int:
    try:
        if name == "cells":
            return int(value)
        return math.e if (name, value) == ("ratio", "e") else float(value)
    except ValueError:
        raise reject("--by-density", f"{_RULE}; {name} is no number", repr(text)) from None


def tell_map(
    problem: Problem, settings: dict[str, Any], out_file: Path | None, plot: Path | None, *, as_json: bool
) -> None:
    """Make the map, write it and its picture, and say what it means."""
    with named_as({name: f"--by-density {name}" for name in (*_NEEDED, *_MORE)}):
        local = EpsilonMap.by_density(problem, **settings)
    if out_file is not None:
        write_map(out_file, local, problem.projection)
    if plot is not None:
        write_map_figure(local, problem, plot)
    facts = _facts(problem, local, settings)
    if as_json:
        paths = {name: None if path is None else str(path) for name, path in (("out", out_file), ("plot", plot))}
        print_json({**facts, "map": map_as_dict(local, problem.projection), **paths})
        return
    out.print(_card(facts).rich())
    for word, path in (("written", out_file), ("drawn", plot)):
        if path is not None:
            out.print(f"{word} to {path}", markup=False, soft_wrap=True)


def _facts(problem: Problem, local: EpsilonMap, settings: dict[str, Any]) -> dict[str, Any]:
    straight = 1.0 if problem.projection is None else largest_ratio(problem.p, 2, problem.n_axes)
    # 1/ε where somebody is; between cells of different ε protection reaches a little less or more far.
    radii = 1 / (local.at(problem.records) * straight)
    order = radii.argsort()[::-1]
    reached = np.cumsum(problem.prior[order])
    quantiles = {
        f"{share:g}": float(radii[order[min(int(np.searchsorted(reached, share - 1e-12)), len(order) - 1)]])
        for share in _SHARES
    }
    return {
        "people": settings["people"],
        "least": local.min,
        "most": local.max,
        "radius_least": 1 / (local.max * straight),
        "radius_most": 1 / (local.min * straight),
        "radius_of_people": quantiles,
        "cells": list(local.shape),
        "distance_unit": "km" if problem.projection is not None else "",
    }


def _card(facts: dict[str, Any]) -> Card:
    def length(radius: float) -> str:
        return length_text(radius, facts["distance_unit"], ROUND_FLOOR)

    near, far = length(facts["radius_least"]), length(facts["radius_most"])
    unit = " per true km" if facts["distance_unit"] else ""
    people = ", ".join(f"{float(share):.0%} at least {length(one)}" for share, one in facts["radius_of_people"].items())
    rows = (
        ("ε", f"from {facts['least']:.4g} to {facts['most']:.4g}{unit}"),
        ("protection radius", f"1/ε for a ratio of e: from {near} to {far}"),
        ("of people", people),
        ("cells", " x ".join(map(str, facts["cells"]))),
        ("public", "everybody may see this map; it follows all records together, and must not follow one person"),
    )
    return Card(f"A map of ε: among {facts['people']:g} people", rows)
