"""The `metricdp` command: one file per command, imported when the command is run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from metricdp._version import __version__
from metricdp.cli._commands import COMMANDS, LazyGroup, Quiet, Verbose
from metricdp.cli._console import errors, volume
from metricdp.cli._failures import (
    MENDABLE,
    PROGRAM,
    WRONG_INPUT,
    in_words,
    run_with_json_errors,
    tell_stopped,
    wants_json,
)
from metricdp.cli._signals import ended_by_signals

__all__ = ["app", "main"]

app = typer.Typer(
    cls=LazyGroup,
    help="Design, certify and run metric-differential-privacy mechanisms.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # its tracebacks print local variables, which may be coordinates
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it with the option's value
    if asked:
        sys.stdout.write(f"metricdp {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Verbose = 0,
    quiet: Quiet = False,
) -> None:
    """Design, certify and run metric-differential-privacy mechanisms."""
    del version  # its callback has dealt with it
    volume.turn(verbose, quiet=quiet)


def _listed() -> None:
    """Stand for a command in the list of all commands."""


for _name, (_, _line) in COMMANDS.items():
    app.command(_name, help=_line)(_listed)


def main() -> None:
    """Run the command line; an error that a user can mend is one line on stderr, or with `--json` one document."""
    volume.reset()
    try:
        if wants_json(sys.argv[1:]):
            with ended_by_signals(tell_stopped):
                sys.exit(run_with_json_errors(app))
        with ended_by_signals():
            app(prog_name=PROGRAM)
    except MENDABLE as error:
        errors.print(Text.assemble(("error: ", "bold red"), in_words(error)), soft_wrap=True)
        sys.exit(WRONG_INPUT)
