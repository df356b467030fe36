"""What the wheel, the source distribution and the npm package hold, and how their pages look on an index."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from email import message_from_string
from html.parser import HTMLParser
from pathlib import Path

import readme_renderer.markdown

from release.running import Failed, run

__all__ = ["description", "five_lines", "index_page", "local_targets", "npm_package", "sdist", "wheel"]

# Without these the page, the drawing on devices or the README's first lines would be missing.
_NEEDED = (
    "metricdp/py.typed",
    "metricdp/service/page/static/index.html",
    "metricdp/service/page/core/index.js",
    "metricdp/cities/data/helsinki/nodes.csv.xz",
    "metricdp/cities/data/helsinki/edges.csv.xz",
)
_CORE = "metricdp/service/page/core"


def wheel(built: Path, root: Path) -> str:
    """Compare the wheel with the files that git knows: nothing may be missing, and nothing that lies around be in."""
    names = {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name}
    wanted = {name.removeprefix("src/") for name in _tracked(root, "src")}
    wanted |= {f"{_CORE}/{Path(name).name}" for name in _tracked(root, "js/src")} | set(_NEEDED)
    return _compared(built, names, wanted)


def sdist(built: Path, root: Path) -> str:
    """Compare the source distribution with the files that git knows."""
    with tarfile.open(built) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    return _compared(built, names - {"PKG-INFO"}, _tracked(root, "."))


def npm_package(root: Path, folder: Path) -> str:
    """Pack `js/` into a folder and compare the package with what it is to hold."""
    (packed,) = json.loads(run("npm", "pack", "--silent", "--json", "--pack-destination", folder, cwd=root / "js"))
    names = {one["path"] for one in packed["files"]}
    wanted = {name.removeprefix("js/") for name in _tracked(root, "js/src")}
    wanted |= {"LICENSE", "README.md", "index.d.ts", "package.json"}
    said = _compared(folder / packed["filename"], names, wanted)
    package = json.loads((root / "js" / "package.json").read_text(encoding="utf-8"))
    if "dependencies" in package:
        raise Failed("The npm package must have no dependencies.")
    if (root / "js" / "LICENSE").read_bytes() != (root / "LICENSE").read_bytes():
        raise Failed("js/LICENSE differs from LICENSE.")
    index_page((root / "js" / "README.md").read_text(encoding="utf-8"))
    return said


def description(built: Path) -> str:
    """Return the text of the page on the package index."""
    archive = zipfile.ZipFile(built)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return str(message_from_string(archive.read(name).decode()).get_payload())


def five_lines(text: str) -> str:
    """Return the first lines of Python on a page."""
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def index_page(text: str) -> str:
    """Render a page as the package index does; what it links to or shows must not be a file of the source."""
    html = readme_renderer.markdown.render(text)
    if html is None:
        raise Failed("The page does not render.")
    local = local_targets(html)
    if local:
        raise Failed(*(f"On a package index {target} leads nowhere." for target in local))
    return f"{len(html)} characters of HTML, every link absolute"


def local_targets(html: str) -> list[str]:
    """Return the links and pictures of a page that are not absolute."""
    found: list[str] = []

    class Finder(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
            found.extend(value or "" for name, value in attrs if name in {"href", "src"})

    Finder().feed(html)
    return [target for target in found if not target.startswith(("https://", "#"))]


def _tracked(root: Path, folder: str) -> set[str]:
    return set(run("git", "ls-files", "-z", folder, cwd=root).rstrip("\0").split("\0"))


def _compared(built: Path, names: set[str], wanted: set[str]) -> str:
    if names != wanted:
        missing = (f"{built.name} lacks {name}." for name in sorted(wanted - names))
        besides = (f"{built.name} holds {name}, which does not belong there." for name in sorted(names - wanted))
        raise Failed(*missing, *besides)
    return f"{built.name}: {len(names)} files, {built.stat().st_size / 1e6:.2f} MB"
