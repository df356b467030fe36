"""`metricdp info`: the card of a mechanism file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from metricdp.certificates.proving import certify
from metricdp.cli._console import out, print_json
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.files.reading import MechanismFile as Contents
from metricdp.files.reading import read_file
from metricdp.mechanisms.card import card_facts, mechanism_card

__all__ = ["info_command"]


def info_command(
    file: MechanismFile,
    *,
    prove: Annotated[
        bool, typer.Option("--certify", help="Also prove that it is private; exit code 1 if that fails.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the card of a mechanism file: what it promises and what it costs; prove it only if asked."""
    contents = read_file(file)
    certificate = None
    if prove:
        with np.errstate(all="ignore"):  # numbers from elsewhere may overflow; the proof fails then
            certificate = certify(contents.mechanism).to_dict()
    facts = card_facts(
        contents.mechanism, certificate=certificate, figures_from="file", file=_file_facts(file, contents)
    )
    if as_json:
        print_json(facts)
    else:
        out.print(mechanism_card(facts).rich())
    if certificate is not None and not certificate["holds"]:
        raise typer.Exit(1)


def _file_facts(path: Path, contents: Contents) -> dict[str, Any]:
    """Return what a card says of a file."""
    return {
        "path": os.fspath(path),
        "bytes": path.stat().st_size,
        "sha256": contents.sha256,
        "format": contents.format,
        "library": contents.library,
    }
