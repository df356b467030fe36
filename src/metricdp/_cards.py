"""Cards and small tables: what objects show of themselves in a notebook and in a terminal.

Labels and values may come from a stranger's file. In HTML they are escaped, in a terminal they are no markup, and in
both a character that cannot be seen, or that would steer the terminal or the direction of text, is shown by its code.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Card", "Strong", "html_table", "visible"]

# Left-aligned whatever the notebook does with tables.
_CELL = ' style="text-align: left; vertical-align: top"'


def visible(text: object) -> str:
    r"""Return text with every character that is not printable as its code.

    Examples
    --------
    >>> print(visible("café\x1b[2J"))
    café\x1b[2J
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(text))


class Strong(str):
    """The text of a cell that HTML shows in bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Card:
    """A title and rows of a label and a value, all of them plain text.

    Examples
    --------
    >>> print(Card("A mechanism", (("method", "<b>em</b>"),)).html())
    <table><caption>A mechanism</caption>
    <tr><th style="text-align: left; vertical-align: top">method</th><td style="text-align: left; vertical-align: top">&lt;b&gt;em&lt;/b&gt;</td></tr>
    </table>
    """  # noqa: E501 - the line of HTML is one line

    title: str
    rows: tuple[tuple[str, str], ...]

    def html(self) -> str:
        """Return the card as an HTML table, everything in it escaped; `_repr_html_` of an object returns this."""
        rows = [f"<tr>{_cell('th', label)}{_cell('td', value)}</tr>" for label, value in self.rows]
        return "\n".join([f"<table><caption>{_escaped(self.title)}</caption>", *rows, "</table>"])

    def rich(self) -> Table:
        """Return the card as a table for a terminal."""
        from rich.table import Table  # noqa: PLC0415 - a notebook does without it
        from rich.text import Text  # noqa: PLC0415

        table = Table(title=Text(visible(self.title)), title_justify="left", show_header=False, box=None)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in self.rows:
            table.add_row(Text(visible(label)), Text(visible(value)))
        return table


def html_table(title: str, heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a line of heads as HTML, everything in it escaped."""
    lines = [f"<table><caption>{_escaped(title)}</caption>", f"<tr>{''.join(_cell('th', head) for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _cell(tag: str, text: object) -> str:
    inner = f"<b>{_escaped(text)}</b>" if isinstance(text, Strong) else _escaped(text)
    return f"<{tag}{_CELL}>{inner}</{tag}>"


def _escaped(text: object) -> str:
    return html.escape(visible(text))
