"""Measuring mechanisms: comparisons, tables and figures."""

from metricdp.evaluate.compare import compare

__all__ = ["compare"]
