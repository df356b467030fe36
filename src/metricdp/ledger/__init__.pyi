from .budgets import Ledger

__all__ = ["Ledger"]
