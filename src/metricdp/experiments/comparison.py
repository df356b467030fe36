"""The table that `compare` returns: a DataFrame that shows itself as a card and knows what lies behind its rows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from metricdp.auditing.pairs import Ratios
from metricdp.certificates.proving import Certificate, Metres
from metricdp.experiments.comparison_tables import html_losses

__all__ = ["Comparison"]


class Comparison(pd.DataFrame):
    """One row per method and ε; parts of it, such as a filtered copy, are plain DataFrames.

    What is behind the rows is in `attrs` as plain data, which files such as Parquet keep.
    """

    @property
    def ratios(self) -> dict[tuple[str, float], Ratios]:
        """The distribution of likelihood ratios that the audit saw, by (method, ε)."""
        return {_place(one): Ratios(**one["ppr"]) for one in self.attrs["behind"] if "ppr" in one}

    @property
    def certificates(self) -> dict[tuple[str, float], Certificate]:
        """The certificate by (method, ε); where it does not hold, `worst_where` has the worst pair found."""
        return {_place(one): _certificate(one["certificate"]) for one in self.attrs["behind"] if "certificate" in one}

    def _repr_html_(self) -> str:
        return html_losses(self)


def _place(one: dict[str, Any]) -> tuple[str, float]:
    return one["method"], one["epsilon"]


def _certificate(plain: dict[str, Any]) -> Certificate:
    metres = plain["metres"]
    return Certificate(**(plain | {"metres": None if metres is None else Metres(**metres)}))
