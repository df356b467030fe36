"""Every command and every line of Python in docs/choosing-epsilon.md, run as printed, and its figures and keys."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from problems import random_problem

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "choosing-epsilon.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each command of the page answers, in the order of the page."""
    pytest.importorskip("matplotlib")
    place, problem = tmp_path_factory.mktemp("epsilon"), random_problem(0)
    for name in ("records", "outputs"):
        np.savetxt(place / f"{name}.csv", getattr(problem, name), delimiter=",", header="x,y", comments="")
    found = {}
    for line in (line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()):
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = call(*arguments, cwd=place)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        assert answer.stderr == ""
        found[line.removeprefix("metricdp ")] = answer.stdout
    assert len(found) >= 8
    assert (place / "epsilon.png").read_bytes()[:4] == b"\x89PNG"
    return found


def cells(line):
    return [cell.strip(" *") for cell in line.strip("|\n ").split("|")]


def test_the_figures_of_the_page(answers):
    """The page's table is what the method finds; draws may differ by a few standard errors between machines."""
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    found = mdp.choose_epsilon(problem, 0.125)
    rows = [cells(line) for line in TEXT.split("| ε |")[1].split("\n\n")[0].splitlines()[2:]]
    assert len(rows) == 5
    for row, shown in zip(found.table.itertuples(), rows, strict=True):
        epsilon, radius_e, radius_2, distance, loss = shown
        assert float(epsilon) == row.epsilon
        assert float(radius_e.split()[0]) == pytest.approx(1000 * row.radius_e, rel=0.01)
        assert float(radius_2.split()[0]) == pytest.approx(1000 * row.radius_2, rel=0.01)
        assert float(distance.split()[0]) == pytest.approx(1000 * row.report_distance_95, rel=0.02)
        assert float(loss.split()[0]) == pytest.approx(row.loss, rel=0.02)
    assert f"{found.loss_without_privacy:.4f} km here" in TEXT
    assert f"{found.loss_of_uniform_choice:.4f} km. An ε" in TEXT
    assert f"Here {1000 * found.report_distance_95_without_privacy:.0f} m of it" in TEXT
    assert "Which ε? 8" in next(iter(answers.values()))


def documented(section):
    """Return the keys of a table of the page."""
    part = TEXT.split(section)[1].split("\n\n")[1]
    return [name for line in part.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])], part


def test_the_keys_of_epsilon(answers):
    (found,) = (json.loads(said) for line, said in answers.items() if line.startswith("epsilon") and "--json" in line)
    names, part = documented("`metricdp epsilon --json`")
    assert set(names) == set(found)
    for name in found["table"][0]:
        assert f"`{name}`" in part


def test_the_keys_of_a_card(answers):
    found = json.loads(answers["info helsinki.mdp --json"])
    names, part = documented("`metricdp info --json`, and")
    assert set(names) == set(found)
    for name in (*found["proof"], *found["file"]):
        assert f"`{name}`" in part


def test_what_was_not_proved_is_called_so(answers):
    assert "not proved here" in answers["info helsinki.mdp"]
    assert "proved here:" in answers["info helsinki.mdp --certify"]


def test_python(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (block,) = (block for kind, block in BLOCKS if kind == "python")
    names = {}
    exec(block, names)
    assert capsys.readouterr().out.startswith("8.0 Within 125 m no report")
    assert (tmp_path / "epsilon.png").exists()
    assert names["mechanism"].epsilon == 8


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
