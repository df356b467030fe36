"""Tables of pages that come from files of results. `python -m release.tables` writes them anew.

A table stands between ``<!-- table: FILE -->`` and ``<!-- end of table -->``. With ``<!-- table: FILE | COLUMN -->``
it has the columns named there only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from metricdp.mechanisms.families import METHODS

__all__ = ["PAGES", "losses", "plain", "with_tables"]

ROOT = Path(__file__).parents[1]
# Pages with tables.
PAGES = (
    "README.md",
    "docs/results/index.md",
    "docs/many-places.md",
    "docs/understand/tiles.md",
    "benchmarks/README.md",
)
_TABLE = re.compile(r"(<!-- table: (\S+)((?: \| [^|\n]+)*) -->\n).*?(<!-- end of table -->)", re.DOTALL)

# What columns of files are called on pages, where the file's own name is not a word.
_HEADS = {
    "ours_s": "ours, s",
    "peer_s": "theirs, s",
    "ratio": "theirs ÷ ours",
    "losses_differ_by": "losses differ by",
    "epsilon_per_km": "ε per km",
    "every_s": "every, s",
    "error_m": "off by, m",
    "standard_error_m": "± m",
    "believed_m": "believed, m",
    "bayes_bound_m": "Bayes bound, m",
    "within_100_m": "within 100 m",
    "within_500_m": "within 500 m",
}


def losses(results: Path) -> str:
    """Return a table of losses in Markdown: a row per method, a column per ε, and the lower bound.

    The file has the columns `method`, `epsilon`, `loss`, `certified` and `lower_bound`, as `compare` writes them; lines
    that begin with # tell where it comes from. The least loss of each ε that was proved is bold.
    """
    frame = pd.read_csv(results, comment="#")
    by_epsilon = frame.groupby("epsilon")
    least = frame[frame["certified"]].groupby("epsilon")["loss"].min()
    heads = ["method", *(f"ε = {epsilon:g}" for epsilon in least.index), "private on the continuum"]
    lines = [heads, ["---"] * len(heads)]
    for name, rows in frame.groupby("method", sort=False):
        values = rows.set_index("epsilon")["loss"].reindex(least.index)
        shown = [f"**{one:.3f}**" if one == best else f"{one:.3f}" for one, best in zip(values, least, strict=True)]
        proved = "proved" if rows["certified"].all() else "not proved"
        label, _, _ = METHODS[str(name)].label.partition(" (")
        lines.append([f"{label} (`{name}`)", *shown, proved])
    bounds = [f"{bound:.3f}" for bound in by_epsilon["lower_bound"].max()]
    lines.append(["*lower bound for any private mechanism*", *bounds, ""])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def plain(results: Path, columns: Sequence[str] = ()) -> str:
    """Return any other file as a table in Markdown, numbers with four digits.

    Without `columns` those that have the same value in every row are left out: pages say such things in a sentence.
    """
    frame = pd.read_csv(results, comment="#")
    frame = frame[list(columns)] if columns else frame.loc[:, frame.ne(frame.iloc[0]).any()]
    shown = frame.map(_shown).where(frame.notna(), "")
    heads = [_HEADS.get(name, name) for name in shown.columns]
    lines = [heads, ["---"] * len(heads), *shown.to_numpy().tolist()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(value: object) -> str:
    if not isinstance(value, float):
        return f"{value}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_tables(text: str, root: Path = ROOT) -> str:
    """Return the text of a page with its tables as the files of results have them."""
    return _TABLE.sub(lambda found: found[1] + _table(root / found[2], found[3].split(" | ")[1:]) + found[4], text)


def _table(results: Path, columns: Sequence[str]) -> str:
    return losses(results) if results.name.startswith("methods") else plain(results, columns)


if __name__ == "__main__":
    for page in (ROOT / name for name in PAGES):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
