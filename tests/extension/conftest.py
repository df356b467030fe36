"""One browser for all tests of the extension in this process."""

import pytest

from extension_tools import BROWSER, NODE, build, extended


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    if NODE is None:
        pytest.skip("needs node on the path")
    return build("chromium", tmp_path_factory.mktemp("extension") / "chromium")


@pytest.fixture(scope="module")
def browser(built):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the test group's playwright")
    if BROWSER is None:
        pytest.skip("needs chromium or google-chrome on the path")
    with playwright.sync_playwright() as run, extended(run, built) as up:
        yield up


@pytest.fixture
def extension(browser):
    """Hand out the browser as after an installation, and close what a test has opened."""
    browser.forget()
    browser.sites.pages.clear()
    yield browser
    browser.context.pages[0] if browser.context.pages else browser.context.new_page()
    for page in browser.context.pages[1:]:
        page.close()
    browser.context.pages[0].goto("about:blank")
