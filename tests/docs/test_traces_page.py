"""The Python of docs/traces.md, run as printed."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "traces.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the page's code leaves behind, run where there are public traces."""
    rng = np.random.default_rng(0)
    steps = rng.normal(0, 0.0008, (20, 300, 2)).cumsum(axis=1)
    lonlat = np.clip(np.array([24.95, 60.175]) + steps, [24.9, 60.15], [25, 60.2])
    taxi, minute = np.divmod(np.arange(6000), 300)
    table = {"id": taxi, "unix_s": 60 * minute, "lon": lonlat[..., 0].ravel(), "lat": lonlat[..., 1].ravel()}
    pd.DataFrame(table).to_parquet(tmp_path / "public-traces.parquet")
    monkeypatch.chdir(tmp_path)
    found = {}
    for block in BLOCKS:
        exec(compile(block, PAGE.name, "exec"), found)
    return found


def test_the_page_runs(names):
    assert len(BLOCKS) == 4
    assert 24.8 < names["lon"] < 25.1
    assert 60.1 < names["lat"] < 60.3
    assert names["output"] in range(20)
    assert names["place"].shape == (2,)
    raster = names["movement"].raster
    truth = raster.to_plane(names["points"])
    errors = [
        np.hypot(*(raster.to_plane(one) - truth).T).mean()
        for one in (names["reports"], names["after_each"], names["in_hindsight"])
    ]
    assert errors[0] > errors[1] > errors[2]


def test_defaults_are_those_that_the_page_names(names):
    movement = names["by_roads"]
    assert (movement.exponent, movement.restart) == (0.5, 0.01)
    assert movement.forgets_after_s == 2 * movement.lags_s[-1]
