"""API keys: made, kept as hashes, revoked, limited."""

import asyncio
import hashlib
import json
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from typer.testing import CliRunner

from metricdp.cli import app
from metricdp.errors import InvalidInputError
from metricdp.service import Settings, create_app
from metricdp.service.state import keys as keys_module
from metricdp.service.state.keys import KeyRing, add_key, read_keys, revoke_key
from service_tools import CENTRE, call, city, running, saved, with_service

HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()
BODY = {"point": HERE}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def keys(tmp_path):
    return tmp_path / "keys.json"


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set, for limits of rates and for looks at the file of keys: [unix seconds]."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(keys_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def settings_with(folder, keys, **options):
    return Settings(files=saved(folder, sharp=city()), keys=keys, access_log=False, **options)


def test_keys_are_random_and_kept_as_hashes(keys):
    texts = [add_key(keys, f"gateway {number}") for number in range(5)]
    assert len(set(texts)) == 5
    assert all(text.startswith("mdp_") and len(text) == 47 for text in texts)  # 256 bits in base64
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    contents = keys.read_text()
    assert not any(text in contents or text[4:] in contents for text in texts)
    assert [key.sha256 for key in read_keys(keys)] == [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    assert [path.name for path in keys.parent.iterdir()] == ["keys.json"]


def test_command_line(keys):
    def invoke(*arguments):
        return CliRunner().invoke(app, ["keys", *arguments, "--file", str(keys)])

    key = json.loads(invoke("add", "gateway", "--points-per-second", "500", "--json").stdout)["key"]
    plain = invoke("add", "phone")
    assert plain.stdout.strip().startswith("mdp_")
    assert invoke("revoke", "phone").exit_code == 0
    listed = json.loads(invoke("list", "--json").stdout)["keys"]
    assert [(one["name"], one["points_per_second"], one["revoked"] is None) for one in listed] == [
        ("gateway", 500, True),
        ("phone", None, False),
    ]
    assert all("sha256" not in one for one in listed)
    shown = invoke("list").stdout
    assert "gateway" in shown
    assert key not in shown
    assert KeyRing(keys).find(key).name == "gateway"
    assert KeyRing(keys).find(plain.stdout.strip()) is None


def test_names_and_limits_are_checked(keys):
    add_key(keys, "gateway")
    for name in ("gateway", "", "a\nb", "x" * 65):
        with pytest.raises(InvalidInputError, match="`name`"):
            add_key(keys, name)
    with pytest.raises(InvalidInputError, match="`points_per_second`"):
        add_key(keys, "other", points_per_second=0)
    with pytest.raises(InvalidInputError, match="`name`"):
        revoke_key(keys, "nobody")
    revoked = revoke_key(keys, "gateway")
    assert revoke_key(keys, "gateway") == revoked
    with pytest.raises(InvalidInputError, match="`name`"):
        add_key(keys, "gateway")  # a name in a log must not mean two clients


def test_no_change_is_lost_when_several_are_made_at_once(keys):
    for number in range(20):
        add_key(keys, f"old {number}")

    def change(number):
        return revoke_key(keys, f"old {number}") if number < 20 else add_key(keys, f"new {number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(40)))
    found = read_keys(keys)
    assert len(found) == 40
    assert all((key.revoked is not None) == key.name.startswith("old") for key in found)


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"[]",
        b"{",
        b'{"format": 2, "keys": []}',
        b'{"format": "1", "keys": []}',
        b'{"format": 1, "keys": [{"name": "a"}]}',
        b'{"format": 1, "keys": [{"name": "a", "sha256": "0", "created": ""}]}',
        b'{"format": 1, "keys": [{"name": "a", "sha256": 7, "created": "", "colour": 1}]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_damaged_files_are_refused(keys, contents):
    keys.write_bytes(contents)
    with pytest.raises(InvalidInputError, match="keys file"):
        read_keys(keys)


def test_who_may_ask(tmp_path, keys):
    good, gone = add_key(keys, "gateway"), add_key(keys, "old phone")
    revoke_key(keys, "old phone")
    settings = settings_with(tmp_path, keys)

    async def work(client):
        answers = {}
        for name, headers in {
            "bearer": bearer(good),
            "lower case": {"authorization": f"bearer {good}"},
            "header": {"X-API-Key": good},
            "none": {},
            "revoked": bearer(gone),
            "wrong": bearer(good[:-1] + ("a" if good[-1] != "a" else "b")),
            "hash": bearer(hashlib.sha256(good.encode()).hexdigest()),
            "empty": bearer(""),
            "basic": {"Authorization": f"Basic {good}"},
            "not text": {"X-API-Key": b"\xff\xfe"},
        }.items():
            answers[name] = await client.post("/v1/perturb", json=BODY, headers=headers)
        return answers

    answers = with_service(settings, work)
    refused = [answer for name, answer in answers.items() if name not in ("bearer", "lower case", "header")]
    assert [answers[name].status_code for name in ("bearer", "lower case", "header")] == [200] * 3
    assert len(refused) == 7
    for answer in refused:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json() == refused[0].json()  # nothing tells one reason from another


def test_every_route_of_the_api_needs_a_key_and_no_other_does(tmp_path, keys):
    add_key(keys, "gateway")
    settings = settings_with(tmp_path, keys, probabilities=True)
    for method, path in (
        ("GET", "/v1/mechanisms"), ("GET", "/v1/mechanisms/sharp"), ("GET", "/v1/nothing"), ("POST", "/v1/perturb"),
        ("POST", "/v1/probabilities"), ("PUT", "/v1/perturb"),
    ):  # fmt: skip
        assert call(settings, method, path).status_code == 401
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert call(settings, "GET", path).status_code == 200


def test_a_key_is_needed_wherever_the_service_is_mounted(tmp_path, keys):
    key = add_key(keys, "gateway")

    async def work():
        outer = Starlette(routes=[Mount("/private", create_app(settings_with(tmp_path, keys)))])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="http://test") as client:
            return [
                (await client.post("/private/v1/perturb", json=BODY, headers=headers)).status_code
                for headers in ({}, bearer(key))
            ]

    assert asyncio.run(work()) == [401, 200]


def test_a_key_is_asked_for_before_the_body_is_read(tmp_path, keys):
    add_key(keys, "gateway")
    read = []

    async def endless():
        for number in range(100):
            read.append(number)
            yield b"x" * 1000

    answer = call(settings_with(tmp_path, keys), "POST", "/v1/perturb", content=endless())
    assert answer.status_code == 401
    assert answer.headers["connection"] == "close"
    assert not read


def test_a_revocation_holds_within_a_second(tmp_path, keys, clock):
    first, second = add_key(keys, "first"), add_key(keys, "second")
    settings = settings_with(tmp_path, keys)

    async def work(client):
        before = [
            (await client.post("/v1/perturb", json=BODY, headers=bearer(key))).status_code for key in (first, second)
        ]
        revoke_key(keys, "first")
        third = add_key(keys, "third")
        clock[0] += 1
        after = [
            (await client.post("/v1/perturb", json=BODY, headers=bearer(key))).status_code
            for key in (first, second, third)
        ]
        return before, after

    before, after = with_service(settings, work)
    assert before == [200, 200]
    assert after == [401, 200, 200]


@pytest.mark.parametrize("damage", ["write", "remove"])
def test_a_damaged_file_shuts_everybody_out_until_it_is_mended(tmp_path, keys, damage, monkeypatch, caplog):
    monkeypatch.setattr("metricdp.service.state.keys._CHECK_SECONDS", 0.0)
    key = add_key(keys, "gateway")
    sound = keys.read_bytes()
    settings = settings_with(tmp_path, keys)

    async def work(client):
        async def status():
            answer = await client.post("/v1/perturb", json=BODY, headers=bearer(key))
            return answer.status_code, (await client.get("/readyz")).status_code

        before = await status()
        keys.unlink() if damage == "remove" else keys.write_bytes(sound[:-20])
        during = await status()
        keys.write_bytes(sound)
        return before, during, await status()

    assert with_service(settings, work) == ((200, 200), (503, 503), (200, 200))
    assert caplog.text.count("the file of keys cannot be read") == 1


def test_a_service_does_not_start_without_its_keys(tmp_path, keys):
    with pytest.raises(FileNotFoundError):
        call(settings_with(tmp_path, keys), "GET", "/healthz")
    keys.write_text("{}")
    with pytest.raises(InvalidInputError, match="keys file"):
        call(settings_with(tmp_path, keys), "GET", "/healthz")


def test_rates_of_requests(tmp_path, keys, clock):
    slow = add_key(keys, "slow", requests_per_second=20)
    fast = add_key(keys, "fast")
    settings = settings_with(tmp_path, keys)

    async def work(client):
        limited = []
        for _ in range(300):
            clock[0] += 0.01
            limited.append(await client.post("/v1/perturb", json=BODY, headers=bearer(slow)))
        return limited, await asyncio.gather(
            *(client.post("/v1/perturb", json=BODY, headers=bearer(fast)) for _ in range(100))
        )

    limited, free = with_service(settings, work)
    answered = [answer for answer in limited if answer.status_code == 200]
    refused = [answer for answer in limited if answer.status_code == 429]
    # In three seconds: 20 per second, and another 20 at most for the window before the first.
    assert 40 <= len(answered) <= 80
    assert len(refused) + len(answered) == len(limited)
    assert refused
    for answer in refused:
        assert int(answer.headers["retry-after"]) >= 1
        assert "20 requests per second" in answer.json()["detail"]
    assert all(answer.status_code == 200 for answer in free)


def test_rates_of_points(tmp_path, keys, clock):
    key = add_key(keys, "gateway", points_per_second=100)
    settings = settings_with(tmp_path, keys)

    async def work(client):
        three = [await client.post("/v1/perturb", json={"points": [HERE] * 60}, headers=bearer(key)) for _ in range(3)]
        clock[0] += 2.1
        later = await client.post("/v1/perturb", json={"points": [HERE] * 100}, headers=bearer(key))
        return three, later, await client.post("/v1/perturb", json={"points": [HERE] * 101}, headers=bearer(key))

    three, later, large = with_service(settings, work)
    assert [answer.status_code for answer in three] == [200, 429, 429]
    assert "retry-after" in three[1].headers
    assert later.status_code == 200
    # Waiting would not help, so it is not told to wait.
    assert large.status_code == 413
    assert "retry-after" not in large.headers


def test_refused_requests_are_not_charged(tmp_path, keys, clock):
    """The ledger must not pay for what the rate limit refuses."""
    import metricdp as mdp
    from metricdp.service import LedgerOptions

    key = add_key(keys, "gateway", points_per_second=100)
    ledger = LedgerOptions(tmp_path / "budgets.db", 400.0 * 10**6)
    body = {"points": [HERE] * 60, "user": "ann"}

    async def work(client):
        return [await client.post("/v1/perturb", json=body, headers=bearer(key)) for _ in range(3)]

    answers = with_service(settings_with(tmp_path, keys, ledger=ledger), work)
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    with mdp.Ledger(tmp_path / "budgets.db") as book:
        assert book.users()["reports"].sum() == 60


def test_limits_without_keys_hold_for_all_together(tmp_path, clock):
    settings = Settings(files=saved(tmp_path, sharp=city()), requests_per_second=5, access_log=False)

    async def work(client):
        return await asyncio.gather(*(client.post("/v1/perturb", json=BODY) for _ in range(30)))

    statuses = [answer.status_code for answer in with_service(settings, work)]
    assert (statuses.count(200), statuses.count(429)) == (5, 25)


def test_the_service_reads_keys_from_its_command_line(tmp_path, keys):
    key = add_key(keys, "gateway 7")
    (file,) = saved(tmp_path, sharp=city())
    with running(tmp_path, file, "--keys", keys, "--json") as service, service.client() as client:
        assert client.post("/v1/perturb", json=BODY).status_code == 401
        assert client.post("/v1/perturb", json=BODY, headers=bearer(key)).status_code == 200
        revoke_key(keys, "gateway 7")
        time.sleep(1)
        assert client.post("/v1/perturb", json=BODY, headers=bearer(key)).status_code == 401
        assert service.stop() == 0
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert [(line["status"], line["key"]) for line in lines if "route" in line] == [
        (401, None), (200, "gateway 7"), (401, None),
    ]  # fmt: skip
    assert key not in service.log.read_text()
