"""The report: one HTML page, the same as Markdown with pictures beside it, and CSV tables."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from metricdp._atomic import atomic_file
from metricdp._version import __version__
from metricdp.experiments.engine.progress import in_words
from metricdp.experiments.paper import figures, reported, tables
from metricdp.experiments.paper.differences import differences
from metricdp.experiments.paper.document import Block, Cell, Heading, Picture, Table, Text, to_html, to_markdown
from metricdp.experiments.paper.evidence import Evidence
from metricdp.experiments.paper.places import in_title

__all__ = ["Checks", "checks", "write_report"]

_TITLE = "The paper's experiments, recomputed"

_L1, _L2 = "ℓ1", "ℓ2"

# Columns that differ from run to run: they are left out of the tables that must not.
_TIMINGS = ("seconds", "seconds_half_width", "by_clock")


@dataclass(frozen=True)
class Checks:
    """What a reader wants to know first.

    private : whether every mechanism that the paper calls private was proved so, and no pair that breaks mDP was found.
    broken : the mechanisms for which this fails, in words.
    failed : jobs without a result.
    """

    private: bool
    broken: tuple[str, ...]
    failed: int


def checks(evidence: Evidence) -> Checks:
    """Look for violations, at zero tolerance, of what the paper calls private, and for missing proofs."""
    broken = []
    for p, table in ((2, evidence.violations), (1, evidence.violations_l1)):
        rows = table[table["method"].isin(reported.PRIVATE)]
        found = rows["search_violation_percent"].fillna(0.0) + rows["violation_percent"] > 0
        bad = rows[found | (rows["worst_ratio"] > 1) | ~rows["certified"]]
        broken += [f"{row.city} {row.method} ε = {row.epsilon:g}, p = {p}" for row in bad.itertuples()]
    return Checks(private=not broken, broken=tuple(broken), failed=len(evidence.failures))


def write_report(evidence: Evidence, folder: Path, *, workers: int, seconds: float) -> dict[str, str]:
    """Write everything and return the names of the main files."""
    for part in (folder, folder / "tables" / "clock", folder / "figures"):
        part.mkdir(parents=True, exist_ok=True)
    _write_tables(evidence, folder / "tables")
    blocks = list(_blocks(evidence, workers, seconds))
    named = [_with_path(block) if isinstance(block, Picture) else block for block in blocks]
    for block in named:
        if isinstance(block, Picture):
            _write(folder / block.file, block.png)
    _write(folder / "report.html", to_html(_TITLE, named).encode())
    _write(folder / "report.md", to_markdown(named).encode())
    return {
        "html": str(folder / "report.html"),
        "markdown": str(folder / "report.md"),
        "tables": str(folder / "tables"),
    }


def _with_path(picture: Picture) -> Picture:
    """Return the picture with a path that any file system takes, whatever a city is called."""
    return replace(picture, file="figures/" + re.sub(r"[^\w-]+", "_", picture.file, flags=re.ASCII) + ".png")


def _write(path: Path, content: bytes) -> None:
    with atomic_file(path) as stream:
        stream.write(content)


def _write_tables(evidence: Evidence, folder: Path) -> None:
    """Write CSV files: in `folder` what depends on the jobs alone, in `folder/clock` what a clock decided."""
    made = {
        "utility_l2": evidence.losses,
        "utility_l1": evidence.losses_l1,
        "violation_l2": evidence.violations,
        "violation_l1": evidence.violations_l1,
        "seconds_l2": evidence.seconds,
        "seconds_l1": evidence.seconds_l1,
        "budget_ablation": evidence.ablation,
        "budget_curves": evidence.curves,
        "granularity": evidence.granularity,
        "ppr_l2": evidence.histograms,
        "mismatched_outputs": evidence.mismatches,
        "variants": _variants(evidence),
    }
    for name, table in made.items():
        timed = table["by_clock"].to_numpy(dtype=bool) if len(table) else np.zeros(0, dtype=bool)
        plain = table.drop(columns=[column for column in _TIMINGS if column in table])
        _write_csv(folder / f"{name}.csv", plain[~timed] if "seconds" not in name else plain[:0])
        _write_csv(folder / "clock" / f"{name}.csv", table if "seconds" in table else table[timed])
    for name, table in (("order_l2", evidence.losses), ("order_l1", evidence.losses_l1)):
        _write_csv(folder / f"{name}.csv", tables.order(table[~table["by_clock"].to_numpy(dtype=bool)]))
        _write_csv(folder / "clock" / f"{name}.csv", tables.order(table))


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    if len(table):
        _write(path, table.to_csv(index=False, float_format="%.9g", lineterminator="\n").encode())
    else:
        path.unlink(missing_ok=True)  # of an earlier run that asked for more


def _variants(evidence: Evidence) -> pd.DataFrame:
    """AIPO as the paper's words or code have it."""
    names = ["half budget", "whole budget", "cells of the code", "cost floor", "arc"]
    rows = evidence.frame[evidence.frame["purpose"].isin(names) & (evidence.frame["error"] == "")]
    keys = ["purpose", "city", "p", "epsilon", "across", "scale", "floor_m"]
    filled = rows.assign(scale=rows["scale"].fillna(0.5), floor_m=rows["floor_m"].fillna(0.0))
    return tables.summarise(filled, keys, {"loss": "loss"})


def _blocks(evidence: Evidence, workers: int, seconds: float) -> Iterator[Block]:
    yield Heading(_TITLE, 1)
    yield Text(
        f"Paper: {reported.CITATION}. In tables the paper's figure stands beside ours, in brackets or in small print."
    )
    yield from _summary(evidence)
    for experiment, section in _SECTIONS:
        if experiment in evidence.experiments:
            yield from section(evidence)
    found = differences(evidence)
    if found:
        yield Heading("Where we differ and why")
        yield from found
    yield from _settings(evidence, workers, seconds)


def _summary(evidence: Evidence) -> Iterator[Block]:
    seen = checks(evidence)
    audited = set(evidence.violations["method"]) | set(evidence.violations_l1["method"])
    names = [method for method in reported.PRIVATE if method in audited]
    if names and seen.private:
        yield Text(
            f"Every mechanism here that the paper calls private ({', '.join(names)}) is proved private, on the whole "
            "box, and no pair was found that breaks mDP, with no tolerance at all."
        )
    elif names:
        yield Text("NOT private, or not proved: " + "; ".join(seen.broken) + ".")
    if seen.failed:
        words = [f"{row.city} {row.method} ε = {row.epsilon:g}: {row.error}" for row in evidence.failures.itertuples()]
        yield Text(f"{seen.failed} jobs have no result. " + " ".join(words[:10]))


def _utility(evidence: Evidence, number: int, norm: str) -> Iterator[Block]:
    table = evidence.losses if norm == _L2 else evidence.losses_l1
    if not len(table):
        return
    yield Heading(f"Table {number}: expected loss, {norm}")
    if number == 8:
        yield Text("The paper's Tables 8 to 10 are not in our data file; these are our figures alone.")
    for place in evidence.places:
        yield _by_epsilon(table, place.name, "loss", f"{in_title(place.name)}: expected loss in km", "{:.3f}")
        yield Picture(
            f"{in_title(place.name)}: loss against ε, {norm}; crosses and dots: not private",
            f"loss_l{norm[-1]}_{place.name}",
            figures.loss_picture(table, place.name),
        )
    yield from _order(evidence, table, norm)


def _order(evidence: Evidence, table: pd.DataFrame, norm: str) -> Iterator[Block]:
    ranked = tables.order(table)
    for place in evidence.places:
        rows = []
        for epsilon, line in ranked[ranked["city"] == place.name].groupby("epsilon"):
            rows.append([f"{epsilon:g}", " < ".join(line["method"])])
        yield Table(
            f"{in_title(place.name)}: methods in the order of their loss, {norm}", ["ε", "least loss first"], rows
        )


def _violation(evidence: Evidence, number: int, norm: str) -> Iterator[Block]:
    table = evidence.violations if norm == _L2 else evidence.violations_l1
    if not len(table):
        return
    yield Heading(f"Table {number}: violations of mDP, {norm}")
    yield Text(
        f"Percent of (pair, output) comparisons that break mDP, over all pairs of {evidence.settings.sample:,} sampled "
        "places, as in the paper. First with no tolerance; then with the slack of the public code, the paper's figures "
        "beside; then in a search that also takes close pairs and pairs across cell borders and climbs from the worst."
    )
    bare = table.drop(columns=["paper_mean", "paper_half_width"])
    for place in evidence.places:
        name = in_title(place.name)
        yield _by_epsilon(bare, place.name, "violation_percent", f"{name}: percent, no tolerance", "{:.2f}", alarm=True)
        yield _by_epsilon(table, place.name, "slack_violation_percent", f"{name}: percent, published slack", "{:.2f}")
        if bare["search_violation_percent"].notna().any():
            yield _by_epsilon(
                bare, place.name, "search_violation_percent", f"{name}: percent, search", "{:.2f}", alarm=True
            )
        yield _by_epsilon(
            bare, place.name, "worst_ratio", f"{name}: worst |Δ ln z| / (ε d) found; above 1 breaks mDP", "{:.5g}"
        )


def _seconds(evidence: Evidence, number: int, norm: str) -> Iterator[Block]:
    table = evidence.seconds if norm == _L2 else evidence.seconds_l1
    if not len(table):
        return
    yield Heading(f"Table {number}: seconds, {norm}")
    yield Text(
        "Wall-clock seconds of a fit on this machine, with other jobs running beside it; the paper used a workstation "
        "with 24 cores."
    )
    for place in evidence.places:
        yield _by_epsilon(table, place.name, "seconds", f"{in_title(place.name)}: seconds", "{:.3g}", "{:.1f}")


def _budget(evidence: Evidence) -> Iterator[Block]:
    if not len(evidence.ablation):
        return
    yield Heading("Table 7 and Figures 11 to 13: the split of the budget")
    yield Text("AIPO is the best of the splits on the curve, AIPO-E the equal split.")
    for place in evidence.places:
        table = evidence.ablation
        yield _by_epsilon(table, place.name, "loss", f"{in_title(place.name)}: expected loss in km", "{:.3f}")
        yield Picture(
            f"{in_title(place.name)}: AIPO's loss against the budget of the west–east axis",
            f"budget_{place.name}",
            figures.budget_picture(evidence.curves, place.name),
        )


def _granularity(evidence: Evidence) -> Iterator[Block]:
    table = evidence.granularity
    if not len(table):
        return
    yield Heading("Figure 14: granularity")
    epsilon = evidence.settings.one_epsilon
    for place in evidence.places:
        rows = table[table["city"] == place.name]
        across = sorted(set(rows["across"]))
        lines = []
        for method, line in rows.groupby("method", sort=False):
            by_cells = line.set_index("across")
            lines.append([f"{method}, loss in km", *[f"{by_cells['loss'][n]:.3f}" for n in across]])
            lines.append([f"{method}, seconds", *[f"{by_cells['seconds'][n]:.2f}" for n in across]])
        anchors = rows.dropna(subset=["anchors"]).set_index("across")["anchors"]
        lines.append(["anchors of AIPO", *[f"{anchors[n]:.0f}" if n in anchors.index else "–" for n in across]])
        caption = f"{in_title(place.name)}, ε = {epsilon:g}: by the number of cells from west to east"
        yield Table(caption, ["", *[str(int(n)) for n in across]], lines)
        yield Picture(
            f"{in_title(place.name)}: loss, time and anchors against cells, ε = {epsilon:g}",
            f"granularity_{place.name}",
            figures.granularity_picture(table, place.name),
        )


def _ppr(evidence: Evidence) -> Iterator[Block]:
    table = evidence.histograms
    if not len(table):
        return
    yield Heading("Figures 8 to 10: perturbation probability ratios")
    for place in evidence.places:
        yield Picture(
            f"{in_title(place.name)}: PPR over ε at ε = {evidence.settings.ppr_epsilon:g}, all pairs of sampled places",
            f"ppr_{place.name}",
            figures.ppr_picture(table, place.name),
        )


def _settings(evidence: Evidence, workers: int, seconds: float) -> Iterator[Block]:
    settings = evidence.settings
    yield Heading("What was run")
    rows = [
        [place.name, f"{place.nodes:,}", f"{place.edges:,}", f"{place.width_km:.1f} × {place.height_km:.1f} km"]
        for place in evidence.places
    ]
    yield Table("Cities, © OpenStreetMap contributors", ["", "nodes", "edges", "box"], rows)
    tasks = ", ".join(f"{place.name} {settings.tasks if place.edges else 1}" for place in evidence.places)
    many = f"{settings.repeats} repeats, each" if settings.repeats > 1 else "One repeat"
    spread = "; figures are means ± 1.96 standard deviations over repeats" if settings.repeats > 1 else ""
    yield Text(
        f"{many} with {settings.outputs} outputs and tasks ({tasks}) drawn at random{spread}. AIPO tries "
        f"{settings.splits} splits; LP, COPT and the paper's bound have {settings.grid_cells} × {settings.grid_cells} "
        f"cells, the spline {settings.spline_cells} × {settings.spline_cells}; the tight bound {settings.clusters} "
        f"clusters; auto {settings.auto_seconds:g} s."
    )
    hours = "; ".join(f"{what} {hours:g} h" for what, hours in reported.HOURS.items())
    cores = os.cpu_count() or 1
    taken = float(evidence.frame.drop_duplicates("key")["all_seconds"].sum())
    yield Text(
        f"metricdp {__version__}, Python {platform.python_version()}, {cores} processors, {workers} workers. This run "
        f"took {in_words(seconds)}; its jobs, those of earlier runs included, took {in_words(taken)} one after the "
        f"other. The published scripts, by the paper: {hours}."
    )


def _by_epsilon(
    table: pd.DataFrame,
    city: str,
    column: str,
    caption: str,
    form: str,
    paper_form: str = "{:.2f}",
    *,
    alarm: bool = False,
) -> Table:
    """Return a table with a row per method and a column per ε; `paper_form` prints as the paper does."""
    rows = table[table["city"] == city]
    epsilons = sorted(set(table["epsilon"]))
    lines: list[Sequence[Cell | str]] = []
    for method in dict.fromkeys(rows["method"]):
        line = rows[rows["method"] == method].set_index("epsilon")
        cells = [
            _cell(line.loc[epsilon], column, form, paper_form, alarm) if epsilon in line.index else "–"
            for epsilon in epsilons
        ]
        name = reported.NAMES.get(str(method))
        lines.append([str(method) if name is None else f"{method} ({name})", *cells])
    return Table(caption, ["", *[f"ε = {epsilon:g}" for epsilon in epsilons]], lines)


def _cell(row: pd.Series, column: str, form: str, paper_form: str, alarm: bool) -> Cell:  # noqa: FBT001 - one caller
    beside = ""
    if "paper_mean" in row and np.isfinite(row["paper_mean"]):
        beside = _spread(row["paper_mean"], row["paper_half_width"], paper_form)
    value = row[column]
    words = _spread(value, row.get(f"{column}_half_width", np.nan), form)
    return Cell(words, beside, alarm=alarm and bool(value > 0))


def _spread(mean: float, half_width: float, form: str) -> str:
    if not np.isfinite(mean):
        return "–"
    return form.format(mean) + (f" ± {form.format(half_width)}" if np.isfinite(half_width) else "")


# Which experiment asks for which section, in the order of the report.
_SECTIONS: Sequence[tuple[str, Callable[[Evidence], Iterator[Block]]]] = (
    ("utility", partial(_utility, number=3, norm=_L2)),
    ("violation", partial(_violation, number=2, norm=_L2)),
    ("time", partial(_seconds, number=4, norm=_L2)),
    ("budget", _budget),
    ("granularity", _granularity),
    ("l1", partial(_utility, number=8, norm=_L1)),
    ("l1", partial(_violation, number=9, norm=_L1)),
    ("l1", partial(_seconds, number=10, norm=_L1)),
    ("ppr", _ppr),
)
