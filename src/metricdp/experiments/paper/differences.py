"""Where our figures differ from the paper's and why: each statement with the run of this report that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from metricdp.experiments.paper import figures, reported
from metricdp.experiments.paper.document import Block, Cell, Heading, Picture, Table, Text
from metricdp.experiments.paper.evidence import Evidence
from metricdp.experiments.paper.places import in_title
from metricdp.experiments.paper.plan import COMPARED, FLOOR_METRES
from metricdp.experiments.paper.ratios import PUBLISHED_SLACK
from metricdp.mechanisms.families import METHODS

__all__ = ["differences"]

# Losses within this share of a uniform choice's count as about as bad.
_LIKE_UNIFORM = 0.15


def differences(evidence: Evidence) -> list[Block]:
    """Return the statements whose runs are part of this report."""
    blocks: list[Block] = []
    for statement in _STATEMENTS:
        blocks += list(statement(evidence))
    return blocks


def _mismatched_outputs(evidence: Evidence) -> Iterator[Block]:
    table = evidence.mismatches
    if not len(table):
        return
    yield Heading("The flat 8 to 14 km of EM, Laplace, TEM and COPT", 3)
    yield Text(
        "In the public code the loss is a fixed table, loaded from a file, while each repeat draws new places that may "
        "be reported and computes distances to those. So a mechanism is designed for outputs that the columns of the "
        "loss do not belong to. We ran the same methods both ways: on their own outputs, and on outputs drawn "
        "independently with the loss left as it was. A choice made uniformly at random is given for comparison."
    )
    for city, rows in table.groupby("city", sort=False):
        yield _mismatch_table(str(city), rows)
        yield Text(_mismatch_words(str(city), rows))
        picture = figures.mismatch_picture(table, str(city))
        yield Picture(
            f"{in_title(city)}: the baselines done right and with mismatched outputs", f"mismatch_{city}", picture
        )


def _mismatch_table(city: str, rows: pd.DataFrame) -> Table:
    epsilons = sorted(set(rows["epsilon"]))
    lines = []
    for method in dict.fromkeys(rows["method"]):
        line = rows[rows["method"] == method].set_index("epsilon")
        lines += [
            [f"{method}, its own outputs", *[_km(line["loss"].get(epsilon)) for epsilon in epsilons]],
            [f"{method}, mismatched", *[_km(line["mismatched_loss"].get(epsilon)) for epsilon in epsilons]],
        ]
        if line["paper_mean"].notna().any():
            lines.append([f"{method}, the paper", *[_km(line["paper_mean"].get(epsilon)) for epsilon in epsilons]])
    return Table(f"{in_title(city)}: expected loss in km", ["", *_heads(epsilons)], lines)


def _mismatch_words(city: str, rows: pd.DataFrame) -> str:
    uniform = float(rows["uniform_loss"].mean())
    parts: list[str] = []
    explained: list[str] = []
    other: list[str] = []
    for method, line in rows.groupby("method", sort=False):
        right, wrong = line["loss"].mean(), line["mismatched_loss"].mean()
        printed = line["paper_mean"].mean()
        words = f"{method} {right:.3g} km on its own outputs and {wrong:.3g} km on mismatched ones"
        parts.append(words + (f" (the paper: {printed:.3g} km)" if np.isfinite(printed) else ""))
        (explained if abs(wrong / uniform - 1) < _LIKE_UNIFORM else other).append(str(method))
    words = f"{in_title(city)}, averaged over ε: " + "; ".join(parts) + f". A uniform choice loses {uniform:.3g} km."
    if explained:
        words += f" With mismatched outputs {_listed(explained)} did about as badly as that, whatever ε is."
    if other:
        words += f" {_listed(other)} did not: mismatched outputs alone do not explain what the paper prints there."
    return words


def _gains(evidence: Evidence) -> Iterator[Block]:
    ours = _against_aipo(evidence.losses, "loss")
    theirs = _against_aipo(reported.table("utility_loss_km_l2").rename(columns={"paper_mean": "loss"}), "loss")
    if "em" not in ours:
        return
    yield Heading("How much AIPO gains", 3)
    rows: list[list[Cell | str]] = [
        [method, Cell(f"{100 * gain:+.1f} %", f"{100 * theirs[method]:+.1f} %" if method in theirs else "")]
        for method, gain in ours.items()
    ]
    yield Table(
        "By how much AIPO's loss is below that of other private methods, averaged over cities and ε (the paper's "
        "beside ours, from its Table 3). Negative: the other method is better.",
        ["method", "AIPO's gain"],
        rows,
    )
    words = f"With outputs that belong to the loss AIPO is {100 * ours['em']:.1f} % better than EM, "
    words += f"not {100 * theirs['em']:.0f} %."
    if "laplace-remap" in ours:
        wide = evidence.losses.pivot_table(index=["city", "epsilon"], columns="method", values="loss")
        gain = 100 * float((1 - wide["laplace-remap"] / wide["aipo"]).mean())
        words += (
            " Planar Laplace noise at full ε with a Bayes remap, which the paper does not compare with and which is "
            f"proved private as well, has a loss {abs(gain):.1f} % {'below' if gain > 0 else 'above'} AIPO's."
        )
    yield Text(words)


def _against_aipo(table: pd.DataFrame, column: str) -> dict[str, float]:
    """Return the mean of 1 − AIPO / method over cities and ε, for private methods."""
    wide = table.pivot_table(index=["city", "epsilon"], columns="method", values=column)
    if "aipo" not in wide:
        return {}
    names = [name for name in COMPARED if METHODS[name].private and name != "aipo" and name in wide]
    return {name: float((1 - wide["aipo"] / wide[name]).mean()) for name in names}


def _slack(evidence: Evidence) -> Iterator[Block]:
    table = evidence.violations
    chosen = table[table["method"].isin([name for name in COMPARED if not METHODS[name].private])]
    if not len(chosen):
        return
    yield Heading("What counts as a violation", 3)
    yield Text(
        "The public code counts a violation only if a probability exceeds what mDP allows by more than "
        f"{PUBLISHED_SLACK} in probability, so that a report less likely than that may break mDP by any factor unseen. "
        "Counted on the same pairs, with and without that slack:"
    )
    rows = []
    for (city, method), line in chosen.groupby(["city", "method"], sort=False):
        means = line[["violation_percent", "slack_violation_percent", "paper_mean"]].mean()
        worst = line["worst_ratio"].max()
        rows.append(
            [
                f"{in_title(city)}, {method}",
                _percent(means["violation_percent"]),
                _percent(means["slack_violation_percent"]),
                _percent(means["paper_mean"]),
                f"{worst:.3g}",
            ]
        )
    head = ["", "no tolerance", "published slack", "the paper", "worst |Δ ln z| / (ε d)"]
    yield Table("Percent of comparisons that break mDP, averaged over ε", head, rows)


def _bounds(evidence: Evidence) -> Iterator[Block]:
    wide = evidence.losses.pivot_table(index=["city", "epsilon"], columns="method", values="loss")
    if not {"tight bound", "paper bound", "aipo"} <= set(wide.columns):
        return
    floors = evidence.frame[evidence.frame["kind"] == "bound"].groupby("city", sort=False)["floor"].mean()
    yield Heading("How far from the best possible", 3)
    rows = []
    for city, line in wide.groupby(level="city", sort=False):
        here = line.droplevel("city")
        rows += [
            [f"{in_title(city)}, no privacy at all", *[_km(floors.loc[str(city)])] * len(here)],
            [f"{in_title(city)}, bound of the paper", *[_km(value) for value in here["paper bound"]]],
            [f"{in_title(city)}, tight bound", *[_km(value) for value in here["tight bound"]]],
            [f"{in_title(city)}, AIPO ÷ bound of the paper", *_ratios(here["aipo"], here["paper bound"])],
            [f"{in_title(city)}, AIPO ÷ tight bound", *_ratios(here["aipo"], here["tight bound"])],
        ]
        if "auto" in here:
            rows.append([f"{in_title(city)}, auto ÷ tight bound", *_ratios(here["auto"], here["tight bound"])])
    epsilons = sorted(set(evidence.losses["epsilon"]))
    yield Text(
        "The paper's Proposition 5 takes the least loss of each cell and the greatest distance between cells; where "
        "its bound is below the loss without any privacy, it says nothing about privacy. The tight bound joins records "
        "to cluster centres by mDP itself."
    )
    yield Table("Lower bounds in km, and how far mechanisms are above them", ["", *_heads(epsilons)], rows)


def _half(evidence: Evidence) -> Iterator[Block]:
    rows = []
    for place in evidence.places:
        for purpose, words in (("half budget", "ε/√8 per axis"), ("whole budget", "ε/√2 per axis")):
            line = evidence.of(purpose, place.name)
            if len(line):
                proved = "proved" if line["certified"].all() else "no"
                worst = f"{line['worst'].max():.3f}"
                rows.append([f"{in_title(place.name)}, {words}", _km(line["loss"].mean()), worst, proved])
    if not rows:
        return
    yield Heading("The half that the ablation leaves out", 3)
    yield Text(
        "The paper's ablation writes the equal split as ε/√2 per axis; the half of its Eq. (APO), which pays for "
        f"normalising the interpolant, is missing there (the code has it). At ε = {evidence.settings.one_epsilon:g}:"
    )
    yield Table("AIPO-E with and without the half", ["", "loss, km", "worst |Δ ln z| / (ε d)", "private"], rows)


def _floor(evidence: Evidence) -> Iterator[Block]:
    rows = []
    for place in evidence.places:
        lines = evidence.of("cost floor", place.name)
        means = lines.groupby("floor_m")["loss"].mean()
        if len(means) == 2:
            rows.append([in_title(place.name), _km(means[0.0]), _km(means[FLOOR_METRES])])
    if not rows:
        return
    yield Heading("Costs that are floored", 3)
    yield Text(
        f"The public code replaces every coefficient of AIPO's objective below {FLOOR_METRES:.0f} by that number. If "
        "its losses are metres, this hides from the program what outputs cost at anchors with few records around "
        "them; the smaller the city, the more of them. The same program with costs as they are and floored, at "
        f"ε = {evidence.settings.one_epsilon:g} and the equal split:"
    )
    yield Table("AIPO-E, expected loss in km", ["", "costs as they are", "costs floored"], rows)


def _cells(evidence: Evidence) -> Iterator[Block]:
    rows = []
    for place in evidence.places:
        code, table_1 = evidence.of("cells of the code", place.name), evidence.of("half budget", place.name)
        if len(code) and len(table_1):
            sides = reported.ANCHOR_SIDES_KM[place.name], reported.CODE_SIDES_KM[place.name]
            cells = [_km(table_1["loss"].mean()), f"{sides[1]} km", _km(code["loss"].mean())]
            rows.append([in_title(place.name), f"{sides[0]} km", *cells])
    if not rows:
        return
    yield Heading("The size of cells", 3)
    yield Text(
        "Table 1 of the paper and its code disagree about the side of AIPO's cells. We take the finer ones, which "
        f"favour AIPO. At ε = {evidence.settings.one_epsilon:g}, equal split:"
    )
    head = ["", "side in Table 1", "loss, km", "side in the code", "loss, km"]
    yield Table("AIPO-E on cells of both sizes", head, rows)


def _arc(evidence: Evidence) -> Iterator[Block]:
    rows = []
    for place in evidence.places:
        means = evidence.of("arc", place.name).groupby("scale")["loss"].mean()
        if len(means) == 2:
            rows.append([in_title(place.name), _km(means.iloc[0]), _km(means.iloc[1])])
    if not rows:
        return
    yield Heading("Budgets for ℓ1", 3)
    yield Text(
        "Budgets compose in the dual norm: ‖(ε₁, ε₂)‖_q ≤ ε/2, q dual to p. The paper's appendix has p in place "
        "of q, and its ℓ1 code splits the budget on the arc of ℓ2. For ℓ1, q = ∞: every axis may spend ε/2. At "
        f"ε = {evidence.settings.one_epsilon:g}:"
    )
    yield Table("AIPO-E for ℓ1, expected loss in km", ["", "ε/√8 per axis", "ε/2 per axis"], rows)


def _tem(evidence: Evidence) -> Iterator[Block]:
    if "tem" not in set(evidence.losses["method"]):
        return
    outputs, beta = evidence.settings.outputs, 3.0
    odds = (1 - beta) * (outputs - 1) / beta
    yield Heading("TEM's β", 3)
    yield Text(
        f"TEM clips distances at γ = (2/ε) ln((1 − β)(K − 1)/β). The public code has β = {beta:g}; with K = {outputs} "
        f"the logarithm is of {odds:.3g}, which has none. Our runs take β = 0.001."
    )


def _nodes(evidence: Evidence) -> Iterator[Block]:
    known = [place for place in evidence.places if place.name in reported.NODES]
    wrong = [place for place in known if place.nodes != reported.NODES[place.name]]
    if not wrong:
        return
    yield Heading("Nodes", 3)
    words = [
        f"{in_title(p.name)} has {p.nodes:,} nodes here; the paper's Table 1 prints {reported.NODES[p.name]:,}"
        for p in wrong
    ]
    yield Text(". ".join(words) + ".")


def _clock(evidence: Evidence) -> Iterator[Block]:
    frame = evidence.frame
    rows = frame[frame["by_clock"] & (frame["error"] == "")]
    if not len(rows):
        return
    counts = rows.groupby("method", sort=False).size()
    yield Heading("Figures that a clock decided", 3)
    yield Text(
        "Most figures here depend on the jobs alone and come out the same every time. These jobs stop when their time "
        "is up, so that a faster machine does better: "
        + ", ".join(f"{method} ({count} jobs)" for method, count in counts.items())
        + f". The method auto had {evidence.settings.auto_seconds:g} seconds each. Their figures are kept once "
        "computed, and are in CSV files of their own, in the folder tables/clock."
    )


_STATEMENTS: Sequence[Callable[[Evidence], Iterator[Block]]] = (
    _mismatched_outputs, _gains, _slack, _bounds, _half, _floor, _cells, _arc, _tem, _nodes, _clock,
)  # fmt: skip


def _heads(epsilons: Sequence[float]) -> list[str]:
    return [f"ε = {epsilon:g}" for epsilon in epsilons]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _km(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value:.2f} %" if np.isfinite(value) else "–"


def _ratios(above: pd.Series, below: pd.Series) -> list[str]:
    return [f"{value:.3f}" if np.isfinite(value) else "–" for value in above / below]
