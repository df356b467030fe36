"""Tables of losses for terminals and documents."""

from __future__ import annotations

import pandas as pd
from rich.table import Table

__all__ = ["markdown_table", "rich_table"]


def rich_table(frame: pd.DataFrame, title: str) -> Table:
    """Return the comparison as a table for the terminal: a row per method, a column per ε."""
    table = Table(title=title)
    table.add_column("method")
    for epsilon in _epsilons(frame):
        table.add_column(f"ε = {epsilon:g}", justify="right")
    table.add_column("private")
    for method, cells, private in _rows(frame):
        table.add_row(method, *cells, "[green]proved[/]" if private else "[red]no[/]")
    bounds = frame.drop_duplicates("epsilon").sort_values("epsilon")["lower_bound"]
    table.add_section()
    table.add_row("lower bound", *[f"{bound:.3f}" for bound in bounds], "")
    return table


def markdown_table(frame: pd.DataFrame) -> str:
    """Return the comparison as a Markdown table of losses."""
    heads = ["method", *[f"ε = {epsilon:g}" for epsilon in _epsilons(frame)], "private on the continuum"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for method, cells, private in _rows(frame):
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {'proved' if private else 'no'} |")
    bounds = frame.drop_duplicates("epsilon").sort_values("epsilon")["lower_bound"]
    lines.append("| *lower bound for any private mechanism* | " + " | ".join(f"{b:.3f}" for b in bounds) + " | |")
    return "\n".join(lines) + "\n"


def _epsilons(frame: pd.DataFrame) -> list[float]:
    return sorted(set(frame["epsilon"]))


def _rows(frame: pd.DataFrame) -> list[tuple[str, list[str], bool]]:
    """Return method, losses by ε and whether every one was proved private; the best method last."""
    losses = frame.pivot_table(index="method", columns="epsilon", values="loss", dropna=False, sort=True)
    certified = frame.groupby("method")["certified"].all()
    order = losses.mean(axis=1).sort_values(ascending=False, na_position="first").index
    return [
        (
            str(method),
            ["–" if pd.isna(loss) else f"{loss:.3f}" for loss in losses.loc[method]],
            certified[method],
        )
        for method in order
    ]
