from .budgets import Ledger
from .units import Budget

__all__ = ["Budget", "Ledger"]
