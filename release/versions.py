"""Every place that states the version or the date of the release, and whether they agree.

``python -m release.versions v0.2.0`` also compares them with a tag.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["DATES", "VERSIONS", "disagreements", "version"]

ROOT = Path(__file__).parents[1]
_SOURCE = "src/metricdp/_version.py"

# Each file with the pattern around what it states. A file may state it more than once.
VERSIONS = {
    _SOURCE: r'^__version__ = "(.+)"$',
    "CHANGELOG.md": r"\A# Changelog\n\n## (\S+) ",
    "CITATION.cff": r"^version: (.+)$",
    "README.md": r"^  version = \{(.+)\},$",
    "js/package.json": r'^  "version": "(.+)",$',
    "js/package-lock.json": r'"name": "metricdp",\n +"version": "(.+)",$',
    "js/src/version.js": r'^export const VERSION = "(.+)";$',
    "js/extension/manifest.json": r'^  "version": "(.+)",$',
    "js/extension/package.json": r'^  "version": "(.+)",$',
    "js/extension/package-lock.json": r'"name": "metricdp-extension",\n +"version": "(.+)",$',
    "release/conda/recipe.yaml": r'^  version: "(.+)"$',
}
DATES = {
    "CHANGELOG.md": r"\A# Changelog\n\n## \S+ \((\d{4}-\d\d-\d\d)\)$",
    "CITATION.cff": r"^date-released: (.+)$",
}


def version(root: Path = ROOT) -> str:
    """Return the version that the Python package has."""
    (found,) = _stated(root, _SOURCE, VERSIONS[_SOURCE])
    return found


def disagreements(root: Path = ROOT, tag: str | None = None) -> list[str]:
    """Return a sentence for each file that says something else than the others, or nothing."""
    wanted = version(root)
    dates = _stated(root, "CHANGELOG.md", DATES["CHANGELOG.md"])
    sentences = [] if tag in (None, f"v{wanted}") else [f"The tag is {tag}, the version {wanted}."]
    for patterns, right in ((VERSIONS, wanted), (DATES, dates[0] if dates else "a date like 2026-01-31")):
        for name, pattern in patterns.items():
            stated = _stated(root, name, pattern)
            if set(stated) != {right}:
                sentences.append(f"{name} must say {right}, and says {' and '.join(stated) or 'nothing'}.")
    return sentences


def _stated(root: Path, name: str, pattern: str) -> list[str]:
    return re.findall(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)


if __name__ == "__main__":
    wrong = disagreements(tag=sys.argv[1] if len(sys.argv) > 1 else None)
    print("\n".join(wrong) or f"{len(VERSIONS)} files state version {version()}.")
    sys.exit(bool(wrong))
