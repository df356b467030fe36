"""The extension where the person allows it in private windows."""

import time

import pytest

from extension_tools import BROWSER, ONCE, extended

A, B = "http://a.localhost", "http://b.localhost"


@pytest.fixture
def private(built):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")
    if BROWSER is None:
        pytest.skip("needs chromium or google-chrome on the path")
    with playwright.sync_playwright() as run, extended(run, built, private=True) as up:
        yield up


@pytest.mark.slow
def test_a_private_window_shares_the_report_and_keeps_no_site(private):
    private.choose()
    private.allow(A)
    answer = private.visit().evaluate(ONCE)
    private.worker.evaluate("(url) => chrome.windows.create({ incognito: true, url })", f"{B}/private")
    session = private.attach(lambda target: target["url"] == f"{B}/private" and target["type"] == "page")
    while private.evaluate(session, "`${location.pathname} ${document.readyState}`") != "/private complete":
        time.sleep(0.05)
    private.evaluate(session, f"window.answer = ({ONCE})(); 1")
    # What was allowed elsewhere does not count: the person is asked, in a window whose address does not name the site.
    asked = private.attach(lambda target: "/src/consent.html" in target["url"] and target["type"] == "page")
    ready = "new Promise((resolve) => { const look = () => document.body?.dataset.state ? resolve(1) : setTimeout(look, 20); look(); })"
    private.evaluate(asked, ready)
    assert private.evaluate(asked, "document.getElementById('site').textContent") == B
    assert private.evaluate(asked, "document.getElementById('private').hidden") is False
    private.evaluate(asked, "document.querySelector('[value=reports]').click(); 1")
    found = private.evaluate(session, "window.answer")
    assert (found["longitude"], found["latitude"]) == (answer["longitude"], answer["latitude"])
    assert private.stored("memory")["reports"] == 1
    # Nothing of what is seen in private is written down.
    assert "b.localhost" not in str(private.worker.evaluate("() => chrome.storage.local.get()"))
