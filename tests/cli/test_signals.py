"""Ctrl-C and SIGTERM end every command soon, with the exit code of the signal and with nothing left behind."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

import metricdp as mdp

# Commands end within 2 s. Loaded machines take longer, and what this tests against is minutes.
PATIENCE_SECONDS = 60.0

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"

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
    "perturb-folder": ("perturb", "em.mdp", "many", "out"),
    "epsilon": ("epsilon", "--city", "helsinki", "--radius", "500m", "--method", "spline"),
    "info": ("info", "em.mdp", "--certify"),
    "ledger": ("ledger", "show", "budgets.db"),
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
    (folder / "many").mkdir()
    for number in range(8):
        os.link(folder / "points.csv", folder / "many" / f"{number}.csv")
    mdp.Ledger(folder / "budgets.db", max_epsilon=1).close()
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


def stopped(arguments, how, delay, cwd):
    """Start a command, send it a signal after a delay, and return its exit code and the seconds that it took to end.

    The exit code is None if the command had ended by itself.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "metricdp", *arguments],
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


def lay_out(files, cwd):
    for name in ("em.mdp", "points.csv", "many", "budgets.db"):
        (cwd / name).symlink_to(files / name)


def check(command, how, delay, files, cwd, *more):
    lay_out(files, cwd)
    code, seconds, words = stopped((*COMMANDS[command], *more), how, delay, cwd)
    # A server that is asked to stop ends in order; a short command may have been about to end by itself.
    expected = {None, 128 + how} | ({0} if command in ("serve", "info", "ledger") else set())
    assert code in expected, words
    assert "Traceback" not in words
    assert not [path for path in cwd.rglob(".*.tmp") if path.is_file()], "half-written files were left"
    if (cwd / "m.mdp").exists():
        mdp.load(cwd / "m.mdp")
    if command == "perturb" and code is not None:
        assert not (cwd / "out.csv").exists()
    if command.startswith("perturb") and code is not None and list(cwd.rglob("job.json")):
        assert "stopped; the same command with --resume goes on" in words
    for path in cwd.glob("out/*.csv"):
        assert path.read_text().count("\n") == 1_000_001, "an output of a folder must be whole"
    return code, seconds


QUICK = [
    ("fit-highs", signal.SIGINT, 2.5),
    ("compare", signal.SIGTERM, 4.0),
    ("compare", signal.SIGINT, 4.0),
    ("perturb", signal.SIGTERM, 1.0),
    ("perturb-folder", signal.SIGTERM, 3.0),
    ("perturb-folder", signal.SIGINT, 3.0),
    ("epsilon", signal.SIGTERM, 1.0),
    ("info", signal.SIGTERM, 0.3),
    ("ledger", signal.SIGINT, 0.2),
    ("demo", signal.SIGTERM, 3.0),
]


@pytest.mark.parametrize(("command", "how", "delay"), QUICK)
def test_a_signal_ends_a_command_and_its_processes(command, how, delay, files, tmp_path):
    check(command, how, delay, files, tmp_path)


def test_a_folder_on_a_cluster_ends_and_its_workers_stay(files, tmp_path):
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as cluster:
        more = ("--cluster", cluster.scheduler_address)
        code, _ = check("perturb-folder", signal.SIGTERM, 4.0, files, tmp_path, *more)
        assert code == 143
        with distributed.Client(cluster) as client:
            assert client.submit(int, 7).result(timeout=30) == 7


def begun(arguments, cwd, **streams):
    process = subprocess.Popen(
        [sys.executable, "-m", "metricdp", *arguments], cwd=cwd, start_new_session=True, **streams
    )  # fmt: skip
    while process.poll() is None and not handles(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    return process


@pytest.mark.parametrize(
    ("how", "kind"), [(signal.SIGINT, "Interrupted"), (signal.SIGTERM, "Terminated")], ids=["SIGINT", "SIGTERM"]
)
def test_the_document_says_what_ended_the_command(files, tmp_path, how, kind):
    lay_out(files, tmp_path)
    process = begun((*COMMANDS["perturb-folder"], "--json"), tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("job.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    said, words = process.communicate(timeout=60)
    assert process.returncode == 128 + how, words
    answer = json.loads(said)["error"]  # one document, not two
    assert (answer["type"], answer["exit_code"]) == (kind, 128 + how)
    assert b"--resume goes on" in words


def test_errors_on_the_way_out_are_not_told_as_the_cause(tmp_path):
    script = """
import os, signal, sys
import metricdp.cli as cli
def clumsy(**_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    except KeyboardInterrupt:
        raise OSError("the connection was lost") from None
cli.app = clumsy
sys.argv = ["metricdp", "info", "--json"]
cli.main()
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 143, answer.stderr
    assert json.loads(answer.stdout)["error"]["type"] == "Terminated"


def test_a_command_that_does_not_end_by_itself_still_says_how_to_go_on():
    """What native code does to a command: no exception reaches its blocks."""
    script = """
import os, signal, time
from metricdp.cli._signals import ended_by_signals, said_when_stopped
with ended_by_signals(), said_when_stopped("go on with --resume"):
    print("ready", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        words = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert words == "go on with --resume\n"


def shown_on_a_terminal(begin, how):
    """Return the process that `begin` starts and what it shows until it ends; `how` is sent once it shows a bar."""
    ours, theirs = os.openpty()
    process = begin(stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown, sent = b"", False
    try:
        # A terminal's end reads as an error once the last process has closed it.
        while True:
            shown += os.read(ours, 65536)
            if not sent and HIDE_CURSOR in shown:
                process.send_signal(how)
                sent = True
    except OSError:
        pass
    finally:
        os.close(ours)
    assert sent, "no bar was shown"
    return process, shown


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_terminal_gets_its_cursor_back(files, tmp_path, how):
    lay_out(files, tmp_path)
    process, shown = shown_on_a_terminal(partial(begun, COMMANDS["perturb-folder"], tmp_path), how)
    assert process.wait(60) == 128 + how, shown
    assert shown.rfind(SHOW_CURSOR) > shown.rfind(HIDE_CURSOR)


NATIVE = """
import hashlib
from metricdp.cli._console import errors
from metricdp.cli._signals import ended_by_signals
from rich.progress import Progress

with ended_by_signals(), Progress(console=errors) as bar:
    bar.add_task("working")
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2_000_000_000)  # lets other threads run, but handles no signal
"""


def test_a_terminal_gets_its_cursor_back_although_native_code_goes_on(tmp_path):
    """The bar is never taken down: what it has put in place of stderr must not swallow the end."""
    begin = partial(subprocess.Popen, [sys.executable, "-c", NATIVE], cwd=tmp_path)
    process, shown = shown_on_a_terminal(begin, signal.SIGINT)
    assert process.wait(60) == 130, shown
    assert shown.rfind(SHOW_CURSOR) > shown.rfind(HIDE_CURSOR)


def said_until_closed(connection):
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionError:
        pass
    return said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_second_signal_ends_a_service_that_waits_for_a_request(files, tmp_path, how):
    """The first lets requests under way finish, for up to a grace period; somebody who asks again will not wait."""
    lay_out(files, tmp_path)
    process = begun(("serve", "em.mdp", "--port", "0"), tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said = b""
        while (found := re.search(rb"http://127.0.0.1:([0-9]+)", said)) is None:
            line = process.stdout.readline()
            assert line, said
            said += line
        with socket.create_connection(("127.0.0.1", int(found[1]))) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.sendall(b"POST /v1/perturb HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n")  # fmt: skip
            assert client.recv(1000).startswith(b"HTTP/1.1 100 ")  # the request is under way
            process.send_signal(how)
            time.sleep(0.5)
            assert process.poll() is None, "the request under way was not waited for"
            process.send_signal(how)
            process.wait(60)
            # Had it waited for the rest of the request, it would have been answered, after 10 s, that this came too late.
            assert b"HTTP/1.1 408 " not in said_until_closed(client)
        assert process.returncode in (0, 128 + how)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


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
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs in the background ignore it
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


def test_an_interrupt_ends_the_solver_of_copt():
    """Its programs are solved in a second, so a harder one is made up."""
    script = f"""
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs in the background ignore it
import numpy as np
from scipy import sparse
from metricdp.optimise.engines.inequalities import solve_inequalities
rng = np.random.default_rng(0)
matrix = sparse.random_array((5000, 5000), density=0.05, rng=rng, format="csr")
threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    solve_inequalities(-rng.uniform(1, 2, 5000), matrix, rng.uniform(1, 2, 5000))
except KeyboardInterrupt:
    started = time.monotonic()
    while threading.active_count() > 1 and time.monotonic() < started + {PATIENCE_SECONDS}:
        time.sleep(0.05)
    print("interrupted", threading.active_count(), time.monotonic() - started)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert answer.stdout.split()[:2] == ["interrupted", "1"], answer.stderr
