"""What stands before the service: sizes, times, hosts; and that nothing of what was sent comes back or is written down."""

import asyncio
import io
import json
import logging
import random
import re
import sys

import pytest

import metricdp.service.http.routes
from metricdp.service import LedgerOptions, Settings
from metricdp.service.http.logs import ScrubbedFormatter
from metricdp.service.state.keys import add_key
from service_tools import CENTRE, JSON, call, city, eventually, in_process, noisy_city, post, saved, with_service

HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("guard"), sharp=city(), spline=noisy_city())


@pytest.fixture
def settings(files):
    return Settings(files=files, access_log=False)


def test_too_long_a_body_is_not_read(files):
    settings = Settings(files=files, max_body_bytes=1000, access_log=False)
    read = []

    async def pieces():
        for number in range(1000):
            read.append(number)
            yield b"[1.0, 2.0], " * 10

    announced = call(settings, "POST", "/v1/perturb", content=pieces(), headers=JSON | {"Content-Length": "1000000000"})
    assert announced.status_code == 413
    assert not read
    unannounced = call(settings, "POST", "/v1/perturb", content=pieces(), headers=JSON)
    assert unannounced.status_code == 413
    assert len(read) < 20
    for answer in (announced, unannounced):
        assert answer.headers["connection"] == "close"
        assert "1000 bytes" in answer.json()["detail"]
    for length in ("-1", "1e3", "9" * 30):
        answer = call(settings, "POST", "/v1/perturb", content=b"{}", headers=JSON | {"Content-Length": length})
        assert answer.status_code == 413


def test_bodies_that_are_held_at_once_are_bounded(files):
    settings = Settings(files=files, max_body_bytes=1000, max_held_bytes=2500, body_seconds=600, access_log=False)

    async def slow(go_on):
        yield b" " * 900
        await go_on.wait()
        yield json.dumps({"point": HERE}).encode()

    async def work(client):
        go_on = asyncio.Event()
        asked = [asyncio.create_task(client.post("/v1/perturb", content=slow(go_on), headers=JSON)) for _ in range(6)]

        async def four_are_answered():
            return sum(one.done() for one in asked) == 4

        await eventually(four_are_answered)  # while the others are held
        go_on.set()
        return await asyncio.gather(*asked), await client.post("/v1/perturb", content=slow(go_on), headers=JSON)

    answers, later = with_service(settings, work)
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 200, 503, 503, 503, 503]
    assert later.status_code == 200  # what was held is given back


def test_a_slow_body_is_given_up(files):
    settings = Settings(files=files, body_seconds=0.3, access_log=False)

    async def drops():
        yield b'{"points": ['
        for _ in range(100):
            await asyncio.sleep(0.05)
            yield b" "

    answer = call(settings, "POST", "/v1/perturb", content=drops(), headers=JSON)
    assert answer.status_code == 408
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_bodies_must_be_json(settings, kind):
    answer = call(settings, "POST", "/v1/perturb", content=b'{"point": [24.9, 60.1]}', headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert call(settings, "POST", "/v1/perturb", content=b"{}").status_code == 415


def test_json_with_a_charset_is_json(settings):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = json.dumps({"point": HERE}).encode()
    assert call(settings, "POST", "/v1/perturb", content=body, headers=headers).status_code == 200


SECRET = "24.9173461"
MALFORMED = [
    b"",
    b"\x00",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b"{",
    f'{{"points": [[{SECRET}, 60.1]'.encode(),
    f'{{"points": [[{SECRET}, NaN]]}}'.encode(),
    f'{{"points": [[{SECRET}, Infinity]]}}'.encode(),
    f'{{"points": [[{SECRET}, -Infinity]]}}'.encode(),
    f'{{"points": [[{SECRET}, 1e999]]}}'.encode(),
    f'{{"points": [[{SECRET}, {"9" * 5000}]]}}'.encode(),
    f'{{"points": [[{SECRET}, 0x10]]}}'.encode(),
    f'{{"points": [["{SECRET}", 60.1]]}}'.encode(),
    f'{{"points": {{"{SECRET}": 1}}}}'.encode(),
    f'{{"{SECRET}": [1, 2], "points": [[1, 2]]}}'.encode(),
    f'{{"mechanism": "{SECRET}", "points": [[1, 2]]}}'.encode(),
    f'{{"outside": "{SECRET}", "points": [[1, 2]]}}'.encode(),
    f'{{"coordinates": "{SECRET}", "points": [[1, 2]]}}'.encode(),
    f'{{"user": "{SECRET}", "points": [[1, 2]]}}'.encode(),
    f'{{"users": ["{SECRET}"], "points": [[1, 2]]}}'.encode(),
    f'{{"points": [[{SECRET}, 95.0]]}}'.encode(),
    f'{{"points": [[{SECRET}, 60.1, 3]]}}'.encode(),
    f'{{"points": [[{SECRET}0, 60.1]], "outside": "error"}}'.encode(),
    b'{"points": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    b'{"points": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    b'{"points": [[1, 2]], "points": "' + SECRET.encode() + b'"}',
    SECRET.encode(),
    b'"' + SECRET.encode(),
    b'{"points": [[1,2]]}' + SECRET.encode(),
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_bodies_are_refused_and_not_repeated(settings, body, caplog):
    answer = call(settings, "POST", "/v1/perturb", content=body, headers=JSON)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert SECRET not in answer.text + str(answer.headers) + caplog.text
    assert len(answer.text) < 2000


def test_many_errors_are_answered_briefly(settings):
    answer = post(settings, {"points": [["a", "b"]] * 50_000})
    assert answer.status_code == 422
    assert len(answer.text) < 2000


def test_queries_are_refused(settings):
    for method, path in (("POST", "/v1/perturb"), ("GET", "/v1/mechanisms")):
        answer = call(settings, method, f"{path}?lon={SECRET}", content=b"{}", headers=JSON)
        assert answer.status_code == 400
        assert "coordinates and ids belong in the body" in answer.json()["detail"]
        assert SECRET not in answer.text


@pytest.mark.parametrize("error", [ValueError, KeyError, RecursionError, MemoryError])
def test_unexpected_errors_say_nothing(settings, caplog, monkeypatch, error):
    def broken(*_arguments, **_options):
        secret_local = SECRET
        raise error(f"could not use {secret_local}")

    monkeypatch.setattr(metricdp.service.http.routes, "_points", broken)
    answer = post(settings, {"point": [float(SECRET), 60.1]})
    assert answer.status_code == 500
    problem = answer.json()
    assert problem["title"] == "Internal Server Error"
    (incident,) = re.findall(r"[0-9a-f]{16}", problem["detail"])
    (record,) = caplog.records
    assert f"incident {incident}: {error.__name__} at " in record.getMessage()
    assert re.search(r"test_service_guard\.py:\d+ broken", record.getMessage())
    assert SECRET not in caplog.text + answer.text


def test_log_records_lose_the_messages_of_exceptions():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    for as_json in (False, True):
        handler.setFormatter(ScrubbedFormatter(as_json=as_json))
        logger = logging.getLogger(f"test of scrubbing {as_json}")
        logger.addHandler(handler)
        try:
            int(SECRET)
        except ValueError:
            logger.exception("it\nfailed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all("it failed: ValueError at " in line for line in lines)
    assert json.loads(lines[1])["level"] == "error"
    assert SECRET not in stream.getvalue()


def test_errors_in_the_background_lose_their_messages(settings, caplog):
    async def work(client):
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: int(SECRET))
        await asyncio.sleep(0.01)

    with_service(settings, work)
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


def test_every_answer_has_the_security_headers(files):
    settings = Settings(files=files, tiles="https://tiles.example.org/{z}/{x}/{y}.png", access_log=False)
    for method, path in (("GET", "/v1/mechanisms"), ("GET", "/nothing"), ("POST", "/v1/perturb"), ("GET", "/metrics")):
        headers = call(settings, method, path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "img-src 'self' data: https://tiles.example.org;" in policy
        assert "access-control-allow-origin" not in headers


def test_hosts_are_checked_against_rebinding(files):
    settings = Settings(files=files, hosts=("localhost", "127.0.0.1", "[::1]", "Gateway.local"), access_log=False)
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "gateway.LOCAL:80"):
        assert call(settings, "GET", "/healthz", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:8080", "evil.example:127.0.0.1"):
        answer = call(settings, "POST", "/v1/perturb", json={"point": HERE}, headers={"Host": host})
        assert answer.status_code == 421
        assert "evil" not in answer.text


def test_other_pages_may_call_only_if_told_so(files, tmp_path):
    add_key(tmp_path / "keys.json", "gateway")
    ask = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "POST"}
    off = Settings(files=files, access_log=False)
    assert "access-control-allow-origin" not in call(off, "OPTIONS", "/v1/perturb", headers=ask).headers
    on = Settings(files=files, cors=("https://app.example.org",), keys=tmp_path / "keys.json", access_log=False)
    allowed = call(on, "OPTIONS", "/v1/perturb", headers=ask | {"Access-Control-Request-Headers": "authorization"})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example.org"
    refused = call(on, "OPTIONS", "/v1/perturb", headers=ask | {"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in refused.headers
    # A page that may ask must be able to read why it was refused.
    answer = call(on, "POST", "/v1/perturb", json={"point": HERE}, headers={"Origin": "https://app.example.org"})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://app.example.org"


def test_traces_are_off(settings):
    """FastAPI would put paths, queries and the messages of errors into traces, if the machine collects any."""

    async def work(client):
        return getattr(client.app, "_telemetry", {})

    telemetry = with_service(settings, work)
    wanted = ("tracing", "metrics", "logs", "operation_spans", "auto_configure")
    assert all(not telemetry.get(name, False) for name in wanted)


def test_websockets_are_refused(settings):
    async def work(client):
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "websocket.connect"}

        scope = {"type": "websocket", "path": f"/{SECRET}", "headers": [], "query_string": b"", "subprotocols": []}
        await client.app(scope, receive, send)
        return sent

    assert with_service(settings, work) == [{"type": "websocket.close", "code": 1008}]


class Telltale:
    """Requests of all kinds, full of numbers and names that nothing else has: no time, size or hash."""

    def __init__(self, key):
        self.key, self.sent, self._rng = key, set(), random.Random(0)

    def number(self, whole):
        digits = f"{self._rng.randrange(10**7):07d}"
        self.sent.add(digits)
        return float(f"{whole}.{digits}")

    def name(self):
        self.sent.add(text := f"person{self._rng.randrange(10**9)}x")
        return text

    def request(self):
        points = [[self.number(24), self.number(60)] for _ in range(self._rng.randint(1, 3))]
        body = {"points": points, "user": self.name(), "mechanism": self._rng.choice(["sharp", "spline"])}
        sound = {"method": "POST", "url": "/v1/perturb", "headers": JSON | {"Authorization": f"Bearer {self.key}"}}
        cut = json.dumps(body).encode()[: self._rng.randint(5, 60)]
        strange = {"X-API-Key": f"mdp_{self.name()}", "Host": f"{self.name()}.example", "User-Agent": self.name()}
        kinds = [
            {"json": body},
            {"json": body | {"outside": "error"}},
            {"json": body | {"points": [[24.0, self.number(95)]]}},
            {"content": cut},
            {"json": body, "url": f"/v1/perturb?lon={points[0][0]}&user={body['user']}"},
            {"method": "GET", "url": f"/v1/mechanisms/{points[0][0]}"},
            {"json": {"points": points}, "url": "/v1/probabilities"},
            {"json": body | {self.name(): points}},
            {"json": body, "headers": JSON | strange},
            {"method": "GET", "url": f"/{self.number(24)}/{self.name()}"},
        ]
        return sound | self._rng.choice(kinds)

    def found_in(self, text):
        """Return what was sent and is in a text; digits in the middle of a longer number are there by chance."""
        whole = set(re.findall(r"(?<![0-9])[0-9]{7}(?![0-9])|person[0-9]+x", text))
        return (whole & self.sent) | ({self.key} if self.key in text else set())


@pytest.mark.parametrize("hundreds", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_no_log_knows_a_coordinate_a_person_or_a_key(files, tmp_path, monkeypatch, caplog, hundreds):
    """Requests of all kinds by the thousand; then every log, metric and error is searched for what they held."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    telltale = Telltale(add_key(tmp_path / "keys.json", "gateway"))
    settings = Settings(
        files=files,
        ledger=LedgerOptions(tmp_path / "budgets.db", 10**9),
        keys=tmp_path / "keys.json",
        probabilities=True,
    )
    answers = []

    async def work():
        async with in_process(settings) as client:
            for _ in range(hundreds):
                answers.extend(await asyncio.gather(*(client.request(**telltale.request()) for _ in range(100))))
            return (await client.get("/metrics")).text, (await client.get("/readyz")).text

    shown = asyncio.run(work())
    assert {answer.status_code for answer in answers} == {200, 400, 401, 404, 422}
    assert len(telltale.sent) > 200 * hundreds
    # httpx, in this process, logs the addresses it calls; everything else is the service's.
    records = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    written = "\n".join([stream.getvalue(), *shown, *(record.getMessage() for record in records)])
    assert written.count("\n") > 100 * hundreds
    assert not telltale.found_in(written)
    assert not telltale.found_in("\n".join(answer.text for answer in answers if answer.status_code != 200))
    # The search does find what is there: the ledger knows people, as it must.
    assert telltale.found_in((tmp_path / "budgets.db").read_bytes().decode("latin-1"))
