"""What a report is made from: the settings, the cities, and the tables of all results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from metricdp.experiments.paper import tables
from metricdp.experiments.paper.places import Place
from metricdp.experiments.paper.plan import Settings

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """What was run, and the tables of its results, each made when it is first asked for.

    frame : one row per job (`metricdp.experiments.paper.tables.gather`).
    """

    experiments: tuple[str, ...]
    places: tuple[Place, ...]
    settings: Settings
    frame: pd.DataFrame

    @cached_property
    def losses(self) -> pd.DataFrame:
        """Table 3."""
        return tables.losses(self.frame, 2)

    @cached_property
    def losses_l1(self) -> pd.DataFrame:
        """Table 8."""
        return tables.losses(self.frame, 1)

    @cached_property
    def violations(self) -> pd.DataFrame:
        """Table 2."""
        return tables.violations(self.frame, 2)

    @cached_property
    def violations_l1(self) -> pd.DataFrame:
        """Table 9."""
        return tables.violations(self.frame, 1)

    @cached_property
    def seconds(self) -> pd.DataFrame:
        """Table 4."""
        return tables.seconds(self.frame, 2)

    @cached_property
    def seconds_l1(self) -> pd.DataFrame:
        """Table 10."""
        return tables.seconds(self.frame, 1)

    @cached_property
    def ablation(self) -> pd.DataFrame:
        """Table 7."""
        return tables.ablation(self.frame)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Figures 11 to 13."""
        return tables.budget_curves(self.frame)

    @cached_property
    def granularity(self) -> pd.DataFrame:
        """Figure 14."""
        return tables.granularity(self.frame)

    @cached_property
    def histograms(self) -> pd.DataFrame:
        """Figures 8 to 10."""
        return tables.histograms(self.frame, 2, self.settings.ppr_epsilon)

    @cached_property
    def mismatches(self) -> pd.DataFrame:
        """Baselines whose outputs do not belong to the loss."""
        return tables.mismatches(self.frame)

    @cached_property
    def failures(self) -> pd.DataFrame:
        """Jobs without a result."""
        return self.frame[self.frame["error"] != ""]

    def of(self, purpose: str, city: str) -> pd.DataFrame:
        """Return the jobs of one purpose in one city that have a result."""
        chosen = (self.frame["purpose"] == purpose) & (self.frame["city"] == city)
        return self.frame[chosen & (self.frame["error"] == "")]
