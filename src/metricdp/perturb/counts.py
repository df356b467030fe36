"""What happened to the rows of a job, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Counts", "Watch"]

# From this share of points outside the box on, something is probably wrong with the columns.
_SUSPICIOUS = 0.5


@dataclass(frozen=True)
class Counts:
    """How many rows; none of these numbers is private.

    rows_in, rows_out : rows read and written.
    nulls : rows without a point, which have no output either.
    outside : points outside the box, clamped or dropped as was asked.
    not_finite : rows dropped because a coordinate was NaN or infinite.
    refused : rows without an output because their person's budget was spent.
    swapped : points that lie outside the box, but inside with their two coordinates exchanged; counted only in
        batches most of which lie outside.
    """

    rows_in: int = 0
    rows_out: int = 0
    nulls: int = 0
    outside: int = 0
    not_finite: int = 0
    refused: int = 0
    swapped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def points(self) -> int:
        """Rows with a point that could be perturbed or was dropped."""
        return self.rows_in - self.nulls

    @property
    def suspicion(self) -> str | None:
        """A sentence for the user if most points lie outside the box."""
        if self.outside <= _SUSPICIOUS * self.points:
            return None
        # Rounded down, so that not all is said of almost all.
        share = f"{100 * self.outside // self.points} % of points fall outside the box"
        if self.swapped > self.outside / 2:
            return f"{share}; are columns swapped?"
        return f"{share}; is it the right mechanism for these data, and are the units right?"


class Watch:
    """Adds up counts and warns once, as soon as most points lie outside the box."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.total = Counts()
        self._warn: Callable[[str], None] | None = warn

    def add(self, counts: Counts) -> None:
        """Add the counts of one more batch."""
        self.total += counts
        if self._warn is not None and (words := self.total.suspicion) is not None:
            self._warn(words)
            self._warn = None
