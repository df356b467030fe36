"""What happened to the rows of a job: counts, the warning that most points lie outside the box, and the summary."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from metricdp.mechanisms.outside import suspicion

__all__ = ["Counts", "Summary", "Warn", "Watch", "python_warning"]

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Counts:
    """How many rows, by what became of them. These numbers are exact, so they are not private.

    rows_in, rows_out : rows read and written.
    nulls : rows without a point, which have no output either.
    outside : points outside the box, clamped or dropped as the options say.
    not_finite : rows dropped because a coordinate was NaN or infinite.
    refused : rows without an output because the budget of their person was spent.
    late : rows without an output because their time lies before that of their person's last draw.
    swapped : points outside the box that would be inside if their two coordinates were exchanged; counted only in
        batches of which more than half lies outside.
    """

    rows_in: int = 0
    rows_out: int = 0
    nulls: int = 0
    outside: int = 0
    not_finite: int = 0
    refused: int = 0
    swapped: int = 0
    late: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def points(self) -> int:
        """Rows with a point, whether it was perturbed or dropped."""
        return self.rows_in - self.nulls

    @property
    def suspicion(self) -> str | None:
        """A sentence for the user if most points lie outside the box."""
        return suspicion(self.outside, self.points, swapped=self.swapped)


class Watch:
    """Adds up counts, and warns once if most of the points so far lie outside the box."""

    def __init__(self, warn: Warn) -> None:
        self.total = Counts()
        self._warn: Warn | None = warn

    def add(self, counts: Counts) -> None:
        """Add the counts of one more batch."""
        self.total += counts
        if self._warn is not None and (words := self.total.suspicion) is not None:
            self._warn(words)
            self._warn = None


@dataclass(frozen=True)
class Summary:
    """What a job did.

    counts : rows by what became of them, those of earlier runs included.
    seconds : how long this run took.
    sha256 : hash of the mechanism.
    resumed : rows that earlier runs had drawn.
    files : how many files were written, those of earlier runs included.
    already_complete : whether the output was there already, so that nothing was done.
    copied : the columns that were copied, in any of the files.
    not_copied : with `copy="all"`, the columns that were not copied, each with the reason.
    """

    counts: Counts
    seconds: float
    sha256: str
    resumed: int = 0
    files: int = 1
    already_complete: bool = False
    copied: tuple[str, ...] = ()
    not_copied: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Rows that this run read, per second."""
        return (self.counts.rows_in - self.resumed) / max(self.seconds, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold."""
        counts = dataclasses.asdict(self.counts)
        del counts["swapped"]  # a hint about the columns, not what became of rows
        others = dataclasses.asdict(self)
        del others["counts"]
        listed = {"copied": list(self.copied), "not_copied": dict(self.not_copied)}
        return {**counts, **others, **listed, "rows_per_second": self.rows_per_second}


def python_warning(words: str) -> None:
    """Warn the way Python does."""
    warnings.warn(words, stacklevel=2)
