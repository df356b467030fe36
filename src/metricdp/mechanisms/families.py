"""The one registry: each family of mechanisms has one line here, which `fit`, files, proofs, help and pictures read."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from metricdp._validation import choice
from metricdp.mechanisms.family import Family, Method

__all__ = ["FOLDERS", "METHODS", "families", "family_of"]

# Each folder has a `FAMILY`; methods are listed in this order wherever they are listed.
FOLDERS = [
    "metricdp.mechanisms.spline",
    "metricdp.mechanisms.aipo",
    "metricdp.mechanisms.exponential",
    "metricdp.mechanisms.laplace",
    "metricdp.mechanisms.gridded",
    "metricdp.mechanisms.noise",
]

# The default is no family: it takes the best of what several of them design.
AUTO = Method(
    name="auto",
    label="Best (auto)",
    colour="#d62728",
    design_at="metricdp.mechanisms.auto:fit_auto",
    options_at="metricdp.mechanisms.auto:AutoOptions",
    takes_maps=True,
)


def families() -> tuple[Family, ...]:
    """Return all families."""
    return tuple(importlib.import_module(folder).FAMILY for folder in FOLDERS)


def family_of(kind: str, file_format: int | None = None) -> Family:
    """Return the family that files call `kind`; with `file_format`, among those that this format knows."""
    known = {family.kind: family for family in families() if file_format is None or family.first_format <= file_format}
    return known[choice("kind", kind, tuple(known))]


class _Methods(Mapping[str, Method]):
    """All methods by name, as the registry has them now."""

    def __getitem__(self, name: str) -> Method:
        return self._by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name())

    def __len__(self) -> int:
        return len(self._by_name())

    @staticmethod
    def _by_name() -> dict[str, Method]:
        return {one.name: one for one in (AUTO, *(method for family in families() for method in family.methods))}


METHODS: Mapping[str, Method] = _Methods()
