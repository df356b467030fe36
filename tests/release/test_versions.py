"""The version and the day of the release are the same wherever they are stated."""

import re
import shutil
from pathlib import Path

import pytest

import metricdp
from release.versions import DATES, VERSIONS, disagreements, version

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(tmp_path):
    """Return a folder with the files that state a version, to change them in."""
    for name in VERSIONS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_all_agree():
    assert disagreements() == []
    assert version() == metricdp.__version__
    assert disagreements(tag=f"v{version()}") == []


def test_a_tag_must_be_the_version():
    assert disagreements(tag="v9.9.9") == [f"The tag is v9.9.9, the version {version()}."]


@pytest.mark.parametrize("name", [name for name in VERSIONS if name.endswith((".md", ".cff", ".json", ".yaml"))])
def test_one_that_differs_is_named(copy, name):
    text = (copy / name).read_text(encoding="utf-8")
    (copy / name).write_text(text.replace(version(), "9.9.9", 1), encoding="utf-8")
    (said,) = disagreements(copy)
    assert said.startswith(f"{name} must say {version()}, and says 9.9.9")


def test_one_that_says_nothing_is_named(copy):
    (copy / "CITATION.cff").write_text("title: metricdp\n")
    assert [line.split()[0] for line in disagreements(copy)] == ["CITATION.cff", "CITATION.cff"]
    assert all(line.endswith("and says nothing.") for line in disagreements(copy))


def test_a_changelog_without_a_day_is_no_release(copy):
    text = (copy / "CHANGELOG.md").read_text(encoding="utf-8")
    (copy / "CHANGELOG.md").write_text(re.sub(r"\(\d{4}-\d\d-\d\d\)", "(unreleased)", text, count=1), encoding="utf-8")
    assert any(line.startswith("CHANGELOG.md must say a date") for line in disagreements(copy))


def test_no_other_file_states_the_version():
    """Files that begin to state it belong on the list: package files, recipes, citations."""
    listed = {ROOT / name for name in (*VERSIONS, *DATES)}
    for pattern in ("*.cff", "*.toml", "js/**/package*.json", "js/**/manifest*.json", "release/**/*.yaml"):
        for path in ROOT.glob(pattern):
            if "node_modules" in path.parts or path in listed:
                continue
            assert not re.search(r'^\s*"?version"?\s*[:=]\s*"?\d', path.read_text(encoding="utf-8"), re.MULTILINE), path
