"""The figures that the paper reports, and the settings that its text and its code give."""

from __future__ import annotations

from functools import cache
from importlib import resources

import pandas as pd

__all__ = [
    "ANCHOR_SIDES_KM",
    "CITATION",
    "CODE_SIDES_KM",
    "DEFAULT_EPSILON",
    "GRID_CELLS",
    "HOURS",
    "NAMES",
    "NODES",
    "PRIVATE",
    "table",
]

CITATION = (
    "Chenxi Qiu, “Interpolation-Based Optimization for Enforcing ℓp-Norm Metric Differential Privacy in Continuous "
    "and Fine-Grained Domains”; its code: doi.org/10.5281/zenodo.17851733"
)

# The paper's names of our methods and bounds.
NAMES = {
    "em": "EM",
    "laplace": "Laplace",
    "tem": "TEM",
    "em-remap": "RMP",
    "copt": "COPT",
    "lp": "LP",
    "aipo-r": "AIPO-R",
    "paper bound": "LB",
    "aipo": "AIPO",
    "aipo-e": "AIPO-E",
}

# Methods with zero violations throughout Table 2.
PRIVATE = ("em", "laplace", "tem", "em-remap", "aipo")

# Nodes and sides of the anchors' cells as Table 1 has them, and the sides in the public code's `parameters.m`.
NODES = {"rome": 43_160, "london": 12_820, "nyc": 55_353}
ANCHOR_SIDES_KM = {"rome": 3.18, "london": 4.52, "nyc": 4.58}
CODE_SIDES_KM = {"rome": 4.77, "london": 6.78, "nyc": 6.87}

# In the public code LP and the lower bound have this many cells along each axis; its studies of one ε take this one.
GRID_CELLS = 11
DEFAULT_EPSILON = 0.4

# Hours that the paper's artefact table gives for its scripts, by what they compute.
HOURS = {"ℓ2 tables and PPR": 37.0, "ℓ1 tables": 36.0, "granularity": 15.0, "budget ablation": 7.5}


@cache
def _all() -> pd.DataFrame:
    with (resources.files(__package__) / "paper_results.csv").open(encoding="utf-8") as stream:
        return pd.read_csv(stream, comment="#")


def table(name: str) -> pd.DataFrame:
    """Return one table of the paper: columns city, method (our name), epsilon, paper_mean, paper_half_width.

    Parameters
    ----------
    name : str
        "utility_loss_km_l2", "violation_percent_l2", "seconds_l2" or "ablation_utility_loss_km_l2". The data
        file has no figures for ℓ1 (Tables 8 to 10).

    Examples
    --------
    >>> rome = table("utility_loss_km_l2").query("city == 'rome' and method == 'aipo'")
    >>> rome["paper_mean"].tolist()
    [5.68, 4.65, 4.02, 3.63, 3.38, 3.14, 2.99, 2.88]
    """
    ours = {name: method for method, name in NAMES.items()}
    frame = _all()
    frame = frame[frame["table"] == name].drop(columns="table")
    columns = {"epsilon_per_km": "epsilon", "mean": "paper_mean", "half_width": "paper_half_width"}
    return frame.assign(method=frame["method"].map(ours)).rename(columns=columns).reset_index(drop=True)
