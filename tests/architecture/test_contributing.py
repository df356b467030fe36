"""CONTRIBUTING.md and ARCHITECTURE.md say what is there: files, folders, commands and tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "metricdp"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CHANGES = {
    "mechanism", "engine", "point format", "norm", "city source", "file format number", "HTTP route", "CLI option",
    "column of `compare`", "lower bound", "proof", "budget rule",
}  # fmt: skip
ROWS = {
    cells[0]: cells[1:]
    for cells in (line.strip("| ").split(" | ") for line in GUIDE.splitlines())
    if cells[0] in CHANGES
}
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))


def paths(text):
    """Return what a text names as a file or a folder, but for those that the reader is to name."""
    named = re.findall(r"`([\w./<>*-]+(?:/|\.(?:py|pyi|md|yml|yaml|toml)))`", text)
    return [path for path in named if not re.search(r"[<*]", path)]


def exists(path):
    inside = [*SOURCE.rglob(path)] if "/" not in path.rstrip("/") else [SOURCE / path]
    return (ROOT / path).exists() or any(found.exists() for found in inside)


def test_there_are_twelve_likely_changes():
    assert set(ROWS) == CHANGES


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_change_touches_three_files_at_most_and_a_test_notices_what_is_forgotten(change):
    files, noticed = ROWS[change]
    named = re.findall(r"`([\w./<>-]+(?:/|\.py|\.md))`", files)
    assert 1 <= len({path for path in named if "/" in path}) <= 3
    names = re.findall(r"`(test_\w+)`", noticed)
    assert names
    for name in names:
        assert f"def {name}(" in TESTS


@pytest.mark.parametrize("text", [GUIDE, MAP], ids=["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_what_is_named_exists(text):
    for path in paths(text):
        assert exists(path), path
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_the_commands_are_those_of_the_makefile():
    (targets,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^\| `make ([\w-]+)` \|", GUIDE, re.MULTILINE)) == set(targets.split()) - {"clean"}


def test_the_workflow_runs_every_supported_python_and_the_lowest_versions():
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert 'python: ["3.11", "3.12", "3.13"]' in workflow
    for command in ("make lint", "make test", "make test-lowest", "make coverage"):
        assert f"- run: {command}\n" in workflow
    assert "secrets" not in workflow
