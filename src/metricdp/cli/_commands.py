"""How the command line finds a command: imported when it is run, and its errors speak of its options."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup

from metricdp.cli._console import named_as, volume

__all__ = ["COMMANDS", "LazyGroup", "Quiet", "Verbose"]

# By name: where the command is, as "module:function" or "module:app", and the line that `metricdp --help` shows.
COMMANDS = {
    "demo": (
        "metricdp.cli.demo:demo_command",
        "Fit, certify and compare mechanisms for central Helsinki, and draw them.",
    ),
    "fit": ("metricdp.cli.fit:fit_command", "Design a mechanism, prove that it is private, and write it to a file."),
    "certify": (
        "metricdp.cli.certify:certify_command",
        "Prove from the file alone that a mechanism is private; exit code 1 if that fails.",
    ),
    "info": (
        "metricdp.cli.info:info_command",
        "Show the card of a mechanism file: what it promises and what it costs; prove it only if asked.",
    ),
    "epsilon": (
        "metricdp.cli.epsilon:epsilon_command",
        "Choose ε from a distance that is to be protected, and show what it and others cost.",
    ),
    "audit": (
        "metricdp.cli.audit:audit_command",
        "Search for pairs of points that break the guarantee; exit code 1 if any is found.",
    ),
    "attack": (
        "metricdp.cli.attack:attack_command",
        "Compute how far off an adversary is after one report or many, and how often their guess is near.",
    ),
    "compare": (
        "metricdp.cli.compare:compare_command",
        "Fit every method at every ε and compare loss, gap to the best possible, violations and time.",
    ),
    "perturb": (
        "metricdp.cli.perturb:perturb_command",
        "Report an output for every point of a file; the true coordinates go nowhere.",
    ),
    "density": (
        "metricdp.cli.density:density_command",
        "Estimate how people are spread over cells from a file of their reports, with error bars.",
    ),
    "reproduce": (
        "metricdp.cli.reproduce:reproduce_command",
        "Recompute the paper's tables and figures and say where they come out differently, and why.",
    ),
    "serve": (
        "metricdp.cli.serve:serve_command",
        "Serve mechanisms over HTTP: private reports for devices and gateways, and a page to look at them.",
    ),
    "export": (
        "metricdp.cli.export:export_app",
        "Static files that draw on the device: a page without a server.",
    ),
    "ledger": (
        "metricdp.cli.ledger:ledger_app",
        "What people have spent: show, look up, export; and say that a ledger was moved.",
    ),
    "cities": ("metricdp.cli.cities:cities_app", "Road networks: what there is, and how to add more."),
    "keys": ("metricdp.cli.keys:keys_app", "API keys of the service: add, list, revoke."),
}

# Parameters of commands that the library knows under another name.
_OTHER_NAMES = {"city": "name_or_path", "source": "name_or_path", "folder": "path", "user_key_file": "user_key"}


class LazyGroup(TyperGroup):
    """The group of all commands; its help knows their names and lines only, and the one that is run is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, imported, and the arguments that are left for it."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None or listed is None else _imported(name), rest


@functools.cache
def _imported(name: str) -> Any:
    """Return a command, or a group of commands, ready to be run."""
    found = pkgutil.resolve_name(COMMANDS[name][0])
    group = typer.Typer()
    group.callback()(_nothing)  # without it a group of one command would be that command
    if isinstance(found, typer.Typer):
        group.add_typer(found, name=name)
    else:
        group.command(name)(found)
    command = typer.main.get_group(group).commands[name]
    for one in getattr(command, "commands", {name: command}).values():
        one.callback = _speaking_of_options(one.callback, one.params)
        one.params.extend(typer.main.get_command(_volume).params)
    return command


def _nothing() -> None:
    pass


# Options that every command has, in the group of all commands too.
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Say what is going on; -vv says more.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, notes or warnings.")]
_volume = typer.Typer(add_completion=False)


@_volume.command()
def _listen(*, verbose: Verbose = 0, quiet: Quiet = False) -> None:
    """Stand for any command: its parameters are given to all of them."""


def _speaking_of_options(callback: Callable[..., Any], parameters: list[Any]) -> Callable[..., Any]:
    shown = {one.name: _as_typed(one) for one in parameters}
    shown |= {other: shown[own] for own, other in _OTHER_NAMES.items() if own in shown}

    @functools.wraps(callback)
    def speaking(*args: Any, verbose: int = 0, quiet: bool = False, **kwargs: Any) -> Any:
        volume.turn(verbose, quiet=quiet)
        with named_as(shown):
            return callback(*args, **kwargs)

    return speaking


def _as_typed(parameter: Any) -> str:
    """Return how help calls a parameter of a command: `--time-limit`, or `file` for an argument."""
    if isinstance(parameter, TyperArgument):
        return str(parameter.metavar or parameter.name)
    return max(parameter.opts, key=len)
