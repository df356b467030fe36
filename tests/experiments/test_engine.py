"""The engine of experiments: results are kept, found again, never trusted if damaged; workers die and are replaced."""

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest

import metricdp as mdp
from experiments_tools import Toy, halve, registry
from metricdp.experiments import estimates
from metricdp.experiments.engine import source
from metricdp.experiments.engine.progress import Board, Forecast
from metricdp.experiments.engine.source import digest_of
from metricdp.experiments.engine.store import shared_store, sole_store
from metricdp.experiments.engine.sweep import HERE, LOCAL, Guesses, sweep
from metricdp.experiments.engine.workers import run_here, run_in_processes
from metricdp.experiments.measuring import ComparisonJob
from metricdp.mechanisms.families import FOLDERS, METHODS
from metricdp.mechanisms.options import free_memory_gb

LIBRARY = Path(mdp.__file__).parent
GUESSES = Guesses(seconds=lambda job: 1.0, gigabytes=lambda job: 0.1)


@pytest.fixture
def library(tmp_path):
    """A copy of the library's source."""
    shutil.copytree(LIBRARY, tmp_path / "metricdp", ignore=shutil.ignore_patterns("__pycache__", "static"))
    return tmp_path / "metricdp"


def digest_after(library, path):
    (library / path).write_text((library / path).read_text() + "\n# changed\n")
    digest_of.cache_clear()
    return digest_of(library)


@pytest.mark.parametrize(
    "path",
    [
        *("mechanisms/spline/fit.py", "mechanisms/auto.py", "geometry/grid.py", "optimise/repair.py", "problem.py"),
        *("certificates/proving.py", "auditing/pairs.py", "drawing/exact_draws.py", "cities/design.py"),
        *("experiments/measuring.py", "experiments/paper/measuring.py"),
    ],
)
def test_code_that_computes_changes_the_key(library, path):
    assert digest_after(library, path) != digest_of(LIBRARY)


@pytest.mark.parametrize(
    "path",
    ["cli/fit.py", "perturb/kernel.py", "_version.py", "experiments/paper/report.py", "experiments/comparing.py"],
)
def test_code_that_only_shows_or_plans_does_not(library, path):
    assert digest_after(library, path) == digest_of(LIBRARY)


def test_new_and_moved_files_and_other_solvers_change_the_key(library, monkeypatch):
    before = digest_of(LIBRARY)
    (library / "mechanisms" / "new.py").write_text("")
    digest_of.cache_clear()
    added = digest_of(library)
    (library / "mechanisms" / "new.py").rename(library / "mechanisms" / "newer.py")
    digest_of.cache_clear()
    assert len({before, added, digest_of(library)}) == 3
    digest_of.cache_clear()
    monkeypatch.setattr(source, "version", lambda package: "0" if package == "highspy" else "1")
    other = digest_of(LIBRARY)
    digest_of.cache_clear()
    monkeypatch.setattr(source, "version", lambda package: "1")
    assert digest_of(LIBRARY) != other
    digest_of.cache_clear()


def test_families_from_elsewhere_are_part_of_the_key(tmp_path, monkeypatch):
    (tmp_path / "somewhere").mkdir()
    (tmp_path / "somewhere" / "__init__.py").write_text("A = 1\n")
    (tmp_path / "alone.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for family, file in (("somewhere", "somewhere/__init__.py"), ("alone", "alone.py")):
        digest_of.cache_clear()
        before = digest_of(LIBRARY, (family,))
        assert before != digest_of(LIBRARY)
        (tmp_path / file).write_text("A = 2\n")
        digest_of.cache_clear()
        assert digest_of(LIBRARY, (family,)) != before


def test_changed_code_is_not_answered_from_the_store(tmp_path, monkeypatch):
    store = shared_store(tmp_path)
    store.put(Toy(4), {"loss": 7.0})
    assert sweep([Toy(4)], halve, guesses=GUESSES, store=store, executor=HERE)[Toy(4).key] == {"loss": 7.0}
    monkeypatch.setattr("metricdp.experiments.engine.job.code_digest", lambda: "other code")
    assert sweep([Toy(4)], halve, guesses=GUESSES, store=store, executor=HERE)[Toy(4).key] == {"loss": 2.0}


def test_a_damaged_result_is_computed_again_not_trusted(tmp_path):
    job, other = Toy(246), Toy(4)
    whole = halve(job)
    with sole_store(tmp_path) as store:
        store.put(job, whole)
        assert store.get(job) == json.loads(json.dumps(whole))
        assert store.get(other) is None
        text = store.path(job).read_text()
        assert text.count("123.0") == 1
        damages = [
            text[: len(text) // 2],
            "",
            "[]",
            text.replace("123.0", "0.001"),
            text.replace('"batch": 0', '"batch": 1'),
        ]
        assert len({*damages, text}) == len(damages) + 1
        for damaged in damages:
            store.path(job).write_text(damaged)
            assert store.get(job) is None
        store.path(job).write_bytes(b"\xff\xfe")
        assert store.get(job) is None
        seen = sweep([job, other], halve, guesses=GUESSES, store=store, executor=HERE)
        assert seen[job.key] == whole
        assert store.get(job) == whole


def test_a_store_serves_one_run_and_forgets_what_was_half_written(tmp_path):
    (tmp_path / ".abc.json.x.tmp").write_text("half")
    with sole_store(tmp_path):
        assert not list(tmp_path.glob(".*.tmp"))
        with pytest.raises(mdp.InvalidInputError, match="Another run is writing to"), sole_store(tmp_path):
            pass
    with sole_store(tmp_path):
        pass


def test_failures_are_told_and_not_kept(tmp_path):
    good, bad = Toy(2), Toy(3)
    store = shared_store(tmp_path)
    found = sweep([good, bad, good], halve, guesses=GUESSES, store=store, workers=2, executor=LOCAL)
    assert found == {good.key: {"loss": 1.0}, bad.key: {"error": "3 is odd"}}
    assert store.get(bad) is None
    assert store.get(good) is not None


class Recorder(Board):
    """Counts what runs at once, and may kill workers or press Ctrl-C."""

    def __init__(self, kills=0, *, stop=False):
        self.kills, self.stop, self.running, self.most, self.order = kills, stop, set(), 0, []

    def started(self, job):
        self.order.append(job)
        self.running.add(job.key)
        self.most = max(self.most, len(self.running))
        if self.kills:
            self.kills -= 1
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)

    def finished(self, job, seconds):
        assert seconds >= 0
        if self.stop:
            raise KeyboardInterrupt


def test_workers_that_die_cost_a_second_try_and_no_more():
    for kills in (1, 2):
        outcomes = run_in_processes([Toy(4)], halve, Recorder(kills), workers=1, gigabytes=lambda job: 0.1)
        (outcome,) = outcomes
        if kills == 1:
            assert outcome.result == {"loss": 2.0}
        else:
            assert "died twice" in outcome.result["error"]
    assert not multiprocessing.active_children()


def test_jobs_that_do_not_fit_into_memory_together_wait_for_each_other():
    jobs = [Toy(2), Toy(4), Toy(6)]
    for budget, most in ((3.0, 2), (1.5, 1), (0.1, 1)):
        board = Recorder()
        outcomes = run_in_processes(jobs, halve, board, workers=2, gigabytes=lambda job: 1.0, memory_gb=budget)
        for job, result, _ in outcomes:
            assert result == halve(job)
            board.running.discard(job.key)
        assert board.most == most
        assert set(board.order) == set(jobs)
    assert 0 < free_memory_gb() < 1e5


def test_an_exception_in_a_worker_is_raised_here_and_says_where_it_was():
    with pytest.raises(ZeroDivisionError, match="-1") as raised:
        list(run_in_processes([Toy(-1)], halve, Board(), workers=2, gigabytes=lambda job: 0.1))
    assert "In a worker process" in raised.value.__notes__[0]
    assert "halve" in raised.value.__notes__[0]
    assert not multiprocessing.active_children()


def test_whoever_stops_a_sweep_leaves_no_process_behind():
    with pytest.raises(KeyboardInterrupt) as held:  # holds the frames of the sweep, as an interactive session does
        sweep([Toy(2), Toy(4), Toy(6)], halve, guesses=GUESSES, workers=2, board=Recorder(stop=True))
    assert not multiprocessing.active_children()
    assert held.value is not None


def test_workers_have_the_families_of_their_parent():
    FOLDERS.append("elsewhere")
    try:
        (outcome,) = run_in_processes([Toy(2)], registry, Board(), workers=1, gigabytes=lambda job: 0.1)
    finally:
        FOLDERS.remove("elsewhere")
    assert outcome.result["folders"] == [*FOLDERS, "elsewhere"]


def test_batches_stay_together_and_begin_with_their_longest_jobs():
    jobs = [Toy(2, 1), Toy(4, 0), Toy(6, 1), Toy(8, 0), Toy(10, 1)]
    board = Recorder()
    guesses = Guesses(seconds=lambda job: job.number, gigabytes=lambda job: 0.1)
    sweep(jobs, halve, guesses=guesses, executor=HERE, board=board)
    assert board.order == [Toy(10, 1), Toy(6, 1), Toy(2, 1), Toy(8, 0), Toy(4, 0)]


def test_here_means_in_this_process():
    outcomes = list(run_here([Toy(2)], lambda job: {"pid": os.getpid()}, Board()))
    assert [outcome.result["pid"] for outcome in outcomes] == [os.getpid()]


def test_the_forecast_learns():
    forecast = Forecast({str(number): 10.0 for number in range(12)}, workers=2)
    assert forecast.left({}) == 60
    for number in range(6):
        forecast.finished(str(number), 40.0)
    assert forecast.left({}) == pytest.approx(3 * 10 * 270 / 90)
    assert forecast.left({"11": 5.0}) == pytest.approx(3 * 10 * 270 / 90 - 2.5)
    assert Forecast({"a": 100.0, "b": 1.0}, workers=50).left({}) == 100


def test_guesses_know_every_method_and_put_up_with_nonsense():
    size = estimates.Size(records=1000, outputs=20, axes=3)
    for method in (*METHODS, "of tomorrow"):
        for options in (
            {},
            {"cells": 8},
            {"cells": (4, 5, 6)},
            {"cells": "many", "time_limit": "soon", "splits": None},
        ):
            job = ComparisonJob(problem={}, kind="fit", method=method, epsilon=1.0, p=2.0, options=options, pairs=10)
            assert 0 < estimates.seconds(job, size) < 1000
            assert 0 < estimates.gigabytes(job, size) < 10
