"""A folder on a Dask cluster: workers die, every file comes out once and whole."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import metricdp as mdp
from metricdp.perturb import Options, load_known, perturb_folder
from metricdp.perturb.folder import FileTask, perturb_one
from perturb_tools import CENTRE, city, nearest, points

distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")

FILES, ROWS = 12, 100_000

# Dask's own business, on the way up and down.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def write_files(place, rows):
    place.mkdir()
    for number in range(FILES):
        lonlat = CENTRE.to_lonlat(points(rows, seed=number))
        table = pa.table({"lon": lonlat[:, 0], "lat": lonlat[:, 1], "row": np.arange(rows) + number * rows})
        pyarrow.parquet.write_table(table, place / f"{number:02}.parquet")


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path / "in", ROWS)
    return tmp_path


def check(folder):
    """Every file is there once, with every row once and in order."""
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        f"{number:02}.parquet" for number in range(FILES)
    ]
    for number in range(FILES):
        answer = pd.read_parquet(folder / "out" / f"{number:02}.parquet")
        assert answer["row"].tolist() == list(range(number * ROWS, (number + 1) * ROWS))
        assert np.array_equal(answer["output_id"], nearest(points(ROWS, seed=number)))


@pytest.fixture
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as running:
        yield running


@pytest.mark.slow
def test_a_worker_killed_midway(folder, cluster):
    """Kill workers while they write, three times; the nanny starts others."""
    state, killed = folder / "out" / ".metricdp", []

    def kill():
        while len(killed) < 3:
            drafts = list(state.glob("*.draft")) if state.exists() else []
            busy = [worker.process.pid for worker in cluster.workers.values() if worker.process and worker.process.pid]
            if drafts and busy:
                os.kill(busy[len(killed) % len(busy)], signal.SIGKILL)
                killed.append(time.monotonic())
                time.sleep(2)
            time.sleep(0.002)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    seen = []
    summary = perturb_folder(
        city(), folder / "in", folder / "out", Options(copy=("row",)),
        cluster=cluster.scheduler_address, progress=lambda rows, share: seen.append((rows, share)),
    )  # fmt: skip
    assert killed
    assert (summary.files, summary.counts.rows_in, summary.counts.rows_out) == (FILES, FILES * ROWS, FILES * ROWS)
    assert seen[-1] == (FILES * ROWS, 1.0)
    check(folder)


@pytest.mark.slow
def test_the_command_on_a_cluster(folder, cluster):
    city().save(folder / "city.mdp")
    command = ["perturb", "city.mdp", "in", "out", "--copy", "row", "--cluster", cluster.scheduler_address]
    answer = subprocess.run(
        [sys.executable, "-c", "from metricdp.cli import main; main()", *command],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "1,200,000 rows in 12 files written to out" in answer.stdout
    check(folder)


def test_bad_files_and_bad_addresses(tmp_path, monkeypatch):
    source, target = tmp_path / "in", tmp_path / "out"
    write_files(source, 10)
    pyarrow.parquet.write_table(pa.table({"lon": ["24.318273645"], "lat": [60.0]}), source / "13.parquet")
    started = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    words = r"1 of 13 files failed; mend them and go on with `resume`\. 13\.parquet: `lon` must be"
    with started as cluster, pytest.raises(mdp.InvalidInputError, match=words) as caught:
        perturb_folder(city(), source, target, cluster=cluster.scheduler_address)
    assert "318273645" not in str(caught.value)
    assert len(list(target.glob("*.parquet"))) == FILES
    monkeypatch.setattr("metricdp._dask._TIMEOUT", 1)
    with pytest.raises(OSError, match=r"[Tt]imed out|[Cc]onnect"):
        perturb_folder(city(), source, tmp_path / "out2", cluster="tcp://127.0.0.1:9")


def test_two_workers_on_one_file(tmp_path):
    """A worker that was believed dead finishes all the same: the first output stays, the second is never seen."""
    (tmp_path / "state").mkdir()
    pyarrow.parquet.write_table(pa.table({"lon": [24.94], "lat": [60.17]}), tmp_path / "in.parquet")
    city().save(tmp_path / "state" / "mechanism.mdp")
    sha256 = mdp.files.content_hash(city())
    task = FileTask(
        "in.parquet", tmp_path / "in.parquet", tmp_path / "out.parquet", tmp_path / "state", sha256, Options()
    )
    late = FileTask(
        "in.parquet", tmp_path / "in.parquet", tmp_path / "late.parquet", tmp_path / "state", sha256, Options()
    )
    first = perturb_one(task)
    before = (tmp_path / "out.parquet").stat()
    # The late one looked before the first had finished.
    os.link(tmp_path / "out.parquet", tmp_path / "late.parquet")
    with pytest.MonkeyPatch.context() as patch:
        looked = iter([False])
        exists = type(tmp_path).exists
        patch.setattr(
            type(tmp_path),
            "exists",
            lambda self, *a, **k: next(looked, True) if self.name == "late.parquet" else exists(self, *a, **k),
        )
        assert perturb_one(late)["counts"] == first["counts"]
    assert (tmp_path / "late.parquet").stat().st_ino == before.st_ino
    assert perturb_one(task) == {**first, "done_before": True}
    assert not list((tmp_path / "state").glob("*.draft"))


def test_workers_check_the_mechanism(tmp_path):
    city().save(tmp_path / "a.mdp")
    sha256 = mdp.files.content_hash(tmp_path / "a.mdp")
    assert load_known(tmp_path / "a.mdp", sha256).epsilon == 400
    assert load_known(tmp_path / "a.mdp", sha256) is load_known(tmp_path / "a.mdp", sha256)
    with pytest.raises(mdp.InvalidInputError, match="must be the mechanism file with hash 000"):
        load_known(tmp_path / "a.mdp", "0" * 64)
