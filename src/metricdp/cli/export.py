"""`metricdp export`: what runs on devices, as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricdp import cities
from metricdp.cli._completion import cities as cities_by_name
from metricdp.cli._completion import one_of
from metricdp.cli._console import out, print_json
from metricdp.cli._problem import JsonFlag

__all__ = ["export_app"]

export_app = typer.Typer(help="Static files that draw on the device: a page without a server.", no_args_is_help=True)


@export_app.callback()
def _exports() -> None:
    """Make this a group; without a callback a group of one command would be that command."""


@export_app.command("page")
def page_command(
    files: Annotated[list[Path], typer.Argument(help="Mechanism files; the first is shown first.")],
    *,
    folder: Annotated[Path, typer.Option("--out", help="The new folder.")],
    city: Annotated[
        str | None,
        typer.Option(help="City whose roads are drawn: see `metricdp cities`.", autocompletion=one_of(cities_by_name)),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the page as static files: it proves and draws in the browser, offline too, and asks nobody."""
    from metricdp.service.page.exporting import export_page  # noqa: PLC0415 - reads the page only here

    written = export_page(files, folder, None if city is None else cities.load(city))
    if as_json:
        facts = {"folder": str(folder), "files": written.files, "bytes": written.size}
        print_json({**facts, "mechanisms": list(written.mechanisms)})
        return
    out.print(f"{written.files} files, {written.size / 1e6:.1f} MB, written to {folder}", markup=False, soft_wrap=True)
    out.print(f"look at it: python -m http.server --directory {folder} 8000", markup=False, soft_wrap=True, style="dim")
