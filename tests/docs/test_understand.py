"""docs/understand: the tests that it names exist, its code runs, and its figures and pictures are the library's."""

import ast
import math
import os
import re
import subprocess
import sys

import pytest

from docs_tools import DOCS, blocks, run_page

ROOT, FOLDER = DOCS.parent, DOCS / "understand"
PAGES = sorted(FOLDER.glob("*.md"))
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
NAMED = re.compile(r"tests/[\w/]+\.py::\w+")


def cells(line):
    return [cell.strip(" *") for cell in line.strip("|\n ").split("|")]


def rows_of(text, head):
    """Return the rows of the table whose first line has these words."""
    lines = text[text.index(head) :].split("\n\n")[0].splitlines()
    return [cells(line) for line in lines[2:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_named_tests_exist(page):
    named = set(NAMED.findall(TEXTS[page.name]))
    assert named, "a page without a test"
    for name in named:
        path, function = name.split("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in defined, name


def test_every_theorem_has_a_proof_and_tests():
    proved = 0
    for name, text in TEXTS.items():
        theorems = len(re.findall(r"\*\*(?:Theorem|Lemma)", text))
        assert theorems <= text.count("*Proof.*"), name
        assert text.count("*Proof.*") <= text.count("∎"), name
        if theorems:
            assert "## Checked by" in text, name
        proved += theorems
    assert proved >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_pictures_exist(page):
    for target in re.findall(r"\]\((?!https:)([^)#]+)", TEXTS[page.name]):
        assert (FOLDER / target).exists(), target


def test_every_page_is_in_the_index():
    index = TEXTS["index.md"]
    for page in PAGES:
        if page.name != "index.md":
            assert f"]({page.name})" in index
            assert f"\n{page.stem}\n" in index


@pytest.mark.parametrize("page", ["earth.md", "adversary.md"])
def test_python(page, tmp_path):
    assert any(block.kind == "python" for block in blocks(f"understand/{page}"))
    said = run_page(f"understand/{page}", tmp_path).said
    assert {"earth.md": "On the ground (WGS 84)", "adversary.md": "after 10 reports"}[page] in said


@pytest.mark.slow
def test_the_command_about_the_paper(tmp_path):
    run_page("understand/paper.md", tmp_path, silent=False)  # it tells how long it will take
    assert (tmp_path / "reproduce" / "report.html").exists()


def test_odds_of_the_promise():
    rows = rows_of(TEXTS["promise.md"], "| distance of A and B")
    assert len(rows) == 5
    for distance, factor, odds in rows:
        most = math.exp(8 * float(distance.removesuffix(" m")) / 1000)
        assert float(factor) == pytest.approx(most, rel=0.05)
        share = round(100 * most / (1 + most))
        assert odds == f"{share} : {100 - share}"


def test_shares_of_the_steepest_climb():
    rows = rows_of(TEXTS["splines.md"], "| $t$ |")
    assert len(rows) == 3
    for row in rows:
        t, first, second = map(float, row)
        assert first == round(math.log1p(t) / t, 2)
        assert second == round(math.asinh(t) / t, 2)


def test_shares_above_the_bound():
    """What the page about the paper says follows from the README's table."""
    table = {}
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        numbers = re.findall(r"\| \**(\d+\.\d+)\** (?=\|)", line)
        if len(numbers) == 4:
            name = re.search(r"`([\w-]+)`|lower bound", line)
            table[name[1] or name[0]] = [float(number) for number in numbers]
    above = {
        name: [100 * (loss / bound - 1) for loss, bound in zip(table[name], table["lower bound"], strict=True)]
        for name in ("auto", "aipo-e")
    }
    text = " ".join(TEXTS["paper.md"].split())
    assert f"within {max(above['auto']):.1f} % of the best possible" in text
    assert f"AIPO is {min(above['aipo-e']):.0f} to {max(above['aipo-e']):.0f} % above it" in text
    less = [100 * (1 - aipo / em) for aipo, em in zip(table["aipo-e"], table["em"], strict=True)]
    assert f"{min(less):.0f} to {max(less):.0f} % less than the exponential mechanism" in text
    assert all(a > b for a, b in zip(table["aipo-e"], table["laplace-remap"], strict=True))


def test_pictures_are_small_and_made_by_the_script():
    drawn = re.search(r"^PICTURES = \((.*)\)$", (FOLDER / "pictures.py").read_text(encoding="utf-8"), re.MULTILINE)[1]
    pictures = {path.stem for path in (FOLDER / "pictures").iterdir()}
    assert pictures == set(drawn.split(", "))
    for path in (FOLDER / "pictures").iterdir():
        assert path.suffix == ".png"
        assert 5_000 < path.stat().st_size < 200_000
        assert f"](pictures/{path.name})" in "".join(TEXTS.values())


@pytest.mark.slow
def test_the_script_draws_what_the_pages_say(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / "pictures.py"), str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=500,
        env=os.environ | {"MPLBACKEND": "agg", "PYTHONUTF8": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    for path in (FOLDER / "pictures").iterdir():
        assert image.imread(tmp_path / path.name).shape == image.imread(path).shape
    said, text = answer.stdout, " ".join(TEXTS["promise.md"].split())
    near, far, allowed = re.search(r"B is (\d+) m from A, C (\d+) m; allowed for B: factor ([\d.]+)", said).groups()
    assert f"{near} m away, a factor of {allowed} up or down" in text
    assert f"C is {far} m away" in text
    assert float(re.search(r"from A to B ([\d.]+)", said)[1]) <= float(allowed)
    assert 0.9 < float(re.search(r"on the walk ([\d.]+)", said)[1]) <= 1
    assert re.search(r"window: at most 10 per km in 24 hours; by calendar days 20$", said, re.MULTILINE)
