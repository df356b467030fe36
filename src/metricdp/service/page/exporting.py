"""The page as static files that prove and draw on the device: no service, and no request once it is loaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricdp._atomic import atomic_folder
from metricdp._validation import reject
from metricdp._version import __version__
from metricdp.certificates.proving import require_proof
from metricdp.errors import InvalidInputError
from metricdp.files.reading import read_file
from metricdp.mechanisms.families import families, family_of
from metricdp.service.page.assets import as_json, core_files, page_files, require_roads_near, roads, streets
from metricdp.service.state.answers import Answers
from metricdp.service.state.map_answers import map_answer

if TYPE_CHECKING:
    from metricdp.cities import RoadNetwork
    from metricdp.mechanisms.base import Mechanism

__all__ = ["Exported", "export_page"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
_HEAD = f"""  <meta http-equiv="Content-Security-Policy" content="{_POLICY}">
  <link rel="manifest" href="app.webmanifest">
  <script type="module" src="register.js"></script>
"""
_LARGEST_EXACT = 2**53

# Names of files become parts of addresses.
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Exported:
    """What was written.

    folder : where.
    files : how many files, and `size` how many bytes they have together.
    mechanisms : ids of the mechanisms, the one that is shown first in front.
    """

    folder: Path
    files: int
    size: int
    mechanisms: tuple[str, ...]


def export_page(files: Sequence[Path], folder: Path, city: RoadNetwork | None = None) -> Exported:
    """Write the page for these mechanism files into a new folder, which appears whole or not at all.

    Every mechanism is proved private here, and once more on each device that opens the page.

    Parameters
    ----------
    files : sequence of Path
        Mechanism files of a kind whose probabilities devices compute exactly; the first is shown first.
    folder : Path
        The new folder.
    city : RoadNetwork, optional
        The city whose roads are drawn; one of the mechanisms must be there.

    Raises
    ------
    InvalidInputError, NotCertified, FileNotFoundError
        If a file cannot be shown, or the folder is there already.
    """
    if folder.exists() or folder.is_symlink():
        raise reject("folder", "a folder that does not exist yet", repr(os.fspath(folder)))
    if not folder.parent.is_dir():
        raise reject("folder", "a new folder in one that exists", repr(os.fspath(folder)))
    if not files:
        raise reject("files", "at least one mechanism file", "none")
    listed, contents = _mechanisms(files, city)
    contents |= _page(city)
    contents["mechanisms/list.json"] = as_json(listed)
    contents["worker.js"] = _worker(contents)
    with atomic_folder(folder) as aside:
        for name, data in contents.items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    return Exported(folder, len(contents), sum(map(len, contents.values())), tuple(one["id"] for one in listed))


def _mechanisms(files: Sequence[Path], city: RoadNetwork | None) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return what the page is told of every mechanism, and their files."""
    listed: list[dict[str, Any]] = []
    mechanisms: list[Mechanism] = []
    contents: dict[str, bytes] = {}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    for path in files:
        name = _SAFE.sub("-", path.stem)
        at = f"mechanisms/{name}.mdp"
        if at in contents:
            raise reject("files", "files of different names, which become the ids", f"two of the name {name!r}")
        contents[at] = path.read_bytes()
        found = read_file(path)
        mechanism = found.mechanism
        _require_on_device(path, mechanism)
        certificate = require_proof(mechanism, f"{os.fspath(path)!r} is not exported", advice="")
        answers = Answers.of(name, mechanism, found.sha256, certificate, now)
        detail = json.loads(answers.detailed(None), parse_int=_exact)
        if answers.summary["epsilon_map"] is not None:
            detail["map"] = json.loads(map_answer(name, mechanism, found.sha256))
        listed.append({"id": name, "file": at, "detail": detail})
        mechanisms.append(mechanism)
    require_roads_near(city, mechanisms)
    return listed, contents


def _require_on_device(path: Path, mechanism: Mechanism) -> None:
    if "probabilities" in family_of(mechanism.kind).on_device:
        return
    known = [one.name for family in families() if "probabilities" in family.on_device for one in family.methods]
    msg = (
        f"{os.fspath(path)!r} is of method {mechanism.method!r}, whose probabilities devices do not compute exactly; "
        f"export mechanisms of method {' or '.join(known)}."
    )
    raise InvalidInputError(msg)


def _exact(digits: str) -> int | str:
    """Return whole numbers that a JavaScript number cannot hold as text, as the page has them of a service."""
    return int(digits) if abs(int(digits)) <= _LARGEST_EXACT else digits


def _page(city: RoadNetwork | None) -> dict[str, bytes]:
    """Return the page's own files, with `index.html` made for a device."""
    contents = {f"page/{name}": data for name, data in page_files().items() if name != "index.html"}
    contents |= {f"page/core/{name}": data for name, data in core_files().items()}
    html = page_files()["index.html"].decode()
    html = html.replace('<html lang="en">', '<html lang="en" data-source="device">')
    html = html.replace("comes from this service", "is in this page’s own folder")
    contents["index.html"] = html.replace("</head>", f"{_HEAD}</head>").encode()
    contents["register.js"] = _offline("register.js")
    title = "metricdp" if city is None else f"metricdp: {city.name}"
    contents["app.webmanifest"] = as_json(
        {
            "name": title,
            "short_name": "metricdp",
            "description": "What does a report give away?",
            "start_url": "./",
            "scope": "./",
            "display": "standalone",
            "background_color": "#16233f",
            "theme_color": "#16233f",
            "icons": [{"src": "page/icon.svg", "sizes": "any", "type": "image/svg+xml", "purpose": "any"}],
        }
    )
    config = {
        "city": None if city is None else city.name,
        "n_roads": 0 if city is None else len(streets(city)),
        "tiles": None,
        "ledger": False,
        "keys": False,
        "probabilities": True,
        "device": True,
        "version": __version__,
    }
    return contents | {"page/config.json": as_json(config), "page/roads.json": as_json(roads(city))}


def _worker(contents: dict[str, bytes]) -> bytes:
    """Return the service worker that keeps these files, under a name that changes whenever one of them does."""
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name} {len(contents[name])}\n".encode() + contents[name])
    listed = as_json(["./", *sorted(name for name in contents if name != "index.html")])
    text = _offline("worker.js").replace(b"@NAME@", f"metricdp-{digest.hexdigest()[:16]}".encode())
    return text.replace(b"@FILES@", listed)


def _offline(name: str) -> bytes:
    return (resources.files("metricdp.service.page") / "offline" / name).read_bytes()
