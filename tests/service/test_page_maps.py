"""The page with a mechanism whose ε varies over the box: layer, local radius, bounds along ways, comparison with one ε."""

import math

import numpy as np
import pytest

import metricdp as mdp

pytest.importorskip("fastapi", reason="needs the extra `service`")
pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")

from metricdp.geometry.path_metric import PathMetric
from metricdp.service import Settings
from page_tools import click_map, needs_browser, opened_browser, pin, running, settle, visiting

INK = """canvas => {
  const { width, height } = canvas;
  const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  let found = 0;
  for (let at = 3; at < data.length; at += 4) if (data[at] > 0) found++;
  return found / (data.length / 4);
}"""
# Opacity of the layer at the middle of the map, at most the pin's own cell.
AT_PIN = """canvas => {
  const map = document.getElementById('map').getBoundingClientRect();
  const pin = document.getElementById('here').getBoundingClientRect();
  const [x, y] = [pin.left + pin.width / 2 - map.left, pin.top + pin.height / 2 - map.top];
  const ratio = canvas.width / canvas.clientWidth;
  return canvas.getContext('2d').getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data[3] / 255;
}"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder, city = tmp_path_factory.mktemp("page-maps"), mdp.cities.load("helsinki")
    problem = city.problem(outputs=20, tasks=50, seed=0)
    local = mdp.EpsilonMap.by_density(problem, people=50, least=2.0, most=8.0, cells=[4, 6])
    budgets = {"map": local, "two": 2.0, "eight": 8.0}
    for name, budget in budgets.items():
        mdp.fit(problem, budget, "spline", cells=[4, 6]).save(folder / f"{name}.mdp")
    files = tuple(folder / f"{name}.mdp" for name in budgets)
    with running(Settings(files=files, page=True, city=city, access_log=False)) as up:
        yield up


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as opened:
        yield opened


@pytest.fixture
def visit(browser):
    with visiting(browser) as visit:
        yield visit


def figure(page, selector, name="value"):
    return float(page.locator(selector).get_attribute(f"data-{name}"))


def length(km):
    return f"{round(1000 * km)}\u202fm"


@needs_browser
def test_the_radius_is_that_of_the_pin(visit, service):
    page = visit(service)
    mechanism = service.mechanisms["map"]
    certificate, found = mdp.certify(mechanism), []
    for right, down in ((0, 0), (40, 150), (-90, -250), (-120, -300)):
        click_map(page, right, down)
        radius = figure(page, "#protection")
        # In kilometres of the map, as the circle is drawn; the certificate's are true ones, rounded down.
        expected = certificate.radius(pin(page)) * mechanism.distortion.kappa
        assert radius == pytest.approx(expected, rel=1e-6)
        found.append(radius)
    assert max(found) > 1.5 * min(found)
    words = page.locator("#protection-words").inner_text()
    assert "ε varies over this map" in words
    assert f"from {length(1 / mechanism.epsilon_map.max)} to {length(1 / mechanism.epsilon_map.min)}" in words
    edge = page.eval_on_selector(".edge", "path => path.getBBox().width")
    scale = page.locator("#land").bounding_box()["width"] / np.ptp(mechanism.bounds[:, 0])
    assert edge == pytest.approx(2 * scale * found[-1], rel=1e-3)


@needs_browser
def test_the_layer_of_radii_and_its_legend(visit, service):
    page = visit(service)
    local = service.mechanisms["map"].epsilon_map
    texts = [page.locator(f"#radius-{name}").inner_text() for name in ("least", "most")]
    assert texts == [length(1 / local.max), length(1 / local.min)]
    shares, depths = [], []
    for right, down in ((40, 150), (-120, -300)):
        click_map(page, right, down)
        (epsilon,) = local.at(pin(page)[None, :])
        shares.append(math.log(local.max / epsilon) / math.log(local.max / local.min))
        depths.append(page.locator("#shades").evaluate(AT_PIN))
    assert np.ptp(shares) > 0.3
    assert depths == pytest.approx([0.04 + 0.38 * share for share in shares], abs=0.01)
    box = page.locator("#land").bounding_box()
    whole = page.locator("#map").bounding_box()
    covered = box["width"] * box["height"] / (whole["width"] * whole["height"])
    assert page.locator("#shades").evaluate(INK) == pytest.approx(covered, abs=0.01)
    page.click("#shades-toggle")
    page.wait_for_selector("#shades", state="hidden")
    assert page.locator("#shades-toggle").get_attribute("aria-pressed") == "false"
    page.click("#shades-toggle")
    page.wait_for_selector("#shades", state="visible")
    # A mechanism with one ε has no layer and no comparison.
    page.click("#methods tr[data-mechanism=two] button")
    page.wait_for_selector("#outputs[data-mechanism=two]")
    settle(page)
    assert not page.locator("#legend").is_visible()
    assert not page.locator("#shades").is_visible()
    assert not page.locator("#one-or-many").is_visible()
    assert "ε varies" not in page.locator("#protection-words").inner_text()


@needs_browser
def test_two_places_are_bounded_along_the_straight_way(visit, service):
    page = visit(service)
    page.click("#mode-two")
    settle(page)
    mechanism = service.mechanisms["map"]
    metric = PathMetric(mechanism.plane_map, 2.0)
    for right, down in ((60, 150), (-110, -290)):
        click_map(page, right, down)  # moves B
        here, there = pin(page), pin(page, "there")
        exponent = metric.straight(here[None, :], there[None, :])[0] + mechanism.plane_map.max * mechanism.rounding
        bound = figure(page, "#versus", "bound")
        assert bound == pytest.approx(math.exp(exponent), rel=1e-6)
        logs = np.log(mechanism.probabilities([here, there]))
        ratio = math.exp(np.abs(logs[0] - logs[1]).max())
        assert figure(page, "#versus", "ratio") == pytest.approx(ratio, rel=1e-9)
        assert ratio <= bound < math.exp(mechanism.plane_map.max * math.dist(here, there))
    assert page.locator("#bound-exponent").inner_text() == "∫ε ds"
    page.wait_for_function(
        "() => document.getElementById('summary').textContent.includes('On the straight way between them ε adds up')"
    )


@needs_browser
def test_one_epsilon_or_the_map(visit, service):
    page = visit(service)
    losses = {name: one.report["loss"] for name, one in service.mechanisms.items()}
    said = page.locator("#one-or-many").inner_text()
    parts = page.locator("#one-or-many > div")
    assert parts.nth(0).get_attribute("data-other") == "two"
    less = 1 - losses["map"] / losses["two"]
    assert float(parts.nth(0).get_attribute("data-less")) == pytest.approx(less, rel=1e-9)
    assert less > 0.1
    assert f"{100 * less:.1f}\u202f% less" in said
    share = (losses["two"] - losses["map"]) / (losses["two"] - losses["eight"])
    epsilon = 2 * 4**share
    assert float(parts.nth(1).get_attribute("data-epsilon")) == pytest.approx(epsilon, rel=1e-9)
    local = service.mechanisms["map"].epsilon_map
    areas = np.outer(*(np.diff(points) for points in local.breakpoints))
    better = areas[local.values < epsilon].sum() / areas.sum()
    assert float(parts.nth(1).get_attribute("data-better")) == pytest.approx(better, rel=1e-9)
    # In the table it stands beside the mechanism that promises as much everywhere.
    rows = page.locator("#methods tbody tr")
    assert rows.evaluate_all("rows => rows.map(row => row.dataset.mechanism)") == ["map", "two"]
    most = math.ceil(100 * local.max) / 100
    assert f"ε from 2 to {most}, by place" in rows.nth(0).inner_text()
    assert page.locator("#epsilon-value").inner_text() == f"ε = 2 to {most} per km"
    assert "by place" in page.locator("#epsilon").get_attribute("aria-valuetext")


@needs_browser
def test_without_the_cells_the_largest_epsilon_is_told(visit, service):
    page = visit(service, errors=True)
    page.route("**/epsilon-map", lambda route: route.fulfill(status=404, json={"detail": "not here"}))
    page.reload()
    settle(page)
    mechanism = service.mechanisms["map"]
    assert figure(page, "#protection") == pytest.approx(1 / mechanism.plane_map.max - mechanism.rounding, rel=1e-9)
    assert page.locator("#epsilon-value").inner_text() == f"ε = {mechanism.epsilon!r} per km"
    assert not page.locator("#legend").is_visible()
    page.unroute("**/epsilon-map")


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_the_dark(visit, service, scheme):
    page = visit(service, width=360, height=740, has_touch=True, is_mobile=True, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    legend, zoom = (page.locator(name).bounding_box() for name in ("#legend", ".zoom"))
    assert legend["x"] + legend["width"] < zoom["x"]
    assert page.locator("#shades").evaluate(INK) > 0.2
    panel = page.locator("#one-or-many").bounding_box()
    assert panel["x"] >= 0
    assert panel["x"] + panel["width"] <= 350
