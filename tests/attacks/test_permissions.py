"""Who may open what the library writes, whatever the umask: never more than its owner allows, also while it is written.

Mechanisms, cities, tables and caches hold nothing secret and follow the umask. Ledgers and files of keys are their
owner's alone.
"""

import os
import stat
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from metricdp import cities
from metricdp._atomic import atomic_file
from metricdp.cities.network import RoadNetwork
from metricdp.cli import main
from metricdp.experiments.comparing import compare
from metricdp.experiments.engine.store import sole_store
from metricdp.files import load
from metricdp.service.page import demo
from metricdp.service.state.keys import add_key, revoke_key
from problems import random_problem

UMASKS = [0o000, 0o022, 0o077]
PROBLEM = random_problem(0)
MECHANISM = mdp.fit(PROBLEM, 1.0, "em")


@pytest.fixture(params=UMASKS, ids=[f"umask-{mask:03o}" for mask in UMASKS])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def modes(folder):
    """The modes of the files in a folder, and of the folders."""
    paths = list(folder.rglob("*"))
    files = {mode(path) for path in paths if path.is_file()}
    return files, {mode(path) for path in [folder, *paths] if path.is_dir()}


class Watched:
    """Remembers the modes that Python gave to new files in a folder at the moment when it made them."""

    def __init__(self, monkeypatch, folder):
        self.seen, real = set(), os.open

        def opened(path, flags, wanted=0o777, **more):
            number = real(path, flags, wanted, **more)
            if flags & os.O_CREAT and str(path).startswith(str(folder)):
                self.seen.add(stat.S_IMODE(os.fstat(number).st_mode))
            return number

        monkeypatch.setattr(os, "open", opened)


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["metricdp", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        assert not ended.code


def test_mechanism_files_follow_the_umask(umask, tmp_path):
    MECHANISM.save(tmp_path / "new.mdp")
    assert mode(tmp_path / "new.mdp") == 0o666 & ~umask
    assert load(tmp_path / "new.mdp").n_outputs == MECHANISM.n_outputs


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664])
def test_a_file_that_is_replaced_keeps_its_mode(umask, tmp_path, monkeypatch, kept):
    """A private file used to become readable by all when it was written again."""
    path = tmp_path / "mine.mdp"
    path.touch()
    path.chmod(kept)
    watched = Watched(monkeypatch, tmp_path)
    MECHANISM.save(path)
    assert mode(path) == kept
    assert watched.seen
    assert all(seen & ~kept == 0 for seen in watched.seen)


def test_a_file_that_fails_leaves_the_old_one_as_it_was(umask, tmp_path):
    path = tmp_path / "mine"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), atomic_file(path) as stream:
        stream.write(b"new")
        _ = 1 / 0
    assert (path.read_text(), mode(path)) == ("old", 0o640)
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_keys_are_private_from_the_first_moment(umask, tmp_path, monkeypatch):
    """They were made readable by all and closed before anything was written: whoever opened them meanwhile could read."""
    path = tmp_path / "keys.json"
    watched = Watched(monkeypatch, tmp_path)
    add_key(path, "gateway")
    assert mode(path) == 0o600
    path.chmod(0o644)
    revoke_key(path, "gateway")
    assert mode(path) == 0o600
    assert watched.seen == {0o600}


def test_ledgers_are_private_with_all_that_lies_beside_them(umask, tmp_path, monkeypatch):
    watched = Watched(monkeypatch, tmp_path)
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=10) as ledger:
        ledger.sample(MECHANISM, ["ann", "bob"], np.ones((2, 2)))
        beside = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert beside == {"budgets.db": 0o600, "budgets.db-wal": 0o600, "budgets.db-shm": 0o600}
    assert watched.seen == {0o600}


def test_a_ledger_that_is_being_made_is_private_too(umask, tmp_path):
    """SQLite keeps a journal beside the file that it fills; looked at while that happens."""
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            for entry in os.scandir(tmp_path):
                try:
                    seen.add(stat.S_IMODE(entry.stat().st_mode))
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for number in range(20):
            mdp.Ledger(tmp_path / f"{number}.db", max_epsilon=10).close()
    finally:
        done.set()
        watcher.join()
    assert seen == {0o600}


def test_cities_follow_the_umask(umask, tmp_path, monkeypatch):
    city = RoadNetwork("toy", [1, 2], [24.90, 24.91], [60.1, 60.1], [0, 1], [1, 0], [5.0, 5.0])
    cities.save_folder(city, tmp_path / "toy")
    assert modes(tmp_path / "toy") == ({0o666 & ~umask}, {0o777 & ~umask})
    command(monkeypatch, "cities", "import", tmp_path / "toy", tmp_path / "again")
    assert modes(tmp_path / "again") == ({0o666 & ~umask}, {0o777 & ~umask})


def test_a_private_folder_stays_private_when_a_city_is_put_there(umask, tmp_path):
    """The empty folder is replaced by one that was written aside, which used to be open to all."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o700)
    city = RoadNetwork("toy", [1, 2], [24.90, 24.91], [60.1, 60.1], [0, 1], [1, 0], [5.0, 5.0])
    cities.save_folder(city, tmp_path / "mine")
    assert mode(tmp_path / "mine") == 0o700


def test_the_embedded_city_leaves_nothing_behind(umask, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cities.load("helsinki")
    assert not (tmp_path / "cache").exists()


def test_results_of_comparisons_follow_the_umask(umask, tmp_path):
    compare(PROBLEM, [1.0], ["em"], cache=tmp_path / "cache")
    files, folders = modes(tmp_path / "cache")
    assert (files, folders) == ({0o666 & ~umask}, {0o777 & ~umask})


def test_results_of_reproductions_follow_the_umask(umask, tmp_path):
    class Job:
        key, words = "0123", "toy"

        def content(self):
            return {"method": "em"}

    with sole_store(tmp_path / "store") as store:
        store.put(Job(), {"loss": 1.0})
        assert store.get(Job()) == {"loss": 1.0}
    assert modes(tmp_path / "store") == ({0o666 & ~umask}, {0o777 & ~umask})


def test_the_folder_of_the_demo_follows_the_umask(umask, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_fitted", lambda missing: [(one, MECHANISM) for one in missing])
    assert demo.fit_demo(tmp_path / "demo")
    assert modes(tmp_path / "demo") == ({0o666 & ~umask}, {0o777 & ~umask})


def test_the_link_is_replaced_and_not_what_it_leads_to(umask, tmp_path):
    """Somebody who may write beside a file cannot have another one of its owner's overwritten."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "new.mdp").symlink_to(tmp_path / "precious")
    MECHANISM.save(tmp_path / "new.mdp")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "new.mdp").is_symlink()
