"""Chromium with the extension loaded, sites for it to answer, and a position that only the browser knows."""

import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "js" / "extension"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    # Branded browsers no longer load extensions from the command line unless told so.
    "--disable-features=DisableLoadExtensionCommandLineSwitch,OptimizationHints,MediaRouter",
]  # fmt: skip

TRUE_PLACE = {"longitude": 24.94123, "latitude": 60.17012}
REGION = {"west": 24.7, "south": 60.1, "east": 25.2, "north": 60.3}

# Asks once; resolves to what the page got, as plain data.
ONCE = """(options) => new Promise((resolve) => navigator.geolocation.getCurrentPosition(
  (position) => resolve({ ...position.coords.toJSON(), timestamp: position.timestamp }),
  (error) => resolve({ code: error.code, message: error.message }),
  options ?? undefined,
))"""


def build(browser, folder):
    """Put the extension together as the README says."""
    command = [NODE, str(EXTENSION / "build.mjs"), browser, str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


class Sites:
    """Answers every host, as the proxy that the browser is given, and keeps whom it was asked for."""

    def __init__(self):
        sites = self
        self.pages = {}
        self.hosts = []
        self.slow = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                sites.hosts.append(parts.netloc or self.headers.get("Host", ""))
                if parts.path == "/slow":
                    sites.slow.wait(60)
                body, headers = sites.pages.get(parts.path, (b"<!doctype html><title>site</title><p>site", {}))
                self.send_response(200)
                for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_CONNECT(self):
                sites.hosts.append(self.path)
                self.send_error(502)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.proxy = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self.slow.set()
        self._server.shutdown()
        self._server.server_close()


class Extended:
    """A running browser with the extension."""

    def __init__(self, context, sites):
        self.context, self.sites = context, sites
        context.set_default_timeout(120_000)  # for a busy machine
        self.worker = context.service_workers[0] if context.service_workers else context.wait_for_event("serviceworker")
        self.home = self.worker.url.removesuffix("src/background.js")
        self._cdp = context.browser.new_browser_cdp_session()
        self._messages = []
        self._cdp.on(
            "Target.receivedMessageFromTarget", lambda event: self._messages.append(json.loads(event["message"]))
        )
        self._sent = 0
        self._keep_locator_open()

    def _keep_locator_open(self):
        """Open the document that asks for the position, and tell the browser there, and only there, what it is."""
        opened = "{url: 'src/locator.html', reasons: ['GEOLOCATION'], justification: 'tests'}"
        self.worker.evaluate(f"() => chrome.offscreen.createDocument({opened})")
        self._locator = self.attach(lambda target: target["url"].endswith("/locator.html") and target["type"] != "tab")
        self.move(**TRUE_PLACE)

    def move(self, longitude, latitude):
        """Take the person elsewhere."""
        where = {"longitude": longitude, "latitude": latitude, "accuracy": 5}
        self.command(self._locator, "Emulation.setGeolocationOverride", where)

    def lose(self):
        """Let the browser not know the position."""
        self.command(self._locator, "Emulation.setGeolocationOverride", {})

    def targets(self):
        return self._cdp.send("Target.getTargets", {"filter": [{}]})["targetInfos"]

    def attach(self, wanted, seconds=120):
        """Speak to a target that Playwright does not know."""
        end = time.monotonic() + seconds
        while not (found := [one for one in self.targets() if wanted(one)]):
            assert time.monotonic() < end, "no such target"
            time.sleep(0.05)
        options = {"targetId": found[0]["targetId"], "flatten": False}
        return self._cdp.send("Target.attachToTarget", options)["sessionId"]

    def command(self, session, method, params=None, seconds=120):
        self._sent += 1
        message = json.dumps({"id": self._sent, "method": method, "params": params or {}})
        self._cdp.send("Target.sendMessageToTarget", {"sessionId": session, "message": message})
        end = time.monotonic() + seconds
        while not (found := [one for one in self._messages if one.get("id") == self._sent]):
            assert time.monotonic() < end, f"no answer to {method}"
            self._cdp.send("Target.getTargets")  # lets messages in
            time.sleep(0.02)
        assert "error" not in found[0], found[0]
        return found[0]["result"]

    def evaluate(self, session, expression):
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        return self.command(session, "Runtime.evaluate", params)["result"].get("value")

    def stored(self, name):
        return self.worker.evaluate("(name) => chrome.storage.local.get(name)", name).get(name)

    def store(self, **values):
        self.worker.evaluate("(values) => chrome.storage.local.set(values)", values)

    def forget(self):
        """Begin anew: no settings, no sites, nothing spent; the clock as it is."""
        self.worker.evaluate(
            "async () => { await chrome.storage.local.clear(); await chrome.storage.session.clear(); }"
        )
        self.clock()
        self.move(**TRUE_PLACE)

    def clock(self, unix_ms=None):
        """Set the clock of the extension's worker, or give it back its own; it stands still meanwhile."""
        self.worker.evaluate(
            """(at) => {
            globalThis.trueNow ??= Date.now;
            Date.now = at === null ? globalThis.trueNow : () => at;
        }""",
            unix_ms,
        )

    def choose(self, **options):
        """Fill in the settings as a person does: a region with noise, or a file."""
        page = self.context.new_page()
        page.goto(self.home + "src/options.html")
        page.wait_for_selector("body[data-state]")
        if "file" in options:
            page.check("[value=file]")
            page.set_input_files("#file", options["file"])
        else:
            for edge, degrees in options.get("region", REGION).items():
                page.fill(f"#{edge}", str(degrees))
            page.fill("#radius", str(options.get("radius", 200)))
        page.fill("#minutes", str(options.get("minutes", 10)))
        page.fill("#most", str(options.get("most", 48)))
        page.click("button[type=submit]")
        page.wait_for_selector("body[data-state=saved], body[data-state=wrong]")
        return page

    def allow(self, *sites, choice="reports"):
        """Decide about sites beforehand."""
        self.store(sites=dict.fromkeys(sites, choice))

    def visit(self, host="a.localhost", path="/"):
        page = self.context.new_page()
        page.goto(f"http://{host}{path}")
        return page

    def popup(self, over):
        """Open the pop-up's page while another page is in front."""
        page = self.context.new_page()
        page.goto(self.home + "src/popup.html")
        over.bring_to_front()
        page.reload()
        page.wait_for_selector("body[data-state=ready]", state="attached")
        return page


def allow_in_private_windows(profile, folder):
    """Write what the browser's settings would: the extension in `folder` is allowed in private windows."""
    # Unpacked extensions are called by a hash of their path, in the letters a to p.
    digits = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    ours = "".join(chr(ord("a") + int(digit, 16)) for digit in digits)
    (Path(profile) / "Default").mkdir()
    settings = {"extensions": {"settings": {ours: {"incognito": True}}}}
    (Path(profile) / "Default" / "Preferences").write_text(json.dumps(settings))


@contextmanager
def extended(run, folder, *, private=False):
    """Launch Chromium with the extension in `folder`; all that it asks of the network goes to a proxy of ours."""
    sites = Sites()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        if private:
            allow_in_private_windows(profile, folder)
        context = run.chromium.launch_persistent_context(
            profile,
            executable_path=BROWSER,
            headless=False,
            ignore_default_args=["--disable-extensions"],
            args=[*FLAGS, f"--load-extension={folder}", f"--disable-extensions-except={folder}"],
            proxy={"server": sites.proxy, "bypass": "<-loopback>"},
        )
        try:
            yield Extended(context, sites)
        finally:
            context.close()
            sites.close()
