"""A user's own script, checked by mypy in strict mode against the installed package's types."""

import subprocess
import sys

import pytest

SCRIPT = """
from pathlib import Path

import numpy as np
import pandas as pd

import metricdp as mdp

homes = np.random.default_rng(0).uniform([24.93, 60.16], [24.96, 60.18], (50, 2))
shops = pd.DataFrame({"lon": [24.94, 24.95], "lat": [60.17, 60.175], "id": ["a", "b"], "name": ["A", "B"]})


def manhattan(records: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(records[:, None] - outputs).sum(axis=2))


problem: mdp.Problem = mdp.Problem.from_lonlat(homes, shops, id_column="id", name_column="name")
others = [
    mdp.Problem.from_lonlat(shops, "geohash:6", loss="squared", bounds=[[24.93, 60.16], [24.96, 60.18]]),
    mdp.Problem.from_lonlat(homes, [[24.94, 60.17]], manhattan, p=1, output_ids=["a"], output_names=["A"]),
    mdp.cities.load("helsinki").problem(outputs=shops, tasks=3),
    mdp.cities.load("helsinki").problem(outputs="square:500m", tasks=3),
]
mechanism: mdp.Mechanism = mdp.fit(problem, 4.0, "em")
places: pd.DataFrame = mechanism.places
index: int = int(mechanism.sample_lonlat([[24.94, 60.17]])[0])
rows: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = mechanism.probabilities_lonlat(homes)
ids: tuple[str, ...] | tuple[int, ...] | None = problem.output_ids
mechanism.save(Path("shops.mdp"))
assert mdp.certify(mdp.load("shops.mdp")).holds
assert ids is not None and ids[index] in ("a", "b") and rows.shape == (50, 2) and list(places["name"]) == ["A", "B"]
assert [other.n_outputs > 0 for other in others] == [True] * 4
"""

WRONG = """
import metricdp as mdp

mdp.Problem.from_lonlat([[1.0, 2.0]], "h3:8", output_id=["a"])
"""


@pytest.mark.slow
def test_a_user_s_script_passes_mypy_in_strict_mode_and_runs_and_a_wrong_one_does_not(tmp_path):
    pytest.importorskip("mypy", reason="needs the group `lint`")
    (tmp_path / "right.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(WRONG)
    options = ["--strict", "--no-error-summary", "--cache-dir", ".mypy"]
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "right.py", "wrong.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    (line,) = [line for line in said.stdout.splitlines() if ": error: " in line]
    assert line.startswith('wrong.py:4: error: Unexpected keyword argument "output_id"')
    ran = subprocess.run(
        [sys.executable, "-W", "error", "right.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
