"""Progress is seen where people look and work takes long, and nowhere else; the log tells stages and no coordinate."""

import logging
import os
import pty
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import metricdp as mdp
from cli_tools import call
from metricdp import _progress
from metricdp._progress import told, told_rows
from problems import random_problem


def on_a_terminal(code, patience=0.2):
    """Return what Python code writes to a terminal on its stderr."""
    ours, theirs = pty.openpty()
    start = f"from metricdp import _progress; _progress.PATIENCE_SECONDS = {patience}\n"
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", start + code], stderr=theirs, stdout=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other end was closed
                break
            if not chunk:
                break
            said += chunk
        assert process.wait() == 0, said.decode()
    os.close(ours)
    return said.decode()


SLOW = """
import time
from metricdp._progress import told, told_rows
with told({progress}, "measuring") as tell:
    tell(0.25, "a quarter [bold]")
    time.sleep({seconds})
"""


def test_a_terminal_shows_a_bar_once_patience_is_at_its_end():
    said = on_a_terminal(SLOW.format(progress=None, seconds=3))  # a busy machine shows it late
    assert "measuring" in said
    assert "a quarter [bold]" in said
    assert on_a_terminal(SLOW.format(progress=None, seconds=0.6), patience=30) == ""
    assert on_a_terminal(SLOW.format(progress=False, seconds=0.6)) == ""
    assert "measuring" in on_a_terminal(SLOW.format(progress=True, seconds=0.6), patience=30)
    # It leaves nothing behind: the line is cleared at the end.
    assert re.search(r"\x1b\[2K", said)


def test_fit_and_compare_show_one_by_themselves_on_a_terminal():
    code = """
import numpy as np, metricdp as mdp
rng = np.random.default_rng(0)
problem = mdp.Problem(rng.random((300, 2)) * 4, rng.random((10, 2)) * 4, "euclidean")
mdp.fit(problem, 2.0, "spline", cells=10)
mdp.compare(problem, [1.0], ["em"], clusters=60, pairs=100)
"""
    said = on_a_terminal(code, patience=0.0)
    assert "fitting spline" in said
    assert "comparing" in said
    # Two bars in all, each of which hides the cursor: what a comparison fits and bounds has none of its own.
    assert said.count("\x1b[?25l") == 2


def test_pipes_and_logs_get_nothing(capfd):
    with told(True, "measuring") as tell, told_rows(True, "rows") as rows:
        tell(0.5, "half")
        rows(10, 0.5)
        time.sleep(0.05)
    assert capfd.readouterr() == ("", "")


def test_a_function_is_told_instead():
    heard = []
    with told(lambda *said: heard.append(said), "measuring") as tell:
        tell(0.5, "half")
    problem = random_problem(0)
    mdp.fit(problem, 1.0, "spline", cells=2, progress=lambda *said: heard.append(said))
    mdp.lower_bound(problem, 1.0, clusters=10, progress=lambda *said: heard.append(said))
    mdp.audit_samples(mdp.fit(problem, 1.0, "em"), samples=10_000, progress=lambda *said: heard.append(said))
    assert heard[0] == (0.5, "half")
    assert {"2 x 2 cells", "confirming"} <= {words.partition(":")[0] for _, words in heard}
    assert all(0 <= fraction <= 1 for fraction, _ in heard)


class _Shown:
    """Stands for IPython's handle of what was displayed."""

    def __init__(self, page):
        self.page = page

    def update(self, thing):
        self.page.append(thing.data)


def test_a_notebook_shows_a_line_that_is_updated_and_cleared(monkeypatch):
    display = pytest.importorskip("IPython.display")
    page = []
    monkeypatch.setattr(_progress, "_in_notebook", lambda: True)
    monkeypatch.setattr(display, "display", lambda thing, **_: page.append(thing.data) or _Shown(page))
    with told(None, "measuring") as tell:
        tell(0.5, "too early")
    assert page == []
    with told(True, "<b>") as tell, told_rows(True, "perturbing") as rows:
        tell(0.25, "<script>")
        rows(12_345, None)
    assert page[0] == '&lt;b&gt; <progress value="0.2500"></progress> &lt;script&gt;'
    assert page[1] == "perturbing <progress></progress> 12,345 rows"
    assert page[2:] == ["", ""]


@pytest.mark.slow
def test_a_real_notebook_shows_a_bar_and_cards(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    setup = """
import numpy as np, metricdp as mdp
from metricdp import _progress
_progress.PATIENCE_SECONDS = 0
problem = mdp.Problem(np.random.rand(50, 2), np.random.rand(4, 2), "euclidean")
mechanism = mdp.fit(problem, 1.0, "spline", cells=3)
"""
    cells = [
        setup,
        "problem",
        "mdp.compare(problem, [1.0], ['em', lambda problem, epsilon: mechanism], clusters=5, pairs=100, workers=2)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    first, second, third = (cell.outputs for cell in notebook.cells)
    # The last update of the line is empty.
    assert [one["data"]["text/html"] for one in first if "data" in one] == [""]
    assert "<caption>Problem</caption>" in second[0]["data"]["text/html"]
    assert "&lt;lambda&gt;" in third[-1]["data"]["text/html"]


def test_the_log_tells_stages_at_info_and_details_at_debug_and_no_coordinate(caplog, tmp_path):
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("metricdp").handlers)
    records = 1000.123456 + np.random.default_rng(0).random((30, 2))
    problem = mdp.Problem(records, records[:3] + 0.01, "euclidean")
    with caplog.at_level(logging.DEBUG, logger="metricdp"):
        mechanism = mdp.fit(problem, 1.0, "spline", cells=2)
        mdp.audit(mechanism, pairs=50)
        mdp.compare(problem, [1.0], ["em"], clusters=3, pairs=50)
        np.savetxt(tmp_path / "in.csv", records, delimiter=",", header="x,y", comments="")
        mdp.perturb.perturb_file(mechanism, tmp_path / "in.csv", tmp_path / "out.csv")
    said = {level: [one.getMessage() for one in caplog.records if one.levelno == level] for level in (10, 20)}
    for words in ("fitting spline at ε = 1.0", "fitted spline", "proved Spline", "audited Spline", "lower bound 'tight'",
                  "compared em at ε = 1", "perturbed 30 rows"):  # fmt: skip
        assert any(one.startswith(words) for one in said[20]), words
    assert any(one.startswith("fitting spline: 100 %") for one in said[10])
    assert "1000." not in caplog.text
    assert "1001." not in caplog.text


def test_verbose_and_quiet_for_all_commands_and_for_one(tmp_path):
    problem = random_problem(0)
    np.savez(tmp_path / "p.npz", records=problem.records, outputs=problem.outputs)
    fit = ["fit", "p.npz", "--epsilon", "1", "--method", "em", "--json"]
    silent = call(*fit, cwd=tmp_path)
    assert (silent.returncode, silent.stderr) == (0, "")
    for loud in ([*fit, "-v"], ["-v", *fit], [*fit, "--verbose"]):
        answer = call(*loud, cwd=tmp_path)
        assert "fitting em at ε = 1.0: Problem(" in answer.stderr
        assert "\nfitted em in " in answer.stderr
        assert answer.stdout.startswith("{")
    assert "fitting em: 100 %" not in answer.stderr
    assert "fitting em: 100 %" in call(*fit, "-vv", cwd=tmp_path).stderr
    assert call(*fit, "-q", cwd=tmp_path).stderr == ""
    assert call(*fit, cwd=tmp_path).stderr == ""
    both = call("fit", "p.npz", "--epsilon", "1", "-v", "-q", cwd=tmp_path)
    assert both.returncode == 2
    assert "`--verbose` and `--quiet` exclude each other" in both.stderr
