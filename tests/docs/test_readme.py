"""Every command and every line of Python in the README, run as printed."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from perturb_tools import ROWS, lay_out, nearest, points, write_points

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = [
    line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("metricdp")
]
COMPARISONS = [line for line in COMMANDS if line.startswith("metricdp compare")]
PYTHON = [block for kind, block in BLOCKS if kind == "python"]
SERVED = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if " serve " in line]
MAKE = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line.startswith("make")]


def run(command, folder):
    """Run a command with a cache of its own: results of an earlier run must not answer for this one."""
    place = os.environ | {"XDG_CACHE_HOME": str(folder / ".cache")}
    return subprocess.run(command, cwd=folder, env=place, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("readme")
    write_points(place)
    return place


def run_as_printed(lines, folder):
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = run([sys.executable, "-m", "metricdp", *arguments], folder)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        assert answer.stdout.strip()


def test_commands(folder):
    assert len(COMMANDS) >= 5
    run_as_printed([line for line in COMMANDS if line not in COMPARISONS], folder)
    private = pd.read_parquet(folder / "out.parquet")
    assert list(private) == ["output_id", "lon", "lat"]
    assert len(private) == ROWS


@pytest.mark.slow
def test_comparisons(folder):
    """A lower bound for a city takes most of a minute; tests/cli compares smaller problems."""
    assert len(COMPARISONS) == 1
    run_as_printed(COMPARISONS, folder)


def test_the_page(tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from service_tools import running

    (line,) = SERVED
    program, command, *arguments = shlex.split(line)
    assert (program, command) == (".venv/bin/metricdp", "serve")
    with running(tmp_path, *arguments, "--no-browser") as service, service.client() as client:
        assert "What does a report give away?" in client.get("/").text
        found = client.get("/v1/mechanisms").json()["mechanisms"]
        assert {one["method"] for one in found} == {"spline", "laplace-remap", "aipo-e", "em"}
        assert all(one["certified"] for one in found)


def test_python(folder):
    answer = run([sys.executable, "-c", PYTHON[0]], folder)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"\(8.0, d_2\)-mDP on the whole box", answer.stdout)


def test_tables_of_other_libraries(tmp_path, monkeypatch):
    for library in ("duckdb", "geopandas", "pandas", "polars"):
        pytest.importorskip(library)
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = PYTHON[1:]
    start = block.index("private = ")
    lines = block[start:].splitlines()
    kinds = []
    for line in lines:
        names = {}
        exec(block[:start] + line, names)
        private = names["private"]
        kinds.append(type(private).__name__)
        answers = private.df() if kinds[-1] == "DuckDBPyRelation" else private
        assert list(answers["output_id"]) == nearest(points(ROWS)).tolist(), line
    assert kinds == ["DuckDBPyRelation", "DataFrame", "DataFrame", "GeoDataFrame"]


def test_make_knows_the_targets_and_ci_calls_the_test_command():
    targets = [line.split()[1] for line in MAKE]
    assert targets == ["demo", "test"]
    for target in targets:
        assert run(["make", "--dry-run", target], ROOT).returncode == 0
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.slow
def test_demo(folder):
    """What `make demo` runs, whole: it must stay a matter of a minute or two."""
    command = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "metricdp demo" in line)
    arguments = shlex.split(command.strip())[1:]
    answer = run([sys.executable, "-m", "metricdp", *arguments], folder)
    assert answer.returncode == 0, answer.stderr
    assert "lower bound" in answer.stdout
    written = {path.name for path in (folder / "demo").iterdir()}
    assert written == {"helsinki.mdp", "map.png", "loss.png", "comparison.csv", "comparison.md"}


def test_every_extra_is_listed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(re.findall(r"^\| `(\w+)` \| .* \| \+\d+ \|$", TEXT, re.MULTILINE)) == set(
        project["optional-dependencies"]
    )


def test_what_is_cited_is_what_the_citation_file_says():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    ((_, block),) = (one for one in BLOCKS if one[0] == "bibtex")
    fields = dict(re.findall(r"(\w+) += \{(.+)\},\n", block.replace("$\\ell_p$", "ℓp")))
    assert f"\nversion: {fields['version']}\n" in cited
    assert f'title: "{fields["title"]}"' in cited
    family, given = fields["author"].split(", ")
    assert f"family-names: {family}\n        given-names: {given}\n" in cited
    assert f'year: {fields["year"]}\n    url: "{fields["url"]}"' in cited
    assert f'"{fields["journal"]}"' in cited


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) < 150


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
