"""What tests of an installed metricdp share: the wheel, built from the sources."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["build_wheel"]

_ROOT = Path(__file__).parents[1]


def build_wheel(folder):
    """Build the wheel in a folder and return it; a test that has no hatchling is skipped."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    # A copy of what git knows: files that lie around would get into the wheel.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, folder)
    shutil.copytree(_ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(_ROOT / "js" / "src", folder / "js" / "src")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    (built,) = (folder / "dist").iterdir()
    return built
