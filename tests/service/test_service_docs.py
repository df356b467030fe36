"""The commands of docs/service.md, run as printed; and that what it says of defaults is so."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metricdp.cli import app
from metricdp.service import LedgerOptions, Settings
from service_tools import call, city, running, saved

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = dict.fromkeys(re.findall(r"```(?:sh)\n(.*?)```", TEXT, flags=re.DOTALL))
LINES = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("docs")
    saved(place, helsinki=city())
    return place


def test_commands(folder, monkeypatch):
    """In this process, up to the point where uvicorn would take over."""
    statuses = []

    def answer_one_request(settings, *_, **__):
        statuses.append(call(settings, "GET", "/readyz").status_code)

    monkeypatch.chdir(folder)
    monkeypatch.setattr("metricdp.service.http.server.run", answer_one_request)
    for arguments in (shlex.split(line)[1:] for line in LINES if line.startswith("metricdp")):
        if "--city" not in arguments:
            answer = CliRunner().invoke(app, arguments)
            assert answer.exit_code == 0, answer.output
    assert statuses == [200] * 3
    assert (folder / "keys.json").exists()


def test_the_page(folder):
    (line,) = (shlex.split(line)[2:] for line in LINES if "--page" in line)
    with running(folder, *line) as service, service.client() as client:
        assert "text/html" in client.get("/").headers["content-type"]


def test_requests(folder):
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    lines = [line for line in LINES if line.startswith("curl")]
    assert len(lines) >= 4
    with running(folder, "helsinki.mdp") as service:
        for line in lines:
            command = shlex.split(line.replace("http://localhost:8080", service.url))
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
            said = json.loads(answer)
            assert "status" not in said, answer
            if "perturb" in line:
                points = json.loads(command[-1])
                assert len(said["outputs"]) == len(points.get("points", [0]))
                assert said["mechanism"] == "helsinki"


def test_the_example_of_an_answer_is_one():
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, flags=re.DOTALL)
    assert set(json.loads(block)) == {"outputs", "mechanism", "sha256", "refused"}


def test_defaults(folder):
    settings = Settings(files=(folder / "helsinki.mdp",), ledger=LedgerOptions(folder / "budgets.db"))
    assert f"{settings.max_points:,}" in TEXT
    assert f"{settings.max_body_bytes // 10**6} MB" in TEXT
    assert f"{settings.max_held_bytes // 10**6} MB" in TEXT
    assert f"{settings.header_seconds:g} s each" in TEXT
    assert settings.header_seconds == settings.body_seconds
    assert f"time to read the answer | {settings.read_seconds:g} s" in TEXT
    assert f"{settings.max_connections:,}" in TEXT
    assert f"{settings.max_waiting_points:,}" in TEXT
