"""The command line as a user runs it: a real process, stdout and stderr apart."""

import json
import subprocess
import sys

import numpy as np
import pytest

import metricdp as mdp
from conftest import random_problem


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", "from metricdp.cli import main; main()", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path):
    problem = random_problem(0)
    np.savez(tmp_path / "problem.npz", records=problem.records, outputs=problem.outputs, loss=problem.loss)
    np.savetxt(tmp_path / "records.csv", problem.records, delimiter=",", header="x,y", comments="")
    np.savetxt(tmp_path / "outputs.csv", problem.outputs, delimiter=",")
    return tmp_path


def test_help_teaches_the_commands(tmp_path):
    answer = run("--help", cwd=tmp_path)
    assert answer.returncode == 0
    for command in ("fit", "certify"):
        assert command in answer.stdout


def test_fit_then_certify(folder):
    fitted = run("fit", "problem.npz", "--epsilon", "1", "--method", "aipo", "--cells", "2,3", "--json", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    answer = json.loads(fitted.stdout)
    mechanism = mdp.load(folder / answer["file"])
    assert mechanism.grid.shape == (3, 4)
    assert answer["loss"] == pytest.approx(mechanism.report["loss"])
    assert answer["report"]["certificate"]["holds"] is True
    proved = run("certify", answer["file"], "--json", cwd=folder)
    assert proved.returncode == 0
    assert json.loads(proved.stdout)["holds"] is True
    spoken = run("certify", answer["file"], cwd=folder)
    assert "holds" in spoken.stdout


def test_fit_from_csv_with_and_without_header(folder):
    answer = run(
        "fit",
        "--records",
        "records.csv",
        "--outputs",
        "outputs.csv",
        "--loss",
        "squared",
        "--p",
        "inf",
        "--epsilon",
        "1",
        "--method",
        "aipo-e",
        "--cells",
        "2",
        "--out",
        "a.mdp",
        cwd=folder,
    )
    assert answer.returncode == 0, answer.stderr
    assert "written to a.mdp" in answer.stdout
    assert mdp.load(folder / "a.mdp").p == np.inf


def test_certify_fails_with_exit_code_1_on_a_mechanism_that_is_not_private(folder):
    problem = random_problem(0)
    mdp.fit(problem, 2.0, "aipo-r", cells=3, certify=False).save(folder / "r.mdp")
    answer = run("certify", "r.mdp", cwd=folder)
    assert answer.returncode == 1
    assert "does not hold" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["problem.npz", "--epsilon", "-1"], "`epsilon` must be a positive finite number"),
        (["problem.npz", "--epsilon", "1", "--method", "aipo-r"], "aipo-r"),
        (["none.npz", "--epsilon", "1"], "none.npz"),
        (["records.csv", "--epsilon", "1"], "records.csv"),
        (["--records", "records.csv", "--epsilon", "1"], "`outputs` must be given"),
        (["--records", "broken.csv", "--outputs", "outputs.csv", "--epsilon", "1"], "line 3, column 2"),
    ],
)
def test_errors_are_one_line_and_leave_nothing_behind(folder, arguments, words):
    (folder / "broken.csv").write_text("x,y\n1,2\n3,oops\n")
    before = sorted(f.name for f in folder.iterdir())
    answer = run("fit", *arguments, "--out", "new.mdp", cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    assert sorted(f.name for f in folder.iterdir()) == before
