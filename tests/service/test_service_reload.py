"""Mechanism files that change while they are served."""

import asyncio
import dataclasses
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import metricdp as mdp
from metricdp.files import content_hash
from metricdp.service import Settings
from problems import random_problem
from service_tools import (
    CENTRE,
    city,
    eventually,
    ledger_options,
    noisy_city,
    plane,
    running,
    running_with,
    saved,
    with_service,
)

HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()
BODY = {"points": [HERE] * 3}


def settings_with(folder, **options):
    return Settings(files=saved(folder, place=city()), poll_seconds=0.02, access_log=False, **options)


async def until(client, wanted):
    """Wait until the service answers with the mechanism of a hash, and return the answer."""
    answers = []

    async def taken_up():
        answers.append((await client.post("/v1/perturb", json=BODY)).json())
        return answers[-1]["sha256"] == wanted

    await eventually(taken_up)
    return answers[-1]


async def until_stale(client):
    async def stale():
        return (await client.get("/readyz")).json()["stale"]

    await eventually(stale)


def test_a_new_file_is_taken_up(tmp_path):
    settings = settings_with(tmp_path)
    (file,) = settings.files

    async def work(client):
        before = (await client.post("/v1/perturb", json=BODY)).json()
        noisy_city().save(file)
        after = await until(client, content_hash(noisy_city()))
        return before, after, (await client.get("/v1/mechanisms/place")).json(), (await client.get("/metrics")).text

    before, after, detail, metrics = with_service(settings, work)
    assert before["sha256"] == content_hash(city())
    assert after["mechanism"] == "place"
    assert detail["epsilon"] == 1.0
    assert detail["outputs_projected"] == noisy_city().outputs.tolist()
    assert "metricdp_reloads_total 2.0" in metrics
    assert "metricdp_reload_failures_total 0.0" in metrics
    assert metrics.count("metricdp_mechanism_info{") == 1
    assert content_hash(noisy_city()) in metrics


def damage_missing(file):
    file.unlink()


def damage_cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def damage_empty(file):
    file.write_bytes(b"")


def damage_not_private(file):
    mdp.fit(random_problem(0, n_records=20), epsilon=1, method="lp", cells=2, certify=False).save(file)


def damage_folder(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("damage", [damage_missing, damage_cut, damage_empty, damage_not_private, damage_folder])
def test_a_bad_file_leaves_the_old_one_in_service(tmp_path, damage, caplog):
    settings = settings_with(tmp_path)
    (file,) = settings.files

    async def work(client):
        damage(file)
        await until_stale(client)
        during, ready = (await client.post("/v1/perturb", json=BODY)).json(), await client.get("/readyz")
        await asyncio.sleep(0.2)  # ten looks at the file
        failures = (await client.get("/metrics")).text
        if file.is_dir():
            file.rmdir()
        noisy_city().save(file)
        await until(client, content_hash(noisy_city()))
        return during, ready, failures, await client.get("/readyz")

    during, ready, failures, mended = with_service(settings, work)
    assert during["sha256"] == content_hash(city())
    # It can answer, so it is ready; but somebody should look.
    assert ready.status_code == 200
    assert ready.json()["stale"] == ["place"]
    assert "metricdp_reload_failures_total 1.0" in failures  # not once every poll
    assert mended.json()["stale"] == []
    assert any("place" in record.getMessage() for record in caplog.records if record.levelname == "ERROR")


def test_an_unexpected_error_while_loading_does_not_end_the_watch(tmp_path, monkeypatch, caplog):
    settings = settings_with(tmp_path)
    (file,) = settings.files
    from metricdp.service.state import catalogue

    original, broken = catalogue.require_proof, False

    def require_proof(*arguments, **options):
        if broken:
            raise ArithmeticError("so it goes")
        return original(*arguments, **options)

    monkeypatch.setattr(catalogue, "require_proof", require_proof)

    async def work(client):
        nonlocal broken
        broken = True
        noisy_city().save(file)
        await until_stale(client)
        broken = False
        os.utime(file)
        await until(client, content_hash(noisy_city()))

    with_service(settings, work)
    assert "ArithmeticError" in caplog.text


def test_a_new_distance_is_refused_by_the_ledger(tmp_path):
    other = dataclasses.replace(mdp.fit(random_problem(0, p=1.0), epsilon=1, method="em"), projection=CENTRE)
    files = saved(tmp_path, place=city(), second=city())
    settings = Settings(files=files, poll_seconds=0.02, access_log=False, ledger=ledger_options(tmp_path, 10**6))

    async def work(client):
        other.save(files[1])
        await until_stale(client)
        return await client.post("/v1/perturb", json=BODY | {"user": "ann", "mechanism": "second"})

    answer = with_service(settings, work)
    assert answer.status_code == 200
    assert answer.json()["sha256"] == content_hash(city())


def test_requests_under_way_keep_their_mechanism(tmp_path, monkeypatch):
    """A request that waits for the ledger while the file changes is answered by the mechanism that it asked for."""
    settings = settings_with(tmp_path, ledger=ledger_options(tmp_path, 10**6))
    (file,) = settings.files
    original, waiting, go = mdp.Ledger.sample, threading.Event(), threading.Event()

    def slow(*arguments, **options):
        waiting.set()
        assert go.wait(30)
        return original(*arguments, **options)

    monkeypatch.setattr(mdp.Ledger, "sample", slow)

    async def work(client):
        asked = asyncio.create_task(client.post("/v1/perturb", json=BODY | {"user": "ann"}))
        await asyncio.to_thread(waiting.wait, 30)
        noisy_city().save(file)

        async def changed():
            return (await client.get("/v1/mechanisms")).json()["mechanisms"][0]["epsilon"] == 1.0

        await eventually(changed)
        later = asyncio.create_task(client.post("/v1/perturb", json=BODY | {"user": "ann"}))
        await asyncio.sleep(0.05)
        go.set()
        return (await asked).json(), (await later).json()

    asked, later = with_service(settings, work)
    assert asked["sha256"] == content_hash(city())
    assert [output["id"] for output in asked["outputs"]] == [4] * 3
    assert later["sha256"] == content_hash(noisy_city())
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.spent("ann") == pytest.approx(3 * city().claimed_epsilon + 3 * noisy_city().claimed_epsilon)


def wait(condition):
    end = time.monotonic() + 120
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)


def test_no_request_fails_while_files_change(tmp_path):
    """Under load on a real server: files replaced, damaged and mended, with and without SIGHUP."""
    (file,) = saved(tmp_path, place=city())
    problem = mdp.Problem(plane().outputs, plane().outputs, "euclidean")
    third = dataclasses.replace(mdp.fit(problem, epsilon=300, method="em"), projection=CENTRE)
    versions = [city(), noisy_city(), third]
    good = {content_hash(version): version for version in versions}
    statuses, hashes, stop = [], [None], threading.Event()
    with running_with(tmp_path, files=[file], access_log=False, poll_seconds=0.1) as service:

        def ask():
            with httpx.Client(base_url=service.url, timeout=120) as client:
                while not stop.is_set():
                    answer = client.post("/v1/perturb", json=BODY)
                    statuses.append(answer.status_code)
                    said = answer.json()
                    mechanism = good[said["sha256"]]
                    lonlat = CENTRE.to_lonlat(mechanism.outputs)
                    for output in said["outputs"]:
                        # Outputs are those of the mechanism that the answer names, never a mixture.
                        assert [output["lon"], output["lat"]] == lonlat[output["id"]].tolist()
                    hashes.append(said["sha256"])

        def save_and_wait(version):
            version.save(file)
            wanted = content_hash(version)
            wait(lambda: hashes[-1] == wanted)

        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(ask) for _ in range(4)]
            for number in range(8):
                if number % 4 == 3:
                    file.write_bytes(b"half a file")
                    service.process.send_signal(signal.SIGHUP)
                    time.sleep(0.3)
                    continue
                if number % 2:
                    threading.Timer(0.05, service.process.send_signal, [signal.SIGHUP]).start()
                save_and_wait(versions[number % 3])
            save_and_wait(versions[1])
            wait(lambda: len(statuses) > 200)
            stop.set()
            for one in asked:
                one.result()
            last = httpx.post(f"{service.url}/v1/perturb", json=BODY, timeout=120).json()
        assert service.stop() == 0
    assert set(statuses) == {200}
    assert len(statuses) > 200
    assert set(hashes[1:]) == set(good)
    assert last["sha256"] == content_hash(versions[1])


def test_hangup_reads_files_again_that_look_the_same(tmp_path):
    """A file system may tell too coarse a time to see a change by."""
    (file,) = saved(tmp_path, place=city())
    with running(tmp_path, file) as service, service.client() as client:
        service.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert client.post("/v1/perturb", json=BODY).status_code == 200
        assert "metricdp_reloads_total 1.0" in client.get("/metrics").text  # the same contents are no new mechanism
        assert service.stop() == 0
