"""The page as static files: proved and drawn in the browser, with the network off."""

import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import metricdp as mdp
from chance_tools import follow
from forging import opened, sealed
from metricdp.cli import app
from metricdp.errors import InvalidInputError
from metricdp.service.page.assets import core_files, page_files
from metricdp.service.page.exporting import export_page

playwright = pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")

from extension_tools import BROWSER  # noqa: E402

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the path")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
SETTLED = """() => {
  const [pin, table] = [document.getElementById('here').dataset, document.getElementById('outputs').dataset];
  const there = document.getElementById('there');
  return document.body.dataset.state === 'ready' && pin.x === table.x && pin.y === table.y
    && (there.hidden || (there.dataset.x === table.xThere && there.dataset.y === table.yThere));
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mechanisms")
    problem = mdp.cities.load("helsinki").problem(outputs=20, tasks=50, seed=0)
    paths = []
    for epsilon in (8, 4):
        paths.append(folder / f"spline-{epsilon}.mdp")
        mdp.fit(problem, epsilon, "spline", cells=6).save(paths[-1])
    return paths


@pytest.fixture(scope="module")
def exported(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "page"
    arguments = ["export", "page", *map(str, files), "--city", "helsinki", "--out", str(folder), "--json"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.stdout)
    assert said["mechanisms"] == ["spline-8", "spline-4"]
    assert said["files"] == sum(path.is_file() for path in folder.rglob("*"))
    assert said["bytes"] == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def visit(exported):
    """Open the page from a static server, and cut it off from everything once it is loaded."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=exported))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=BROWSER, args=FLAGS)
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.asked, page.logged = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.logged.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.logged.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function(SETTLED)
        page.wait_for_function("() => navigator.serviceWorker.controller !== null")
        server.shutdown()
        server.server_close()
        context.set_offline(True)
        yield page
        assert page.logged == []
        browser.close()


def pin(page, name="here"):
    return np.array([float(page.locator(f"#{name}").get_attribute(f"data-{axis}")) for axis in "xy"])


def shown(page, name="probability"):
    rows = page.eval_on_selector_all("#outputs tbody tr", "rows => rows.map(row => ({...row.dataset}))")
    found = {int(row["outputId"]): float(row[name]) for row in rows}
    return np.array([found[index] for index in range(len(found))])


def middle(page, selector):
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@needs_browser
def test_everything_works_with_the_network_off(visit, files):
    page, mechanisms = visit, [mdp.load(path) for path in files]
    page.asked.clear()

    def settled(mechanism):
        page.wait_for_function(SETTLED)
        np.testing.assert_allclose(shown(page), mechanism.probabilities(pin(page)[None, :])[0], rtol=0, atol=1e-12)

    settled(mechanisms[0])
    assert "Proved private by this device" in page.locator("#proof").inner_text()
    # Click.
    x, y = middle(page, "#map")
    before = pin(page)
    page.mouse.click(x + 90, y - 120)
    settled(mechanisms[0])
    assert (pin(page) - before > 0.02).all()
    # Drag.
    x, y = middle(page, "#here")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 120, y + 140, steps=12)
    page.mouse.up()
    settled(mechanisms[0])
    # Another ε.
    page.locator("#epsilon").fill("0")
    page.wait_for_selector("#outputs[data-mechanism=spline-4]")
    settled(mechanisms[1])
    # Draw: the law is the library's.
    page.click("#draw-one")
    page.wait_for_function("() => document.getElementById('drawn').dataset.total === '1'")
    for total in (1001, 2001):
        page.click("#draw-many")
        page.wait_for_function(f"() => document.getElementById('drawn').dataset.total === '{total}'")
    assert follow(shown(page, "count"), shown(page))
    # Compare.
    page.click("#mode-two")
    page.wait_for_function(SETTLED)
    z = mechanisms[1].probabilities([pin(page), pin(page, "there")])
    np.testing.assert_allclose(shown(page), z[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(shown(page, "probabilityThere"), z[1], rtol=0, atol=1e-12)
    assert page.asked == []


@needs_browser
def test_it_opens_again_without_a_network(visit, files):
    page = visit
    page.reload()
    page.wait_for_function(SETTLED)
    expected = mdp.load(files[0]).probabilities(pin(page)[None, :])[0]
    np.testing.assert_allclose(shown(page), expected, rtol=0, atol=1e-12)
    manifest = page.evaluate("async () => (await fetch('app.webmanifest')).json()")
    assert manifest["start_url"] == "./"
    assert manifest["icons"]


@needs_browser
def test_a_forged_mechanism_is_not_shown(files, tmp_path):
    """The device proves for itself: a file that claims half of its ε, with a hash that fits, is refused."""
    site = tmp_path / "page"
    export_page(files, site)
    path = site / "mechanisms" / "spline-8.mdp"
    header, arrays = opened(path.read_bytes())
    path.write_bytes(sealed({**header, "epsilon": "4.0", "certificate": None}, arrays))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with playwright.sync_playwright() as run:
        browser = run.chromium.launch(executable_path=BROWSER, args=FLAGS)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_selector("body[data-state=failed]")
        assert page.locator("#outputs tbody tr").count() == 0
        browser.close()
    server.shutdown()
    server.server_close()


def test_every_file_is_kept_for_later_and_nothing_else_is_named(exported):
    worker = (exported / "worker.js").read_text()
    listed = set(json.loads(re.search(r"const FILES = (\[.*\]);", worker)[1]))
    there = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert listed == there - {"worker.js", "index.html"} | {"./"}
    assert "@" not in worker
    # No address of anybody else in what the browser runs.
    for path in exported.rglob("*"):
        if path.suffix in {".js", ".html", ".css", ".json", ".webmanifest"}:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(?:src|href|import|from|fetch)[\s(=]*[\"'](?:https?:)?//", text), path


def test_one_source_of_the_modules():
    root = Path(__file__).parents[2]
    assert core_files() == {path.name: path.read_bytes() for path in (root / "js" / "src").glob("*.js")}
    assert "index.js" in core_files()
    assert {"index.html", "device.js", "chances.js"} <= set(page_files())


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(files, tmp_path):
    problem = mdp.cities.load("helsinki").problem(outputs=5, tasks=20, seed=0)
    mdp.fit(problem, 4, "em").save(tmp_path / "em.mdp")
    with pytest.raises(InvalidInputError, match="export mechanisms of method spline"):
        export_page([tmp_path / "em.mdp"], tmp_path / "page")
    with pytest.raises(InvalidInputError, match="two of the name"):
        export_page([files[0], files[0]], tmp_path / "page")
    with pytest.raises(FileNotFoundError):
        export_page([tmp_path / "none.mdp"], tmp_path / "page")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["em.mdp"]
    for place in (tmp_path, tmp_path / "none" / "page"):
        answer = CliRunner().invoke(app, ["export", "page", str(files[0]), "--out", str(place)])
        assert answer.exit_code != 0
        assert "`--out` must be" in str(answer.exception)


def test_roads_of_another_city_are_refused(files, tmp_path):
    lyon = mdp.Problem.from_lonlat([[4.82, 45.75], [4.86, 45.77]], [[4.83, 45.755], [4.85, 45.765]])
    mdp.fit(lyon, 2.0, "spline", cells=2).save(tmp_path / "lyon.mdp")
    arguments = ["export", "page", str(tmp_path / "lyon.mdp"), "--city", "helsinki", "--out", str(tmp_path / "page")]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code != 0
    assert "`--city` must be the city in which the mechanisms are" in str(answer.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lyon.mdp"]
    export_page(
        [tmp_path / "lyon.mdp", files[0]], tmp_path / "page", mdp.cities.load("helsinki")
    )  # one of them is there


def test_ids_of_64_bits_stay_exact(tmp_path):
    problem = mdp.Problem(
        np.random.default_rng(0).random((20, 2)), np.eye(2), "euclidean", bounds=[[0, 0], [1, 1]], output_ids=[2**62, 7]
    )
    mdp.fit(problem, 1.0, "spline", cells=3).save(tmp_path / "ids.mdp")
    export_page([tmp_path / "ids.mdp"], tmp_path / "page")
    (listed,) = json.loads((tmp_path / "page" / "mechanisms" / "list.json").read_text())
    assert [place["id"] for place in listed["detail"]["places"]] == [str(2**62), 7]
