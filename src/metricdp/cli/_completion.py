"""Values that a shell offers for options when Tab is pressed: `metricdp --install-completion` turns it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["ENDING", "cities", "mechanism_files", "methods", "one_of", "some_of"]

ENDING = ".mdp"

Values = Callable[[], Iterable[str]]


def one_of(*values: str | Values) -> Callable[[str], list[str]]:
    """Return a completion of one value: of those given, and of those that functions return when Tab is pressed."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in _all(values) if value.startswith(incomplete)]

    return complete


def some_of(*values: str | Values) -> Callable[[str], list[str]]:
    """Return a completion of the last of several values with commas between them."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        used = before.split(",")
        return [before + comma + value for value in _all(values) if value.startswith(last) and value not in used]

    return complete


def _all(values: Iterable[str | Values]) -> list[str]:
    return [each for value in values for each in ([value] if isinstance(value, str) else value())]


def methods() -> Iterable[str]:
    """Return the methods of the registry."""
    from metricdp.mechanisms.families import METHODS  # noqa: PLC0415 - on Tab only

    return METHODS


def cities() -> Iterable[str]:
    """Return the cities that can be loaded by name."""
    from metricdp.cities import available  # noqa: PLC0415

    return available()


def mechanism_files() -> Iterable[str]:
    """Return the mechanism files of the current folder."""
    return sorted(path.name for path in Path().glob(f"*{ENDING}"))
