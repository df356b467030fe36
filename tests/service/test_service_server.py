"""The service as a process: starting, refusing to start, clients that mean harm, and orderly ends."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import metricdp as mdp
from metricdp.cli import app, main
from metricdp.errors import InvalidInputError
from metricdp.service.http import deadlines
from problems import random_problem
from service_tools import CENTRE, COMMAND, city, noisy_city, running, running_with, saved

HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()
# So long a busy machine is waited for; nothing here takes more than a second or two by itself.
HANGS_SECONDS = 120
HEAD = b"POST /v1/perturb HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def serve(folder, *arguments):
    """Run `metricdp serve` where it is expected to refuse."""
    return subprocess.run(
        [*COMMAND, "serve", *map(str, arguments), "--port", "0"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def said_until_closed(connection):
    """Return what the other side says until it closes; fails if it never does."""
    said = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionError:
            piece = b""
        if not piece:
            return said
        said += piece


def test_it_refuses_to_start_on_a_mechanism_that_is_not_private(tmp_path):
    mechanism = mdp.fit(random_problem(0, n_records=20), epsilon=1, method="lp", cells=2, certify=False)
    good, bad = saved(tmp_path, good=city(), bad=mechanism)
    answer = serve(tmp_path, good, bad)
    assert answer.returncode == 2
    assert "bad.mdp" in answer.stderr
    assert "not served" in answer.stderr
    assert answer.stdout == ""


def test_it_refuses_to_draw_the_roads_of_another_city(tmp_path):
    lyon = mdp.Problem.from_lonlat([[4.82, 45.75], [4.86, 45.77]], [[4.83, 45.755], [4.85, 45.765]])
    (elsewhere,) = saved(tmp_path, lyon=mdp.fit(lyon, 2.0, "em"))
    answer = serve(tmp_path, elsewhere, "--page", "--city", "helsinki")
    assert answer.returncode == 2
    assert "`--city` must be the city in which the mechanisms are" in answer.stderr
    assert answer.stdout == ""
    answer = serve(tmp_path, "--demo", "--city", "rome")
    assert answer.returncode == 2
    assert "`--demo` shows Helsinki" in answer.stderr
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "at least one mechanism file"),
        (["FILE", "--host", "0.0.0.0"], "--keys"),
        (["FILE", "--host", "::"], "--keys"),
        (["FILE", "--host", "example.org"], "--keys"),
        (["FILE", "--max-epsilon", "5"], "--ledger"),
        (["FILE", "--user-key-file", "secret"], "--ledger"),
        (["FILE", "--demo"], "--demo"),
        (["FILE", "--cors", "*"], "cors"),
    ],
)
def test_it_refuses_what_makes_no_sense(tmp_path, arguments, words):
    (file,) = saved(tmp_path, good=city())
    answer = CliRunner().invoke(app, ["serve", *(str(file) if one == "FILE" else one for one in arguments)])
    assert isinstance(answer.exception, InvalidInputError)
    assert words in str(answer.exception)


def said_when_refused(monkeypatch, capfd, *arguments):
    """Run `metricdp serve` in this process, where it is expected to refuse, and return what it says."""
    monkeypatch.setattr(sys, "argv", ["metricdp", "serve", *map(str, arguments), "--port", "0"])
    monkeypatch.setattr("metricdp.service.http.server.log_to", lambda *_, **__: None)  # would change logging for others
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    return capfd.readouterr().err


def test_what_is_wrong_is_said_in_one_line(tmp_path, monkeypatch, capfd):
    (file,) = saved(tmp_path, good=city())
    monkeypatch.chdir(tmp_path)
    for arguments, words in (
        (["missing.mdp"], "missing.mdp"),
        ([file, "--host", "192.0.2.1", "--open"], "cannot listen"),
        ([file, "--ledger", "budgets.db"], "--max-epsilon"),
    ):
        said = said_when_refused(monkeypatch, capfd, *arguments)
        assert words in said
        assert said.count("\n") == 1


def test_a_missing_package_is_named(tmp_path, monkeypatch, capfd):
    (file,) = saved(tmp_path, good=city())
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'metricdp[service]'" in said_when_refused(monkeypatch, capfd, file)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with more patience than tests, which wait for `HANGS_SECONDS`: what it closes, it closes at once."""
    folder = tmp_path_factory.mktemp("server")
    files = saved(folder, sharp=city(), spline=noisy_city())
    with running_with(folder, files=files, header_seconds=600, body_seconds=600, max_connections=40) as one:
        yield one


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A service with short patience, for tests that wait until it ends."""
    folder = tmp_path_factory.mktemp("hasty")
    with running_with(folder, files=saved(folder, sharp=city()), header_seconds=1, body_seconds=1) as one:
        yield one


def connected(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=HANGS_SECONDS)


def test_it_runs_on_the_fast_loop_and_parser(service):
    uvloop = pytest.importorskip("uvloop")
    httptools = pytest.importorskip("httptools")
    maps = Path(f"/proc/{service.process.pid}/maps")
    if not maps.exists():
        pytest.skip("needs /proc")
    mapped = maps.read_text()
    for package in (uvloop, httptools):
        assert re.search(rf"/{package.__name__}/.*\.so", mapped)


def said_to(connection, opening, piece):
    """Send an opening, and a piece now and then until the other side closes; return what it says."""

    def trickle():
        while piece and not stop.wait(0.05):
            try:
                connection.sendall(piece)
            except OSError:
                return

    stop = threading.Event()
    connection.sendall(opening)
    feeder = threading.Thread(target=trickle)
    feeder.start()
    try:
        return said_until_closed(connection)
    finally:
        stop.set()
        feeder.join()


def test_slow_headers_are_cut_off(hasty):
    """Three ways to hold a connection: saying nothing, a byte now and then, and blank lines after a request."""
    for opening, piece in ((b"", b""), (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n"), (b"", b"\r\n")):
        started = time.monotonic()
        with connected(hasty) as connection:
            said = said_to(connection, opening, piece)
        assert time.monotonic() - started > 0.9
        assert b"200" not in said


def test_a_used_connection_cannot_be_held_by_blank_lines(hasty):
    with connected(hasty) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(65536)
        connection.sendall(b"\r\n")
        said_until_closed(connection)


@contextmanager
def slow_clients(service):
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(service)) for _ in range(30)]
        for connection in slow:
            connection.sendall(HEAD)
        yield slow


def test_many_slow_clients_do_not_keep_others_out(service):
    with slow_clients(service), service.client() as client:
        assert client.post("/v1/perturb", json={"point": HERE}).status_code == 200


def test_many_slow_clients_are_cut_off(hasty):
    with slow_clients(hasty) as slow:
        for connection in slow:
            assert b"200" not in said_until_closed(connection)


def test_connections_are_counted(service):
    held = [connected(service) for _ in range(45)]
    try:
        with service.client() as client:
            assert client.get("/healthz").status_code == 503
    finally:
        for connection in held:
            connection.close()
    # They are let in again as soon as the service has noticed that those are gone.
    deadline = time.monotonic() + HANGS_SECONDS
    status = 503
    while status == 503 and time.monotonic() < deadline:
        time.sleep(0.05)
        with service.client() as client:
            status = client.get("/healthz").status_code
    assert status == 200


def test_headers_and_body_have_each_their_own_time(tmp_path):
    """Each takes more than half of the time that both are given."""
    body = json.dumps({"point": HERE}).encode()
    files = saved(tmp_path, sharp=city())
    with running_with(tmp_path, files=files, header_seconds=4, body_seconds=4) as one, connected(one) as connection:
        time.sleep(2.1)
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
        time.sleep(2.1)
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_slow_bodies_are_cut_off(hasty):
    with connected(hasty) as connection:
        said = said_to(connection, HEAD + b"Content-Length: 100000\r\n\r\n{", b" ")
    assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("h11", [False, True])
def test_answers_that_nobody_reads_are_given_up(tmp_path, h11):
    files = saved(tmp_path, sharp=city())
    body = json.dumps({"points": [HERE] * 100_000}).encode()
    with running_with(tmp_path, files=files, h11=h11, read_seconds=0.5) as one, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before connecting, so that it counts
        connection.connect(("127.0.0.1", one.port))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(4)  # ample for an answer of a fifth of a second and for the patience of half a second after it
        connection.settimeout(HANGS_SECONDS)
        said = said_until_closed(connection)
        assert said.startswith(b"HTTP/1.1 200 OK")
        assert len(said) < 6_000_000  # the rest was thrown away
        assert one.stop() == 0


def test_huge_headers_are_cut_off(service):
    with connected(service) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        try:
            for _ in range(1000):
                connection.sendall(b"X-Long: " + b"y" * 2000 + b"\r\n")
        except OSError:
            pass  # it was closed while we sent, as it should be
        said_until_closed(connection)


def test_large_bodies_are_not_taken_for_headers(service):
    """A body that arrives together with its headers, in pieces larger than headers may be."""
    body = json.dumps({"point": HERE}).encode().ljust(8_000_000)
    with connected(service) as connection:
        for _ in range(3):
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
            said = b""
            while b"refused" not in said and (piece := connection.recv(65536)):
                said += piece
            assert said.startswith(b"HTTP/1.1 200 OK")


def memory_mb(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1000


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_thousand_million_points_is_not_taken(service, chunked):
    """16 GB if it were sent; the client stops when it is told to."""
    before = memory_mb(service.process)
    with connected(service) as connection:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 16000000000"
        connection.sendall(HEAD + length + b"\r\n\r\n")
        piece = b"[24.94,60.17]," * 5000
        sent = 0
        try:
            while sent < 500_000_000:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                sent += len(piece)
        except OSError:
            pass
        said_until_closed(connection)
    assert sent < 40_000_000
    assert memory_mb(service.process) - before < 100
    with service.client() as client:
        assert client.post("/v1/perturb", json={"point": HERE}).status_code == 200


def test_the_answer_to_a_large_body_says_why(service):
    with connected(service) as connection:
        connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 16000000000\r\n\r\n")
        said = said_until_closed(connection)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["status"] == 413


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        HEAD + b"Content-Length: -5\r\n\r\n{}",
    ],
)
def test_garbage_is_answered_briefly(hasty, garbage):
    with connected(hasty) as connection:
        connection.sendall(garbage)
        said = said_until_closed(connection)
    assert b"200" not in said[:20]


def test_requests_one_behind_the_other(service):
    """Pipelined requests are answered in order, and refusals do not desynchronise a connection."""
    body = json.dumps({"point": HERE}).encode()
    one = HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    with connected(service) as connection:
        connection.sendall(one * 3 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        said = said_until_closed(connection)
    assert said.count(b"HTTP/1.1 200 OK") == 4
    assert said.rstrip().endswith(b'{"alive":true}')


def test_rebinding_is_refused(service):
    with service.client() as client:
        assert client.get("/v1/mechanisms", headers={"Host": "evil.example"}).status_code == 421


def test_the_other_parser_has_the_same_patience(tmp_path):
    files = saved(tmp_path, sharp=city())
    with running_with(tmp_path, files=files, h11=True, header_seconds=1, body_seconds=1) as one:
        with connected(one) as connection:
            connection.sendall(HEAD)
            said_until_closed(connection)
        with connected(one) as connection:
            connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
            assert said_until_closed(connection).startswith(b"HTTP/1.1 408 ")
        assert one.stop() == 0


def test_the_parser_is_the_fast_one():
    pytest.importorskip("httptools")
    assert deadlines.AutoHTTPProtocol.__name__ == "HttpToolsProtocol"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_requests_under_way_are_finished(tmp_path, how):
    """The service is told to stop while clients ask; none of them may get half an answer or an error."""
    (file,) = saved(tmp_path, sharp=city())
    ledger = tmp_path / "budgets.db"
    with running(tmp_path, file, "--ledger", ledger, "--max-epsilon", "1e9") as service:
        received, refused = [], []

        def ask(number):
            with httpx.Client(base_url=service.url, timeout=HANGS_SECONDS) as client:
                while True:
                    try:
                        answer = client.post("/v1/perturb", json={"points": [HERE] * 300, "user": f"u{number}"})
                    except (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError) as error:
                        refused.append(error)
                        return
                    assert answer.status_code == 200
                    received.append(len(answer.json()["outputs"]))

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, number) for number in range(8)]
            while len(received) < 50:
                time.sleep(0.05)
            assert service.stop(how) == 0
            for one in asked:
                one.result()
    assert set(received) == {300}
    # Whatever was charged was received: nobody's request was cut off in the middle.
    with mdp.Ledger(ledger) as book:
        assert book.users()["reports"].sum() == sum(received)
    assert "Traceback" not in service.log.read_text()
    assert not ledger.with_name("budgets.db-wal").exists()  # the ledger was closed in order


def test_log_lines(tmp_path):
    files = saved(tmp_path, sharp=city())
    with running(tmp_path, *files) as service, service.client() as client:
        client.post("/v1/perturb", json={"point": [24.9173461, 60.1]})
        client.get("/v1/mechanisms/24.9173461")
        client.get("/24.9173461?lat=60.9173461")
        service.stop()
    lines = [line for line in service.log.read_text().splitlines() if line.startswith("20")]
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (GET|POST) (\S+) (\d{3}) [\d.]+ ms \d+ B key=-"
    assert [re.fullmatch(pattern, line).groups() for line in lines] == [
        ("POST", "/v1/perturb", "200"),
        ("GET", "/v1/mechanisms/{id}", "404"),
        ("GET", "unknown", "404"),
    ]
    assert "9173461" not in service.log.read_text()
    assert "127.0.0.1" not in service.log.read_text()
