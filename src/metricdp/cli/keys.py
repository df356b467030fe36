"""`metricdp keys`: who may call the service."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from metricdp.cli._console import errors, out, print_json
from metricdp.cli._problem import JsonFlag
from metricdp.service.state.keys import add_key, read_keys, revoke_key

__all__ = ["keys_app"]

keys_app = typer.Typer(help="API keys of the service: add, list, revoke.", no_args_is_help=True)

KeysFile = Annotated[Path, typer.Option("--file", help="The file of keys.")]
Name = Annotated[str, typer.Argument(help="Whose key it is, for logs and people.")]

_DEFAULT = Path("keys.json")


@keys_app.command("add")
def add_command(
    name: Name,
    *,
    file: KeysFile = _DEFAULT,
    requests_per_second: Annotated[
        int | None, typer.Option(min=1, help="Limit of this key; that of the service if left out.")
    ] = None,
    points_per_second: Annotated[int | None, typer.Option(min=1, help="The same for points.")] = None,
    clock_skew_seconds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=86_400,
            help="Trust this key with the times of points, if they are that close to the service's clock.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a key and show it once: the file keeps only its hash."""
    key = add_key(
        file,
        name,
        requests_per_second=requests_per_second,
        points_per_second=points_per_second,
        clock_skew_seconds=clock_skew_seconds,
    )
    if as_json:
        print_json({"name": name, "key": key, "file": str(file)})
        return
    errors.print(f"key for {name}, which is stored nowhere:", markup=False)
    out.print(key, markup=False, highlight=False, soft_wrap=True)


@keys_app.command("list")
def list_command(*, file: KeysFile = _DEFAULT, as_json: JsonFlag = False) -> None:
    """List the keys of a file with their limits."""
    keys = read_keys(file)
    if as_json:
        print_json({"keys": [{name: value for name, value in asdict(key).items() if name != "sha256"} for key in keys]})
        return
    shown = Table("name", "made", "requests/s", "points/s", "clock skew, s", "revoked")
    for key in keys:
        limits = (key.requests_per_second, key.points_per_second, key.clock_skew_seconds)
        shown.add_row(key.name, key.created, *("-" if limit is None else f"{limit:,}" for limit in limits), key.revoked)
    out.print(shown)


@keys_app.command("revoke")
def revoke_command(name: Name, *, file: KeysFile = _DEFAULT, as_json: JsonFlag = False) -> None:
    """Revoke a key; a running service refuses it within a second."""
    key = revoke_key(file, name)
    if as_json:
        print_json({"name": key.name, "revoked": key.revoked})
    else:
        out.print(f"{key.name} was revoked at {key.revoked}", markup=False)
