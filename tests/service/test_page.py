"""The page in a real browser: what it shows is what the library says, and it asks nobody else."""

import gzip
import json
import math
import re
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from chance_tools import follow
from metricdp.attacking.guesses import best_guesses
from metricdp.files import content_hash
from metricdp.geometry.norms import norm
from metricdp.mechanisms.families import METHODS

pytest.importorskip("fastapi", reason="needs the extra `service`")
pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")

import httpx

from metricdp.service import LedgerOptions, Settings
from metricdp.service.page import demo as demo_module
from metricdp.service.page.assets import roads
from metricdp.service.state.keys import add_key
from page_tools import (
    click_map,
    comes_to,
    needs_browser,
    opened_browser,
    origin,
    pin,
    running,
    screen,
    settle,
    until,
    visiting,
)

WIDEST = "() => Math.max(...[...document.querySelectorAll('.card *')].map(one => one.getBoundingClientRect().right))"
CONTROLS = [
    "theme", "here", "zoom-in", "zoom-out", "zoom-fit", "epsilon", "mode-one", "mode-two", "draw-one", "draw-many",
]  # fmt: skip


@pytest.fixture(scope="module")
def city():
    return mdp.cities.load("helsinki")


@pytest.fixture(scope="module")
def files(city, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    problem = city.problem(outputs=20, tasks=50, seed=0)
    for epsilon in (4, 8):
        mdp.fit(problem, epsilon, "spline", cells=6).save(folder / f"spline-{epsilon}.mdp")
        mdp.fit(problem, epsilon, "em", bound_clusters=30).save(folder / f"em-{epsilon}.mdp")
    names = ("spline-8", "spline-4", "em-4", "em-8")
    return tuple(folder / f"{name}.mdp" for name in names)


@pytest.fixture(scope="module")
def service(files, city):
    with running(Settings(files=files, page=True, city=city, access_log=False)) as up:
        yield up


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def visit(browser):
    """Open pages that must ask their own service alone and log no error."""
    with visiting(browser) as visit:
        yield visit


def rows(page):
    return page.eval_on_selector_all("#outputs tbody tr", "rows => rows.map(row => ({...row.dataset}))")


def shown(page, name="probability"):
    found = {int(row["outputId"]): float(row[name]) for row in rows(page)}
    return np.array([found[index] for index in range(len(found))])


def ask_the_service(page):
    """Turn to a mechanism whose probabilities this browser cannot compute."""
    page.click("#methods tr[data-mechanism=em-8] button")
    page.wait_for_selector("#outputs[data-mechanism=em-8]")
    settle(page)


def chosen(page, service):
    return service.mechanisms[page.locator("#outputs").get_attribute("data-mechanism")]


def assert_as_the_library_says(page, service):
    expected = chosen(page, service).probabilities(pin(page)[None, :])[0]
    np.testing.assert_allclose(shown(page), expected, rtol=0, atol=1e-12)


@needs_browser
def test_a_click_shows_the_probabilities_of_the_library(visit, service):
    page = visit(service)
    assert_as_the_library_says(page, service)
    start = pin(page)
    click_map(page, 90, -120)
    assert (pin(page) - start > [0.02, 0.02]).all()
    assert_as_the_library_says(page, service)
    # The likeliest first, and in words for everybody.
    likely = [int(row["outputId"]) for row in rows(page)]
    assert likely == sorted(likely, key=lambda index: (-shown(page)[index], index))
    until(page, f"document.getElementById('summary').textContent.includes('place {likely[0]} comes up most')")
    assert page.locator("#summary").get_attribute("aria-live") == "polite"


@needs_browser
def test_a_place_beyond_the_box_is_taken_to_its_edge(visit, service):
    page = visit(service)
    width = page.locator("#map").bounding_box()["width"]
    click_map(page, width / 2 - 12, 0)
    assert pin(page)[0] == chosen(page, service).bounds[1, 0]
    assert_as_the_library_says(page, service)


@needs_browser
def test_dragging_the_pin_ends_with_the_answer_for_where_it_was_dropped(visit, service):
    page = visit(service)
    ask_the_service(page)
    start = pin(page)
    # An answer that takes its time must not be shown for a later place: the first comes after the pin is dropped.
    held, dropped = [], []
    page.route("**/v1/probabilities", lambda route: route.continue_() if dropped else held.append(route))
    page.asked.clear()
    x, y = screen(page, "#here")
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(1, 31):
        page.mouse.move(x - 3 * step, y + 4 * step)
    page.mouse.up()
    comes_to(page, lambda: len(held), 1)  # however many steps there were: asked as fast as answers come
    dropped.append(True)
    held[0].continue_()
    settle(page)
    moved = pin(page) - start
    assert moved[0] < -0.05
    assert moved[1] < -0.05
    assert 1 < len(page.asked) < 30
    assert_as_the_library_says(page, service)
    page.unroute("**/v1/probabilities")


@needs_browser
def test_where_a_browser_can_compute_places_go_nowhere(visit, service):
    page = visit(service)
    assert chosen(page, service).method == "spline"
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data))
    x, y = screen(page, "#here")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 60, y + 80, steps=8)
    page.mouse.up()
    settle(page)
    assert_as_the_library_says(page, service)
    page.click("#mode-two")
    settle(page)
    assert set(bodies) <= {None}
    assert not any(url.endswith("probabilities") for url in page.asked)
    assert sum(url.endswith("/v1/mechanisms/spline-8/file") for url in page.asked) == 1


@needs_browser
def test_dragging_the_ground_and_the_wheel_move_the_map_and_not_the_pin(visit, service):
    page = visit(service)
    before, (x, y) = pin(page), screen(page, "#here")
    page.mouse.move(x + 80, y + 80)
    page.mouse.down()
    page.mouse.move(x + 110, y + 60, steps=5)
    page.mouse.up()
    comes_to(page, lambda: screen(page, "#here"), pytest.approx((x + 30, y - 20), abs=1))
    page.mouse.wheel(0, -300)
    before_wheel = math.dist((x + 30, y - 20), (x + 110, y + 60))
    comes_to(page, lambda: math.dist(screen(page, "#here"), (x + 110, y + 60)) > 1.3 * before_wheel, expected=True)
    page.click("#zoom-fit")
    comes_to(page, lambda: screen(page, "#here"), pytest.approx((x, y), abs=1))
    np.testing.assert_array_equal(pin(page), before)


@needs_browser
def test_the_slider_changes_epsilon_and_a_row_the_method(visit, service):
    page = visit(service)
    assert page.locator("#outputs").get_attribute("data-mechanism") == "spline-8"
    mechanism = chosen(page, service)
    radius = 1 / float(mechanism.plane_epsilon) - mechanism.rounding
    assert float(page.locator("#protection").get_attribute("data-value")) == pytest.approx(radius, rel=1e-12)
    assert radius == pytest.approx(1 / 8, rel=5e-3)
    page.focus("#epsilon")
    page.keyboard.press("ArrowLeft")
    settle(page)
    page.wait_for_selector("#outputs[data-mechanism=spline-4]")
    assert page.locator("#epsilon").get_attribute("data-epsilon") == "4"
    assert "250" in page.locator("#epsilon").get_attribute("aria-valuetext")
    assert_as_the_library_says(page, service)
    page.click("#methods tr[data-mechanism=em-4] td.number >> nth=0")
    page.wait_for_selector("#outputs[data-mechanism=em-4]")
    settle(page)
    assert page.locator("#methods tr.chosen").get_attribute("data-mechanism") == "em-4"
    named = {METHODS[service.mechanisms[name].method].label for name in ("em-4", "spline-4")}
    assert set(page.locator("#methods tbody button").all_inner_texts()) == named
    assert_as_the_library_says(page, service)
    report = service.mechanisms["em-4"].report
    cells = page.locator("#methods tr.chosen td").all_inner_texts()
    assert float(cells[0]) == pytest.approx(report["loss"], rel=5e-3)
    over = 100 * (report["loss"] / report["lower_bound"] - 1)
    assert float(re.sub(r"[^\d.]", "", cells[1])) == pytest.approx(over, abs=0.06)
    assert mdp.certify(service.mechanisms["em-4"]).claim in page.locator("#proof").inner_text()
    assert content_hash(service.mechanisms["em-4"]) in page.locator("#proof").inner_text()


@needs_browser
def test_the_two_radii(visit, service):
    page = visit(service)
    click_map(page, 40, 30)
    mechanism, here = chosen(page, service), pin(page)
    row = mechanism.probabilities(here[None, :])[0]
    far = np.linalg.norm(mechanism.outputs - here, axis=1)
    radius = float(page.locator("#accuracy").get_attribute("data-value"))
    assert row[far <= radius * (1 + 1e-12)].sum() >= 0.95
    assert row[far < radius * (1 - 1e-12)].sum() < 0.95
    # The circle on the map has the radius that the panel tells.
    edge = page.eval_on_selector(".edge", "path => { const box = path.getBBox(); return [box.width, box.height]; }")
    land = page.locator("#land").bounding_box()
    scale = land["width"] / (mechanism.bounds[1, 0] - mechanism.bounds[0, 0])
    protection = 1 / float(mechanism.plane_epsilon) - mechanism.rounding
    assert edge == pytest.approx([2 * scale * protection] * 2, rel=1e-3)


@needs_browser
def test_comparing_two_places(visit, service):
    page = visit(service)
    page.click("#mode-two")
    settle(page)
    click_map(page, 60, 150)  # moves B
    mechanism, here, there = chosen(page, service), pin(page), pin(page, "there")
    assert not np.array_equal(here, there)
    z = mechanism.probabilities([here, there])
    np.testing.assert_allclose(shown(page), z[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(shown(page, "probabilityThere"), z[1], rtol=0, atol=1e-12)
    ratios = np.maximum(z[0] / z[1], z[1] / z[0])
    np.testing.assert_allclose(shown(page, "ratio"), ratios, rtol=1e-12)
    told = page.locator("#versus").evaluate("element => ({...element.dataset})")
    bound = math.exp(float(mechanism.plane_epsilon) * (norm(here - there, mechanism.p) + mechanism.rounding))
    assert float(told["bound"]) == pytest.approx(bound, rel=1e-12)
    assert float(told["ratio"]) == pytest.approx(ratios.max(), rel=1e-12)
    assert float(told["ratio"]) <= float(told["bound"])
    assert float(told["most"]) == pytest.approx(bound / (1 + bound), rel=1e-12)
    worst = int(told["output"])
    assert float(told["belief"]) == pytest.approx(z[0, worst] / z[:, worst].sum(), rel=1e-12)
    assert f"place {worst}" in page.locator("#belief").inner_text()
    filled, whole = (page.locator(name).bounding_box()["width"] for name in ("#bound-bar i", "#bound-bar"))
    assert filled / whole == pytest.approx(math.log(ratios.max()) / math.log(bound), abs=0.02)
    # Looking at another report tells what that one gives away.
    page.hover("#outputs tr[data-output-id='7']")
    told = "() => { const d = document.getElementById('versus').dataset; return d.beliefOutput === '7' && d.belief; }"
    sure = page.wait_for_function(told).json_value()
    assert float(sure) == pytest.approx(z[0, 7] / z[:, 7].sum(), rel=1e-12)


@needs_browser
def test_draws_are_real_and_stand_beside_what_is_expected(visit, service):
    page = visit(service)
    page.click("#draw-one")
    until(page, "document.getElementById('drawn').dataset.total === '1'")
    last = int(page.locator("#drawn").get_attribute("data-last"))
    counts = shown(page, "count")
    assert counts[last] == counts.sum() == 1
    assert f"Reported: place {last}," in page.locator("#drawn").inner_text()
    page.click("#clear")
    page.wait_for_selector("#outputs[data-kind=one]")
    page.click("#draw-many")
    until(page, "document.getElementById('drawn').dataset.total === '1000'")
    counts = shown(page, "count")
    assert counts.sum() == 1000
    assert follow(counts, shown(page))
    # Elsewhere they mean nothing.
    click_map(page, 30, 30)
    assert page.locator("#drawn").get_attribute("data-total") == "0"
    assert all("count" not in row for row in rows(page))


def guessed(page, name):
    return np.array(page.locator("#adversary").get_attribute(f"data-{name}").split(","), dtype=float)


@needs_browser
def test_what_an_adversary_believes_after_one_report_and_after_many(visit, service):
    page = visit(service)
    assert page.locator("#adversary").is_hidden()
    page.click("#draw-one")
    page.wait_for_selector("#adversary", state="visible")
    last = int(page.locator("#drawn").get_attribute("data-last"))
    mechanism = chosen(page, service)
    # The same places as the page's: the middles of 24 x 24 cells of the box, all equally likely.
    low, high = mechanism.bounds
    axes = [a + (b - a) * (np.arange(24) + 0.5) / 24 for a, b in zip(low, high, strict=True)]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    lattice = mdp.Problem(places, places[:1], "euclidean", bounds=mechanism.bounds, projection=mechanism.projection)
    believed = mdp.posterior(mechanism, lattice, [last])
    np.testing.assert_allclose(guessed(page, "first"), best_guesses(places, believed[None, :]).points[0], atol=0.01)
    shades = np.array(page.eval_on_selector_all(".beliefs rect", "all => all.map(one => +one.style.opacity)"))
    np.testing.assert_allclose(shades, 0.75 * believed / believed.max(), atol=0.001)
    page.click("#draw-many")
    until(page, "document.getElementById('adversary').dataset.reports === '1001'")
    np.testing.assert_allclose(guessed(page, "all"), pin(page), atol=0.1)  # a thousand reports give the place away
    assert "After all 1,001" in page.locator("#adversary-words").inner_text()
    page.click("#belief-one")
    until(page, "document.getElementById('belief-one').getAttribute('aria-pressed') === 'true'")
    until(page, f"Math.abs(document.querySelectorAll('.beliefs rect')[0].style.opacity - {shades[0]}) < 0.001")
    click_map(page, 30, 30)
    assert page.locator("#adversary").is_hidden()
    assert page.locator(".beliefs rect").count() == 0


@needs_browser
def test_everything_can_be_done_with_the_keyboard(visit, service):
    page = visit(service, reduced_motion="reduce")
    reached = []
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert set(CONTROLS) <= set(reached)
    assert "TR" in reached
    assert "BUTTON" in reached  # the methods
    before = pin(page)
    page.focus("#here")
    assert page.locator("#here").evaluate("pin => getComputedStyle(pin).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    settle(page)
    step = pin(page) - before
    assert step[1] == pytest.approx(10 * step[0], rel=1e-9)
    assert step[0] > 0
    assert_as_the_library_says(page, service)
    assert "latitude" in page.locator("#here").get_attribute("aria-label")
    page.keyboard.press("+")
    page.keyboard.press("0")
    page.focus("#draw-one")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('drawn').dataset.total === '1'")
    assert page.evaluate("document.activeElement.id") == "draw-one"
    # One stop for the table; arrows lead on, and the map tells exactly.
    page.focus("#outputs tbody tr[tabindex='0']")
    page.keyboard.press("ArrowDown")
    row = page.evaluate("({...document.activeElement.dataset})")
    until(page, f"document.getElementById('tip').textContent.startsWith('Place {row['outputId']}: ')")
    told = float(re.search(r": ([\d.e-]+)", page.locator("#tip").inner_text())[1])
    assert told == pytest.approx(100 * float(row["probability"]), rel=1e-5)


@needs_browser
def test_a_phone_of_360_pixels(visit, service):
    page = visit(service, width=360, height=740, has_touch=True, is_mobile=True, device_scale_factor=2)
    assert page.locator("#roads").evaluate("canvas => canvas.width / canvas.clientWidth") == pytest.approx(2, abs=0.02)
    for mode in ("#mode-one", "#mode-two"):
        page.tap(mode)
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(WIDEST) <= 350
    top = [page.locator(name).bounding_box()["y"] for name in ("#map", ".privacy", ".look", ".compared")]
    assert top == sorted(top)
    page.tap("#mode-one")
    settle(page)
    page.evaluate("scrollTo(0, 0)")
    before = pin(page)
    x, y = screen(page, "#here")
    page.touchscreen.tap(x + 60, y + 40)
    settle(page)
    tapped = pin(page)
    assert tapped[0] > before[0] + 0.02
    assert tapped[1] < before[1] - 0.02
    # A finger drags the pin.
    x, y = screen(page, "#here")
    touch = page.context.new_cdp_session(page)
    for kind, right in (("touchStart", 0), ("touchMove", -20), ("touchMove", -50)):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x + right, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    settle(page)
    assert pin(page)[0] < tapped[0] - 0.02
    assert_as_the_library_says(page, service)


@needs_browser
def test_two_fingers_zoom(visit, service):
    page = visit(service, width=360, height=740, has_touch=True, is_mobile=True)
    page.touchscreen.tap(*(value + 30 for value in screen(page, "#map")))
    settle(page)
    width = page.locator("#land").bounding_box()["width"]
    x, y = screen(page, "#map")
    touch = page.context.new_cdp_session(page)
    before = pin(page)
    for kind, apart in (("touchStart", 30), ("touchMove", 45), ("touchMove", 60)):
        points = [{"x": x - apart, "y": y - 60, "id": 0}, {"x": x + apart, "y": y - 60, "id": 1}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    comes_to(page, lambda: page.locator("#land").bounding_box()["width"], pytest.approx(2 * width, rel=0.05))
    np.testing.assert_array_equal(pin(page), before)


def brightness(page, selector="body"):
    colour = page.locator(selector).evaluate("element => getComputedStyle(element).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 765


@needs_browser
def test_light_and_dark(visit, service):
    page = visit(service, color_scheme="dark")
    assert brightness(page) < 0.2
    page.click("#theme")
    assert brightness(page) > 0.8
    assert page.locator("#theme").get_attribute("aria-label") == "Switch to dark colours"
    # A choice outlives the page.
    page.reload()
    settle(page)
    assert brightness(page) > 0.8
    assert brightness(visit(service, color_scheme="light")) > 0.8


@needs_browser
def test_the_roads_are_on_the_map(visit, service):
    page = visit(service)
    inked = """canvas => {
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      let found = 0;
      for (let at = 3; at < data.length; at += 4) if (data[at] > 0) found++;
      return found / (data.length / 4);
    }"""
    assert 0.02 < page.locator("#roads").evaluate(inked) < 0.5
    assert "OpenStreetMap" in page.locator("#credit").inner_text()


@contextmanager
def tile_server():
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = b'<svg xmlns="http://www.w3.org/2000/svg" width="256" height="256"><rect width="256" height="256" fill="red"/></svg>'
            self.send_response(200)
            self.send_header("Content-Type", "image/svg+xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@needs_browser
def test_tiles_come_from_their_host_alone_and_show_the_city(visit, files, city):
    with tile_server() as (host, asked):
        template = host + "/{z}/{x}/{y}.svg"
        with running(Settings(files=files[:1], page=True, city=city, tiles=template, access_log=False)) as service:
            page = visit(service, also=[host])
            arrived = """() => {
              const tiles = document.getElementById('tiles');
              return !tiles.hidden && performance.getEntriesByType('resource').some(one => one.name.startsWith('HOST'));
            }""".replace("HOST", host)
            page.wait_for_function(arrived)
            assert {origin(url) for url in page.asked} == {service.origin, host}
            page.context.close()
    assert asked
    for path in asked:
        zoom, column, row = map(int, re.fullmatch(r"/(\d+)/(\d+)/(\d+)\.svg", path).groups())
        lon = 360 * (column + 0.5) / 2**zoom - 180
        lat = math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * (row + 0.5) / 2**zoom))))
        assert lon == pytest.approx(city.projection.lon_deg, abs=0.06)
        assert lat == pytest.approx(city.projection.lat_deg, abs=0.03)


@needs_browser
def test_a_spent_budget_is_told_in_words(visit, files, tmp_path):
    ledger = LedgerOptions(tmp_path / "budgets.db", max_epsilon=24)
    with running(Settings(files=files[:1], ledger=ledger, page=True, access_log=False)) as service:
        page = visit(service)
        page.fill("#user", "ann")
        page.click("#draw-many")
        until(page, "document.getElementById('drawn').dataset.total === '3'")
        assert "997 refused: budget spent" in page.locator("#drawn").inner_text()
        assert shown(page, "count").sum() == 3
        page.fill("#user", "")
        page.click("#draw-one")
        until(page, "document.getElementById('drawn').textContent.includes('whose budget')")
        page.context.close()


@needs_browser
def test_a_key_is_asked_for_and_kept_nowhere(visit, files, tmp_path):
    keys = tmp_path / "keys.json"
    key = add_key(keys, "page")
    with running(Settings(files=files[:1], keys=keys, page=True, access_log=False)) as service:
        page = visit(service, ready=False, errors=True)
        page.fill("#key", "mdp_wrong")
        page.click("#gate button")
        until(page, "document.getElementById('gate-error').textContent.includes('does not know this key')")
        page.fill("#key", key)
        page.click("#gate button")
        settle(page)
        assert page.locator("#gate").is_hidden()
        assert_as_the_library_says(page, service)
        kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
        assert key not in kept
        assert not any(key in url for url in page.asked)
        page.context.close()


@needs_browser
def test_errors_are_told_in_words(visit, service):
    page = visit(service, errors=True)
    ask_the_service(page)
    body = json.dumps({"title": "Too Many Requests", "status": 429, "detail": "Slow down, please."})
    answer = {"status": 429, "headers": {"Retry-After": "1", "Content-Type": "application/problem+json"}, "body": body}
    page.route("**/v1/probabilities", lambda route: route.fulfill(**answer))
    x, y = screen(page, "#map")
    page.mouse.click(x + 20, y + 60)
    until(page, "document.getElementById('alert').textContent === 'Slow down, please.'")
    # It asks again when the service said.
    page.unroute("**/v1/probabilities")
    settle(page)
    assert page.locator("#alert").is_hidden()
    assert_as_the_library_says(page, service)
    page.route("**/v1/perturb", lambda route: route.abort())
    page.click("#draw-one")
    until(page, "document.getElementById('alert').textContent.includes('does not answer')")


@needs_browser
def test_the_page_opens_within_a_low_limit_of_requests(visit, files):
    with running(Settings(files=files, page=True, requests_per_second=2, access_log=False)) as service:
        page = visit(service, errors=True)
        assert page.locator("#methods tbody tr").count() == 2
        assert_as_the_library_says(page, service)
        page.context.close()


@needs_browser
def test_a_file_that_changes_is_taken_up(visit, files, city, tmp_path):
    path = tmp_path / "live.mdp"
    shutil.copy(files[0], path)
    with running(Settings(files=(path,), page=True, city=city, poll_seconds=0.05, access_log=False)) as service:
        page = visit(service)
        old = page.locator("#proof code").inner_text()
        mdp.load(files[3]).save(path)
        # The page looks for other files once a second at most, and when it is used.
        for right in range(25, 325):
            page.wait_for_timeout(200)
            click_map(page, right % 50, 25)
            if page.locator("#proof code").inner_text() != old:
                break
        settle(page)
        assert page.locator("#proof code").inner_text() != old
        expected = mdp.load(path).probabilities(pin(page)[None, :])[0]
        np.testing.assert_allclose(shown(page), expected, rtol=0, atol=1e-12)
        page.context.close()


@needs_browser
def test_other_problems_norms_and_axes(visit, city, tmp_path):
    files = []
    for p in (1, 3, math.inf):
        files.append(tmp_path / f"p{p}.mdp")
        mdp.fit(city.problem(outputs=6, tasks=20, seed=0, p=p), 8, "em").save(files[-1])
    for axes in (1, 3):
        records = np.random.default_rng(0).random((30, axes)) * 10
        problem = mdp.Problem(records, records[:5], "euclidean", bounds=[[0.0] * axes, [10.0] * axes])
        files.append(tmp_path / f"axes{axes}.mdp")
        mdp.fit(problem, 1.0, "em").save(files[-1])
    with running(Settings(files=tuple(files), page=True, city=city, access_log=False)) as service:
        page = visit(service)
        assert page.locator("#group option").count() == 5
        area = """path => {
          const points = path.getAttribute('d').slice(1, -1).split('L').map(text => text.split(' ').map(Number));
          return Math.abs(points.reduce((sum, [x, y], at) => {
            const [u, v] = points[(at + 1) % points.length];
            return sum + (x * v - u * y) / 2;
          }, 0));
        }"""
        for number, p in enumerate((1, 3, math.inf)):
            page.select_option("#group", str(number))
            page.wait_for_selector(f"#outputs[data-mechanism=p{p}]")
            settle(page)
            mechanism = chosen(page, service)
            scale = page.locator("#land").bounding_box()["width"] / (mechanism.bounds[1, 0] - mechanism.bounds[0, 0])
            ball = {1: 2.0, 3: 4 * math.gamma(1 + 1 / 3) ** 2 / math.gamma(1 + 2 / 3), math.inf: 4.0}[p]
            assert page.locator(".edge").evaluate(area) == pytest.approx(ball * (scale / 8) ** 2, rel=0.01)
            page.click("#mode-two")
            settle(page)
            click_map(page, 70, 90)
            apart = norm(pin(page) - pin(page, "there"), p)
            assert float(page.locator("#versus").get_attribute("data-apart")) == pytest.approx(apart, rel=1e-12)
        page.select_option("#group", "3")
        page.wait_for_selector("#outputs[data-mechanism=axes1]")
        until(page, "document.body.dataset.state === 'ready'")
        x, y = screen(page, "#map")
        page.mouse.click(x + 77, y - 50)
        until(page, "Number(document.getElementById('outputs').dataset.x) > 5.1")
        here = float(page.locator("#outputs").get_attribute("data-x"))
        expected = service.mechanisms["axes1"].probabilities([[here]])[0]
        np.testing.assert_allclose(shown(page), expected, rtol=0, atol=1e-12)
        page.select_option("#group", "4")
        page.wait_for_selector("#outputs[data-mechanism=axes3]")
        assert "3 axes" in page.locator("#no-map").inner_text()
        expected = service.mechanisms["axes3"].probabilities([[5.0, 5.0, 5.0]])[0]
        np.testing.assert_allclose(shown(page), expected, rtol=0, atol=1e-12)
        page.context.close()


HOSTILE = (
    "<img src=x onerror=window.struck=1>",
    "<script>window.struck=1</script>",
    "</th><svg onload=window.struck=1>",
    "&lt;b&gt;Kamppi&lt;/b&gt; ${window.struck=1} {{7*7}}",
    "מרכז העיר",
    "N" * 256,
    "Kamppi",
    "Kamppi",
)
# JavaScript takes both of the first two for 9007199254740992.
LONG_IDS = (2**53, 2**53 + 1, 2**63 - 1, -(2**63), 5, 6, 7, 8)


@pytest.fixture(scope="module")
def named_service(city, tmp_path_factory):
    """Places whose names would run in the page if they were taken for HTML, and which report themselves at ε = 10^4."""
    folder = tmp_path_factory.mktemp("named")
    problem = city.problem(outputs=8, tasks=20, seed=0)
    for name, epsilon in {"blurred": 8, "sharp": 10_000}.items():
        mechanism = mdp.fit(problem, epsilon, "em")
        replace(mechanism, output_ids=LONG_IDS, output_names=HOSTILE).save(folder / f"{name}.mdp")
    settings = Settings(files=(folder / "blurred.mdp", folder / "sharp.mdp"), page=True, city=city, access_log=False)
    with running(settings) as up:
        yield up


def labels_of(page):
    """Return the text of every row's first cell by the index of its output."""
    cells = "rows => rows.map(row => [Number(row.dataset.outputId), row.cells[0].textContent, row.cells[0].children.length])"
    found = page.eval_on_selector_all("#outputs tbody tr", cells)
    assert all(inside == 0 for _, _, inside in found)
    return {index: text for index, text, _ in found}


@needs_browser
def test_names_are_shown_as_text_and_never_as_html(visit, named_service):
    page = visit(named_service)  # a policy that is violated would be logged, which fails the test
    expected = [*HOSTILE[:6], "Kamppi (7)", "Kamppi (8)"]
    assert labels_of(page) == dict(enumerate(expected))
    before = page.locator("img, script, svg, iframe, object").count()
    for index, name in enumerate(HOSTILE):
        told = json.dumps("\u2068“" + (name if len(name) <= 40 else name[:39] + "…") + "”\u2069: ")
        page.hover(f"#outputs tr[data-output-id='{index}'] td.c2")
        until(page, f"document.getElementById('tip').textContent.startsWith({told})")
        assert name in page.locator(f"#outputs tr[data-output-id='{index}']").get_attribute("title")
    page.mouse.move(5, 5)
    page.click("#mode-two")
    settle(page)
    worst = int(page.locator("#versus").get_attribute("data-output"))
    assert f"“{HOSTILE[worst][:39]}" in page.locator("#belief").inner_text()
    drawn = page.eval_on_selector_all("#marks .label", "labels => labels.map(label => label.textContent)")
    assert drawn == [text if len(text) <= 20 else text[:19] + "…" for text in expected]
    assert page.locator("img, script, svg, iframe, object").count() == before
    assert page.evaluate("window.struck === undefined")


@needs_browser
@pytest.mark.parametrize("width", [1280, 390])
def test_labels_neither_cover_each_other_nor_leave_the_map(visit, named_service, width):
    page = visit(named_service, width=width)
    rectangle = "({ left, right, top, bottom }) => [left, right, top, bottom]"
    boxes = page.eval_on_selector_all(
        "#marks .label:not(.off)", f"labels => labels.map((one) => ({rectangle})(one.getBoundingClientRect()))"
    )
    frame = page.eval_on_selector("#marks", f"map => ({rectangle})(map.getBoundingClientRect())")
    assert len(boxes) >= 3
    likeliest = int(np.argmax(shown(page)))
    assert page.eval_on_selector_all("#marks .label", f"labels => !labels[{likeliest}].classList.contains('off')")
    assert all(frame[0] <= left <= right <= frame[1] for left, right, _, _ in boxes)
    assert all(frame[2] <= top <= bottom <= frame[3] for _, _, top, bottom in boxes)
    for (left, right, top, bottom), other in combinations(boxes, 2):
        assert left >= other[1] or other[0] >= right or top >= other[3] or other[2] >= bottom


@needs_browser
def test_a_report_is_told_by_its_name_and_counted_for_its_own_place(visit, named_service):
    """The ids of the first two places are one number for JavaScript."""
    page = visit(named_service)
    page.focus("#epsilon")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#outputs[data-mechanism=sharp]")
    mechanism = named_service.mechanisms["sharp"]
    for index in (0, 1):
        land, (low, high) = page.locator("#land").bounding_box(), mechanism.bounds
        right, up = (mechanism.outputs[index] - low) / (high - low)
        page.mouse.click(land["x"] + right * land["width"], land["y"] + (1 - up) * land["height"])
        settle(page)
        told = json.dumps(f"“{HOSTILE[index]}”\u2069 comes up most")
        until(page, f"document.getElementById('summary').textContent.includes({told})")
        page.click("#draw-many")
        until(page, "document.getElementById('drawn').dataset.total === '1000'")
        counts = shown(page, "count")
        assert counts[index] == 1000 == counts.sum()
        page.click("#clear")
        page.click("#draw-one")
        until(page, "document.getElementById('drawn').dataset.total === '1'")
        assert f"Reported: \u2068“{HOSTILE[index]}”\u2069, " in page.locator("#drawn").inner_text()
        page.click("#clear")


@needs_browser
def test_long_names_do_not_widen_the_page(visit, named_service):
    page = visit(named_service, width=360, height=740, has_touch=True, is_mobile=True, device_scale_factor=2)
    for mode in ("#mode-one", "#mode-two"):
        page.tap(mode)
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(WIDEST) <= 350


@needs_browser
@pytest.mark.parametrize("width", [1400, 1280, 760, 360])
def test_a_wide_font_wraps_the_table_of_methods_and_clips_nothing(visit, service, width):
    page = visit(service, width=width, bypass_csp=True)
    # As wide as the widest that systems fall back on, and wider than Verdana.
    page.add_style_tag(content="* { font-family: monospace !important; letter-spacing: 0.06em !important }")
    cut_off = """() => {
      const scroller = document.getElementById('methods').parentElement;
      const edge = scroller.closest('.card').getBoundingClientRect();
      return [...scroller.querySelectorAll('th, td, button')].filter(one => one.getClientRects().length)
        .filter(one => one.scrollWidth > one.clientWidth + 1 && one.tagName !== 'BUTTON'
          || one.getBoundingClientRect().right > edge.right || one.getBoundingClientRect().left < edge.left)
        .map(one => one.textContent);
    }"""
    assert page.evaluate(cut_off) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # Wider still, it can be scrolled to what does not fit.
    page.add_style_tag(content="* { letter-spacing: 0.8em !important }")
    reach = (
        "() => { const e = document.getElementById('methods').parentElement; e.scrollLeft = 9999; return e.scrollLeft }"
    )
    assert page.evaluate(reach) > 0
    last = "() => [...document.querySelectorAll('#methods thead th')].findLast(one => one.getClientRects().length)"
    right = page.evaluate(f"({last})().getBoundingClientRect().right")
    assert right <= page.evaluate("document.querySelector('.compared').getBoundingClientRect().right")


@needs_browser
def test_what_the_page_computes_itself(visit, service):
    page = visit(service)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 2)) * 10.0 ** rng.integers(-6, 3, (20, 1))
    for p in (1.0, 1.5, 2.0, 7.0, math.inf):
        ask = "async ([vectors, p]) => { const { norm } = await import('/page/measure.js'); return vectors.map(one => norm(one, p ?? Infinity)); }"
        found = page.evaluate(ask, [vectors.tolist(), None if math.isinf(p) else p])
        np.testing.assert_allclose(found, norm(vectors, p), rtol=1e-14)
    lonlat = "async ([centre, point]) => (await import('/page/projection.js')).toLonLat(centre, point)"
    projection = service.mechanisms["spline-8"].projection
    centre = {"lon_deg": projection.lon_deg, "lat_deg": projection.lat_deg}
    for point in vectors[np.abs(vectors).max(axis=1) < 10]:
        found = page.evaluate(lonlat, [centre, point.tolist()])
        np.testing.assert_allclose(found, projection.to_lonlat(point[None, :])[0], rtol=1e-13)
    # Where a tile begins and ends, and which one a place is in: one undoes the other.
    tiles = "async tile => { const of = await import('/page/projection.js'); return [of.tileEdges(...tile), of.tileAt(tile[0], ...of.tileEdges(...tile).slice(0, 2))]; }"
    for zoom, column, row in ((3, 1, 2), (15, 18654, 9480)):
        (west, south, east, north), corner = page.evaluate(tiles, [zoom, column, row])
        assert (west, east) == pytest.approx((360 * column / 2**zoom - 180, 360 * (column + 1) / 2**zoom - 180))
        mercator = [math.asinh(math.tan(math.radians(lat))) for lat in (south, north)]
        assert mercator == pytest.approx([math.pi * (1 - 2 * (row + below) / 2**zoom) for below in (1, 0)])
        assert corner == pytest.approx([column, row + 1])


def test_the_page_and_its_files_are_served_and_nothing_else(service, city):
    with httpx.Client(base_url=service.url) as client:
        index = client.get("/")
        assert index.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in index.headers["content-security-policy"]
        for name in re.findall(r'(?:href|src)="(page/[^"]+)"', index.text):
            assert client.get(f"/{name}").status_code == 200
        for name in ("nothing.js", "../page.py", "..%2fpage.py", "%2e%2e/settings.py"):
            assert client.get(f"/page/{name}").status_code == 404
        packed = client.get("/page/roads")
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.json() == roads(city)
        plain = client.get("/page/roads", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.json() == roads(city)
        assert client.get("/page/config").json()["n_roads"] == len(roads(city)["edges"]) // 2
    # No address of another host, in any file.
    static = Path(demo_module.__file__).parent / "static"
    for path in static.iterdir():
        assert set(re.findall(r"https?://[\w.]+", path.read_text())) <= {"http://www.w3.org"}


def test_roads_lie_where_the_city_has_them(city):
    found = roads(city)
    nodes = np.array(found["nodes"]).reshape(-1, 2) * found["unit_m"] / 1000
    np.testing.assert_allclose(nodes, city.xy, rtol=0, atol=found["unit_m"] / 2000 * 1.001)
    edges = {tuple(edge) for edge in np.array(found["edges"]).reshape(-1, 2).tolist()}
    assert edges == {(min(u, v), max(u, v)) for u, v in zip(city.u.tolist(), city.v.tolist(), strict=True) if u != v}
    assert roads(None)["nodes"] == []
    assert len(gzip.compress(json.dumps(found).encode())) < 20_000


def test_the_demo_fits_once_and_tells_loss_and_bound(tmp_path, monkeypatch, city):
    monkeypatch.setattr(demo_module, "_EPSILONS", (8.0,))
    monkeypatch.setattr(demo_module, "_METHODS", {"em": {}, "spline": {"cells": 4}})
    monkeypatch.setattr(demo_module, "_BOUND_CLUSTERS", 20)
    told = []
    files = demo_module.fit_demo(tmp_path / "demo", lambda share, words: told.append((share, words)))
    assert [path.name for path in files] == ["helsinki-spline-8.mdp", "helsinki-em-8.mdp", "helsinki-spline-map.mdp"]
    assert told[-1][0] == 1
    problem = city.problem(outputs=20, tasks=50, seed=0)
    for path in files:
        mechanism = mdp.load(path)
        assert mechanism.report["loss"] == mechanism.expected_loss(problem)
        assert mechanism.report["lower_bound"] <= mechanism.report["loss"]
    before = [path.stat().st_mtime_ns for path in files]
    told.clear()
    assert demo_module.fit_demo(tmp_path / "demo", lambda *words: told.append(words)) == files
    assert told == []
    assert [path.stat().st_mtime_ns for path in files] == before
    # A damaged file and one with other settings are made again.
    files[0].write_bytes(files[0].read_bytes()[:-20])
    mdp.fit(problem, 8, "em").save(files[1])
    demo_module.fit_demo(tmp_path / "demo", lambda *words: told.append(words))
    assert len(told) == 2
    assert all("demo" in mdp.load(path).report for path in files)


@pytest.mark.slow
def test_the_whole_demo(tmp_path):
    files = demo_module.fit_demo(tmp_path)
    fitted = {path.stem: mdp.load(path) for path in files}
    elastic = fitted.pop("helsinki-spline-map")
    losses = {(one.method, one.epsilon): one.report["loss"] for one in fitted.values()}
    assert len(losses) == 16
    assert (elastic.epsilon_map.min, elastic.epsilon_map.max) == (2, 8)
    assert losses["spline", 8] < elastic.report["loss"] < 0.8 * losses["spline", 2]
    for epsilon in (2, 4, 8, 16):
        assert losses["spline", epsilon] == min(loss for (_, other), loss in losses.items() if other == epsilon)
