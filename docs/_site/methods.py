"""The page of methods, from the registry: what each takes, what it supports, and whether it is private everywhere."""

import dataclasses
import functools
import math

import numpy as np

import metricdp as mdp
from metricdp.mechanisms.families import METHODS, families

from .docstrings import items
from .markdown import code, listed, table

# Norms and numbers of axes that are tried.
NORMS = (1, 1.5, 2, 3, math.inf)
AXES = (1, 2, 3, 4, 5)

# Options with which a design takes a moment.
SMALL = {"cells": 1, "squares": 4}
SMALL_AUTO = {"time_limit": 0.1}


def page():
    """Return the tables, as Markdown."""
    return f"{overview()}\n{options_of_all()}"


def overview():
    """Return one row for each method, and one for noise without outputs."""
    kinds = {method.name: family for family in families() for method in family.methods}
    rows = []
    for name, method in METHODS.items():
        norms, axes = supported(name)
        device = (
            "yes" if name in kinds and kinds[name].on_device else "if such a method wins" if name == "auto" else "no"
        )
        rows.append([
            f"[`{name}`](#{name})", method.label, "proved" if method.private else "**no**", norms, axes,
            "each cell's own" if method.takes_maps else "its least", device,
        ])  # fmt: skip
    norms, axes = supported_by_noise()
    rows.append(["`mdp.noise`", "Noise without outputs", "proved", norms, axes, "no maps", "yes"])
    heads = ["method", "name in tables", "private on the continuum", "p", "N", "ε of a map", "on the device"]
    return table(heads, rows)


def options_of_all():
    """Return a section for each method with its options."""
    return "\n".join(
        f"## {name}\n\n{first_sentences(method.design)}\n\n{options_table(method.options)}"
        for name, method in METHODS.items()
    )


def options_table(options):
    """Return the options of a class of options: name, default, meaning."""
    meanings = meanings_of(options)
    rows = []
    for field in dataclasses.fields(options):
        meaning = meanings[field.name]
        if field.name == "solver":
            meaning += f" Here: {listed(('auto', *options.solvers()))}."
        rows.append([code(field.name), code(repr(field.default)), meaning])
    return table(["option", "default", "meaning"], rows)


def meanings_of(options):
    """Return what the docstrings of a class and of its parents say of each option."""
    found = {}
    for parent in reversed(options.__mro__):
        if dataclasses.is_dataclass(parent):
            found |= items(parent.__doc__)
    return found


def first_sentences(function):
    """Return the first paragraph of a docstring."""
    return " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())


@functools.cache
def supported(method):
    """Return the norms and the numbers of axes with which a method designs a small problem, in words."""
    fits = {(p, n): designs(method, p, n) for n in AXES for p in NORMS}
    return in_words(fits)


@functools.cache
def supported_by_noise():
    """Return the norms and the numbers of axes for which there is noise without outputs, in words."""
    return in_words({(p, n): has_noise(p, n) for n in AXES for p in NORMS})


def in_words(fits):
    """Return norms and axes in words; axes with the same norms are told together."""
    by_norms = {}
    for n in AXES:
        norms = tuple(p for p in NORMS if fits[p, n])
        by_norms.setdefault(norms, []).append(n)
    by_norms.pop((), None)
    axes = [n for group in by_norms.values() for n in group]
    words = [(norms_in_words(norms), axes_in_words(group)) for norms, group in by_norms.items()]
    if len(words) == 1:
        return words[0]
    return "; ".join(f"{norms} for N = {group}" for norms, group in words), axes_in_words(axes)


def norms_in_words(norms):
    return "1 ≤ p ≤ ∞" if norms == NORMS else ", ".join("∞" if math.isinf(p) else f"{p:g}" for p in norms)


def axes_in_words(axes):
    return f"{axes[0]}–{axes[-1]}" if len(axes) > 2 else " and ".join(map(str, axes))


def designs(method, p, n_axes):
    """Return whether a method designs a problem with this norm and so many axes, without an error."""
    corners = np.array([np.zeros(n_axes), np.ones(n_axes)])
    problem = mdp.Problem(corners, corners, "euclidean", p=p)
    chosen = METHODS[method]
    known = {field.name for field in dataclasses.fields(chosen.options)}
    small = SMALL_AUTO if method == "auto" else {name: SMALL[name] for name in SMALL.keys() & known}
    try:
        mdp.fit(problem, 1.0, method, certify=chosen.private, **small)
    except mdp.InvalidInputError:
        return False
    return True


def has_noise(p, n_axes):
    try:
        mdp.noise(1.0, p=p, bounds=[[0.0] * n_axes, [1.0] * n_axes])
    except mdp.InvalidInputError:
        return False
    return True
