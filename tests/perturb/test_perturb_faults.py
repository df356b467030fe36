"""Kills, full disks and files that cannot be read, as they happen to real processes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from cli_tools import call as run
from metricdp.perturb import limits
from perturb_tools import CENTRE, city, nearest, points

COMMAND = [sys.executable, "-m", "metricdp", "perturb"]
KILLS, ROWS = 20, 5_000_000


def write(path, rows, **options):
    """Write rows that know their number; the points repeat, so that this takes no time."""
    lonlat = np.resize(CENTRE.to_lonlat(points(100_000)), (rows, 2))
    table = pa.table({"lon": lonlat[:, 0], "lat": lonlat[:, 1], "row": np.arange(rows)})
    pyarrow.parquet.write_table(table, path, **options)


def check(path, rows):
    """No row twice, none missing, each with the output of its own point."""
    answer = pyarrow.parquet.read_table(path)
    assert np.array_equal(answer["row"], np.arange(rows))
    assert np.array_equal(answer["output_id"], np.resize(nearest(points(100_000)), rows))


@pytest.fixture
def folder(tmp_path):
    city().save(tmp_path / "city.mdp")
    return tmp_path


@pytest.mark.slow
def test_kill_at_random_moments(folder):
    """Kill -9 twenty times while a job of five million rows runs, and go on every time."""
    write(folder / "in.parquet", ROWS, row_group_size=300_000)
    command = [*COMMAND, "city.mdp", "in.parquet", "out.parquet", "--copy", "row", "--resume", "--json"]
    chance, kills, midway, finished = random.Random(0), 0, 0, 0
    parts = folder / ".out.parquet.parts"
    stored = set()
    while kills < KILLS:
        (parts / "draft").unlink(missing_ok=True)
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # From when it has begun to write; before that there is little to break.
        while not (parts / "draft").exists() and process.poll() is None:
            time.sleep(0.001)
        try:
            assert process.wait(timeout=chance.uniform(0, 4)) == 0, process.stderr.read()
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            now = {path.name: path.stat().st_ino for path in parts.glob("part-*")}
            midway += bool(now) and not (folder / "out.parquet").exists()
            # What was stored before is still there, untouched.
            assert stored <= now.items() or (folder / "out.parquet").exists()
            stored = set(now.items())
        else:
            finished, stored = finished + 1, set()
            check(folder / "out.parquet", ROWS)
            (folder / "out.parquet").unlink()
        finally:
            process.stderr.close()
    last = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert last.returncode == 0, last.stderr
    summary = json.loads(last.stdout)
    print(
        f"{kills} kills, {midway} of them with parts, {finished} runs finished in between; last resumed {summary['resumed']:,}"
    )
    assert midway >= KILLS // 4
    assert summary["already_complete"] or summary["rows_in"] == summary["rows_out"] == ROWS
    check(folder / "out.parquet", ROWS)
    assert sorted(path.name for path in folder.iterdir()) == ["city.mdp", "in.parquet", "out.parquet"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of four megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz", "geojson", "arrow"])
def test_full_disk(folder, small_disk, suffix):
    write(folder / "in.parquet", 400_000 if suffix != "geojson" else 200_000)
    command = [*COMMAND, "city.mdp", "in.parquet", f"disk/out.{suffix}", "--copy", "row"]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error:")
    assert "No space left on device" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(small_disk.iterdir()) == []


def test_full_disk_after_some_parts(folder, small_disk, monkeypatch):
    """With --resume the parts stay, and go on once there is room."""
    monkeypatch.setattr(limits, "PART_ROWS", 100_000)
    monkeypatch.setattr(limits, "BATCH_ROWS", 50_000)
    write(folder / "in.parquet", 900_000)
    (small_disk / "ballast").write_bytes(bytes(1_000_000))
    command = ["perturb", "city.mdp", "in.parquet", "disk/out.parquet", "--resume", "--json"]
    answer = run(*command, cwd=folder)
    assert answer.returncode == 2
    assert "No space left on device" in json.loads(answer.stdout)["error"]["message"]
    assert sorted(path.name for path in small_disk.iterdir()) == [".out.parquet.parts", "ballast"]
    assert len(list((small_disk / ".out.parquet.parts").glob("part-*"))) >= 3
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    answer = run(*command, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["rows_out"] == 900_000
    assert summary["resumed"] >= 300_000
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "out.parquet"]


def test_unreadable_input(folder):
    (folder / "in.csv").write_text("lon,lat\n24.318273645,60\n")
    (folder / "in.csv").chmod(0)
    if os.access(folder / "in.csv", os.R_OK):
        (folder / "in.csv").unlink()
        (folder / "in.csv").mkdir()  # root may read everything, but not this
        (folder / "in.csv" / "a.txt").touch()
    answer = subprocess.run(
        [*COMMAND, "city.mdp", "in.csv", "out.csv"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("error:")
    assert "Traceback" not in answer.stderr
    assert not (folder / "out.csv").exists()
