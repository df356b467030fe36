"""The `metricdp` command: one file per command."""

from __future__ import annotations

import sys

import typer
from rich.text import Text

from metricdp.cli._console import errors
from metricdp.cli.audit import audit_command
from metricdp.cli.certify import certify_command
from metricdp.cli.city import cities_app
from metricdp.cli.compare import compare_command
from metricdp.cli.demo import demo_command
from metricdp.cli.fit import fit_command
from metricdp.cli.keys import keys_app
from metricdp.cli.perturb import perturb_command
from metricdp.cli.reproduce import reproduce_command
from metricdp.cli.serve import serve_command
from metricdp.errors import InvalidInputError, NotCertified, SolverError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Design, certify and run metric-differential-privacy mechanisms.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, which may be coordinates
)
app.command("demo")(demo_command)
app.command("fit")(fit_command)
app.command("certify")(certify_command)
app.command("audit")(audit_command)
app.command("compare")(compare_command)
app.command("perturb")(perturb_command)
app.command("reproduce")(reproduce_command)
app.command("serve")(serve_command)
app.add_typer(cities_app, name="cities")
app.add_typer(keys_app, name="keys")


def main() -> None:
    """Run the command line; what a user can mend is one line on stderr, not a traceback."""
    try:
        app()
    except (InvalidInputError, NotCertified, SolverError, OSError, ModuleNotFoundError) as error:
        errors.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)
