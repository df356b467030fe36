"""Every command and every line of Python in docs/attack.md, run as printed, and the figures of its table."""

import json
import re
import shlex
from pathlib import Path

import pytest

import metricdp as mdp
from cli_tools import call

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "attack.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What each command of the page answers, in the order of the page."""
    pytest.importorskip("matplotlib")
    place = tmp_path_factory.mktemp("attack")
    found = []
    for line in (line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()):
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = call(*arguments, cwd=place)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        assert answer.stderr == ""
        found.append(answer.stdout)
    assert len(found) >= 4
    assert {path.name for path in (place / "pictures").iterdir()} == {"attack.png", "belief.png"}
    return found


def test_the_table_is_what_the_command_prints(answers):
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) m", TEXT, flags=re.MULTILINE)
    assert [reports for reports, _ in rows] == ["0", "1", "10", "100"]
    for reports, error in rows:
        shown = re.search(rf"│\s+{reports} │\s+([\d.]+) m", answers[1]).group(1)
        assert float(shown) == pytest.approx(float(error), rel=0.03)  # draws differ between machines
        assert f"{float(error):g} m" in TEXT.split("**What a day costs.**")[1].split("\n\n")[0]


def test_people_who_are_elsewhere_are_told_of_in_one_line(tmp_path):
    """The city of another mechanism, say: a warning in the words of the command line, not one of Python."""
    homes = [[4.82, 45.75], [4.86, 45.77]]
    mdp.fit(mdp.Problem.from_lonlat(homes, homes), 2.0, "em").save(tmp_path / "lyon.mdp")
    answer = call("attack", "lyon.mdp", "--city", "helsinki", "--reports", "1", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    (line,) = answer.stderr.splitlines()
    assert line.startswith("warning: lyon.mdp: 100 % of points fall outside the box; ")


def test_a_month_of_nights_and_the_document(answers):
    assert re.search(r"│\s+30 │", answers[2])
    document = json.loads(answers[3])
    assert [row["reports"] for row in document["attacks"][0]["table"]] == [0, 1, 10]
    assert not document["uniform"]


def test_the_python_of_the_page(capsys):
    names = {}
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "attack.md", "exec"), names)
    said = capsys.readouterr().out
    assert names["belief"].sum() == pytest.approx(1)
    assert len(names["belief"]) == names["problem"].n_records
    snapped, donut = (re.findall(r"([\d.]+) m[ ,.]", line) for line in said.splitlines()[1:])
    assert float(snapped[2]) == pytest.approx(
        float(snapped[1]), rel=0.2
    )  # more reports of the same corner tell nothing
    assert float(donut[2]) < float(donut[1]) / 2
