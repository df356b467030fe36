"""The code that results depend on: its digest is part of the key of every result, so that changed code recomputes."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from metricdp.mechanisms.families import FOLDERS

__all__ = ["code_digest", "digest_of", "own_sources"]

_LIBRARY = Path(__file__).parents[2]

# Parts of the library that no job runs. All others count, new ones included: recomputing too much is the safe side.
_ASIDE = frozenset(
    {
        *("cli", "service", "perturb", "ledger", "experiments"),
        *("__main__.py", "_version.py"),
    }
)

# The parts of the experiments that compute, or say what a job means; the others plan, keep and show results.
_COMPUTING = frozenset(
    {
        "experiments/engine/job.py",
        "experiments/engine/source.py",
        "experiments/measuring.py",
        "experiments/own_methods.py",
        "experiments/paper/job.py",
        "experiments/paper/measuring.py",
        "experiments/paper/places.py",
        "experiments/paper/ratios.py",
    }
)

_PACKAGES = ("numpy", "scipy", "highspy", "clarabel")


def code_digest() -> str:
    """Return a hash of the code that jobs run: this library's, families' from elsewhere, and versions of solvers."""
    return digest_of(_LIBRARY, tuple(FOLDERS))


@cache
def digest_of(library: Path, families: Sequence[str] = ()) -> str:
    """Return the digest for a given folder of the library and the packages of all families of mechanisms."""
    digest = hashlib.sha256()
    for name, path in (*own_sources(library), *_foreign_files(families)):
        digest.update(f"{name}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for package in _PACKAGES:
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()


def own_sources(library: Path = _LIBRARY) -> Iterator[tuple[str, Path]]:
    """Yield the files of the library that jobs may run, each with its path inside the library."""
    for path in sorted(library.rglob("*.py")):
        inside = path.relative_to(library)
        if inside.parts[0] not in _ASIDE or inside.as_posix() in _COMPUTING:
            yield inside.as_posix(), path


def _foreign_files(families: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the files of families that are not part of this library."""
    for package in families:
        spec = None if package.startswith("metricdp.") else importlib.util.find_spec(package)
        if spec is None:
            continue
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
        paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
        if not folders and spec.origin is not None:
            paths = [Path(spec.origin)]
        for path in paths:
            yield f"{package}:{path.name}", path
