"""What commands print: results on stdout, progress and errors on stderr, errors in the words of the command line."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from metricdp.errors import InvalidInputError

if TYPE_CHECKING:
    from metricdp.mechanisms.options import ProgressCallback

__all__ = ["errors", "in_options", "named_as", "note", "out", "print_json", "progress_bar", "shown", "warn"]

out = Console()
errors = Console(stderr=True)


def print_json(answer: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Print one JSON document; infinity and NaN, which JSON lacks, become text."""
    sys.stdout.write(json.dumps(_plain(answer), indent=2, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def warn(words: str) -> None:
    """Say on stderr what looks wrong."""
    errors.print(Text.assemble(("warning: ", "bold yellow"), words), soft_wrap=True)


def note(words: str) -> None:
    """Say on stderr what was assumed or left out."""
    errors.print(Text.assemble(("note: ", "bold"), words), soft_wrap=True)


def shown(bar: Progress) -> AbstractContextManager[object]:
    """Show a bar on a terminal while the block runs; in a log it would leave empty lines."""
    return bar if errors.is_terminal else nullcontext()


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressCallback]:
    """Show a bar on a terminal while work goes on; yields the callback that `fit` takes as `progress`."""
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
    )
    with shown(bar):
        task = bar.add_task("", total=1.0)
        yield lambda fraction, words: bar.update(task, completed=fraction, description=words)


@contextmanager
def named_as(names: Mapping[str, str]) -> Iterator[None]:
    """Name options where an error of the library names Python parameters: `time_limit` becomes `--time-limit`."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(in_options(str(error), names)) from error


def in_options(words: str, names: Mapping[str, str]) -> str:
    """Return a sentence of the library in which options are named instead of Python parameters."""
    return re.sub(r"`(\w+)`", lambda found: f"`{names.get(found[1], found[1])}`", words)
