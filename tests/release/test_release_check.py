"""The parts of `make release-check` that need neither a package index nor minutes."""

import zipfile
from pathlib import Path

import pytest

from install_tools import build_wheel
from release import contents, dependencies, installs
from release.running import Failed, Skipped, run, run_steps

ROOT = Path(__file__).parents[2]


# Steps


def test_steps_go_on_after_a_failure_which_is_told(capsys):
    def broken():
        raise Failed("This is wrong.", "And that.")

    def elsewhere():
        raise Skipped("There is no Python 9.")

    assert not run_steps([("one", lambda: "fine"), ("two", broken), ("three", elsewhere), ("four", lambda: "fine")])
    said = capsys.readouterr().out
    assert "[2/4] two …\n      FAILED: This is wrong.\n      And that. (0 s)" in said
    assert "SKIPPED: There is no Python 9." in said
    assert said.endswith("2 passed, 1 failed, 1 skipped\n")
    assert run_steps([("one", lambda: "fine"), ("three", elsewhere)])


def test_a_command_that_fails_is_shown_with_what_it_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert run("sh", "-c", "echo $PYTHONPATH fine", cwd=tmp_path) == "fine\n"  # never the sources
    with pytest.raises(Failed, match=r"(?s)`sh -c .*` ended with 3:\nout\nwrong"):
        run("sh", "-c", "echo out; echo wrong >&2; exit 3", cwd=tmp_path)


# Contents and pages


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_page_on_the_index_has_the_readmes_lines_and_no_link_into_the_source(wheel):
    text = contents.description(wheel)
    assert contents.index_page(text).endswith("every link absolute")
    assert "pip install metricdp" in text
    assert "make demo" not in text  # there is no Makefile where it is installed from
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert contents.five_lines(text) == contents.five_lines(readme)
    (table,) = [part for part in readme.split("\n\n") if "| *lower bound" in part]
    assert table in text
    with pytest.raises(Failed, match="leads nowhere"):
        contents.index_page(readme)


def test_the_npm_readme_has_no_link_into_the_source():
    contents.index_page((ROOT / "js" / "README.md").read_text(encoding="utf-8"))


def test_links_and_pictures_that_lead_nowhere_are_found():
    html = '<a href="docs/x.md">x</a><img src="y.png"><a href="https://a.b/">b</a><a href="#top">top</a>'
    assert contents.local_targets(html) == ["docs/x.md", "y.png"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_a_wheel_with_a_file_too_many_or_too_few_is_refused(wheel, tmp_path):
    names = {name.removeprefix("src/") for name in run("git", "ls-files", "src", cwd=ROOT).split()}
    lost, stray = "metricdp/py.typed", "metricdp/keys.json"
    assert lost in names
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(changed, "w") as other:
        for name in archive.namelist():
            if name != lost:
                other.writestr(name, archive.read(name))
        other.writestr(stray, "{}")
    with pytest.raises(Failed) as caught:
        contents.wheel(changed, ROOT)
    assert f"lacks {lost}." in str(caught.value)
    assert f"holds {stray}, which does not belong there." in str(caught.value)


# Licences


@pytest.mark.parametrize(
    ("expression", "fine"),
    [
        ("MIT", True),
        ("Apache-2.0 AND BSD-3-Clause", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-or-later", False),
        ("Apache-2.0 WITH LLVM-exception", False),  # until somebody has read it
        ("LicenseRef-Proprietary", False),
        ("", False),
    ],
)
def test_licences(expression, fine):
    assert dependencies.allowed(expression) == fine


def test_licences_of_a_component():
    def of(*entries, name="toy"):
        return dependencies.licences_of({"name": name, "licenses": list(entries)})

    assert of({"expression": "MIT OR GPL-2.0-only"}) == "(MIT OR GPL-2.0-only)"
    assert of({"license": {"id": "MIT"}}, {"license": {"id": "GPL-3.0-only"}}) == "GPL-3.0-only AND MIT"
    assert of() == ""
    assert not dependencies.allowed(of({"license": {"name": "Our own terms, see the file"}}))


# Interpreters


def test_interpreters_are_found_where_they_run(tmp_path, monkeypatch):
    def fake(path, says):
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\n{says}\n")
        path.chmod(0o755)
        return path

    fake(tmp_path / "shims" / "python9.1", "exit 127")  # as pyenv's, for a version that is not switched on
    kept = fake(tmp_path / "pyenv" / "versions" / "9.1.2" / "bin" / "python", "echo 9.1")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path / "shims"), prepend=":")
    assert installs.interpreter("9.1") == kept
    assert installs.interpreter("9.2") is None
