"""What a family of mechanisms says of itself. The list of all families is in `families.py`.

Classes and functions are named as "module:name" and imported when they are first used, so that reading the registry
costs nothing, and so that a proof never imports a solver.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricdp.certificates.claims import Finding
    from metricdp.mechanisms.base import Mechanism

__all__ = ["Family", "Method"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to design mechanisms, which users choose by its name.

    name : what `metricdp.fit` calls it.
    label : what tables and pictures call it.
    colour : of its lines in pictures.
    takes_maps : whether its design takes an `EpsilonMap` in place of a number; the others get the map's least ε.
    private : whether its mechanisms are private between any two points. The others are here for comparison.
    design_at : "module:function" of (problem, epsilon, options). It returns a mechanism, or a tuple of them with the
        best first, of which `fit` takes the first that is proved private.
    options_at : "module:class" of its options.
    """

    name: str
    label: str
    colour: str
    design_at: str
    options_at: str
    private: bool = True
    takes_maps: bool = False

    @property
    def design(self) -> Callable[..., Mechanism | tuple[Mechanism, ...]]:
        """The function that designs a mechanism."""
        found: Callable[..., Mechanism | tuple[Mechanism, ...]] = pkgutil.resolve_name(self.design_at)
        return found

    @property
    def options(self) -> type[Any]:
        """The class of its options."""
        found: type[Any] = pkgutil.resolve_name(self.options_at)
        return found


@dataclass(frozen=True, kw_only=True)
class Family:
    """Mechanisms of one formula: how files call them, how they are read and proved private, how they are designed.

    kind : what files call the formula.
    mechanism_at : "module:class" of its mechanisms.
    prove_at : "module:function" from such a mechanism to a `Finding`.
    methods : the methods that design one.
    first_format : the first file format that knows the kind.
    on_device : what the JavaScript package in `js/` does with its files: "draw", "probabilities", or nothing.
    """

    kind: str
    mechanism_at: str
    prove_at: str
    methods: tuple[Method, ...] = ()
    first_format: int = 1
    on_device: tuple[str, ...] = ()

    @property
    def mechanism(self) -> type[Mechanism]:
        """The class of its mechanisms."""
        found: type[Mechanism] = pkgutil.resolve_name(self.mechanism_at)
        return found

    @property
    def prove(self) -> Callable[[Mechanism], Finding]:
        """The proof for its mechanisms."""
        found: Callable[[Mechanism], Finding] = pkgutil.resolve_name(self.prove_at)
        return found
