"""The extension as Firefox gets it: by Mozilla's own linter, and in a real Firefox where there is one."""

import json
import subprocess

import pytest

from extension_tools import EXTENSION, NODE, REGION, TRUE_PLACE, Sites, build
from firefox_tools import FIREFOX, firefox

LINTER = EXTENSION / "node_modules" / ".bin" / "web-ext"


def test_mozillas_linter_finds_nothing(tmp_path):
    if NODE is None or not LINTER.exists():
        pytest.skip("needs node, and `npm ci` in js/extension")
    command = [str(LINTER), "lint", "--source-dir", str(build("firefox", tmp_path / "firefox")), "--output", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(answer.stdout)
    assert found["summary"] == {"errors": 0, "notices": 0, "warnings": 0}, found
    assert answer.returncode == 0


def test_both_browsers_get_the_same_scripts(tmp_path):
    if NODE is None:
        pytest.skip("needs node on the path")
    trees = []
    for browser in ("chromium", "firefox"):
        folder = build(browser, tmp_path / browser)
        trees.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    chromium, firefox = trees
    assert {path for path in chromium if chromium[path] != firefox.get(path)} == {
        path for path in chromium if path.name == "manifest.json"
    }
    assert set(chromium) == set(firefox)
    assert json.loads(firefox[next(path for path in firefox if path.name == "manifest.json")])["permissions"] == [
        "storage",
        "geolocation",
    ]


# Every way in which a page can ask; what each of them gets is kept in `answers`.
PAGE = b"""<!doctype html><title>site</title><body><script>
window.answers = {};
const names = ["longitude", "latitude", "accuracy", "altitude", "altitudeAccuracy", "heading", "speed"];
window.keep = (way) => [
  ({ coords, timestamp }) => {
    const found = Object.fromEntries(names.map((name) => [name, coords[name]]));
    (answers[way] ??= []).push({ ...found, timestamp });
  },
  ({ code, message }) => (answers[way] ??= []).push({ code, message }),
];
navigator.geolocation.getCurrentPosition(...keep("once"));
navigator.geolocation.watchPosition(...keep("watch"));
Geolocation.prototype.getCurrentPosition.call(navigator.geolocation, ...keep("prototype"));
const fresh = document.body.appendChild(document.createElement("iframe"));
fresh.contentWindow.navigator.geolocation.getCurrentPosition(...keep("fresh iframe"));
const removed = document.body.appendChild(document.createElement("iframe"));
const saved = removed.contentWindow.navigator.geolocation;
try { saved.getCurrentPosition(...keep("iframe of a moment")); } catch (error) { }
removed.remove();
const written = document.body.appendChild(document.createElement("iframe"));
written.srcdoc = "<script>navigator.geolocation.getCurrentPosition(...parent.keep('srcdoc'))</" + "script>";
const same = document.body.appendChild(document.createElement("iframe"));
same.src = "/inner";
</script>"""
INNER = b"<!doctype html><script>navigator.geolocation.getCurrentPosition(...parent.keep('inner page'))</script>"
WAYS = {"once", "watch", "prototype", "fresh iframe", "srcdoc", "inner page"}


def emulated(sites):
    """Settings of a Firefox whose position is `TRUE_PLACE` and whose network is ours."""
    place = {"location": {"lat": TRUE_PLACE["latitude"], "lng": TRUE_PLACE["longitude"]}, "accuracy": 5}
    port = int(sites.proxy.rpartition(":")[2])
    return {
        "geo.provider.network.url": f"data:application/json,{json.dumps(place)}",
        "geo.provider.use_geoclue": False,
        "geo.prompt.testing": True,
        "geo.prompt.testing.allow": True,  # even a site that the browser trusts gets reports only
        "dom.security.https_first": False,
        "network.proxy.type": 1,
        "network.proxy.http": "127.0.0.1",
        "network.proxy.http_port": port,
        "network.proxy.ssl": "127.0.0.1",
        "network.proxy.ssl_port": port,
        "network.proxy.allow_hijacking_localhost": True,
        "datareporting.policy.dataSubmissionEnabled": False,
        "app.normandy.enabled": False,
        "browser.shell.checkDefaultBrowser": False,
    }


def test_in_firefox_a_site_gets_reports_and_never_the_true_position(tmp_path):
    if NODE is None or FIREFOX is None:
        pytest.skip("needs node and firefox or firefox-esr on the path")
    sites = Sites()
    sites.pages = {"/": (PAGE, {}), "/inner": (INNER, {})}
    try:
        with firefox(emulated(sites)) as browser:
            home = browser.install(build("firefox", tmp_path / "firefox"))
            browser.visit(f"{home}src/options.html")
            browser.wait("return document.body.dataset.state")
            fill = "for (const [id, value] of Object.entries(arguments[0])) document.getElementById(id).value = value;"
            fields = {**REGION, "radius": 200, "minutes": 10, "most": 48}
            browser.evaluate(f"{fill} document.querySelector('[type=submit]').click();", fields)
            browser.wait("return document.body.dataset.state === 'saved'")
            browser.evaluate("browser.storage.local.set({ sites: { 'http://a.localhost': 'reports' } });")
            browser.visit("http://a.localhost/")
            browser.wait("return arguments[0].every((way) => answers[way]);", sorted(WAYS))
            answers = browser.evaluate("return answers;")
            browser.visit(f"{home}src/options.html")
            stored = "return JSON.stringify(window.kept ?? (browser.storage.local.get().then((all) => { window.kept = all; }), null));"
            kept = json.loads(
                browser.wait(f"const found = (() => {{ {stored} }})(); return found !== 'null' && found;")
            )
    finally:
        sites.close()
    # One draw for all of them, within minutes: with a period of ten, at most two.
    reports = [report for way in answers.values() for report in way]
    assert all("latitude" in report for report in reports), reports
    assert len({(report["longitude"], report["latitude"]) for report in reports}) <= kept["memory"]["reports"] <= 2
    for report in reports:
        assert abs(report["longitude"] - TRUE_PLACE["longitude"]) > 1e-9
        assert report["accuracy"] == kept["settings"]["mechanism"]["facts"]["accuracyM"]
        assert [report[name] for name in ("altitude", "altitudeAccuracy", "heading", "speed")] == [None] * 4
        assert report["timestamp"] % (10 * 60_000) == 0
