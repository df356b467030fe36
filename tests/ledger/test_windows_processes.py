"""A timed ledger that processes share: kills at random moments, restarts, and an account of every answer afterwards."""

import os
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

import metricdp as mdp
from problems import random_problem

TENTH, QUARTER = (mdp.fit(random_problem(seed), epsilon, "em") for seed, epsilon in enumerate((0.1, 0.25)))
COSTS = (Fraction(1, 10), Fraction(1, 4))
PEOPLE, WINDOW, EVERY = 20, 40, 3

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")

# Every worker writes what it is about to ask and what it was told: a "?" without a "!" is a batch whose answers nobody
# saw. One process starts all of them, kills one at a random moment and starts another in its place. Workers go on until
# the last kill, however fast the machine is, so every kill meets a process at work.
WORKERS = """
import itertools, os, random, signal, sys, time
import numpy as np
import metricdp as mdp
from metricdp.ledger import database as _ledger_file

_ledger_file._LONG_LOG = 2**17  # so that the log is moved often
folder, batches, rows, kills, seed = sys.argv[1], *map(int, sys.argv[2:])
mechanisms = [mdp.load(f"{folder}/{name}.mdp", certify=False) for name in "ab"]
ledger = mdp.Ledger(f"{folder}/budgets.db")
ledger.spent(0)  # connected when the fork comes

def work(number):
    rng = np.random.default_rng(seed + number)
    with open(f"{folder}/{number}.log", "ab", buffering=0) as log:
        for batch in itertools.count():
            if batch >= batches and os.path.exists(f"{folder}/last_kill"):
                break
            # A clock that all share, read with some delay, so that the requests of processes overtake each other.
            with open(f"{folder}/clock", "r+b") as shared:
                now = int(shared.read() or b"0") + int(rng.integers(0, 400_000))
                shared.seek(0)
                shared.write(b"%d" % now)
            which = int(rng.integers(2))
            users = rng.integers(0, PEOPLE, rows)
            ticks = now + np.sort(rng.integers(-300_000, 1_500_000, rows)).clip(-now)
            if rng.random() < 0.3:
                ticks = rng.permutation(ticks)
            asked = np.stack([np.full(rows, which), users, ticks])
            log.write(b"?" + asked.astype("<i8").tobytes())
            answers, late = ledger.answer(
                mechanisms[which], users, rng.uniform(0, 4, (rows, 2)), times=ticks.astype("M8[us]")
            )
            log.write(b"!" + np.stack([answers, late]).astype("<i8").tobytes())

def start(number):
    pid = os.fork()
    if pid == 0:
        work(number)
        os._exit(0)
    return pid

choice = random.Random(seed)
living = [start(number) for number in range(8)]
killed = 0
for number in range(8, 8 + kills):
    time.sleep(choice.uniform(0.02, 0.2))
    pid = living.pop(choice.randrange(8))
    os.kill(pid, signal.SIGKILL)
    killed += os.waitpid(pid, 0)[1] == signal.SIGKILL
    living.append(start(number))
open(f"{folder}/last_kill", "xb").close()
failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in living)
print(failed, killed)
""".replace("PEOPLE", str(PEOPLE))


def log_of(path, rows):
    """The batches of a log: (asked, told), where told is None if the process was killed before it knew."""
    data, place, found = path.read_bytes(), 0, []
    ask, tell = 1 + 24 * rows, 1 + 16 * rows
    while place + ask <= len(data):
        assert data[place : place + 1] == b"?"
        asked = np.frombuffer(data[place + 1 : place + ask], "<i8").reshape(3, rows)
        place += ask
        whole = data[place : place + 1] == b"!" and place + tell <= len(data)
        told = np.frombuffer(data[place + 1 : place + tell], "<i8").reshape(2, rows) if whole else None
        place += tell if whole else 0
        found.append((asked, told))
        if not whole and place < len(data):  # cut in the middle of a line; a restart begins a new file
            assert data[place : place + 1] == b"!"
            break
    return found


def worst_window(charges):
    """The largest sum in any closed interval of the window's length."""
    charges = sorted(charges)
    return max(
        (sum(cost for when, cost in charges if start <= when <= start + WINDOW * 10**6) for start, _ in charges),
        default=Fraction(0),
    )


def check(folder, rows, killed):
    """Account for every answer that anybody saw, against what the file says was charged."""
    seen, by_period, unseen, answered = defaultdict(list), defaultdict(set), 0, 0
    maybe = set()  # periods in which a draw may have been made that nobody was told of
    for path in folder.glob("*.log"):
        for asked, told in log_of(path, rows):
            if told is None:
                unseen += 1
                maybe.update((user, which, tick // (EVERY * 10**6)) for which, user, tick in asked.T.tolist())
                continue
            for (which, user, tick), (output, late) in zip(asked.T.tolist(), told.T.tolist(), strict=True):
                assert output == -1 if late else output >= -1
                if output >= 0:
                    answered += 1
                    by_period[user, which, tick // (EVERY * 10**6)].add(output)
                    seen[user, which, tick // (EVERY * 10**6)].append(tick)
    # In a period, everybody was told the same, whichever process they asked, before and after kills.
    assert {len(outputs) for outputs in by_period.values()} == {1}
    with mdp.Ledger(folder / "budgets.db") as ledger:
        assert ledger._file.read("PRAGMA integrity_check") == [("ok",)]
        sums = "SELECT user, SUM(spent), MAX(time) FROM charges GROUP BY user"
        assert ledger._file.read(sums) == ledger._file.read("SELECT user, spent, latest FROM people")
        drawn = ledger._file.read("SELECT mechanism, SUM(count) FROM answers GROUP BY mechanism")
        held = ledger._file.read("SELECT CAST(user AS INTEGER), time, spent, count FROM charges")
        scale, limit = ledger._scale, Fraction(repr(ledger.max_epsilon))
    # Each period with an answer was charged once; more charges than that are of batches that nobody saw the end of.
    charged = sum(count for _, count in drawn)
    assert len(by_period) <= charged <= len(by_period) + unseen * rows
    assert unseen <= killed
    if not unseen:
        assert charged == len(by_period)
    by_user = defaultdict(list)
    for user, when, units, _ in held:
        by_user[user].append((when, units * Fraction(10) ** scale.exponent))
    assert max(map(worst_window, by_user.values())) <= limit
    # From what was seen alone: a draw was made at the first moment of its period at which somebody was told of it.
    firsts = defaultdict(list)
    for key, ticks in seen.items():
        if key not in maybe:
            firsts[key[0]].append((min(ticks), COSTS[key[1]]))
    assert max(map(worst_window, firsts.values())) <= limit
    return answered


def run(folder, batches, rows, kills, seed):
    """Run 8 processes, with kills; return how many answers were seen, and how many processes were killed."""
    for name, mechanism in (("a", TENTH), ("b", QUARTER)):
        mechanism.save(folder / f"{name}.mdp")
    mdp.Ledger(folder / "budgets.db", 1, window=WINDOW, every=EVERY).close()
    (folder / "clock").write_bytes(b"1700000000000000")
    command = [sys.executable, "-c", WORKERS, folder, batches, rows, kills, seed]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=1200)
    failed, killed = map(int, done.stdout.split())
    assert failed == 0, done.stderr
    return check(folder, rows, killed), killed


def test_8_processes_and_kills(tmp_path):
    answered, killed = run(tmp_path, batches=60, rows=20, kills=12, seed=0)
    assert answered > 500
    assert killed == 12


def test_8_processes_without_kills(tmp_path):
    assert run(tmp_path, batches=20, rows=20, kills=0, seed=50)[0] > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_8_processes_and_many_kills(seed, tmp_path):
    """About 30,000 requests in each of four runs, single ones and in batches of 10, with a kill every tenth second."""
    rows = (1, 10)[seed % 2]
    answered, killed = run(tmp_path, batches=4000 // rows, rows=rows, kills=60, seed=1000 * (seed + 1))
    assert answered > 1000
    assert killed == 60


CRASH = """
import contextlib, os, sys
import metricdp as mdp
from metricdp.ledger.database import LedgerFile

path, mechanism, moment = sys.argv[1:]
whole = LedgerFile.transaction

@contextlib.contextmanager
def cut(self, names):
    with whole(self, names) as database:
        yield database
        if moment == "before":
            os._exit(9)
    os._exit(9)

LedgerFile.transaction = cut
mdp.Ledger(path).sample(mdp.load(mechanism, certify=False), ["ann"], [[1, 1]], times=[1_700_000_100])
"""


@pytest.mark.parametrize(("moment", "spent"), [("before", 0.1), ("after", 0.2)])
def test_an_answer_that_nobody_saw_is_the_one_that_is_given_afterwards(moment, spent, tmp_path):
    TENTH.save(tmp_path / "m.mdp")
    with mdp.Ledger(tmp_path / "b.db", 1, window="1h", every="1min") as ledger:
        ledger.sample(TENTH, ["ann"], [[1, 1]], times=[1_700_000_000])
        command = [sys.executable, "-c", CRASH, tmp_path / "b.db", tmp_path / "m.mdp", moment]
        assert subprocess.run(list(map(str, command)), check=False, timeout=60).returncode == 9
        assert ledger.spent("ann", time=1_700_000_100) == spent
        stored = ledger._file.read("SELECT output, time FROM answers")[0]
        told = [int(ledger.sample(TENTH, ["ann"], [[3, 3]], times=[1_700_000_101 + n])[0]) for n in range(5)]
        assert len(set(told)) == 1
        if moment == "after":
            assert (told[0], stored[1]) == (stored[0], 1_700_000_100 * 10**6)
        assert ledger.spent("ann", time=1_700_000_105) == 0.2  # once for the period, whatever happened
