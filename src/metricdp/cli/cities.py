"""`metricdp cities`: list, describe and import road networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricdp import cities
from metricdp._validation import reject
from metricdp.cli._completion import cities as cities_by_name
from metricdp.cli._completion import one_of
from metricdp.cli._console import named_as, out, print_json
from metricdp.cli._problem import JsonFlag
from metricdp.cli._problem_files import corners

__all__ = ["cities_app"]

cities_app = typer.Typer(help="Road networks: what there is, and how to add more.", no_args_is_help=True)


@cities_app.command("list")
def list_command(*, as_json: JsonFlag = False) -> None:
    """List the cities that can be loaded by name."""
    names = cities.available()
    if as_json:
        print_json({"cities": names})
    else:
        out.print("\n".join(names))


@cities_app.command("info")
def info_command(
    city: Annotated[
        str,
        typer.Argument(help="A name, or the path of a network.", autocompletion=one_of(cities_by_name)),
    ],
    *,
    as_json: JsonFlag = False,
) -> None:
    """Say how large a road network is and where it lies."""
    facts = cities.load(city).info()
    if as_json:
        print_json(facts)
        return
    width, height = facts["extent_km"]
    out.print(f"[bold]{facts['name']}[/]: {facts['nodes']:,} nodes, {facts['edges']:,} edges")
    out.print(f"{width:.1f} x {height:.1f} km, {facts['street_km']:,.0f} km of streets (each direction)")
    out.print(f"lon {facts['box']['lon']}, lat {facts['box']['lat']}, connected parts: {facts['components']}")


@cities_app.command("import")
def import_command(
    source: Annotated[str, typer.Argument(help="A .graphml or .osm.pbf file, a folder of CSV files, or a place name.")],
    folder: Annotated[Path, typer.Argument(help="The new folder; its last part names the city.")],
    *,
    place: Annotated[bool, typer.Option("--place", help="`source` is a place name (needs the internet).")] = False,
    bounds: Annotated[
        str | None, typer.Option(help="Keep the roads inside this box only: west,south,east,north in degrees.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Turn a road network into a city folder (its largest connected part)."""
    box = None if bounds is None else corners(bounds)
    if not place and not Path(source).exists():
        raise reject("source", "an existing file or folder, or a place name together with --place", repr(source))
    network = cities.from_place(source) if place else cities.load(Path(source))
    if box is not None:
        with named_as({"bounds": "--bounds"}):
            network = network.within(box)
    connected = network.largest_component() if network.n_edges else network
    cities.save_folder(connected, folder)
    facts = cities.load(folder).info() | {"folder": str(folder)}
    if as_json:
        print_json(facts)
    else:
        out.print(f"{facts['nodes']:,} nodes and {facts['edges']:,} edges written to {folder}", soft_wrap=True)
