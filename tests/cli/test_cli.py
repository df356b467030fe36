"""The command line as a user runs it: a real process, stdout and stderr apart."""

import json
import subprocess
import sys

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call, run
from metricdp.cli._commands import COMMANDS
from metricdp.optimise.engines import ENGINES
from problems import random_problem


@pytest.fixture
def folder(tmp_path):
    problem = random_problem(0)
    np.savez(tmp_path / "problem.npz", records=problem.records, outputs=problem.outputs, loss=problem.loss)
    np.savetxt(tmp_path / "records.csv", problem.records, delimiter=",", header="x,y", comments="")
    np.savetxt(tmp_path / "outputs.csv", problem.outputs, delimiter=",")
    return tmp_path


@pytest.fixture(scope="session")
def mechanisms(tmp_path_factory):
    """A folder of files: private, not private, and not private with finer cells."""
    place, problem = tmp_path_factory.mktemp("mechanisms"), random_problem(0)
    mdp.fit(problem, 1.0, "em").save(place / "em.mdp")
    mdp.fit(problem, 2.0, "aipo-r", cells=3, certify=False).save(place / "r.mdp")
    mdp.fit(problem, 1.0, "aipo-r", cells=6, certify=False).save(place / "fine.mdp")
    return place


def test_help_teaches_the_commands(tmp_path):
    answer = run("--help", cwd=tmp_path)
    assert answer.returncode == 0
    for command, (_, line) in COMMANDS.items():
        assert command in answer.stdout
        assert line.split()[0] in answer.stdout
    assert call("-h", cwd=tmp_path).stdout == call("--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_short_help(command, tmp_path):
    answer = call(command, "-h", cwd=tmp_path)
    assert answer.returncode == 0
    assert f" {command} [OPTIONS]" in answer.stdout
    assert "--install-completion" not in answer.stdout
    assert COMMANDS[command][1].split(",")[0].split(";")[0] in " ".join(answer.stdout.split())


def test_the_version_and_misspelt_commands(tmp_path):
    assert call("--version", cwd=tmp_path).stdout == f"metricdp {mdp.__version__}\n"
    wrong = call("certifi", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "No such command 'certifi'" in wrong.stderr


def modules_after(code):
    """Return the modules that a fresh process has imported after some lines of Python."""
    lines = f"import sys\n{code}\nsys.stdout.write('\\n' + ' '.join(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, encoding="utf-8", check=True, timeout=60
    )
    return set(answer.stdout.splitlines()[-1].split())


HEAVY = {"scipy", "pandas", "pyarrow", "highspy", "clarabel", "matplotlib", "fastapi"}


def test_the_library_is_imported_at_first_use():
    assert "lazy_loader" in modules_after("import metricdp")
    assert not modules_after("import metricdp") & {*HEAVY, "numpy"}
    assert "numpy" in modules_after("import metricdp; metricdp.Problem")


def test_help_imports_no_command():
    help_of_all = (
        "from metricdp.cli import main; sys.argv = ['metricdp', '--help']\ntry: main()\nexcept SystemExit: pass"
    )
    found = modules_after(help_of_all)
    assert "metricdp.cli._commands" in found
    assert not found & {*HEAVY, "numpy", "metricdp.cli.fit"}


def test_help_names_methods_and_engines_of_the_registry(tmp_path):
    words = " ".join(call("fit", "-h", cwd=tmp_path).stdout.replace("│", " ").split())
    assert f"One of: {', '.join(mdp.METHODS)}." in words
    assert f"an engine that the method can use, of: {', '.join(engine.name for engine in ENGINES)}." in words


def test_fit_then_certify(folder):
    fitted = run("fit", "problem.npz", "--epsilon", "1", "--method", "aipo", "--cells", "2,3", "--json", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    answer = json.loads(fitted.stdout)
    mechanism = mdp.load(folder / answer["file"])
    assert mechanism.grid.anchor_shape == (3, 4)
    assert answer["loss"] == pytest.approx(mechanism.report["loss"])
    assert answer["report"]["certificate"]["holds"] is True
    proved = run("certify", answer["file"], "--json", cwd=folder)
    assert proved.returncode == 0
    assert json.loads(proved.stdout)["holds"] is True
    spoken = call("certify", answer["file"], cwd=folder)
    assert "holds" in spoken.stdout


def test_fit_from_csv_with_and_without_header(folder):
    files = ["--records", "records.csv", "--outputs", "outputs.csv", "--loss", "squared", "--p", "inf"]
    options = ["--epsilon", "1", "--method", "aipo-e", "--cells", "2", "--out", "a.mdp"]
    answer = call("fit", *files, *options, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert "written to a.mdp" in answer.stdout
    assert mdp.load(folder / "a.mdp").p == np.inf


def test_certify_fails_with_exit_code_1_on_a_mechanism_that_is_not_private(mechanisms):
    answer = call("certify", "r.mdp", cwd=mechanisms)
    assert answer.returncode == 1
    assert "does not hold" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["problem.npz", "--epsilon", "-1"], "`--epsilon` must be a positive finite number"),
        (["problem.npz", "--epsilon", "1", "--method", "magic"], "`--method` must be one of 'auto'"),
        (["problem.npz", "--epsilon", "1", "--p", "0.5"], "`--p` must be a number in [1, inf]"),
        (["problem.npz", "--epsilon", "1", "--time-limit", "0"], "`--time-limit` must be a positive finite number"),
        (["problem.npz", "--epsilon", "1", "--method", "lp", "--cells", "0"], "`--cells` must be a whole number"),
        (["problem.npz", "--epsilon", "1", "--method", "lp", "--cells", "two"], "`--cells` must be whole numbers"),
        (
            ["problem.npz", "--epsilon", "1", "--method", "spline", "--solver", "highs"],
            "`--solver` must be one of 'auto', 'structured', 'clarabel', 'tiles', got 'highs'",
        ),
        (
            ["problem.npz", "--epsilon", "1", "--method", "em", "--cells", "2"],
            "'em' has no option `--cells`; it has --time-limit",
        ),
        (["problem.npz", "--epsilon", "1", "--method", "aipo", "--scale", "2"], "`--scale` must be a number in (0, 1]"),
        (["problem.npz", "--epsilon", "1", "--method", "aipo-r"], "aipo-r"),
        (["none.npz", "--epsilon", "1"], "none.npz"),
        (["records.csv", "--epsilon", "1"], "records.csv is not an .npz file"),
        (["other.npz", "--epsilon", "1"], "other.npz has an array 'x'; known are records"),
        (["--records", "records.csv", "--epsilon", "1"], "There are no outputs: give a `--city`"),
        (
            ["--records", "broken.csv", "--outputs", "outputs.csv", "--epsilon", "1"],
            "row 2, column 'y': a cell that should be a number is none",
        ),
        (
            ["--records", "empty.csv", "--outputs", "outputs.csv", "--epsilon", "1"],
            "`--records` must be CSV with a first line of column names, got none in empty.csv",
        ),
        (["problem.npz", "--city", "helsinki", "--epsilon", "1"], "leave out `problem.npz`"),
        (["--city", "helsinki", "--loss", "squared", "--epsilon", "1"], "leave out `--loss`"),
        (["--city", "atlantis", "--epsilon", "1"], "`--city` must be a known city"),
        (
            ["--city", "village", "--n-outputs", "9", "--epsilon", "1"],
            "`--n-outputs` must be at most the number of nodes",
        ),
        (["--city", "village", "--n-outputs", "2", "--n-tasks", "0", "--epsilon", "1"], "`--n-tasks` must be a whole"),
        (["--city", "village", "--seed", "-1", "--epsilon", "1"], "`--seed` must be a whole number of at least 0"),
    ],
)
def test_errors_of_fit_name_options_and_leave_nothing_behind(folder, monkeypatch, arguments, words):
    (folder / "broken.csv").write_text("x,y\n1,2\n3,oops\n")
    (folder / "empty.csv").write_text("")
    np.savez(folder / "other.npz", x=np.zeros(3))
    village(folder / "data" / "village")
    monkeypatch.setenv("METRICDP_DATA", str(folder / "data"))
    before = sorted(f.name for f in folder.iterdir())
    answer = call("fit", *arguments, "--out", "new.mdp", cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""
    assert sorted(f.name for f in folder.iterdir()) == before


def test_an_error_of_a_process_is_one_line(tmp_path):
    answer = run("certify", "none.mdp", cwd=tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert "none.mdp" in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""


def test_audit_finds_what_certify_refuses(mechanisms):
    bad = call("audit", "r.mdp", "--pairs", "2000", "--json", cwd=mechanisms)
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["max_ratio"] > 1
    good = call("audit", "em.mdp", "--pairs", "2000", cwd=mechanisms)
    assert good.returncode == 0
    assert "0.0000% violate" in good.stdout


def test_audit_by_samples_alone(mechanisms):
    bad = call("audit", "fine.mdp", "--samples", "1000000", "--json", cwd=mechanisms)
    assert bad.returncode == 1, bad.stderr
    found = json.loads(bad.stdout)
    assert found["epsilon_lower"] > found["epsilon"] == 1
    assert found["samples"] <= 1_000_000
    good = call("audit", "em.mdp", "--samples", "100000", cwd=mechanisms)
    assert good.returncode == 0
    assert good.stdout.startswith("samples alone show ε ≥ 0.")
    assert "per unit of distance (claimed 1): consistent" in good.stdout


def test_compare_writes_every_format(folder):
    arguments = ["compare", "problem.npz", "--epsilons", "0.5:1.5:0.5", "--methods", "em,laplace-remap"]
    arguments += ["--clusters", "20", "--cache", "cache"]
    written = ["--csv", "t.csv", "--markdown", "t.md", "--figures", "pictures"]
    answer = call(*arguments, *written, "--workers", "1", "--json", cwd=folder)
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
    spoken = call(*arguments, cwd=folder)
    assert "lower bound" in spoken.stdout


def test_compare_takes_mechanism_files_and_says_which_are_not_proved(folder, mechanisms):
    for name in ("em.mdp", "r.mdp"):
        (folder / name).write_bytes((mechanisms / name).read_bytes())
    arguments = ["compare", "problem.npz", "--epsilons", "1", "--methods", "em.mdp,r.mdp,laplace", "--clusters", "10"]
    arguments += ["--cache", "cache", "--workers", "1"]
    answer = call(*arguments, "--figures", "pictures", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    rows = {row["method"]: row for row in json.loads(answer.stdout)}
    assert rows["em.mdp"]["certified"] is True
    assert rows["r.mdp"]["certified"] is False
    assert rows["r.mdp"]["max_ratio"] > 1
    assert rows["r.mdp"]["seconds"] is None
    assert rows["em.mdp"]["loss"] == pytest.approx(mdp.load(folder / "em.mdp").expected_loss(random_problem(0)))
    for name in ("loss", "ppr", "map"):
        assert (folder / "pictures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    spoken = call(*arguments, cwd=folder)
    assert next(line for line in spoken.stdout.splitlines() if "r.mdp" in line).count("not proved") == 1


def village(place):
    """Write a city of three connected nodes and one apart."""
    place.mkdir(parents=True)
    (place / "nodes.csv").write_text("id,lon,lat\n1,10.0,50.0\n2,10.01,50.0\n3,10.01,50.01\n9,10.5,50.5\n")
    (place / "edges.csv").write_text("u,v,length_m\n1,2,720\n2,3,1120\n")


def test_cities_import_info_and_list(folder, monkeypatch):
    village(folder / "raw")
    imported = call("cities", "import", "raw", "data/village", cwd=folder)
    assert imported.returncode == 0, imported.stderr
    assert "3 nodes and 2 edges" in imported.stdout
    monkeypatch.setenv("METRICDP_DATA", str(folder / "data"))
    assert "village" in json.loads(call("cities", "list", "--json", cwd=folder).stdout)["cities"]
    facts = json.loads(call("cities", "info", "village", "--json", cwd=folder).stdout)
    assert (facts["nodes"], facts["edges"]) == (3, 2)
    hamlet = call("cities", "import", "raw", "data/hamlet", "--bounds", "9.9,49.9,10.1,50.005", cwd=folder)
    assert "2 nodes and 1 edges" in hamlet.stdout
    for box, words in (("1,2,3", "`--bounds` must be"), ("1,2,3,4", "`--bounds` must be a box in 'raw'")):
        elsewhere = call("cities", "import", "raw", "data/none", "--bounds", box, cwd=folder)
        assert elsewhere.returncode == 2
        assert words in elsewhere.stderr
        assert not (folder / "data" / "none").exists()
    again = call("cities", "import", "raw", "data/village", cwd=folder)
    assert again.returncode == 2
    assert "`folder` must be a new or an empty folder" in again.stderr
    arguments = ["--n-outputs", "2", "--n-tasks", "2", "--epsilon", "1", "--method", "em"]
    fitted = call("fit", "--city", "village", *arguments, cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    assert mdp.load(folder / "mechanism.mdp").projection.lat_deg == pytest.approx(50.005)
    proof = call("certify", "mechanism.mdp", cwd=folder)
    assert "Two people 500 m apart: no report is more than 1.65 times likelier" in proof.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cities", "info", "atlantis"], "`city` must be a known city"),
        (["cities", "info", "atlantis"], "got 'atlantis'"),
        (["cities", "import", "nowhere", "x"], "`source` must be an existing file or folder"),
        (["compare", "problem.npz", "--epsilons", "a:b"], "`--epsilons` must be numbers"),
        (["compare", "problem.npz", "--epsilons", "1,-1"], "`--epsilons` must be a positive finite number"),
        (
            ["compare", "problem.npz", "--epsilons", "1", "--methods", "magic"],
            "`--methods` must be made of mechanism files and of 'auto'",
        ),
        (
            ["compare", "problem.npz", "--epsilons", "1", "--methods", "em,records.csv"],
            "'records.csv' is not a mechanism",
        ),
        (["compare", "problem.npz", "--epsilons", "1", "--clusters", "0"], "`--clusters` must be a whole number"),
        (["compare", "problem.npz", "--epsilons", "1", "--workers", "0"], "`--workers` must be a whole number"),
        (["compare", "problem.npz", "--city", "helsinki", "--epsilons", "1"], "leave out `problem.npz`"),
        (["audit", "none.mdp", "--samples", "9", "--pairs", "9"], "`--pairs` has no meaning with it"),
        (["audit", "none.mdp", "--samples", "9", "--slack", "9"], "`--slack` has no meaning with it"),
        (["audit", "EM", "--pairs", "0"], "`--pairs` must be a whole number of at least 1"),
        (["audit", "EM", "--slack", "-1"], "`--slack` must be"),
        (["audit", "EM", "--samples", "1"], "`--samples` must be a whole number of at least"),
        (["certify", "records.csv"], "'records.csv' is not a mechanism file that can be read"),
    ],
)
def test_errors_of_the_other_commands_name_options(folder, mechanisms, arguments, words):
    answer = call(*(mechanisms / "em.mdp" if one == "EM" else one for one in arguments), cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
