"""Budgets through the service: exact, grouped into few transactions, and never released before they are paid for."""

import asyncio
import dataclasses
import queue
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import metricdp as mdp
from metricdp.errors import InvalidInputError
from metricdp.service import Settings, create_app
from metricdp.service.state.draws import Draws
from perturb_tools import nearest, points
from problems import random_problem
from service_tools import (
    CENTRE,
    city,
    eventually,
    in_process,
    ledger_options,
    plane,
    post,
    running,
    saved,
    with_service,
)

# What a report costs per true kilometre, and a little more because a ledger rounds up.
EPSILON = city().claimed_epsilon * (1 + 1e-9)
HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()


def settings_with(folder, reports, **options):
    """A ledger that pays for so many reports of each person."""
    return Settings(
        files=saved(folder, sharp=city()), ledger=ledger_options(folder, EPSILON * reports), access_log=False, **options
    )


def test_every_person_gets_so_many_reports_and_no_more(tmp_path):
    settings = settings_with(tmp_path, 3.5)

    async def work(client):
        one_by_one = [(await client.post("/v1/perturb", json={"point": HERE, "user": "ann"})).json() for _ in range(5)]
        users = ["bob", "cy", "bob", "bob", "cy", "bob", 7, "7", 7, "7"]
        together = (await client.post("/v1/perturb", json={"points": [HERE] * 10, "users": users})).json()
        return one_by_one, together, (await client.get("/metrics")).text

    one_by_one, together, metrics = with_service(settings, work)
    assert [answer["refused"] for answer in one_by_one] == [0, 0, 0, 1, 1]
    assert [answer["outputs"][0] is None for answer in one_by_one] == [False, False, False, True, True]
    # In order: bob's fourth is refused, and 7 is the same person as "7".
    assert [output is None for output in together["outputs"]] == [False] * 5 + [True] + [False] * 3 + [True]
    assert together["refused"] == 2
    assert 'metricdp_refused_total{mechanism="sharp"} 4.0' in metrics
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert {user: ledger.spent(user) for user in ("ann", "bob", "cy", "7")} == pytest.approx({
            "ann": 3 * EPSILON, "bob": 3 * EPSILON, "cy": 2 * EPSILON, "7": 3 * EPSILON,
        })  # fmt: skip


def test_people_must_be_named(tmp_path):
    settings = settings_with(tmp_path, 3)
    for body in (
        {"point": HERE},
        {"point": HERE, "user": "ann", "users": ["ann"]},
        {"points": [HERE, HERE], "users": ["ann"]},
        {"point": HERE, "user": ""},
        {"point": HERE, "user": True},
        {"point": HERE, "user": 1.5},
        {"point": HERE, "user": "a" * 257},
        {"points": [HERE], "users": [None]},
        {"point": HERE, "user": 2**70},
    ):
        answer = post(settings, body)
        assert answer.status_code == 422, body
        assert "user" in answer.text
        assert "aaa" not in answer.text
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.users().empty


def test_unusual_names_are_charged_like_others(tmp_path):
    names = ["Åsa", "a\x01b", "a", " ", "nan", "None", "-1", "💚", "e\u0301", "é", "0", 0, -(2**63), "x" * 256]
    settings = settings_with(tmp_path, 2)

    async def work(client):
        return await asyncio.gather(
            *(client.post("/v1/perturb", json={"points": [HERE] * 3, "user": name}) for name in names)
        )

    answers = with_service(settings, work)
    assert [answer.json()["refused"] for answer in answers[:10]] == [1] * 10
    assert sum(answer.json()["refused"] for answer in answers[10:12]) == 4  # "0" and 0 are one person
    half_a_pair = b'{"point": [24.9, 60.1], "user": "\\ud800"}'
    broken = with_service(
        settings, lambda c: c.post("/v1/perturb", content=half_a_pair, headers={"Content-Type": "application/json"})
    )
    assert broken.status_code == 422


class Transactions:
    """How many points each transaction of a ledger held; none begins to write before so many requests have arrived."""

    def __init__(self):
        self.sizes, self.awaited, self._arrived = [], 0, 0
        self._changed = threading.Condition()

    def arrive(self):
        with self._changed:
            self._arrived += 1
            self._changed.notify_all()

    async def any_arrived(self):
        return self._arrived > 0

    def wait(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self._arrived >= self.awaited, 60)


@pytest.fixture
def transactions(monkeypatch):
    found, sample, queue_up = Transactions(), mdp.Ledger.sample, Draws._queue

    def arriving(draws, served, asked):
        try:
            queue_up(draws, served, asked)
        finally:
            found.arrive()

    def slow(ledger, mechanism, users, x, *arguments, **options):
        found.wait()
        answer = sample(ledger, mechanism, users, x, *arguments, **options)
        found.sizes.append(len(x))
        return answer

    monkeypatch.setattr(Draws, "_queue", arriving)
    monkeypatch.setattr(mdp.Ledger, "sample", slow)
    return found


def test_requests_share_transactions(tmp_path, transactions):
    settings, transactions.awaited = settings_with(tmp_path, 10), 50
    places = points(50)
    degrees = CENTRE.to_lonlat(places).tolist()

    async def work(client):
        return await asyncio.gather(
            *(client.post("/v1/perturb", json={"point": degrees[i], "user": f"u{i % 7}"}) for i in range(50))
        )

    answers = with_service(settings, work)
    assert [answer.json()["outputs"][0]["id"] for answer in answers] == nearest(places).tolist()
    assert sum(transactions.sizes) == 50
    assert len(transactions.sizes) <= 2  # those that came at once, and those that came while the first was written
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.users()["reports"].sum() == 50


def test_one_bad_request_does_not_hurt_the_others(tmp_path, transactions):
    settings, transactions.awaited = settings_with(tmp_path, 10), 20
    bad = [
        {"point": [24.0, 60.0], "user": "eve", "outside": "error"},
        {"point": [200.0, 60.0], "user": "eve"},
        {"point": HERE, "user": ""},
        {"point": HERE, "user": "eve", "mechanism": "nobody"},
        {"points": [HERE, HERE], "users": ["eve"]},
    ]

    async def work(client):
        bodies = [{"point": HERE, "user": f"u{i}"} for i in range(20)]
        for place, body in enumerate(bad):
            bodies.insert(4 * place, body)
        return list(
            zip(bodies, await asyncio.gather(*(client.post("/v1/perturb", json=b) for b in bodies)), strict=True)
        )

    for body, answer in with_service(settings, work):
        assert answer.status_code == (422 if body in bad else 200)
    assert sum(transactions.sizes) == 20
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.spent("eve") == 0


def test_nobody_is_overtaken_and_transactions_stay_small(tmp_path, transactions):
    settings, transactions.awaited = settings_with(tmp_path, 20_005), 5

    async def work(client):
        sizes = [1, 15_000, 9_000, 1, 1]
        return await asyncio.gather(
            *(client.post("/v1/perturb", json={"points": [HERE] * size, "user": "ann"}) for size in sizes)
        )

    answers = with_service(settings, work)
    # Ann's budget pays for the first requests, and for a part of the third.
    assert [answer.json()["refused"] for answer in answers] == [0, 0, 3_996, 1, 1]
    assert max(transactions.sizes) <= 20_000


def test_a_full_queue_is_refused_and_recovers(tmp_path, transactions):
    settings, transactions.awaited = settings_with(tmp_path, 100, max_waiting_points=10), 8

    async def work(client):
        first = await asyncio.gather(
            *(client.post("/v1/perturb", json={"points": [HERE] * 4, "user": f"u{i}"}) for i in range(8))
        )
        return first, await client.post("/v1/perturb", json={"points": [HERE] * 50, "user": "ann"})

    first, later = with_service(settings, work)
    refused = [answer for answer in first if answer.status_code == 503]
    assert len(refused) == 6
    for answer in refused:
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"] == "application/problem+json"
    # More than the queue holds, but nobody else waits: it must be possible to ask at all.
    assert later.status_code == 200
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.users()["reports"].sum() == 4 * (8 - len(refused)) + 50


@pytest.mark.parametrize(
    "error",
    [TimeoutError("locked; ann"), OSError(28, "No space left; ann"), InvalidInputError("`users` ann")],
    ids=lambda error: type(error).__name__,
)
def test_a_ledger_that_fails_releases_nothing(tmp_path, monkeypatch, caplog, error):
    settings = settings_with(tmp_path, 100)
    original, broken = mdp.Ledger.sample, True

    def sample(*arguments, **options):
        if broken:
            raise error
        return original(*arguments, **options)

    monkeypatch.setattr(mdp.Ledger, "sample", sample)
    monkeypatch.setattr("metricdp.service.state.draws._FAILING_SECONDS", 600)

    async def work(client):
        nonlocal broken
        failed = await asyncio.gather(
            *(client.post("/v1/perturb", json={"point": HERE, "user": "ann"}) for _ in range(5))
        )
        unready = await client.get("/readyz")
        broken = False
        monkeypatch.setattr("metricdp.service.state.draws._FAILING_SECONDS", 0)  # the failure is long ago
        ready = await client.get("/readyz")
        return failed, unready, ready, await client.post("/v1/perturb", json={"point": HERE, "user": "ann"})

    failed, unready, ready, later = with_service(settings, work)
    for answer in failed:
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "outputs" not in answer.json()
        assert "ann" not in answer.text
    assert unready.status_code == 503
    assert unready.json()["ledger_usable"] is False
    assert ready.status_code == 200
    assert later.status_code == 200
    assert "ann" not in caplog.text
    assert type(error).__name__ in caplog.text


def test_an_unexpected_error_in_the_ledger_is_an_incident(tmp_path, monkeypatch, caplog):
    def sample(*_arguments, **_options):
        raise RuntimeError("24.123456 ann")

    monkeypatch.setattr(mdp.Ledger, "sample", sample)
    answer = post(settings_with(tmp_path, 1), {"point": HERE, "user": "ann"})
    assert answer.status_code == 500
    assert "24.123456" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_ready_says_that_the_ledger_is_gone(tmp_path):
    settings = settings_with(tmp_path, 10)

    async def work(client):
        (tmp_path / "budgets.db").rename(tmp_path / "away.db")
        return await client.post("/v1/perturb", json={"point": HERE, "user": "ann"}), await client.get("/readyz")

    answer, ready = with_service(settings, work)
    assert answer.status_code == 503
    assert ready.status_code == 503


def test_a_client_that_goes_away_is_charged(tmp_path, transactions):
    settings, transactions.awaited = settings_with(tmp_path, 10), 2

    async def work(client):
        asked = asyncio.create_task(client.post("/v1/perturb", json={"point": HERE, "user": "ann"}))
        await eventually(transactions.any_arrived)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return await client.post("/v1/perturb", json={"point": HERE, "user": "bob"})

    assert with_service(settings, work).status_code == 200
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.spent("ann") == pytest.approx(EPSILON)


def test_repeating_and_sticking(tmp_path):
    options = ledger_options(tmp_path, 2 * EPSILON, beyond="repeat-last", sticky_km=0.1)
    settings = Settings(files=saved(tmp_path, sharp=city()), ledger=options, access_log=False)
    corners = CENTRE.to_lonlat([[0.5, 0.5], [0.51, 0.5], [3.5, 0.5], [0.5, 3.5]]).tolist()
    answer = post(settings, {"points": corners, "user": "ann"}).json()
    # The second point is close to the first; for the fourth the budget is spent.
    assert [output["id"] for output in answer["outputs"]] == [0, 0, 1, 1]
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.spent("ann") == pytest.approx(2 * EPSILON)


def test_a_keyed_ledger_holds_no_names(tmp_path):
    secret = bytes(range(32))
    options = ledger_options(tmp_path, 10 * EPSILON, user_key=secret)
    settings = Settings(files=saved(tmp_path, sharp=city()), ledger=options, access_log=False)
    assert "user_key" not in repr(settings)
    assert post(settings, {"point": HERE, "user": "annabella"}).status_code == 200
    with sqlite3.connect(tmp_path / "budgets.db") as database:
        rows = list(database.execute("SELECT user FROM reports"))
    database.close()
    assert len(rows) == 1
    assert rows[0][0] != "annabella"
    with mdp.Ledger(tmp_path / "budgets.db", user_key=secret) as ledger:
        assert ledger.spent("annabella") == pytest.approx(EPSILON)


def test_mechanisms_of_one_ledger_measure_alike(tmp_path):
    other = mdp.fit(random_problem(0, p=1.0), epsilon=1, method="em")
    files = saved(tmp_path, sharp=plane(), other=other)
    create_app(Settings(files=files))
    with pytest.raises(InvalidInputError, match="p = 1"):
        create_app(Settings(files=files, ledger=ledger_options(tmp_path, 10)))


def test_several_services_share_one_ledger(tmp_path):
    settings = settings_with(tmp_path, 30)

    async def work():
        async with in_process(settings) as first, in_process(settings) as second:
            answers = await asyncio.gather(
                *(
                    client.post("/v1/perturb", json={"points": [HERE] * 2, "user": "ann"})
                    for _ in range(10)
                    for client in (first, second)
                )
            )
        return sum(answer.json()["refused"] for answer in answers)

    assert asyncio.run(work()) == 10


def test_mechanisms_of_different_epsilon_add_up(tmp_path):
    half = dataclasses.replace(
        mdp.fit(mdp.Problem(plane().outputs, plane().outputs, "euclidean"), epsilon=200, method="em"), projection=CENTRE
    )
    settings = Settings(
        files=saved(tmp_path, sharp=city(), half=half), ledger=ledger_options(tmp_path, 800), access_log=False
    )

    async def work(client):
        one = await client.post("/v1/perturb", json={"point": HERE, "user": "ann"})
        two = await client.post("/v1/perturb", json={"points": [HERE] * 3, "user": "ann", "mechanism": "half"})
        return one.json()["refused"], two.json()["refused"]

    assert with_service(settings, work) == (0, 1)


def test_nothing_is_undercounted_when_the_service_is_killed(tmp_path):
    """Clients write down what they received; after kill -9 the ledger must know of at least as much."""
    (file,) = saved(tmp_path, sharp=city())
    received = []
    answers = queue.SimpleQueue()
    with running(
        tmp_path, file, "--ledger", tmp_path / "budgets.db", "--max-epsilon", EPSILON * 10**6, "--no-access-log"
    ) as service:
        stop = threading.Event()

        def ask(number):
            mine = 0
            with httpx.Client(base_url=service.url, timeout=60) as client:
                while not stop.is_set():
                    body = {"points": [HERE] * (1 + mine % 3), "user": f"u{number}"}
                    try:
                        answer = client.post("/v1/perturb", json=body)
                    except httpx.TransportError:
                        break
                    mine += sum(output is not None for output in answer.json()["outputs"])
                    answers.put(number)
            received.append((f"u{number}", mine))

        with ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(ask, number) for number in range(16)]
            try:
                # Killed in the middle of its work, however fast the machine is.
                for _ in range(150):
                    answers.get(timeout=120)
            finally:
                service.stop(signal.SIGKILL)
                stop.set()
            for one in asked:
                one.result()
    assert sum(count for _, count in received) > 100
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        charged = ledger.users().set_index("user")["reports"].to_dict()
    for user, count in received:
        assert count <= charged.get(user, 0) <= count + 3  # at most the request that was under way
