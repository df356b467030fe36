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


def test_audit_finds_what_certify_refuses(folder):
    problem = random_problem(0)
    mdp.fit(problem, 2.0, "aipo-r", cells=3, certify=False).save(folder / "r.mdp")
    mdp.fit(problem, 2.0, "em").save(folder / "em.mdp")
    bad = run("audit", "r.mdp", "--pairs", "2000", "--json", cwd=folder)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["max_ratio"] > 1
    good = run("audit", "em.mdp", "--pairs", "2000", cwd=folder)
    assert good.returncode == 0
    assert "0.0000% violate" in good.stdout


def test_audit_by_samples_alone(folder):
    problem = random_problem(0)
    mdp.fit(problem, 1.0, "aipo-r", cells=6, certify=False).save(folder / "r.mdp")
    mdp.fit(problem, 1.0, "em").save(folder / "em.mdp")
    bad = run("audit", "r.mdp", "--samples", "1000000", "--json", cwd=folder)
    assert bad.returncode == 1, bad.stderr
    found = json.loads(bad.stdout)
    assert found["epsilon_lower"] > found["epsilon"] == 1
    assert found["samples"] <= 1_000_000
    good = run("audit", "em.mdp", "--samples", "100000", cwd=folder)
    assert good.returncode == 0
    assert good.stdout.startswith("samples alone show ε ≥ 0.")
    assert "per unit of distance (claimed 1): consistent" in good.stdout


def test_compare_writes_every_format(folder):
    arguments = [
        "compare",
        "problem.npz",
        "--epsilons",
        "0.5:1.5:0.5",
        "--methods",
        "em,laplace-remap",
        "--clusters",
        "20",
    ]
    arguments += ["--cache", "cache", "--csv", "t.csv", "--markdown", "t.md", "--figures", "pictures"]
    answer = run(*arguments, "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(answer.stdout)
    assert [(row["method"], row["epsilon"]) for row in rows] == [
        (method, epsilon) for epsilon in (0.5, 1.0, 1.5) for method in ("em", "laplace-remap")
    ]
    assert all(row["loss"] >= row["lower_bound"] for row in rows)
    assert (folder / "t.csv").read_text().count("\n") == 7
    assert "laplace-remap" in (folder / "t.md").read_text()
    for name in ("loss", "ppr", "map"):
        assert (folder / "pictures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    spoken = run(*arguments, cwd=folder)
    assert "lower bound" in spoken.stdout


def test_cities_import_info_and_list(folder, monkeypatch):
    source = folder / "raw"
    source.mkdir()
    (source / "nodes.csv").write_text("id,lon,lat\n1,10.0,50.0\n2,10.01,50.0\n3,10.01,50.01\n9,10.5,50.5\n")
    (source / "edges.csv").write_text("u,v,length_m\n1,2,720\n2,3,1120\n")
    imported = run("cities", "import", "raw", "data/village", cwd=folder)
    assert imported.returncode == 0, imported.stderr
    assert "3 nodes and 2 edges" in imported.stdout
    monkeypatch.setenv("METRICDP_DATA", str(folder / "data"))
    assert "village" in json.loads(run("cities", "list", "--json", cwd=folder).stdout)["cities"]
    facts = json.loads(run("cities", "info", "village", "--json", cwd=folder).stdout)
    assert (facts["nodes"], facts["edges"]) == (3, 2)
    again = run("cities", "import", "raw", "data/village", cwd=folder)
    assert again.returncode == 2
    assert "new or an empty folder" in again.stderr
    fitted = run(
        "fit", "--city", "village", "--n-outputs", "2", "--n-tasks", "2", "--epsilon", "1", "--method", "em", cwd=folder
    )
    assert fitted.returncode == 0, fitted.stderr
    assert mdp.load(folder / "mechanism.mdp").projection.lat_deg == pytest.approx(50.005)
    proof = run("certify", "mechanism.mdp", cwd=folder)
    assert "Two people 500 m apart: no report is more than 1.65 times likelier" in proof.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cities", "info", "atlantis"], "got 'atlantis'"),
        (["cities", "import", "nowhere", "x"], "`source` must be an existing file or folder"),
        (["compare", "problem.npz", "--epsilons", "a:b"], "`--epsilons` must be numbers"),
        (["fit", "problem.npz", "--city", "helsinki", "--epsilon", "1"], "`--city` must be given alone"),
        (["audit", "none.mdp", "--samples", "9", "--pairs", "9"], "`--pairs` must be left out with --samples"),
        (["certify", "records.csv"], "`path` must be a metricdp mechanism file"),
    ],
)
def test_errors_of_the_other_commands(folder, arguments, words):
    answer = run(*arguments, cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
