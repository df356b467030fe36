"""The extension as Firefox gets it, by Mozilla's own linter."""

import json
import subprocess

import pytest

from extension_tools import EXTENSION, NODE, build

LINTER = EXTENSION / "node_modules" / ".bin" / "web-ext"


def test_mozillas_linter_finds_nothing(tmp_path):
    if NODE is None or not LINTER.exists():
        pytest.skip("needs node, and `npm ci` in js/extension")
    command = [str(LINTER), "lint", "--source-dir", str(build("firefox", tmp_path / "firefox")), "--output", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(answer.stdout)
    assert found["summary"] == {"errors": 0, "notices": 0, "warnings": 0}, found
    assert answer.returncode == 0


def test_both_browsers_get_the_same_scripts(tmp_path):
    if NODE is None:
        pytest.skip("needs node on the path")
    trees = []
    for browser in ("chromium", "firefox"):
        folder = build(browser, tmp_path / browser)
        trees.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    chromium, firefox = trees
    assert {path for path in chromium if chromium[path] != firefox.get(path)} == {
        path for path in chromium if path.name == "manifest.json"
    }
    assert set(chromium) == set(firefox)
    assert json.loads(firefox[next(path for path in firefox if path.name == "manifest.json")])["permissions"] == [
        "storage",
        "geolocation",
    ]
