"""Code on pages of the site that no other test runs, as printed; and that no page has code which nothing runs."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

import metricdp as mdp
from cli_tools import call
from metricdp.cli import app

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)

# Languages of blocks that are no code of ours: what is printed, and settings of other programs.
SHOWN = {"text", "ini", "bibtex", "jsx"}


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def nothing(folder):
    del folder


def a_city_and_trips(folder):
    """What docs/budgets.md takes for granted: a mechanism with ε = 2, and trips with ids and times."""
    homes = [[24.93, 60.16], [24.95, 60.17], [24.97, 60.18]]
    mdp.fit(mdp.Problem.from_lonlat(homes, homes), 2.0, "em").save(folder / "helsinki.mdp")
    times = 1_763_424_000 + 600 * np.arange(20)
    trips = {"id": ["cid", "dan"] * 10, "t": times, "lon": np.linspace(24.94, 24.96, 20), "lat": 60.17}
    pd.DataFrame(trips).to_csv(folder / "trips.csv", index=False)


# By page: what lies in the reader's folder.
PAGES = {
    "index.md": nothing,
    "auditing.md": nothing,
    "budgets.md": a_city_and_trips,
    "reproduce.md": nothing,
    "other-cities.md": nothing,
    "many-places.md": nothing,
}

# Commands that take hours, or stay: of these only the options are checked, or the service answers one request. The same
# goes for commands that need a cluster. Designs that take a minute get less.
LONG = ("reproduce",)
HURRY = {"60": "5"}


@pytest.mark.parametrize("page", PAGES)
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PAGES[page](tmp_path)
    names, run = {}, 0
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), names)
        elif language == "sh":
            for line in text.replace("\\\n", " ").splitlines():
                run_line(line, tmp_path, monkeypatch)
        else:
            assert language in SHOWN | {"json"}, language
        run += language in {"python", "sh"}
    assert run


def run_line(line, folder, monkeypatch):
    program, command, *arguments = shlex.split(line, comments=True)
    if "--time-limit" in arguments:
        at = arguments.index("--time-limit") + 1
        arguments[at] = HURRY.get(arguments[at], arguments[at])
    assert program == "metricdp"
    if command in LONG or "--executor" in arguments:
        group = get_command(app)
        found = group.resolve_command(group.context_class(group), [command])[1]
        found.make_context(command, arguments)
    elif command == "serve":
        pytest.importorskip("fastapi", reason="needs the extra `service`")
        from service_tools import call as ask

        statuses = []
        monkeypatch.setattr(
            "metricdp.service.http.server.run",
            lambda settings, *_, **__: statuses.append(ask(settings, "GET", "/readyz").status_code),
        )
        assert CliRunner().invoke(app, [command, *arguments]).exit_code == 0
        assert statuses == [200]
    else:
        answer = call(command, *arguments, cwd=folder)
        assert answer.returncode == 0, f"{line}: {answer.stderr}"


def run_elsewhere(page):
    """Return whether a test names the page, or a test of its folder runs all pages there."""
    if "/" in page and (TESTS / "docs" / f"test_{page.partition('/')[0]}.py").exists():
        return True
    named = f"docs/{page}"
    return any(named in path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py") if path != Path(__file__))


def test_no_page_waits_for_its_figures():
    for path in DOCS.rglob("*.md"):
        assert not re.search(r"^[A-Z]{4,}$", path.read_text(encoding="utf-8"), flags=re.MULTILINE), path


def test_no_page_has_code_that_nothing_runs():
    for path in DOCS.rglob("*.md"):
        page = path.relative_to(DOCS).as_posix()
        if page.startswith("examples/"):
            continue  # made by the gallery
        code = [language for language, _ in blocks(page) if language not in SHOWN]
        assert not code or page in PAGES or run_elsewhere(page), page
        for language, text in blocks(page):
            if language == "json":
                json.loads(text.replace("…", ""))
