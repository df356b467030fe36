"""The JavaScript package: its own tests in Node and Chromium, its types and size, and its verdicts beside Python's."""

import json
import random
import re
import shutil
import time
import warnings

import numpy as np
import pytest

import metricdp as mdp
from device_tools import PACKAGE, ROOT, javascript_verdicts, needs_node, python_verdicts, run_node, served
from file_mutants import MUTATIONS, base_files
from forging import FORGERS, another_name, renamed, sealed
from forging_maps import forge_elastic
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.spline.mechanism import Spline

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LARGEST_BYTES = 35_000

# Kinds that both languages draw from; and those that JavaScript must refuse, whatever is said of them.
DRAWN = {"spline": FORGERS["spline"], "sparse spline": FORGERS["sparse spline"], "elastic spline": forge_elastic}
DRAWN |= {"lattice-laplace": FORGERS["lattice-laplace"]}


@needs_node
def test_in_node():
    assert "# fail 0" in run_node("--test", "--test-reporter=tap", "test/checks.test.mjs")


@needs_node
@pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the path")
def test_in_chromium():
    """The same checks in a real browser, and nothing is asked of anybody but the server of the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")
    with served(ROOT) as address, playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/js/test/browser.html")
        page.wait_for_function("() => document.body.dataset.state === 'done'", timeout=240_000)
        results = json.loads(page.inner_text("#results"))
        browser.close()
    assert len(results) >= 20
    assert [one for one in results if one["error"]] == []
    assert all(url.startswith(address) for url in asked)


def installed(name):
    return (PACKAGE / "node_modules" / name).is_dir()


@needs_node
@pytest.mark.skipif(not installed("typescript"), reason="needs `npm ci` in js/")
def test_types():
    run_node("node_modules/typescript/bin/tsc", "-p", ".")


@needs_node
@pytest.mark.skipif(not installed("esbuild"), reason="needs `npm ci` in js/")
def test_size():
    assert json.loads(run_node("size.mjs"))["minified_bytes"] < LARGEST_BYTES


def test_the_core_uses_nothing_of_node_and_no_other_package():
    for source in (PACKAGE / "src").glob("*.js"):
        text = source.read_text()
        imported = [line.split('from "')[1] for line in text.splitlines() if line.startswith("import ")]
        assert all(name.startswith("./") for name in imported), source
        assert re.findall(r"\b(?:process|Buffer|console)\.|node:|Math\.random|\beval\b|fetch\(", text) == []
        assert len(text.splitlines()) <= 500


def test_the_package_says_what_it_needs():
    package = json.loads((PACKAGE / "package.json").read_text())
    assert "dependencies" not in package
    lock = (PACKAGE / "package-lock.json").read_text()
    assert "resolved" not in lock
    assert "://" not in lock


# ---------------------------------------------------------------- verdicts, file by file


def forged_files(folder, count, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        kind = list(DRAWN)[number % len(DRAWN)]
        path = folder / f"{number}-{kind.replace(' ', '-')}.mdp"
        path.write_bytes(sealed(*DRAWN[kind](rng)))
        yield path


def damaged_files(folder, count, seed):
    """Yield mutants of files of every kind: damaged archives, edited headers and arrays, with a fresh hash or without."""
    rng = random.Random(seed)
    bases = [path.read_bytes() for path in base_files(folder)]
    for number in range(count):
        mutation = rng.choice(MUTATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two entries of one name, or NaN among whole numbers, are meant
            mutant = mutation(rng.choice(bases), rng, bases)
        path = folder / f"mutant-{number}-{mutation.__name__}.mdp"
        path.write_bytes(mutant)
        yield path


def compare(paths, monkeypatch):
    """Compare file by file; return how often each verdict was given."""
    counts = {}
    for path, ours, theirs in zip(paths, python_verdicts(paths, monkeypatch), javascript_verdicts(paths), strict=True):
        verdict = theirs["verdict"]
        counts[verdict] = counts.get(verdict, 0) + 1
        if verdict == "unsupported":  # of a kind in floating point, so JavaScript proves nothing of it
            continue
        assert verdict == ours["verdict"], (path, ours, theirs)
        if verdict == "accepted":
            assert theirs["claim"] == ours["claim"]
            assert (theirs["metres"] and theirs["metres"]["statement"]) == ours["metres"]
            assert (theirs["paths"] and theirs["paths"]["statement"]) == ours["paths"]
    return counts


@needs_node
def test_verdicts_on_forged_files(tmp_path, monkeypatch):
    counts = compare(list(forged_files(tmp_path, 80, 3)), monkeypatch)
    assert min(counts["accepted"], counts["not certified"], counts["refused"]) >= 10


@needs_node
def test_verdicts_on_damaged_files(tmp_path, monkeypatch):
    counts = compare(list(damaged_files(tmp_path, 250, 3)), monkeypatch)
    assert min(counts["accepted"], counts["unsupported"], counts["refused"]) >= 10


@needs_node
def test_entries_of_two_names_are_refused_by_all(tmp_path, monkeypatch):
    """Python believes the name of an extra field from 3.12 on only, so versions would read different files."""
    problem = mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean")
    mdp.fit(problem, epsilon=0.5, method="spline", cells=2).save(tmp_path / "m.mdp")
    data = (tmp_path / "m.mdp").read_bytes()
    extra = another_name("outputs.npy", b"others.npy")
    forged = {
        "same": renamed(data, "outputs.npy", "outputs.npy"),
        "hidden": renamed(data, "outputs.npy", "outputs.npy", extra),
        "shown": renamed(data, "outputs.npy", "others.npy", another_name("others.npy", b"outputs.npy")),
        "no text": renamed(data, "outputs.npy", "outputs.npy", another_name("outputs.npy", b"\xff")),
        "behind another field": renamed(data, "outputs.npy", "outputs.npy", b"UT\x01\x00\x00" + extra),
        "after a zero byte": renamed(data, "outputs.npy", "outputs.npy\0others.npy"),
    }
    paths = [tmp_path / f"{name}.mdp" for name in forged]
    for path, content in zip(paths, forged.values(), strict=True):
        path.write_bytes(content)
    assert compare(paths, monkeypatch) == {"accepted": 1, "refused": 5}


@needs_node
def test_a_map_of_many_cells_does_not_take_hours(tmp_path, monkeypatch):
    """Borders of a map are looked for among those of cells; one by one, a file of 4 MB would keep a page busy for hours."""
    count = 400_000
    borders = np.arange(count + 1) * 2.0**-18
    spline = Spline(
        outputs=np.array([[0.0], [1.0]]),
        bounds=borders[[0, -1], None],
        epsilon=1.0,
        p=2.0,
        method="spline",
        step=2.0**-30,
        grid=Grid((borders,)),
        degree=1,
        table=np.full((count + 1, 2), 2**40),
        epsilon_map=EpsilonMap([borders], np.where(np.arange(count) % 2, 1.0, 0.5)),
    )
    spline.save(tmp_path / "m.mdp")
    started = time.monotonic()
    assert compare([tmp_path / "m.mdp"], monkeypatch) == {"accepted": 1}
    assert time.monotonic() - started < 60


@needs_node
@pytest.mark.slow
def test_two_thousand_forged_files(tmp_path, monkeypatch):
    """Two thousand of kinds that both draw from, and as many damaged ones."""
    counts = compare(list(forged_files(tmp_path, 2000, 19)), monkeypatch)
    assert sum(counts.values()) == 2000
    assert min(counts["accepted"], counts["not certified"], counts["refused"]) >= 200
    counts |= {
        f"damaged: {verdict}": n for verdict, n in compare(list(damaged_files(tmp_path, 2000, 19)), monkeypatch).items()
    }
    print(counts)
