"""Every example, run as a user would."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path):
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(example), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout
    assert (tmp_path / f"{example.stem.removeprefix('plot_')}.png").stat().st_size > 5000


def test_there_are_examples():
    assert len(EXAMPLES) >= 2
