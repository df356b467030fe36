"""What a ledger is made with and cannot change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.ledger.times import span_text

__all__ = ["Terms", "parsed_terms"]

_TERMS = ("max_epsilon", "sticky_km", "window", "every")

# Longest window that a file may name, in ticks: a hundred years, and so no overflow in sums of moments.
_LONGEST = 2**62


@dataclass(frozen=True)
class Terms:
    """What a ledger is made with and cannot change.

    max_epsilon, sticky_km : as for `Ledger`.
    key_check : hash of the empty text under the key for ids.
    window, every : lengths of time in ticks (microseconds); None in a ledger of lifetime sums.
    """

    max_epsilon: float | None
    sticky_km: float | None
    key_check: str | None
    window: int | None = None
    every: int | None = None

    @property
    def timed(self) -> bool:
        """Whether requests have times."""
        return self.window is not None or self.every is not None

    def refuse_others(self, wanted: Terms) -> None:
        """Raise if a caller wants other terms; a caller who names no limit takes them as they are."""
        if wanted.key_check != self.key_check:
            rule = "left out" if self.key_check is None else "the one that the ledger was made with"
            raise reject("user_key", rule, "none" if wanted.key_check is None else "another")
        for name in _TERMS:
            made, want = getattr(self, name), getattr(wanted, name)
            as_made = want is None and wanted.max_epsilon is None
            if want != made and not as_made:
                raise reject(name, f"{self._shown(name)}, which the ledger was made with", wanted._shown(name))

    def _shown(self, name: str) -> object:
        value = getattr(self, name)
        return span_text(value) if name in ("window", "every") else value


def parsed_terms(path: Path, rows: list[Any]) -> Terms:
    """Return the terms that a file holds: limit, radius, key check and, of a timed ledger, window and schedule."""
    try:
        ((limit, radius, check, *spans),) = rows
        terms = Terms(float(limit), None if radius is None else float(radius), check, *spans)
        sound = 0 < float(limit) < math.inf and (radius is None or 0 <= float(radius) < math.inf)
        sound &= all(one is None or (isinstance(one, int) and 0 < one < _LONGEST) for one in spans)
        sound &= bool(spans) == terms.timed
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        msg = f"{str(path)!r} is not a metricdp ledger that can be read: its terms are damaged."
        raise InvalidInputError(msg)
    return terms
