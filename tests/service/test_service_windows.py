"""The service with a window and a schedule: whose clock counts, and what a person's budget is now."""

import asyncio
import json
import time

import pytest

import metricdp as mdp
from metricdp.ledger import times as _times
from metricdp.service import Settings
from metricdp.service.http import routes
from metricdp.service.state.keys import add_key, read_keys, revoke_key
from service_tools import CENTRE, call, city, ledger_options, noisy_city, post, saved, with_service

COST = city().claimed_epsilon
HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()


def settings_with(folder, reports=2.5, window="24h", every=None, mechanism=None, **options):
    ledger = ledger_options(folder, COST * reports, window=window, every=every)
    files = saved(folder, sharp=mechanism or city())
    return Settings(files=files, ledger=ledger, access_log=False, **options)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set: [unix seconds]."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(_times, "clock", lambda: round(now[0] * 10**6))
    monkeypatch.setattr(routes.time, "time", lambda: now[0])
    return now


async def ask(client, count=1, user="ann", **body):
    headers = body.pop("headers", None)
    answer = await client.post("/v1/perturb", json={"points": [HERE] * count, "user": user, **body}, headers=headers)
    return answer.json()["refused"] if answer.status_code == 200 else answer


def test_the_services_clock_counts(tmp_path, clock):
    async def work(client):
        refused = [await ask(client, 2)]
        for seconds in (86_400, 0.001, -1, 1.5):
            clock[0] += seconds
            refused.append(await ask(client))
        return refused

    # Spent, still spent a day later to the second, free again; refused while the clock is set back; the second of two.
    assert with_service(settings_with(tmp_path), work) == [0, 1, 0, 1, 0]


def test_budget_tells_of_the_window(tmp_path, clock):
    async def work(client):
        async def budget():
            return (await client.post("/v1/budget", json={"user": "ann"})).json()

        told = [await budget()]
        await ask(client)
        clock[0] += 10
        await ask(client)
        told.append(await budget())
        clock[0] += 86_395
        told.append(await budget())
        return told

    before, two, one = with_service(settings_with(tmp_path), work)
    assert (before["spent"], before["affordable"], before["frees_at"]) == (0, 2, None)
    assert (two["reports"], two["affordable"], two["frees_at"]) == (2, 0, 1_700_086_400.000001)
    assert (one["reports"], one["affordable"], one["frees_at"]) == (1, 1, 1_700_086_410.000001)


def test_one_draw_per_period(tmp_path, clock):
    async def work(client):
        ids = []
        for _ in range(30):
            clock[0] += 10
            answer = await client.post("/v1/perturb", json={"point": HERE, "user": "ann"})
            ids.append(answer.json()["outputs"][0]["id"])
        return ids, (await client.post("/v1/budget", json={"user": "ann"})).json()["reports"]

    ids, reports = with_service(settings_with(tmp_path, 1000, every="100s", mechanism=noisy_city()), work)
    assert reports == 4  # 1,700,000,010 to 300 touches four periods of 100 s
    assert [len(set(ids[start:end])) for start, end in ((0, 9), (9, 19), (19, 29))] == [1, 1, 1]


def keys_for(folder):
    file = folder / "keys.json"
    trusted = add_key(file, "trusted", clock_skew_seconds=300)
    return file, {"X-API-Key": trusted}, {"X-API-Key": add_key(file, "phone")}


def test_a_clients_time_needs_a_key_that_is_trusted_with_it(tmp_path, clock):
    file, trusted, phone = keys_for(tmp_path)
    settings = settings_with(tmp_path, 100, keys=file)

    async def work(client):
        async def refusal(headers, **body):
            answer = await ask(client, 2, headers=headers, **body)
            assert answer.status_code == 422
            return answer.json()["detail"] + json.dumps(answer.json().get("errors"))

        now = clock[0]
        assert "not trusted with the time" in await refusal(phone, time=now)
        assert "not trusted with the time" in await refusal(phone, times=[now, now])
        for wrong in (now + 300.001, now - 300.001, 0, -1e300, 1e300):
            assert "within 300 s of the service's clock" in await refusal(trusted, time=wrong)
            assert "within 300 s of the service's clock" in await refusal(trusted, times=[now, wrong])
        assert "as many as there are points" in await refusal(trusted, times=[now])
        assert "left out where `time` is given" in await refusal(trusted, time=now, times=[now, now])
        budget = await client.post("/v1/budget", json={"user": "ann"}, headers=trusted)
        assert budget.json()["reports"] == 0  # nothing was charged for any of these
        refused = [await ask(client, 2, headers=trusted, times=[now - 300, now + 300])]
        refused.append(await ask(client, 1, headers=trusted, time=now + 299))
        refused.append(await ask(client, 1, headers=phone))  # whoever is ahead waits for the clock
        clock[0] += 301
        refused.append(await ask(client, 1, headers=phone))
        return refused

    assert with_service(settings, work) == [0, 1, 1, 0]


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "1e400", '"noon"', "[1]", "true"])
def test_times_that_are_none(wrong, tmp_path, clock):
    file, trusted, _ = keys_for(tmp_path)
    body = f'{{"point": {json.dumps(HERE)}, "user": "ann", "time": {wrong}}}'
    headers = {**trusted, "Content-Type": "application/json"}
    answer = call(settings_with(tmp_path, keys=file), "POST", "/v1/perturb", content=body, headers=headers)
    assert answer.status_code == 422
    assert "noon" not in answer.text


def test_without_keys_or_a_window_nobody_says_when(tmp_path, clock):
    answer = post(settings_with(tmp_path), {"point": HERE, "user": "ann", "time": clock[0]})
    assert (answer.status_code, "not trusted with the time" in answer.text) == (422, True)
    (tmp_path / "plain").mkdir()
    settings = settings_with(tmp_path / "plain", window=None)
    answer = post(settings, {"point": HERE, "user": "ann", "time": clock[0]})
    assert (answer.status_code, "has no ledger with a window" in answer.text) == (422, True)
    properties = []
    for one in (settings, settings_with(tmp_path)):
        document = call(one, "GET", "/openapi.json").json()
        body = document["paths"]["/v1/perturb"]["post"]["requestBody"]["content"]["application/json"]
        properties.append({"time", "times"} & set(body["schema"]["properties"]))
    assert properties == [set(), {"time", "times"}]


def test_requests_with_and_without_times_arrive_together(tmp_path):
    file, trusted, phone = keys_for(tmp_path)

    async def work(client):
        asked = [
            ask(client, 3, user=f"{number}", headers=trusted, **({"time": time.time()} if number % 2 else {}))
            for number in range(20)
        ]
        return await asyncio.gather(*asked, *(ask(client, 1, user=f"x{n}", headers=phone) for n in range(5)))

    assert with_service(settings_with(tmp_path, 3.5, keys=file), work) == [0] * 25
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.users()["reports"].tolist() == [3] * 20 + [1] * 5


def test_a_keys_file_says_whom_it_trusts(tmp_path):
    file, _, _ = keys_for(tmp_path)
    assert [key.clock_skew_seconds for key in read_keys(file)] == [300, None]
    entries = json.loads(file.read_text())["keys"]
    assert ["clock_skew_seconds" in entry for entry in entries] == [True, False]  # as earlier versions read it
    assert revoke_key(file, "trusted").clock_skew_seconds == 300
    for wrong in (0, -1, 86_401, 1.5, "60"):
        with pytest.raises(mdp.InvalidInputError, match="`clock_skew_seconds` must be"):
            add_key(file, "another", clock_skew_seconds=wrong)
        entries[0]["clock_skew_seconds"] = wrong
        (tmp_path / "wrong.json").write_text(json.dumps({"format": 1, "keys": entries}))
        with pytest.raises(mdp.InvalidInputError, match="not a keys file"):
            read_keys(tmp_path / "wrong.json")
