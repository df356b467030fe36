"""From results to tables: ours and the paper's beside each other, mean ± 1.96 standard deviations over repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from metricdp.experiments.paper import reported
from metricdp.experiments.paper.job import PaperJob
from metricdp.experiments.paper.plan import EQUAL_SHARE
from metricdp.experiments.paper.ratios import BIN_EDGES

__all__ = [
    "ablation",
    "budget_curves",
    "gather",
    "granularity",
    "histograms",
    "losses",
    "mismatches",
    "order",
    "seconds",
    "summarise",
    "violations",
]

_BOUNDS = {"tight": "tight bound", "paper": "paper bound"}


def gather(jobs: Sequence[PaperJob], results: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return one row per job, in the order of the plan; figures that a job does not compute are missing values."""
    return pd.DataFrame([_row(job, results[job.key]) for job in jobs])


def _row(job: PaperJob, result: Mapping[str, Any]) -> dict[str, Any]:
    sample = result.get("sample") or {}
    search = result.get("search") or {}
    facts = result.get("facts") or {}
    cells = job.option("cells")
    compared = max(sample.get("compared", 0), 1)
    return {
        "key": job.key,
        "kind": job.kind,
        "purpose": job.purpose,
        "city": job.place,
        "p": job.p,
        "epsilon": job.epsilon,
        "seed": job.seed,
        "method": _BOUNDS[job.method] if job.kind == "bound" else job.method,
        "across": cells[0] if isinstance(cells, (tuple, list)) else cells,
        "scale": job.option("scale"),
        "share": job.option("share"),
        "floor_m": job.option("floor_m"),
        "anchors": facts.get("anchors"),
        "ended_with": facts.get("method"),
        "ended_cells": facts.get("cells"),
        "budgets": facts.get("budgets"),
        "loss": result.get("loss", np.nan),
        "uniform_loss": result.get("uniform_loss", np.nan),
        "floor": result.get("floor", np.nan),
        "by_clock": bool(result.get("by_clock", False)),
        "certified": bool(result.get("certified", False)),
        "violation": 100 * sample["violations"] / compared if sample else np.nan,
        "slack_violation": 100 * sample["slack_violations"] / compared if sample else np.nan,
        "search_violation": 100 * search["violation_ratio"] if search else np.nan,
        "worst": max(sample.get("largest", 0.0), search.get("max_ratio", 0.0)) if sample or search else np.nan,
        "counts": sample.get("counts"),
        "seconds": result.get("seconds", {}).get("fit", np.nan),
        "all_seconds": result.get("seconds", {}).get("all", np.nan),
        "error": result.get("error", ""),
    }


def summarise(frame: pd.DataFrame, keys: Sequence[str], values: Mapping[str, str]) -> pd.DataFrame:
    """Return, per group, the mean of each value and 1.96 standard deviations (missing for a single repeat).

    Parameters
    ----------
    frame : DataFrame
        One row per repeat.
    keys : sequence of str
        Columns that name a group.
    values : mapping
        Columns to average, and what to call them: "loss" gives "loss" and "loss_half_width".
    """
    groups = frame.groupby(list(keys), sort=False)
    table = groups.size().rename("repeats").reset_index()
    for column, name in values.items():
        table[name] = groups[column].mean().to_numpy()
        table[f"{name}_half_width"] = 1.96 * groups[column].std(ddof=1).to_numpy()
    if "by_clock" in frame:
        table["by_clock"] = groups["by_clock"].any().to_numpy()
    return table


def _main(frame: pd.DataFrame, p: float, kinds: Sequence[str] = ("fit",)) -> pd.DataFrame:
    chosen = (frame["purpose"] == "main") & (frame["p"] == p) & frame["kind"].isin(list(kinds))
    return frame[chosen & (frame["error"] == "")]


def _beside_paper(table: pd.DataFrame, name: str, p: float) -> pd.DataFrame:
    """Join the paper's figures; the data file has those for ℓ2 only."""
    theirs = reported.table(name)
    if p != 2:
        theirs = theirs.iloc[:0]
    # Rounded, since multiples of 0.2 may differ in their last bits.
    left = table.assign(_epsilon=table["epsilon"].round(9))
    right = theirs.assign(_epsilon=theirs["epsilon"].round(9)).drop(columns="epsilon")
    return left.merge(right, how="left", on=["city", "method", "_epsilon"]).drop(columns="_epsilon")


def losses(frame: pd.DataFrame, p: float) -> pd.DataFrame:
    """Tables 3 (p = 2) and 8 (p = 1): expected loss in km, bounds included."""
    chosen = _main(frame, p, ("fit", "bound"))
    table = summarise(chosen, ["city", "method", "epsilon"], {"loss": "loss"})
    table = _beside_paper(table, "utility_loss_km_l2", p)
    return table.assign(difference_percent=100 * (table["loss"] / table["paper_mean"] - 1))


def order(table: pd.DataFrame) -> pd.DataFrame:
    """Rank methods by loss at each city and ε, without the lower bounds."""
    fits = table[~table["method"].isin(list(_BOUNDS.values()))]
    ranked = fits.sort_values(["city", "epsilon", "loss"], kind="stable")
    rank = ranked.groupby(["city", "epsilon"]).cumcount() + 1
    return ranked.assign(rank=rank)[["city", "epsilon", "rank", "method", "loss"]].reset_index(drop=True)


def violations(frame: pd.DataFrame, p: float) -> pd.DataFrame:
    """Tables 2 and 9: percent of comparisons that break mDP, without tolerance and with the published slack."""
    chosen = _main(frame, p)
    chosen = chosen[chosen["violation"].notna()]
    values = {
        "violation": "violation_percent",
        "slack_violation": "slack_violation_percent",
        "search_violation": "search_violation_percent",
    }
    keys = ["city", "method", "epsilon"]
    table = summarise(chosen, keys, values)
    groups = chosen.groupby(keys, sort=False)
    table["worst_ratio"] = groups["worst"].max().to_numpy()
    table["certified"] = groups["certified"].all().to_numpy()
    return _beside_paper(table, "violation_percent_l2", p)


def seconds(frame: pd.DataFrame, p: float) -> pd.DataFrame:
    """Tables 4 and 10: seconds of a fit."""
    table = summarise(_main(frame, p), ["city", "method", "epsilon"], {"seconds": "seconds"})
    return _beside_paper(table, "seconds_l2", p)


def budget_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Figures 11 to 13: loss against the first axis's budget, at the paper's total of ε/2."""
    chosen = frame[(frame["purpose"] == "curve") & (frame["error"] == "")]
    table = summarise(chosen, ["city", "epsilon", "share"], {"loss": "loss"})
    table.insert(2, "epsilon_1", table["epsilon"] / 2 * np.sqrt(table["share"]))
    return table.sort_values(["city", "epsilon", "share"], kind="stable").reset_index(drop=True)


def ablation(frame: pd.DataFrame) -> pd.DataFrame:
    """Table 7: the best split of each repeat (AIPO) against the equal one (AIPO-E)."""
    chosen = frame[(frame["purpose"] == "curve") & (frame["error"] == "")]
    keys = ["city", "epsilon", "seed"]
    best = chosen.loc[chosen.groupby(keys, sort=False)["loss"].idxmin()].assign(method="aipo")
    equal = chosen[chosen["share"] == EQUAL_SHARE].assign(method="aipo-e")
    both = pd.concat([best, equal], ignore_index=True)
    table = summarise(both, ["city", "method", "epsilon"], {"loss": "loss", "share": "best_share"})
    return _beside_paper(table.drop(columns="best_share_half_width"), "ablation_utility_loss_km_l2", 2)


def granularity(frame: pd.DataFrame) -> pd.DataFrame:
    """Figure 14: loss, seconds and anchors against the cells from west to east."""
    chosen = frame[(frame["purpose"] == "granularity") & (frame["error"] == "")]
    keys = ["city", "method", "epsilon", "across"]
    table = summarise(chosen, keys, {"loss": "loss", "seconds": "seconds"})
    table["anchors"] = chosen.groupby(keys, sort=False)["anchors"].max().to_numpy()
    return table


def histograms(frame: pd.DataFrame, p: float, epsilon: float) -> pd.DataFrame:
    """Figures 8 to 10: how many comparisons have which PPR / ε, all repeats together; the last bin is open."""
    chosen = _main(frame, p)
    chosen = chosen[chosen["counts"].notna() & (chosen["epsilon"] == epsilon)]
    parts = []
    for (city, method), rows in chosen.groupby(["city", "method"], sort=False):
        counts = np.sum(np.array(rows["counts"].tolist()), axis=0)
        part = {"city": city, "method": method, "epsilon": epsilon, "from_ratio": BIN_EDGES, "count": counts}
        parts.append(pd.DataFrame(part).assign(by_clock=bool(rows["by_clock"].any())))
    columns = ["city", "method", "epsilon", "from_ratio", "count", "by_clock"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def mismatches(frame: pd.DataFrame) -> pd.DataFrame:
    """Baselines with the outputs that the loss belongs to, with others, and as published."""
    keys = ["city", "method", "epsilon"]
    wrong = frame[(frame["purpose"] == "mismatched") & (frame["error"] == "")]
    values = {"loss": "mismatched_loss", "uniform_loss": "uniform_loss"}
    table = summarise(wrong, keys, values).drop(columns="uniform_loss_half_width")
    right = summarise(_main(frame, 2), keys, {"loss": "loss"})[[*keys, "loss", "loss_half_width"]]
    return _beside_paper(table.merge(right, how="left", on=keys), "utility_loss_km_l2", 2)
