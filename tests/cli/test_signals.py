"""Ctrl-C and SIGTERM end every command soon, with the exit code of the signal and with nothing left behind."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import metricdp as mdp

# Commands end within 2 s. Loaded machines take longer, and what this tests against is minutes.
PATIENCE_SECONDS = 10.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")

FIT = ("fit", "--city", "helsinki", "--epsilon", "2", "--out", "m.mdp")
COMMANDS = {
    "fit": (*FIT, "--time-limit", "60"),
    "fit-highs": (*FIT, "--method", "aipo", "--solver", "highs", "--cells", "32"),
    "fit-clarabel": (*FIT, "--method", "spline", "--solver", "clarabel", "--cells", "32"),
    "compare": (
        "compare", "--city", "helsinki", "--epsilons", "2,3,4", "--methods", "spline,aipo-e", "--cache", "cache",
        "--csv", "table.csv",
    ),
    "reproduce": ("reproduce", "--quick", "--out", "out", "--workers", "2"),
    "demo": ("demo", "--out", "folder"),
    "perturb": ("perturb", "em.mdp", "points.csv", "out.csv"),
    "certify": ("certify", "em.mdp"),
    "serve": ("serve", "em.mdp", "--port", "0"),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A mechanism and a file of points that takes some seconds to perturb."""
    folder = tmp_path_factory.mktemp("files")
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    mdp.fit(problem, 2.0, "laplace").save(folder / "em.mdp")
    with (folder / "points.csv").open("w") as points:
        points.write("lon,lat\n" + "24.94,60.17\n" * 1_000_000)
    return folder


def handles(pid, number):
    """Return whether a process has its own handler of a signal."""
    caught = next(
        line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")
    )
    return bool(int(caught, 16) >> (number - 1) & 1)


def session(leader):
    """Return the living processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def stopped(command, how, delay, cwd):
    """Start a command, send it a signal after a delay, and return its exit code and the seconds that it took to end.

    The exit code is None if the command had ended by itself.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "metricdp", *COMMANDS[command]],
        cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        while process.poll() is None and not handles(process.pid, signal.SIGTERM):
            time.sleep(0.01)
        time.sleep(delay)
        if process.poll() is not None:
            words = process.stderr.read()
            assert process.returncode == 0, words
            return None, 0.0, words
        if how is signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            process.send_signal(how)
        sent = time.monotonic()
        words = process.communicate(timeout=PATIENCE_SECONDS)[1]
        seconds = time.monotonic() - sent
        deadline = time.monotonic() + PATIENCE_SECONDS
        while session(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not session(process.pid), "processes were left behind"
        # A command that had just ended by itself is killed while Python ends; a shell shows the same code for that.
        code = process.returncode
        return (128 - code if code < 0 else code), seconds, words
    finally:
        for left in session(process.pid):
            left.kill()
        process.wait()
        process.stderr.close()


def check(command, how, delay, files, cwd):
    for name in ("em.mdp", "points.csv"):
        (cwd / name).symlink_to(files / name)
    code, seconds, words = stopped(command, how, delay, cwd)
    expected = {None, 128 + how} | ({0} if command == "serve" else set())
    assert code in expected, words
    assert "Traceback" not in words
    assert not [path for path in cwd.rglob(".*.tmp") if path.is_file()], "half-written files were left"
    if (cwd / "m.mdp").exists():
        mdp.load(cwd / "m.mdp")
    if command == "perturb" and code is not None:
        assert not (cwd / "out.csv").exists()
    return code, seconds


QUICK = [
    ("fit-highs", signal.SIGINT, 2.5),
    ("compare", signal.SIGTERM, 4.0),
    ("compare", signal.SIGINT, 4.0),
    ("perturb", signal.SIGTERM, 1.0),
    ("demo", signal.SIGTERM, 3.0),
]


@pytest.mark.parametrize(("command", "how", "delay"), QUICK)
def test_a_signal_ends_a_command_and_its_processes(command, how, delay, files, tmp_path):
    check(command, how, delay, files, tmp_path)


@pytest.mark.slow
def test_signals_at_random_moments_leave_nothing_behind(files, tmp_path):
    generator = random.Random(0)
    ended = {}
    for number in range(30):
        command = list(COMMANDS)[number % len(COMMANDS)]
        how = generator.choice([signal.SIGINT, signal.SIGTERM])
        cwd = tmp_path / str(number)
        cwd.mkdir()
        delay = generator.uniform(0.0, 8.0)
        code, seconds = check(command, how, delay, files, cwd)
        ended.setdefault(command, []).append(code)
        print(f"{command}: {how.name} after {delay:.1f} s, code {code}, ended in {seconds:.2f} s")
    assert sum(code is not None for codes in ended.values() for code in codes) > 15, "too few were interrupted"


@pytest.mark.slow
def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "metricdp", *COMMANDS["compare"]],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(session(process.pid)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(3)
    assert len(session(process.pid)) >= 3, "no workers were started"
    process.kill()
    process.wait()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for one in left:
        one.kill()
    assert not left


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("spline", {"cells": 40}),
        ("spline", {"cells": 24, "solver": "clarabel"}),
        ("aipo-e", {"cells": 40, "solver": "highs"}),
    ],
)
def test_an_interrupt_comes_through_a_fit(method, options):
    """`KeyboardInterrupt` leaves `fit` although native code is running, and no thread goes on."""
    script = f"""
import os, signal, threading, time
import metricdp as mdp
problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    mdp.fit(problem, 2.0, {method!r}, **{options!r})
except KeyboardInterrupt:
    started = time.monotonic()
    while threading.active_count() > 1 and time.monotonic() < started + {PATIENCE_SECONDS}:
        time.sleep(0.05)
    print("interrupted", threading.active_count())
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert answer.stdout.split() == ["interrupted", "1"], answer.stderr
