"""Markdown from plain data."""

from collections.abc import Iterable


def cell(text: object) -> str:
    """Return text that stays in its cell of a table, and outside of code is not read as HTML."""
    parts = " ".join(str(text).replace("|", "\\|").split()).split("`")
    return "`".join(part if inside % 2 else part.replace("<", "\\<") for inside, part in enumerate(parts))


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table."""
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: object) -> str:
    """Return text as code."""
    return f"`{text}`"


def listed(texts: Iterable[object]) -> str:
    """Return texts as code, with commas."""
    return ", ".join(code(text) for text in texts)
