"""Every command and every line of Python in docs/perturb.md, and the example for Spark, run as printed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from cli_tools import call as run
from perturb_tools import ROWS, lay_out, nearest, points

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "perturb.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("perturb")
    lay_out(place)
    (place / "trips").mkdir()
    shutil.copy(place / "points.csv", place / "trips" / "monday.csv")
    return place


def test_commands(folder):
    commands = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    assert len(commands) >= 6
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "metricdp"
        answer = run(*arguments, cwd=folder)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"
        # The mechanism of this test has an ε of 400, so that reports are known; no budget of the page allows one.
        affordable = "--max-epsilon" not in arguments
        assert answer.stderr == "" if affordable else "No report is affordable" in answer.stderr
    assert pd.read_parquet(folder / "private.parquet")["output_id"].tolist() == nearest(points(ROWS)).tolist()
    assert (folder / "private-trips" / "monday.csv").exists()
    assert list(pd.read_csv(folder / "private.csv.gz")) == ["output_id", "lon", "lat", "id", "time"]
    # Ten people with fifty points each and a budget for none: ε is 400.
    assert pd.read_csv(folder / "rationed.csv")["output_id"].isna().all()


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb", "geopandas", "metricdp"])
def test_python(folder, library, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.chdir(folder)
    blocks = [block for kind, block in BLOCKS if kind == "python"]
    mine = [block for block in blocks[1:] if re.search(rf"^(import|from) {library}\b", block, flags=re.MULTILINE)]
    assert len(mine) == 1
    names = {}
    exec(blocks[0] + mine[0], names)
    expected = nearest(points(ROWS)).tolist()
    if library == "metricdp":
        assert names["summary"].counts.rows_out == ROWS
        private = pd.read_parquet("private-file.parquet")
    elif library == "duckdb":
        private = pd.read_parquet("private-duckdb.parquet")
    else:
        private = names["private"]
    assert list(private["output_id"]) == expected


def test_links_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target


def java_version():
    found = shutil.which("java")
    if found is None:
        return 0
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


@pytest.mark.slow
def test_spark(folder):
    pytest.importorskip("pyspark")
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or newer")
    answer = subprocess.run(
        [sys.executable, ROOT / "examples" / "spark_map_in_arrow.py", "helsinki.mdp", "points.parquet", "spark.parquet"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    private = pa.parquet.read_table(folder / "spark.parquet")
    assert private.schema.names == ["output_id", "lon", "lat"]
    counts = np.bincount(private["output_id"].to_numpy(), minlength=5)
    assert counts.tolist() == np.bincount(nearest(points(ROWS)), minlength=5).tolist()
