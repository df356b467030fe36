"""Every command and every line of Python in the README, run as printed."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from docs_tools import blocks
from perturb_tools import ROWS, write_points
from release.tables import PAGES, losses, plain, with_tables

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)
COMMANDS = [
    line
    for kind, block in BLOCKS
    if kind == "sh"
    for line in block.splitlines()
    if line.startswith("metricdp ") and line != "metricdp --version"
]
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


def test_commands(folder):
    assert len(COMMANDS) == 4
    for line in COMMANDS:
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = run([sys.executable, "-m", "metricdp", *arguments], folder)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        assert answer.stdout.strip()
    private = pd.read_parquet(folder / "out.parquet")
    assert list(private) == ["output_id", "lon", "lat"]
    assert len(private) == ROWS


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
    (block,) = PYTHON
    answer = run([sys.executable, "-c", block], folder)
    assert answer.returncode == 0, answer.stderr
    assert re.search(r"\(8.0, d_2\)-mDP on the whole box", answer.stdout)


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


def test_readme_and_site_install_in_the_same_way():
    (ours,) = (block for kind, block in BLOCKS if kind == "sh" and "pip install" in block)
    (theirs,) = (block.text for block in blocks("start/install.md"))
    assert ours == theirs
    assert "pip install metricdp" not in TEXT, "it is not on the package index yet"


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


# The table of methods


def test_the_table_is_that_of_the_results():
    assert "<!-- table: docs/results/methods_rome.csv -->" in TEXT
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "<!-- table: " in text
        assert with_tables(text) == text, "`python -m release.tables` writes the tables anew"


def test_a_table_has_a_row_per_method_the_least_proved_loss_in_bold_and_the_bound(tmp_path):
    results = tmp_path / "methods.csv"
    results.write_text(
        "# from nowhere\nmethod,epsilon,loss,certified,lower_bound\n"
        "em,0.5,3.14159,True,2\nem,2,2.5,True,1.5\nlp,0.5,2.1,False,2\nlp,2,1.6,False,1.5\nauto,2,1.75,True,1.5\nauto,0.5,4,True,2\n"
    )
    assert losses(results).splitlines() == [
        "| method | ε = 0.5 | ε = 2 | private on the continuum |",
        "| --- | --- | --- | --- |",
        "| Exponential (`em`) | **3.142** | 2.500 | proved |",
        "| LP (`lp`) | 2.100 | 1.600 | not proved |",
        "| Best (`auto`) | 4.000 | **1.750** | proved |",
        "| *lower bound for any private mechanism* | 2.000 | 1.500 |  |",
    ]
    page = "before\n<!-- table: methods.csv -->\nold\n<!-- end of table -->\nafter\n"
    assert with_tables(page, tmp_path) == page.replace("old\n", losses(results))


def test_other_files_are_shown_without_columns_that_tell_no_rows_apart(tmp_path):
    results = tmp_path / "speed.csv"
    results.write_text("# seconds\nwork,ratio,note,measured\ndraws,2377.71,,today\nproofs,0.51239,quick,today\n")
    assert plain(results).splitlines() == [
        "| work | theirs ÷ ours | note |",
        "| --- | --- | --- |",
        "| draws | 2378 |  |",
        "| proofs | 0.5124 | quick |",
    ]


def test_a_page_may_show_some_columns(tmp_path):
    (tmp_path / "scale.csv").write_text("# seconds\nK,T s,loss,excess\n20,60,2.5,-10%\n100,60,,-20%\n")
    page = "<!-- table: scale.csv | loss | K | T s -->\nold\n<!-- end of table -->\n"
    expected = "| loss | K | T s |\n| --- | --- | --- |\n| 2.5 | 20 | 60 |\n|  | 100 | 60 |\n"
    assert with_tables(page, tmp_path) == page.replace("old\n", expected)


def test_a_changed_result_changes_the_table(tmp_path):
    place = tmp_path / "docs" / "results"
    place.mkdir(parents=True)
    text = (ROOT / "docs" / "results" / "methods_rome.csv").read_text(encoding="utf-8")
    changed = re.sub(r"^auto,0.4,[\d.]+", "auto,0.4,3.5", text, flags=re.MULTILINE)
    (place / "methods_rome.csv").write_text(changed, encoding="utf-8")
    assert with_tables(TEXT, tmp_path) != TEXT


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) < 130


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\((?!https:)([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
