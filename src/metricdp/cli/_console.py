"""What commands print: results on stdout, progress and errors on stderr, errors in the words of the command line."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from metricdp._cards import visible
from metricdp._log import LOG
from metricdp._progress import Tell, TellRows, told, told_rows
from metricdp.errors import InvalidInputError

__all__ = [
    "errors",
    "in_options",
    "named_as",
    "note",
    "out",
    "print_json",
    "progress_bar",
    "rows_bar",
    "volume",
    "warn",
]

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


class _Volume:
    """How much is said on stderr beside errors: `-v` adds the log, `-q` takes away progress, notes and warnings."""

    def __init__(self) -> None:
        self.quiet = False
        self._handler = _OnConsole()

    def reset(self) -> None:
        """Go back to what is said without options."""
        self.quiet = False
        LOG.removeHandler(self._handler)
        LOG.setLevel(logging.NOTSET)

    def turn(self, verbose: int, *, quiet: bool) -> None:
        """Turn up by `-v`, which may be given twice, or down by `-q`."""
        if verbose and quiet:
            raise InvalidInputError("`--verbose` and `--quiet` exclude each other; leave one of them out.")
        self.quiet = self.quiet or quiet
        if verbose:
            LOG.addHandler(self._handler)
            LOG.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)


class _OnConsole(logging.Handler):
    """Prints records where a bar is drawn, so that they appear above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        errors.print(Text(visible(record.getMessage()), "dim"), soft_wrap=True)


volume = _Volume()


def warn(words: str) -> None:
    """Say on stderr what looks wrong, unless `-q` was given."""
    if not volume.quiet:
        errors.print(Text.assemble(("warning: ", "bold yellow"), visible(words)), soft_wrap=True)


def note(words: str) -> None:
    """Say on stderr what was assumed or left out, unless `-q` was given."""
    if not volume.quiet:
        errors.print(Text.assemble(("note: ", "bold"), visible(words)), soft_wrap=True)


def progress_bar(title: str) -> AbstractContextManager[Tell]:
    """Show a bar on a terminal if work takes long; yields the callback that `fit` takes as `progress`."""
    return told(False if volume.quiet else None, title, errors)


def rows_bar(title: str) -> AbstractContextManager[TellRows]:
    """Show a bar on a terminal if work on points takes long; yields the callback that `perturb_file` takes."""
    return told_rows(False if volume.quiet else None, title, errors)


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
