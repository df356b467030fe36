"""`metricdp epsilon` and `metricdp info`, and the card that `metricdp fit` prints."""

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call, run
from forging import archive_of, opened, parts_of, sealed
from metricdp.cli._console import out
from metricdp.cli.epsilon import _table
from problems import random_problem

DATA = Path(__file__).parents[1] / "data"
FACTS = [
    "promise", "proof", "method", "kind", "epsilon", "epsilon_map", "p", "distance", "distance_unit", "protection_radius_e",
    "protection_radius_2", "rounding", "figures_from", "report_distance_95", "report_distance_95_error",
    "report_distance_95_without_privacy", "loss", "loss_error", "loss_without_privacy", "loss_of_uniform_choice",
    "loss_exact", "loss_unit", "outputs", "box", "box_lonlat", "file",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    problem = random_problem(0)
    np.savetxt(tmp_path / "records.csv", problem.records, delimiter=",", header="x,y", comments="")
    np.savetxt(tmp_path / "outputs.csv", problem.outputs, delimiter=",", header="x,y", comments="")
    mdp.fit(problem, 1.0, "em").save(tmp_path / "em.mdp")
    mdp.fit(problem, 1.0, "lp", cells=2, certify=False).save(tmp_path / "lp.mdp")
    return tmp_path


def words_of(answer):
    return " ".join(answer.stdout.split())


# epsilon

PLAIN = ["--records", "records.csv", "--outputs", "outputs.csv"]
CITY = ["--city", "helsinki", "--n-outputs", "5", "--n-tasks", "5", "--method", "em"]


def test_epsilon_of_a_city(folder):
    answer = run("epsilon", *CITY, "--radius", "125m", "--plot", "a.png", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert "Which ε? 8" in answer.stdout
    assert "Within 125 m no report is more than e (about 2.72) times likelier" in words_of(answer)
    for epsilon in ("2", "4", "8", "16", "32"):
        assert re.search(rf"│ +{epsilon} │", answer.stdout)
    assert (folder / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_no_figure_of_the_table_is_cut(folder, monkeypatch):
    """In a town of some kilometres the distances have many digits, and a standard error."""
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(7)
    for name, count in (("homes.csv", 300), ("shops.csv", 15)):
        points = rng.uniform([4.815, 45.745], [4.865, 45.775], (count, 2))
        np.savetxt(folder / name, points, delimiter=",", header="lon,lat", comments="", fmt="%.5f")
    for wanted in (["--radius", "400m"], ["--error", "800m"]):
        answer = run("epsilon", "--records", "homes.csv", "--outputs", "shops.csv", *wanted, cwd=folder)
        assert answer.returncode == 0, answer.stderr
        table = answer.stdout[answer.stdout.index("┏") :].splitlines()
        assert all(line[-1] in "┓┃┩│┘" and len(line) <= 80 for line in table)
        assert any("± " in line for line in table)
        assert "…" not in answer.stdout


def test_standard_errors_get_a_line_of_their_own_where_the_terminal_is_narrow(monkeypatch, capsys):
    """On a slow machine more figures are estimated."""
    heads = ["ε", "e times within", "2 times within", "95 % of reports within", "expected loss, km", "off by"]
    row = ["0.625", "1.6 km", "1.1 km", "4.36 km ± 12.4 m", "1.342 ± 0.0015", "1.01 km ± 34.5 m"]
    for width, lines in ((200, 1), (80, 2)):
        monkeypatch.setattr(out, "_width", width)
        out.print(_table(heads, [row]))
        table = capsys.readouterr().out.splitlines()[1:]
        assert all(len(line) <= width for line in table)
        body = table[table.index(next(line for line in table if line[0] == "┡")) + 1 : -1]
        assert len(body) == lines
        assert " ".join(body).count("±") == 3
        assert "…" not in " ".join(body)


@pytest.mark.parametrize(("ratio", "epsilon"), [("e", 8.0), ("2", 5.54), ("1.5", 3.24)])
def test_epsilon_as_json(folder, ratio, epsilon):
    answer = call("epsilon", *CITY, "--radius", "0.125 km", "--ratio", ratio, "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["epsilon"] == epsilon
    assert found["distance_unit"] == found["loss_unit"] == "km"
    assert found["plot"] is None
    assert [row["chosen"] for row in found["table"]] == [False, False, True, False, False]
    assert math.exp(found["epsilon"] * found["radius"]) <= found["ratio"]


def test_epsilon_of_plain_coordinates(folder):
    answer = call("epsilon", *PLAIN, "--radius", "0.5", "--ratio", "2", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert (found["epsilon"], found["distance_unit"], found["method"]) == (1.38, "", "laplace-remap")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*CITY, "--radius", "125"], "`--radius` must be a length with its unit, such as 500m, 0.5km or '2 km', got '125'"),
        ([*CITY, "--radius", "0m"], "`--radius` must be a length above zero"),
        ([*PLAIN, "--radius", "500m"], "`--radius` must be a positive number without a unit"),
        ([*PLAIN, "--radius", "-1"], "`--radius` must be a positive number without a unit"),
        ([*PLAIN, "--radius", "1e-320"], "`--radius` of 9.99989e-321 has no ε"),
        ([*PLAIN, "--radius", "1", "--ratio", "1"], "`--ratio` must be e or a number above 1, such as 2 or 1.5, got '1'"),
        ([*PLAIN, "--radius", "1", "--ratio", "pi"], "`--ratio` must be e or a number above 1"),
        ([*PLAIN, "--radius", "1", "--ratio", "inf"], "`--ratio` must be e or a number above 1"),
        ([*PLAIN, "--radius", "1", "--method", "lp"], "`--method` must be one whose mechanisms are private"),
        ([*PLAIN, "--radius", "1", "--plot", "a.exe"], "`--plot` must be a file that ends in one of"),
        (["--radius", "1"], "There are no records"),
        (["--city", "helsinki", *PLAIN, "--radius", "1m"], "leave out `--records`"),
    ],
)  # fmt: skip
def test_errors_of_epsilon_name_options(folder, arguments, words):
    before = sorted(file.name for file in folder.iterdir())
    answer = call("epsilon", *arguments, cwd=folder)
    assert answer.returncode == 2
    assert words in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""
    assert sorted(file.name for file in folder.iterdir()) == before


# info


def test_info_proves_nothing_unless_asked(folder, monkeypatch):
    monkeypatch.setattr("metricdp.cli.info.certify", None)  # calling it would be an error
    answer = call("info", "em.mdp", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    said = words_of(answer)
    assert "claim, not proved here Within 1 no report is more than e (about 2.72) times likelier" in said
    assert "not proved here; the file says that it was proved when it was made" in said
    assert "expected loss (says the file)" in said
    facts = json.loads(call("info", "em.mdp", "--json", cwd=folder).stdout)
    assert list(facts) == FACTS
    assert facts["proof"] == {
        "proved_here": False, "holds": None, "claim": None, "on_the_ground": None, "certificate_in_report": True,
    }  # fmt: skip
    mechanism = mdp.load(folder / "em.mdp")
    assert facts["loss"] == mechanism.report["loss"]
    assert facts["file"] == {
        "path": "em.mdp",
        "bytes": (folder / "em.mdp").stat().st_size,
        "sha256": mdp.files.content_hash(mechanism),
        "format": 3,
        "library": mdp.__version__,
    }


def test_info_proves_when_asked(folder):
    good = call("info", "em.mdp", "--certify", cwd=folder)
    assert good.returncode == 0
    assert "proved here: (1.0, d_2)-mDP on the whole box" in words_of(good)
    bad = call("info", "lp.mdp", "--certify", cwd=folder)
    assert bad.returncode == 1
    assert "None: what it claims could not be proved." in words_of(bad)
    assert json.loads(call("info", "lp.mdp", "--certify", "--json", cwd=folder).stdout)["proof"]["holds"] is False
    unasked = call("info", "lp.mdp", cwd=folder)
    assert unasked.returncode == 0
    assert "not proved here, and the file has no certificate" in words_of(unasked)


@pytest.mark.parametrize("file", sorted(DATA.glob("*-format-*.zip")), ids=lambda path: path.stem)
def test_info_reads_old_formats(file, folder):
    shutil.copy(file, folder / "old.mdp")
    answer = call("info", "old.mdp", "--json", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout)
    assert list(facts) == FACTS
    assert facts["file"]["format"] == int(file.stem[-1])
    # Files of then have no such figure, and none is made up.
    assert facts["report_distance_95"] is None
    assert "not known" in call("info", "old.mdp", cwd=folder).stdout


def test_info_refuses_damaged_files(folder):
    content = (folder / "em.mdp").read_bytes()
    (folder / "cut.mdp").write_bytes(content[: len(content) // 2])
    (folder / "empty.mdp").write_bytes(b"")
    (folder / "text.mdp").write_text("loss: 0")
    parts = parts_of(content)
    better = {**json.loads(parts["header.json"]), "epsilon": "0.1"}  # not sealed again, so the hash is wrong
    (folder / "better.mdp").write_bytes(archive_of((parts | {"header.json": json.dumps(better).encode()}).items()))
    for name in ("cut.mdp", "empty.mdp", "text.mdp", "better.mdp", "none.mdp"):
        answer = call("info", name, cwd=folder)
        assert answer.returncode == 2, name
        assert name in answer.stderr
        assert answer.stderr.count("\n") == 1
        assert answer.stdout == ""


HOSTILE = {
    "loss": "[red]0[/red]\x1b[2J",
    "loss_unit": "[bold]km[/bold]\x1b]0;owned\x07\u202e",
    "report_distance_95": [1, 2],
    "loss_error": {"a": "b"},
    "loss_without_privacy": True,
    "loss_exact": "yes",
}


def test_info_of_a_hostile_file(folder):
    header, arrays = opened((folder / "em.mdp").read_bytes())
    header["report"] |= HOSTILE
    (folder / "hostile.mdp").write_bytes(sealed(header, arrays))
    answer = call("info", "hostile.mdp", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert "\x1b" not in answer.stdout
    assert "\u202e" not in answer.stdout
    assert "expected loss (says the file) not known" in words_of(answer)
    header["report"] |= {"loss": 1.5, "loss_exact": True}
    (folder / "[red]h.mdp").write_bytes(sealed(header, arrays))
    answer = call("info", "[red]h.mdp", cwd=folder)
    assert "[red]h.mdp" in answer.stdout
    assert "1.5 [bold]km[/bold]\\x1b]0;owned\\x07\\u202e, exact" in words_of(answer)


# fit


def test_fit_prints_the_card_of_what_it_made(folder):
    arguments = ["fit", *CITY, "--epsilon", "8", "--out", "city.mdp"]
    spoken = call(*arguments, cwd=folder)
    assert spoken.returncode == 0, spoken.stderr
    said = words_of(spoken)
    assert "promise Within 125 m no report is more than e" in said
    assert "proved here: (8.0, d_2)-mDP" in said
    assert "On the ground (WGS 84)" in said
    answer = json.loads(call(*arguments, "--json", cwd=folder).stdout)
    card = answer["card"]
    assert list(card) == FACTS
    assert card["figures_from"] == "fit"
    assert card["proof"]["holds"] is True
    assert answer["loss"] == card["loss"] == mdp.load(folder / "city.mdp").report["loss"]
    later = json.loads(call("info", "city.mdp", "--certify", "--json", cwd=folder).stdout)
    assert later.pop("figures_from") == "file"
    card.pop("figures_from")
    assert later == card
