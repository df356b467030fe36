"""A report as a list of blocks, written as Markdown or as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Block", "Cell", "Heading", "Picture", "Table", "Text", "to_html", "to_markdown"]


@dataclass(frozen=True)
class Heading:
    """A heading of level 1 to 3."""

    words: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    words: str


@dataclass(frozen=True)
class Cell:
    """A table's cell: a figure, with the paper's beside it where there is one."""

    words: str
    paper: str = ""
    alarm: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first column names the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


@dataclass(frozen=True)
class Picture:
    """A PNG, and the file beside the Markdown that holds it."""

    caption: str
    file: str
    png: bytes


Block = Heading | Text | Table | Picture

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #667; --paper: #fff; --rule: #d8dce2; --alarm: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --dim: #9aa3ad; --paper: #16191d; --rule: #363c44; --alarm: #ff8a80; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; margin: 2rem 0 .6rem; }
p { max-width: 52rem; }
figure { margin: 1.2rem 0; overflow-x: auto; }
figcaption { color: var(--dim); font-size: .9rem; margin: .3rem 0; max-width: 52rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td small { color: var(--dim); display: block; }
td.alarm { color: var(--alarm); font-weight: 600; }
img { max-width: 100%; background: #fff; border-radius: 6px; }
"""


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """Return one page with its style and its pictures inside; it asks nothing of the network."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.words)}</h{block.level}>"
    if isinstance(block, Text):
        return f"<p>{html.escape(block.words)}</p>"
    caption = f"<figcaption>{html.escape(block.caption)}</figcaption>"
    if isinstance(block, Picture):
        data = base64.b64encode(block.png).decode()
        words = html.escape(block.caption, quote=True)
        return f'<figure><img src="data:image/png;base64,{data}" alt="{words}">{caption}</figure>'
    head = "".join(f"<th>{html.escape(words)}</th>" for words in block.head)
    rows = "\n".join("<tr>" + "".join(_html_cell(cell) for cell in row) + "</tr>" for row in block.rows)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    return f"<figure>{caption}{table}</figure>"


def _html_cell(given: Cell | str) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    kind = ' class="alarm"' if cell.alarm else ""
    beside = f"<small>{html.escape(cell.paper)}</small>" if cell.paper else ""
    return f"<td{kind}>{html.escape(cell.words)}{beside}</td>"


def to_markdown(blocks: Sequence[Block]) -> str:
    """Return the same as Markdown; pictures are files beside it."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.words}"
    if isinstance(block, Text):
        return block.words
    if isinstance(block, Picture):
        return f"![{block.caption}]({block.file})\n\n*{block.caption}*"
    lines = [_line(block.head), "|---" * len(block.head) + "|"]
    lines += [_line([_markdown_cell(cell) for cell in row]) for row in block.rows]
    return f"*{block.caption}*\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _markdown_cell(given: Cell | str) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    words = f"**{cell.words}**" if cell.alarm and cell.words else cell.words
    return f"{words} ({cell.paper})" if cell.paper else words
