"""What the tests of the page share: a service on a free port, a browser, and where things are on the map."""

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from metricdp.service import create_app

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the path")

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

# So long a page on a busy machine is waited for, in milliseconds.
HANGS_MS = 120_000

SETTLED = """() => {
  const [pin, table] = [document.getElementById('here').dataset, document.getElementById('outputs').dataset];
  const there = document.getElementById('there');
  return document.body.dataset.state === 'ready' && pin.x === table.x && pin.y === table.y
    && (there.hidden || (there.dataset.x === table.xThere && there.dataset.y === table.yThere));
}"""


@dataclass
class Running:
    """A service on a free port of this machine."""

    url: str
    mechanisms: dict

    @property
    def origin(self):
        return self.url.rstrip("/")


@contextmanager
def running(settings):
    app = create_app(settings)
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}/", {one.id: one.mechanism for one in app.state.catalogue.all()})
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def opened_browser():
    """A browser without a window."""
    # Not for the whole session: while it runs, this thread has an event loop, which other tests may want to start.
    with sync_playwright() as run:
        opened = run.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


@contextmanager
def visiting(browser):
    """Open pages that must ask their own service alone and log no error."""
    contexts, watched = [], []

    def visit(service, *, also=(), errors=False, ready=True, width=1280, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(HANGS_MS)
        contexts.append(context)
        page = context.new_page()
        asked, logged = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: logged.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: logged.append(str(error)))
        watched.append((asked, [] if errors else logged, {service.origin, *also}))
        page.asked = asked
        page.goto(service.url)
        if ready:
            settle(page)
        return page

    yield visit
    for context in contexts:
        context.close()
    for asked, logged, origins in watched:
        assert asked
        assert {origin(url) for url in asked} <= origins
        assert not any("?" in url or "#" in url for url in asked)  # points are in bodies
        assert logged == []


def origin(url):
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def settle(page):
    page.wait_for_function(SETTLED)


def until(page, condition):
    # As a function: the page's policy forbids to evaluate text.
    page.wait_for_function(f"() => {condition}")


def comes_to(page, find, expected):
    """Wait until what `find` returns is as expected: a page draws a moment after an input."""
    deadline = time.monotonic() + HANGS_MS / 1000
    while (found := find()) != expected and time.monotonic() < deadline:
        page.wait_for_timeout(20)
    assert found == expected


def pin(page, name="here"):
    place = page.locator(f"#{name}")
    return np.array([float(place.get_attribute(f"data-{axis}")) for axis in "xy"])


def screen(page, selector):
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def click_map(page, right, down):
    x, y = screen(page, "#map")
    page.mouse.click(x + right, y + down)
    settle(page)
