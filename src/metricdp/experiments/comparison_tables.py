"""Tables of losses for terminals, documents and notebooks. Names of methods may be anybody's text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from metricdp._cards import Strong, html_table, visible

__all__ = ["error_table", "html_losses", "markdown_table", "rich_table"]

_NOTHING = "–"

# Where ratios are shown by their size only: a method that was optimised for a grid may reach millions between cells.
_FAR_BEYOND = 1000


@dataclass(frozen=True)
class _Line:
    """One method in words.

    losses : by ε; a dash where there is none.
    best : by ε, whether no method that was proved there has less loss.
    private : "proved" or "not proved"; a dash if the method applied nowhere.
    worst : the largest ratio that any audit saw, in shares of ε, and the largest share of violations.
    """

    method: str
    losses: list[str]
    best: list[bool]
    private: str
    worst: list[str]


def rich_table(frame: pd.DataFrame, title: str) -> Table:
    """Return the comparison as a table for the terminal: a row per method, a column per ε."""
    # Without edges, and with names in one line, four ε fit into a terminal of 80 columns.
    table = Table(
        title=title,
        caption=Text("\n".join(_errors(frame))) or None,
        caption_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column("method", no_wrap=True)
    for epsilon in _epsilons(frame):
        table.add_column(f"ε = {epsilon:g}", justify="right")
    table.add_column("private")
    table.add_column("worst ratio", justify="right")
    table.add_column("violations", justify="right", no_wrap=True)
    for line in _lines(frame):
        losses = [Text(loss, "bold" if best else "") for loss, best in zip(line.losses, line.best, strict=True)]
        private = Text(line.private, "green" if line.private == "proved" else "red")
        table.add_row(Text(visible(line.method)), *losses, private, *line.worst)
    table.add_section()
    table.add_row("lower bound", *_bounds(frame))
    return table


def error_table(frame: pd.DataFrame, title: str) -> Table:
    """Return how far off an adversary is after one report: a row per method, a column per ε."""
    table = Table(title=title)
    table.add_column("method")
    for head in _heads(frame):
        table.add_column(head, justify="right")
    errors = frame.pivot_table(index="method", columns="epsilon", values="inference_error", dropna=False, sort=False)
    for method, row in errors.iterrows():
        table.add_row(Text(visible(str(method))), *(_number(float(one), ".3f") for one in row))
    return table


def markdown_table(frame: pd.DataFrame) -> str:
    """Return the comparison as a Markdown table of losses."""
    heads = ["method", *_heads(frame), "private on the continuum", "worst ratio", "violations"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for line in _lines(frame):
        losses = [f"**{loss}**" if best else loss for loss, best in zip(line.losses, line.best, strict=True)]
        lines.append("| " + " | ".join([_in_markdown(line.method), *losses, line.private, *line.worst]) + " |")
    lines.append("| *lower bound for any private mechanism* | " + " | ".join(_bounds(frame)) + " | | | |")
    lines += [f"\n{_in_markdown(error)}" for error in _errors(frame)]
    return "\n".join(lines) + "\n"


def html_losses(frame: pd.DataFrame) -> str:
    """Return the comparison as an HTML table: the least loss of each ε that was proved is bold."""
    heads = ["method", *_heads(frame), "private", "worst ratio", "violations"]
    rows: list[list[str]] = []
    for line in _lines(frame):
        losses = [Strong(loss) if best else loss for loss, best in zip(line.losses, line.best, strict=True)]
        private = line.private if line.private == "proved" else Strong(line.private)
        rows.append([line.method, *losses, private, *line.worst])
    rows.append(["lower bound", *_bounds(frame), "", "", ""])
    rows += [[error] for error in _errors(frame)]
    return html_table("Expected loss; in bold the least that is proved private", heads, rows)


def _epsilons(frame: pd.DataFrame) -> list[float]:
    return sorted(set(frame["epsilon"]))


def _heads(frame: pd.DataFrame) -> list[str]:
    return [f"ε = {epsilon:g}" for epsilon in _epsilons(frame)]


def _bounds(frame: pd.DataFrame) -> list[str]:
    return [f"{bound:.3f}" for bound in frame.drop_duplicates("epsilon").sort_values("epsilon")["lower_bound"]]


def _errors(frame: pd.DataFrame) -> list[str]:
    failed = frame[frame["error"] != ""]
    return [
        visible(f"{method} at ε = {epsilon:g}: {error}")
        for method, epsilon, error in zip(failed["method"], failed["epsilon"], failed["error"], strict=True)
    ]


def _lines(frame: pd.DataFrame) -> list[_Line]:
    """Return one line per method, the best method last."""
    losses = frame.pivot_table(index="method", columns="epsilon", values="loss", dropna=False, sort=True)
    least = frame[frame["certified"]].groupby("epsilon")["loss"].min().to_dict()
    order = losses.mean(axis=1).sort_values(ascending=False, na_position="first").index
    return [_line(str(method), losses.loc[method], frame[frame["method"] == method], least) for method in order]


def _line(method: str, losses: pd.Series, rows: pd.DataFrame, least: dict[Any, float]) -> _Line:
    applied = rows[rows["loss"].notna()]
    proved = set(applied["epsilon"][applied["certified"].astype(bool)])
    return _Line(
        method,
        losses=[_NOTHING if pd.isna(loss) else f"{loss:.3f}" for loss in losses],
        best=[epsilon in proved and loss == least[epsilon] for epsilon, loss in losses.items()],
        private=_NOTHING if applied.empty else "proved" if len(proved) == len(applied) else "not proved",
        worst=[_ratio(applied["max_ratio"].max()), _number(applied["violation_ratio"].max(), ".2%")],
    )


def _ratio(value: float) -> str:
    """Return a share of ε; of one that is far beyond what is allowed, how large it is and no more."""
    return _number(value, ".3f" if value < _FAR_BEYOND else ".2g")


def _number(value: float, form: str) -> str:
    return _NOTHING if math.isnan(value) else f"{value:{form}}"


def _in_markdown(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
