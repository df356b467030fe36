"""What the tests of the service share: mechanism files, the service in this process, and one of its own."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager, contextmanager

import httpx

from metricdp.service import LedgerOptions, create_app
from perturb_tools import CENTRE, city, noisy_city, plane

__all__ = [
    "CENTRE",
    "JSON",
    "call",
    "city",
    "eventually",
    "in_process",
    "ledger_options",
    "noisy_city",
    "plane",
    "post",
    "running",
    "running_with",
    "saved",
    "with_service",
]

JSON = {"Content-Type": "application/json"}
COMMAND = [sys.executable, "-c", "from metricdp.cli import main; main()"]


def saved(folder, **mechanisms):
    """Save mechanisms under their names and return the files."""
    files = []
    for name, mechanism in mechanisms.items():
        mechanism.save(folder / f"{name}.mdp")
        files.append(folder / f"{name}.mdp")
    return tuple(files)


def ledger_options(folder, max_epsilon, **options):
    return LedgerOptions(folder / "budgets.db", max_epsilon, **options)


@asynccontextmanager
async def in_process(settings, *, raise_errors=True, **options):
    """The application with its lifespan, and a client of it."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app, raise_app_exceptions=raise_errors)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", **options) as client,
    ):
        client.app = app
        yield client


def with_service(settings, work, **options):
    """Run `work(client)` against the application."""

    async def run():
        async with in_process(settings, **options) as client:
            return await work(client)

    return asyncio.run(run())


async def eventually(question, seconds=120):
    """Ask an asynchronous question until the answer is yes."""
    end = time.monotonic() + seconds
    for _ in range(10**6):
        if await question():
            return
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.01)


def call(settings, method, path, **options):
    """One request to a fresh application."""
    return with_service(settings, lambda client: client.request(method, path, **options))


def post(settings, body, path="/v1/perturb", **options):
    return call(settings, "POST", path, json=body, **options)


class Running:
    """A service in a process of its own."""

    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log
        self.port = int(url.rpartition(":")[2])

    def client(self, **options):
        return httpx.Client(base_url=self.url, timeout=120, **options)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(120)


@contextmanager
def _started(folder, command):
    log = folder / f"log-{time.monotonic_ns()}.txt"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder)
        try:
            found = re.search(r"http://[^\s\"]+", process.stdout.readline())
            assert found, log.read_text()
            yield Running(process, found.group(), log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


def running(folder, *arguments):
    """Start `metricdp serve` on a free port; what it says goes to a file."""
    return _started(folder, [*COMMAND, "serve", *map(str, arguments), "--port", "0"])


PROGRAM = """
import json, sys
from pathlib import Path
from metricdp.service import Settings
from metricdp.service.http.server import run
settings = json.loads(sys.argv[1])
if settings.pop("h11"):
    sys.modules["httptools"] = None  # as if it were not installed
settings["files"] = tuple(Path(file) for file in settings["files"])
run(Settings(**settings), "127.0.0.1", 0, lambda url: print(url, flush=True))
"""


def running_with(folder, *, h11=False, **settings):
    """Start a service with settings that the command line does not have."""
    settings["files"] = [str(file) for file in settings["files"]]
    return _started(folder, [sys.executable, "-c", PROGRAM, json.dumps({"h11": h11, **settings})])
