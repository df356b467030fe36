"""The Python of docs/compare.md, run as printed."""

import logging
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


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
