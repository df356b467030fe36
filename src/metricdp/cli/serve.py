"""`metricdp serve`: the HTTP service and its page."""

from __future__ import annotations

import json
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from metricdp import cities
from metricdp.cli._completion import cities as cities_by_name
from metricdp.cli._completion import one_of
from metricdp.cli._console import errors, named_as, out, progress_bar
from metricdp.cli._ledger import with_ledger_options
from metricdp.cli._signals import hand_over_signals
from metricdp.errors import InvalidInputError
from metricdp.ledger.options import LedgerOptions
from metricdp.service import Settings, require_packages

__all__ = ["serve_command"]

# Options whose names are not those of the settings that they become.
_OPTIONS = {"open": "--open", "hosts": "--allow-host", "max_body_bytes": "--max-body-mb"}


@with_ledger_options
def serve_command(
    files: Annotated[list[Path] | None, typer.Argument(help="Mechanism files; the first is the default.")] = None,
    *,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    ledger: LedgerOptions | None = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys: see `metricdp keys`.")] = None,
    open_to_all: Annotated[bool, typer.Option("--open", help="Serve other machines without keys.")] = False,
    requests_per_second: Annotated[
        int | None, typer.Option(min=1, help="Limit of keys without one of their own; without keys, of all callers.")
    ] = None,
    points_per_second: Annotated[int | None, typer.Option(min=1, help="The same for points.")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Answer /v1/probabilities; only for looking on your own machine.")
    ] = False,
    page: Annotated[bool, typer.Option("--page", help="Serve the page too; turns probabilities on.")] = False,
    city: Annotated[
        str | None,
        typer.Option(
            help="City whose roads the page draws: see `metricdp cities`.", autocompletion=one_of(cities_by_name)
        ),
    ] = None,
    tiles: Annotated[str | None, typer.Option(help="Map tiles for the page: https://…/{z}/{x}/{y}.png.")] = None,
    cors: Annotated[list[str] | None, typer.Option(help="Origin of another page that may call the service.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another name under which the service may be called.")
    ] = None,
    max_points: Annotated[int, typer.Option(min=1, help="Most points of one request.")] = 100_000,
    max_body_mb: Annotated[int, typer.Option(min=1, help="Largest body of a request.")] = 16,
    demo: Annotated[bool, typer.Option("--demo", help="Fit Helsinki into ./demo and show the page.")] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="With --demo: open the page.")] = True,
    access_log: Annotated[bool, typer.Option("--access-log/--no-access-log", help="One line per request.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Write logs as JSON lines.")] = False,
) -> None:
    """Serve mechanisms over HTTP: private reports for devices and gateways, and a page to look at them."""
    require_packages()
    from metricdp.service.http.server import run  # noqa: PLC0415 - an extra

    chosen = tuple(files or ())
    if demo:
        if chosen:
            msg = "`--demo` fits its own mechanisms; give it no files."
            raise InvalidInputError(msg)
        if city not in (None, "helsinki"):
            raise InvalidInputError("`--demo` shows Helsinki; leave out `--city`.")
        chosen, page, city = _demo_files(), True, city or "helsinki"
    for option, value in {"--city": city, "--tiles": tiles}.items():
        if value is not None and not page:
            raise InvalidInputError(f"`{option}` is about the page; give `--page` too, or leave it out.")
    with named_as(_OPTIONS):
        settings = Settings(
            files=chosen,
            ledger=ledger,
            keys=keys,
            page=page,
            probabilities=probabilities,
            city=None if city is None else cities.load(city),
            tiles=tiles,
            cors=tuple(cors or ()),
            hosts=tuple(allow_host or ()),
            open=open_to_all,
            requests_per_second=requests_per_second,
            points_per_second=points_per_second,
            max_points=max_points,
            max_body_bytes=max_body_mb * 1_000_000,
            access_log=access_log,
            json_logs=as_json,
        )
        run(settings, host, port, on_ready=_announcer(browser=demo and browser, page=page, as_json=as_json))


def _demo_files() -> tuple[Path, ...]:
    from metricdp.service.page.demo import fit_demo  # noqa: PLC0415 - fits, which a service does not

    with progress_bar("fitting Helsinki") as progress:
        return tuple(fit_demo(Path("demo"), progress))


def _announcer(*, browser: bool, page: bool, as_json: bool) -> Callable[[str], None]:
    def announce(url: str) -> None:
        hand_over_signals()  # requests under way may take longer than a command has to end
        if as_json:
            sys.stdout.write(json.dumps({"url": url}) + "\n")
        else:
            out.print(f"serving on {url}" + (" (the page is there too)" if page else ""), soft_wrap=True)
            errors.print("Ctrl+C stops it; requests under way are finished", style="dim")
        sys.stdout.flush()
        if browser:
            # In a thread, since a browser may take long to start.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    return announce
