"""Tiles on a Dask cluster: the table is the same as here, and a worker that is killed is survived."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import metricdp as mdp
from metricdp.mechanisms import auto
from metricdp.optimise.engines import tiles
from metricdp.optimise.executors import opened
from problems import random_problem

SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@pytest.fixture
def cluster(tmp_path):
    """The processes of a scheduler and two workers, and the address of the scheduler."""
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    card = tmp_path / "scheduler.json"
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    processes = []
    try:
        for line in (scheduler, [*worker, "--name", "0"], [*worker, "--name", "1"]):
            processes.append(subprocess.Popen([*line, "--scheduler-file", str(card)], **SILENT, cwd=tmp_path))
            until(lambda: card.exists() and card.stat().st_size > 0)
        yield processes, json.loads(card.read_text())["address"].removeprefix("tcp://")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def until(there, seconds=120):
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def both_workers(address):
    from distributed import Client

    with Client(f"tcp://{address}", timeout=60) as client:
        client.wait_for_workers(2, timeout=120)


def test_the_same_table_though_a_worker_is_killed(cluster):
    processes, address = cluster
    both_workers(address)
    problem = random_problem(0, n_outputs=4)
    options = {"solver": "tiles", "cells": 20}
    here = mdp.fit(problem, 2.0, "spline", **options)
    sweeps = []

    def kill_a_worker(share, words):
        sweeps.append(words)
        if len(sweeps) == 1:
            processes[1].kill()

    there = mdp.fit(problem, 2.0, "spline", executor=f"dask://{address}", progress=kill_a_worker, **options)
    assert processes[1].wait(timeout=30) != 0
    assert len(sweeps) > 3
    assert np.array_equal(here.table, there.table)
    assert there.report["certificate"]["holds"]


def test_auto_on_a_cluster(cluster, monkeypatch):
    """`auto` counts the threads of the cluster's workers and hands them its tiles."""
    monkeypatch.setattr(tiles, "improved_tile", None)  # here; workers are other processes
    processes, address = cluster
    both_workers(address)
    with opened(f"dask://{address}") as where:
        assert where.workers == 2
        assert where.executor.submit(os.getpid).result() in {process.pid for process in processes[1:]}
    mechanism = mdp.fit(
        random_problem(0, n_records=200, n_outputs=6, side=60.0), 1.0, time_limit=20, executor=f"dask://{address}"
    )
    splines = [one for one in mechanism.report["tried"] if one["method"] == "spline"]
    assert splines[0]["solver"] == "tiles"
    assert mechanism.report["certificate"]["holds"]


def test_a_cluster_that_does_not_answer_is_noticed_before_the_work(monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra `cluster`")
    monkeypatch.setattr(auto, "_closed_forms", None)
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9"):
        mdp.fit(random_problem(0), 1.0, time_limit=0.5, executor="dask://127.0.0.1:9")
