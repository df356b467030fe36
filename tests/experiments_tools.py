"""Jobs and processes for tests of the experiments. Worker processes import this module, so it has no tests."""

import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from metricdp.experiments.engine.job import Job
from metricdp.mechanisms.families import FOLDERS

SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass(frozen=True)
class Toy(Job):
    """A job that takes no time."""

    number: int
    batch: int = 0

    def content(self):
        return asdict(self)

    @property
    def words(self):
        return f"toy {self.number}"


def halve(job):
    """Half a toy's number; odd numbers have no result, and negative ones end in an exception."""
    if job.number < 0:
        raise ZeroDivisionError(job.number)
    return {"error": f"{job.number} is odd"} if job.number % 2 else {"loss": job.number / 2}


def registry(job):
    """The registry of families as a worker has it."""
    return {"folders": list(FOLDERS)}


def some_jobs(places, *, methods=("em", "tem"), epsilons=(4.0,), experiments=("violation",), **changes):
    """Jobs of the paper's experiments, of a small size."""
    from metricdp.experiments.paper.plan import Settings, plan, quick  # workers that run toys need not wait for it

    settings = quick(Settings(epsilons=epsilons, methods=methods))
    return plan(experiments, places, replace(settings, **changes))


def command(*arguments):
    return [sys.executable, "-c", "from metricdp.cli import main; main()", *map(str, arguments)]


def wait_until(condition, process, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        if process.poll() is not None:
            return
        time.sleep(0.02)


def children_of(pid):
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def all_ended(pids, seconds=30.0):
    """Whether all processes end in time."""
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    return not [pid for pid in pids if alive(pid)]
