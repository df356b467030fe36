"""How to open a ledger, as the command line and the service hand it on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from metricdp.ledger.budgets import Ledger

__all__ = ["LedgerOptions"]


@dataclass(frozen=True)
class LedgerOptions:
    """How to open a ledger; the fields are the parameters of `metricdp.Ledger`."""

    path: Path
    max_epsilon: float | None = None
    window: str | None = None
    every: str | None = None
    beyond: str = "refuse"
    sticky_km: float | None = None
    user_key: bytes | None = field(default=None, repr=False)

    def open(self) -> Ledger:
        """Open the ledger, or make a new one."""
        return Ledger(**{one.name: getattr(self, one.name) for one in fields(self)})
