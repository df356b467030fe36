"""A new mechanism is one folder and one line: a toy family, in a package of its own, shows up in every room.

The toy reports every output with the same probability, wherever somebody is. Nothing of metricdp is edited; the one line
is added to `metricdp.mechanisms.families.FOLDERS`.
"""

import importlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import metricdp as mdp
from metricdp.mechanisms import families
from problems import random_problem

FILES = {
    "__init__.py": """
from metricdp.mechanisms.family import Family, Method

FAMILY = Family(
    kind="toy-uniform",
    mechanism_at="toy_family.mechanism:Uniform",
    prove_at="toy_family.proof:prove",
    first_format=3,
    methods=(
        Method(
            name="toy",
            label="Toy with a label of its own",
            colour="#123456",
            design_at="toy_family.fit:fit_toy",
            options_at="metricdp.mechanisms.options:ClosedFormOptions",
        ),
    ),
)
""",
    "mechanism.py": """
import numpy as np

from metricdp.mechanisms.base import Mechanism


class Uniform(Mechanism):
    kind = "toy-uniform"

    def _rows(self, points):
        return np.full((len(points), self.n_outputs), 1 / self.n_outputs)

    def settings(self):
        return {}

    @classmethod
    def from_settings(cls, common, settings):
        return cls(**common)
""",
    "proof.py": """
from metricdp.certificates.claims import Finding, proved


def prove(mechanism):
    claim = proved(mechanism, "The toy's reports do not depend on the point.")
    return Finding(holds=True, claim=claim, worst_ratio=0.0, worst_where={}, checked=1)
""",
    "fit.py": """
from metricdp.mechanisms.options import common_fields
from toy_family.mechanism import Uniform


def fit_toy(problem, epsilon, options):
    options.say(1.0, "nothing to do")
    return Uniform(**common_fields(problem, epsilon, "toy"), report={"loss": problem.uniform_loss})
""",
}
# The one line, and then the command line as it is: several commands in one process, which is faster.
COMMANDS = """
import json, sys
from metricdp.mechanisms.families import FOLDERS
FOLDERS.append("toy_family")
from typer.testing import CliRunner
from metricdp.cli import app
answers = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
json.dump([(answer.exit_code, answer.stdout) for answer in answers], sys.stdout)
"""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "packages" / "toy_family"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder.parent


@pytest.fixture
def toy(package, monkeypatch):
    """Add the family to the registry of this process for one test."""
    monkeypatch.syspath_prepend(package)
    monkeypatch.setattr(families, "FOLDERS", [*families.FOLDERS, "toy_family"])
    importlib.invalidate_caches()
    yield "toy"
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_family"]:
        del sys.modules[name]


@pytest.fixture
def problem():
    return random_problem(0, n_records=20, n_outputs=4)


def test_without_its_line_the_family_is_unknown(problem):
    with pytest.raises(mdp.InvalidInputError, match="`method` must be one of"):
        mdp.fit(problem, 1.0, "toy")


def test_fit_designs_and_proves_it(toy, problem):
    mechanism = mdp.fit(problem, 1.0, toy)
    assert type(mechanism).__module__ == "toy_family.mechanism"
    assert mechanism.report["certificate"]["holds"] is True
    assert mechanism.expected_loss(problem) == pytest.approx(problem.uniform_loss)
    assert toy in mdp.METHODS


def test_certify_uses_its_proof(toy, problem):
    certificate = mdp.certify(mdp.fit(problem, 1.0, toy))
    assert certificate.holds
    assert "The toy's reports do not depend on the point." in certificate.claim


def test_files_keep_it(toy, problem, tmp_path):
    mechanism = mdp.fit(problem, 1.0, toy)
    mechanism.save(tmp_path / "toy.mdp")
    again = mdp.load(tmp_path / "toy.mdp")
    assert type(again) is type(mechanism)
    assert mdp.files.content_hash(again) == mdp.files.content_hash(mechanism)


def test_compare_has_its_row_and_the_figure_its_label_and_colour(toy, problem):
    frame = mdp.compare(problem, [0.5, 1.0], [toy, "em"], clusters=4, pairs=20)
    rows = frame[frame["method"] == toy]
    assert rows["certified"].all()
    assert (rows["violation_ratio"] == 0).all()
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    from metricdp.experiments.comparison_figures import loss_figure

    (axes,) = loss_figure(frame, problem).axes
    assert "#123456" in [line.get_color() for line in axes.lines if line.get_label() == mdp.METHODS[toy].label]


def test_perturb_and_the_ledger_draw_from_it(toy, problem, tmp_path):
    mechanism = mdp.fit(problem, 1.0, toy)
    assert set(mechanism.sample(problem.records, mdp.InsecureSeed(0)).tolist()) <= set(range(4))
    with mdp.Ledger(tmp_path / "budgets.db", max_epsilon=1) as ledger:
        assert (ledger.sample(mechanism, ["ann", "ann"], problem.records[:2]) >= 0).tolist() == [True, False]


def test_the_service_tells_the_page_its_label(toy, problem, tmp_path):
    pytest.importorskip("fastapi", reason="needs the extra `service`")
    from metricdp.service import Settings
    from service_tools import call

    mdp.fit(problem, 1.0, toy).save(tmp_path / "toy.mdp")
    answer = call(Settings(files=(tmp_path / "toy.mdp",)), "GET", "/v1/mechanisms")
    (summary,) = answer.json()["mechanisms"]
    assert (summary["method"], summary["certified"]) == (toy, True)
    assert summary["label"] == "Toy with a label of its own"


def test_the_command_line_lists_fits_and_certifies_it(package, problem):
    np.savez(package / "problem.npz", records=problem.records, outputs=problem.outputs, loss=problem.loss)
    commands = [
        ["fit", "--help"],
        ["compare", "--help"],
        ["fit", "problem.npz", "--epsilon", "1", "--method", "toy", "--out", "toy.mdp", "--json"],
        ["certify", "toy.mdp", "--json"],
    ]
    answer = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=package, env=os.environ | {"PYTHONPATH": str(package), "COLUMNS": "200"},
        capture_output=True, encoding="utf-8", check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    codes, (fit_help, compare_help, fitted, proved) = zip(*json.loads(answer.stdout), strict=True)
    assert codes == (0, 0, 0, 0)
    for text in (fit_help, compare_help):
        assert "toy" in re.findall(r"[\w-]+", text)
    assert json.loads(fitted)["method"] == "toy"
    assert json.loads(proved)["holds"] is True
