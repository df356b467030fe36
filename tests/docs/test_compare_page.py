"""The Python and the commands of docs/compare.md, run as printed."""

import logging
import re
import shlex
from pathlib import Path

import pytest

from cli_tools import call

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
(COMMANDS,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def logger():
    """Keep the level that the page changes."""
    found = logging.getLogger("metricdp")
    yield found
    found.setLevel(logging.NOTSET)


def test_the_page_runs_and_says_what_its_table_says(logger):
    assert len(BLOCKS) == 2
    names = {}
    for block in BLOCKS:
        exec(compile(block, PAGE.name, "exec"), names)
    table = names["table"].set_index(["method", "epsilon"])
    assert table["error"].eq("").all()
    assert table["certified"].to_dict() == {
        ("em", 1.0): True, ("spline, once fitted", 1.0): False, ("staircase", 1.0): False,
        ("em", 2.0): True, ("spline, once fitted", 2.0): True, ("staircase", 2.0): False,
    }  # fmt: skip
    assert table["max_ratio"]["staircase", 1.0] > 1  # it jumps
    assert table["max_ratio"]["spline, once fitted", 1.0] > 1
    assert logger.level == logging.INFO


def test_the_commands(tmp_path):
    said = []
    for line in COMMANDS.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = call(*arguments, cwd=tmp_path)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        said.append(answer.stdout)
    _, compared, pairs, samples = said
    assert "my.mdp" in compared
    assert "not proved" in compared  # at ε = 4
    assert "0.0000% violate" in pairs
    assert "samples" in samples
