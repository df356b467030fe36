"""The extension in a real browser: what pages get, when, and what it adds up to."""

import time
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import metricdp as mdp
from chance_tools import RARE, follow
from extension_tools import ONCE, REGION, TRUE_PLACE

HOUR = 3_600_000
NOON = 1_800_000_000_000 - 1_800_000_000_000 % (10 * 60_000)
A, B = "http://a.localhost", "http://b.localhost"


def is_report(answer):
    return "latitude" in answer


def place(answer):
    return answer["longitude"], answer["latitude"]


def test_a_site_gets_a_report_once_the_person_agrees(extension):
    assert extension.choose().locator("#claim").inner_text().startswith("On the ground (WGS 84)")
    extension.clock(NOON)
    page = extension.visit()
    with extension.context.expect_page() as opened:
        page.evaluate(f"() => {{ window.answer = ({ONCE})(); }}")
    question = opened.value
    question.wait_for_selector("body[data-state=ready]")
    assert question.locator("#site").inner_text() == A
    assert A not in question.url  # addresses are kept in histories
    question.click("[value=reports]")
    answer = page.evaluate("() => window.answer")
    assert is_report(answer)
    assert place(answer) != (TRUE_PLACE["longitude"], TRUE_PLACE["latitude"])
    assert answer["accuracy"] == extension.stored("settings")["mechanism"]["facts"]["accuracyM"]
    assert [answer[name] for name in ("altitude", "altitudeAccuracy", "heading", "speed")] == [None] * 4
    assert answer["timestamp"] % (10 * 60_000) == 0
    # Asked and answered once; the same for everybody in this period.
    assert place(page.evaluate(ONCE)) == place(answer)


def test_all_sites_share_one_draw_and_one_budget(extension):
    extension.choose(most=2)
    extension.allow(A, B)
    extension.clock(NOON)
    first, second = extension.visit("a.localhost"), extension.visit("b.localhost")
    asked = f"() => {{ window.answer = ({ONCE})(); }}"
    first.bring_to_front()
    # Both at the same moment; the page behind is answered once it is seen.
    first.evaluate(asked)
    second.evaluate(asked)
    one = first.evaluate("() => window.answer")
    second.bring_to_front()
    assert place(second.evaluate("() => window.answer")) == place(one)
    assert extension.stored("memory")["reports"] == 1
    second.reload()
    assert place(second.evaluate(ONCE)) == place(one)
    extension.clock(NOON + 10 * 60_000)
    two = second.evaluate(ONCE)
    assert place(two) != place(one)
    assert two["timestamp"] - one["timestamp"] == 10 * 60_000
    memory = extension.stored("memory")
    assert (memory["reports"], memory["epsilon"]) == (2, pytest.approx(2 * 5))
    # The budget is used up: the last answer is repeated to all, wherever the person goes.
    extension.clock(NOON + 20 * 60_000)
    extension.move(25.1, 60.2)
    assert second.evaluate(ONCE) == two
    first.bring_to_front()
    assert first.evaluate(ONCE) == two
    popup = extension.popup(first)
    assert popup.locator("#sum").get_attribute("data-reports") == "2"
    assert "together 10 per km" in popup.locator("#sum").inner_text()
    assert "used up" in popup.locator("#left").inner_text()
    assert popup.locator("#protection").inner_text() == "200 m"
    assert popup.locator("#site").inner_text() == A
    # A new day has a new budget.
    extension.clock(NOON + 24 * HOUR)
    first.bring_to_front()
    assert place(first.evaluate(ONCE)) != place(two)
    assert extension.stored("memory")["reports"] == 1


def test_nothing_is_told_without_a_region_or_a_yes(extension):
    extension.allow(A)
    page = extension.visit()
    assert page.evaluate(ONCE) == {"code": 2, "message": "Position unavailable"}
    extension.choose()
    extension.allow(A, choice="nothing")
    page.bring_to_front()
    assert page.evaluate(ONCE)["code"] == 1
    assert extension.stored("memory")["reports"] == 0


def test_closing_the_question_is_a_no_and_the_site_cannot_ask_on_and_on(extension):
    extension.choose()
    page = extension.visit()
    with extension.context.expect_page() as opened:
        page.evaluate(f"() => {{ window.answer = ({ONCE})(); }}")
    opened.value.close()
    assert page.evaluate("() => window.answer")["code"] == 1
    page.bring_to_front()
    windows = len(extension.context.pages)
    assert page.evaluate(ONCE)["code"] == 1
    assert len(extension.context.pages) == windows


def test_far_outside_the_region_there_is_one_refusal_and_nothing_is_charged(extension):
    extension.choose()
    extension.allow(A)
    page = extension.visit()
    extension.clock(NOON)
    extension.move(REGION["east"] + 0.1, 60.2)
    refusal = page.evaluate(ONCE)
    assert refusal == {"code": 2, "message": "Position unavailable"}
    # Coming back within the period changes nothing: the answer is the period's.
    extension.move(**TRUE_PLACE)
    assert page.evaluate(ONCE) == refusal
    assert extension.stored("memory")["reports"] == 0
    # Less than a kilometre outside counts as the edge.
    extension.clock(NOON + 10 * 60_000)
    extension.move(REGION["east"] + 0.01, 60.2)
    assert is_report(page.evaluate(ONCE))


def test_a_position_that_the_browser_does_not_know_is_unavailable(extension):
    extension.choose()
    extension.allow(A)
    page = extension.visit()
    extension.lose()
    assert page.evaluate(ONCE)["code"] == 2
    assert extension.stored("memory")["reports"] == 0


def test_off_gives_a_site_the_true_position_and_nobody_inside_of_it(extension):
    extension.choose()
    extension.context.grant_permissions(["geolocation"], origin=A)
    extension.context.set_geolocation({**TRUE_PLACE, "accuracy": 5})
    try:
        framed = b'<!doctype html><iframe src="http://b.localhost/" allow="geolocation"></iframe>'
        extension.sites.pages["/framing"] = (framed, {})
        page = extension.visit(path="/framing")
        extension.allow(A)
        assert place(page.evaluate(ONCE)) != tuple(TRUE_PLACE.values())
        popup = extension.popup(page)
        assert popup.locator("#granted").is_visible()  # the browser would give it away: take that back
        popup.check("[value=off]")
        assert popup.locator("#granted").is_hidden()
        page.bring_to_front()
        assert place(page.evaluate(ONCE)) == tuple(TRUE_PLACE.values())
        inside = next(frame for frame in page.frames if "b.localhost" in frame.url)
        answer = inside.evaluate(ONCE)
        assert answer.get("code") == 1 or place(answer) != tuple(TRUE_PLACE.values())
        # And on again, at once, for a watch that runs.
        page.evaluate("""() => { window.seen = []; navigator.geolocation.watchPosition(({ coords }) =>
            seen.push([coords.longitude, coords.latitude])); }""")
        page.wait_for_function("() => seen.length > 0")
        assert tuple(page.evaluate("() => seen[0]")) == tuple(TRUE_PLACE.values())
        extension.allow(A)
        extension.context.set_geolocation({"longitude": 24.9, "latitude": 60.2, "accuracy": 5})
        page.wait_for_function("() => seen.length > 1")
        assert [24.9, 60.2] not in page.evaluate("() => seen")
    finally:
        extension.context.set_geolocation(None)
        extension.context.clear_permissions()


def test_a_watch_follows_the_schedule_and_not_the_person(extension):
    extension.choose()
    settings = extension.stored("settings")
    extension.store(settings={**settings, "minutes": 0.025})  # a second and a half
    extension.allow(A)
    page = extension.visit()
    page.evaluate("""() => { window.seen = []; window.watching = navigator.geolocation.watchPosition(({ coords, timestamp }) =>
        seen.push([coords.longitude, coords.latitude, timestamp, Date.now()])); }""")
    # Callbacks come with the periods, though the person stays.
    page.wait_for_function("() => seen.length >= 2")
    # No others come, though the person moves.
    for step in range(14):
        extension.move(24.8 + 0.01 * step, 60.15)
        time.sleep(0.3)
    page.wait_for_function("() => seen.length >= 4")
    seen = page.evaluate("() => { navigator.geolocation.clearWatch(watching); return seen; }")
    starts = [start for _, _, start, _ in seen]
    assert starts == sorted(set(starts))
    assert all(start % 1500 == 0 for start in starts)
    assert all(start <= at for _, _, start, at in seen)
    time.sleep(1.7)
    assert len(page.evaluate("() => seen")) == len(seen)


def test_the_extension_asks_nobody(extension):
    extension.sites.hosts.clear()
    extension.choose()
    extension.allow(A)
    page = extension.visit()
    assert is_report(page.evaluate(ONCE))
    extension.popup(page)
    page.wait_for_timeout(300)
    # Chromium itself sometimes asks its maker who is signed in; that the extension cannot is the next test.
    asked = {host for host in extension.sites.hosts if not host.endswith(".google.com:443")}
    assert asked == {"a.localhost"}


def test_the_extension_can_ask_nobody(extension):
    """Its policy, `default-src 'none'`, binds the worker and all of its pages."""
    extension.sites.hosts.clear()
    page = extension.visit()
    refused = "() => fetch('http://b.localhost/').then(() => false, () => true)"
    for home in (extension.worker, extension.popup(page), extension.choose()):
        assert home.evaluate(refused)
    assert "b.localhost" not in extension.sites.hosts
    # Pages may ask, so a refusal above is the policy's.
    page.evaluate("() => fetch('http://b.localhost/', { mode: 'no-cors' })")
    assert "b.localhost" in extension.sites.hosts


def test_only_settings_budgets_and_the_last_answer_are_stored(extension):
    extension.choose()
    extension.allow(A)
    page = extension.visit()
    answer = page.evaluate(ONCE)
    kept = extension.worker.evaluate("() => chrome.storage.local.get()")
    assert set(kept) == {"settings", "sites", "memory"}
    assert set(kept["memory"]) == {"period", "minutes", "day", "reports", "epsilon", "answer"}
    assert kept["memory"]["answer"]["position"]["latitude"] == answer["latitude"]
    text = str(kept)
    assert str(TRUE_PLACE["longitude"]) not in text
    assert str(TRUE_PLACE["latitude"]) not in text


def test_a_wrong_region_is_refused_in_words(extension):
    page = extension.choose(region={"west": 24, "south": 61, "east": 25, "north": 60})
    assert "south must be below" in page.locator("#wrong").inner_text()
    assert extension.stored("settings") is None


@pytest.fixture(scope="module")
def helsinki(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "helsinki.mdp"
    mdp.fit(mdp.cities.load("helsinki").problem(outputs=12, tasks=40, seed=0), 4, "spline", cells=5).save(path)
    return path


def drawn(extension, count, host="a.localhost"):
    """Draw many reports, each in a period of its own: periods of a millisecond, and a budget that allows it."""
    settings = extension.stored("settings")
    extension.store(settings={**settings, "minutes": 1 / 60_000, "mostReports": 10**9})
    page = extension.visit(host)
    return page.evaluate(
        f"""async (count) => {{
            const found = [];
            while (found.length < count) {{
                found.push(await ({ONCE})());
                await new Promise((resolve) => setTimeout(resolve, 2));
            }}
            return found;
        }}""",
        count,
    )


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_reports_of_a_file_have_the_law_of_the_library(extension, helsinki, count):
    mechanism = mdp.load(helsinki)
    page = extension.choose(file=str(helsinki))
    assert page.locator("#file-name").inner_text() == "In use: helsinki.mdp"
    extension.allow(A)
    answers = drawn(extension, count)
    places = {(round(one.lon, 9), round(one.lat, 9)): k for k, one in enumerate(mechanism.places.itertuples())}
    found = Counter(places[round(one["longitude"], 9), round(one["latitude"], 9)] for one in answers)
    chances = mechanism.probabilities_lonlat([[TRUE_PLACE["longitude"], TRUE_PLACE["latitude"]]])[0]
    assert follow([found[k] for k in range(len(chances))], chances)
    assert len({one["accuracy"] for one in answers}) == 1
    assert extension.stored("memory")["reports"] == pytest.approx(count, rel=0.1)


@pytest.mark.slow
def test_noise_has_the_law_of_planar_laplace(extension):
    """Distances from the true place have the density ε² r e^(−ε r); directions are even."""
    extension.choose(radius=100)
    extension.allow(A)
    answers = drawn(extension, 2000)
    rate = 10 / 1.0  # per km; κ of this region is within half a percent of 1
    east = (
        np.array([one["longitude"] - TRUE_PLACE["longitude"] for one in answers]) * 111.195 * np.cos(np.radians(60.2))
    )
    north = np.array([one["latitude"] - TRUE_PLACE["latitude"] for one in answers]) * 111.195
    assert stats.kstest(np.hypot(east, north) * rate, stats.gamma(2).cdf).pvalue > RARE
    assert stats.kstest(np.arctan2(north, east) / (2 * np.pi) + 0.5, stats.uniform.cdf).pvalue > RARE
