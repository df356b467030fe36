"""Installing what was built into empty environments, and trying it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from release.running import Failed, run

__all__ = ["environment", "interpreter", "trial"]


def interpreter(version: str) -> Path | None:
    """Return a Python of a version such as 3.12: from the path, or one that pyenv has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = shutil.which(f"python{version}")
    candidates = [*([Path(named)] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    return next((one for one in candidates if _starts(one, version)), None)


def _starts(python: Path, version: str) -> bool:
    """Tell whether it runs, which pyenv's placeholders for other versions do not."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


def environment(python: Path, folder: Path, *requirements: str) -> Path:
    """Make an environment that holds the requirements and what they need, and return its Python."""
    run(python, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    made = folder / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", made]
    run(*pip, "install", "--quiet", *requirements, cwd=folder)
    run(*pip, "check", cwd=folder)
    return made


def trial(python: Path, folder: Path, version: str, five_lines: str) -> None:
    """Do what a new user does first, in an empty folder with an installed metricdp."""
    folder.mkdir()
    command = python.parent / "metricdp"
    said = run(command, "--version", cwd=folder)
    if version not in said.split():
        raise Failed(f"`metricdp --version` says {said.strip()!r} instead of {version}.")
    said = run(python, "-c", five_lines, cwd=folder)
    if "(8.0, d_2)-mDP on the whole box" not in said:
        raise Failed("The README's lines do not print the claim, but:", said)
    helsinki = ("--city", "helsinki", "--epsilon", "8", "--time-limit", "5", "--out", "helsinki.mdp")
    run(command, "fit", *helsinki, cwd=folder)
    run(command, "certify", "helsinki.mdp", cwd=folder)
