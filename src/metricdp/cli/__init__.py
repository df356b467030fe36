"""The `metricdp` command: one file per command."""

from __future__ import annotations

import sys

import typer
from rich.text import Text

from metricdp.cli._console import errors
from metricdp.cli.fit import certify_command, fit_command
from metricdp.errors import InvalidInputError, NotCertified, SolverError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Design, certify and run metric-differential-privacy mechanisms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, which may be coordinates
)
app.command("fit")(fit_command)
app.command("certify")(certify_command)


def main() -> None:
    """Run the command line; what a user can mend is one line on stderr, not a traceback."""
    try:
        app()
    except (InvalidInputError, NotCertified, SolverError, OSError) as error:
        errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)
