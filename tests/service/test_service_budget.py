"""What the service tells of budgets and of points outside the box, and to whom."""

import asyncio
import dataclasses
import json
import logging
import sqlite3

import pytest

import metricdp as mdp
from metricdp.mechanisms.outside import FEWEST_POINTS
from metricdp.service import Settings
from metricdp.service.state.answers import SWAPPED
from metricdp.service.state.keys import add_key
from service_tools import CENTRE, call, city, ledger_options, post, saved, with_service

COST = city().claimed_epsilon
HERE = CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()
FAR = [HERE[0] + 5, HERE[1]]


def settings_with(folder, reports=3.5, **options):
    ledger = ledger_options(folder, COST * (1 + 1e-9) * reports)
    return Settings(files=saved(folder, sharp=city()), ledger=ledger, access_log=False, **options)


def keyed_settings(folder, *names, **options):
    headers = {name: {"X-API-Key": add_key(folder / "keys.json", name)} for name in names}
    return settings_with(folder, keys=folder / "keys.json", **options), headers


def test_spent_and_remaining(tmp_path):
    async def work(client):
        await client.post("/v1/perturb", json={"points": [HERE] * 2, "user": "ann"})
        return [(await client.post("/v1/budget", json={"user": user})).json() for user in ("ann", "bob", 7)]

    ann, bob, seven = with_service(settings_with(tmp_path), work)
    assert (ann["reports"], ann["affordable"], ann["mechanism"]) == (2, 1, "sharp")
    assert ann["spent"] == pytest.approx(2 * COST)
    assert ann["spent"] + ann["remaining"] == pytest.approx(3.5 * COST)
    assert (bob["spent"], bob["reports"], bob["affordable"]) == (0, 0, 3)
    assert seven == bob


def test_a_key_sees_its_own_reports_only(tmp_path):
    settings, keys = keyed_settings(tmp_path, "one", "two", reports=10.5)

    async def work(client):
        async def report(key, user, count=1):
            body = {"points": [HERE] * count, "user": user}
            return await client.post("/v1/perturb", json=body, headers=keys[key])

        # Together, so that they share a transaction.
        await asyncio.gather(report("one", "ann", 4), report("two", "bob"), report("one", "bob"))

        async def budget(key, user):
            return (await client.post("/v1/budget", json={"user": user}, headers=keys[key])).content

        before = {(key, user): await budget(key, user) for key in keys for user in ("ann", "bob", "nobody")}
        await report("two", "ann")  # two cannot buy a look at what one has spent on Ann
        return before, json.loads(await budget("two", "ann"))

    before, after = with_service(settings, work)
    assert json.loads(before["one", "ann"])["reports"] == 4
    assert before["two", "ann"] == before["two", "nobody"] == before["one", "nobody"]
    assert json.loads(before["one", "bob"])["reports"] == json.loads(before["two", "bob"])["reports"] == 1
    assert (after["reports"], after["affordable"]) == (1, 9)
    # The limit is one for all keys together.
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.budget("ann").reports == 5


def test_a_key_of_the_same_name_is_somebody_else(tmp_path):
    settings, keys = keyed_settings(tmp_path, "one")
    with_service(settings, lambda c: c.post("/v1/perturb", json={"point": HERE, "user": "ann"}, headers=keys["one"]))
    (tmp_path / "keys.json").unlink()
    new = {"X-API-Key": add_key(tmp_path / "keys.json", "one")}
    assert post(settings, {"user": "ann"}, "/v1/budget", headers=new).json()["reports"] == 0


def test_looking_a_person_up_is_one_search_in_the_callers_own_part(tmp_path):
    """Neither the time nor the plan depends on whether others have reported for a person."""
    with mdp.Ledger(tmp_path / "b.db", max_epsilon=1):
        pass
    with sqlite3.connect(tmp_path / "b.db") as database:
        query = "EXPLAIN QUERY PLAN SELECT SUM(spent), SUM(count) FROM callers WHERE caller = ? AND user = ?"
        plan = " ".join(str(row) for row in database.execute(query, ("one", "ann")))
    database.close()
    assert "SEARCH callers USING PRIMARY KEY (caller=? AND user=?)" in plan


@pytest.mark.parametrize(
    "body", [{}, {"user": ""}, {"user": None}, {"user": "a\0b"}, {"user": "x", "more": 1}, {"users": ["x"]}]
)
def test_bodies_that_are_no_question(tmp_path, body):
    answer = post(settings_with(tmp_path), body, "/v1/budget")
    assert answer.status_code == 422
    assert "a\0b" not in answer.text


def test_ids_do_not_travel_in_addresses(tmp_path):
    answer = call(settings_with(tmp_path), "GET", "/v1/budget?user=ann")
    assert answer.status_code == 400
    assert "ids belong in the body" in answer.text
    assert call(settings_with(tmp_path), "GET", "/v1/budget").status_code == 405


def test_no_budgets_without_a_ledger_and_no_answers_without_a_key(tmp_path):
    plain = Settings(files=saved(tmp_path, sharp=city()), access_log=False)
    assert post(plain, {"user": "ann"}, "/v1/budget").status_code == 404
    settings, _ = keyed_settings(tmp_path, "one")
    assert post(settings, {"user": "ann"}, "/v1/budget").status_code == 401


def test_a_ledger_that_cannot_be_read_is_no_unspent_budget(tmp_path, monkeypatch):
    def broken(*_arguments, **_options):
        raise OSError("a path")

    monkeypatch.setattr(mdp.Ledger, "budget", broken)
    answer = post(settings_with(tmp_path), {"user": "ann"}, "/v1/budget")
    assert answer.status_code == 503
    assert "a path" not in answer.text


# Nothing is affordable


def test_a_service_that_nobody_can_afford_says_so(tmp_path, caplog):
    settings = settings_with(tmp_path, reports=0.5)

    async def work(client):
        paths = ("/readyz", "/v1/mechanisms", "/v1/mechanisms/sharp")
        return [(await client.get(path)).json() for path in paths]

    with caplog.at_level(logging.WARNING, "metricdp.service"):
        ready, listed, detail = with_service(settings, work)
        post(settings, {"point": HERE, "user": "ann"})
    assert "mechanism sharp: No report is affordable" in caplog.text
    assert (ready["ready"], ready["unaffordable"]) == (True, ["sharp"])
    assert listed["mechanisms"][0]["reports_per_person"] == detail["reports_per_person"] == 0


def test_reports_per_person(tmp_path, caplog):
    answer = call(settings_with(tmp_path), "GET", "/v1/mechanisms/sharp").json()
    assert answer["reports_per_person"] == 3
    assert "affordable" not in caplog.text
    plain = Settings(files=saved(tmp_path, sharp=city()), access_log=False)
    assert call(plain, "GET", "/v1/mechanisms").json()["mechanisms"][0]["reports_per_person"] is None


# Points outside the box


@pytest.fixture
def plain(tmp_path):
    return Settings(files=saved(tmp_path, sharp=city()), access_log=False)


def test_batches_are_counted(plain):
    assert FEWEST_POINTS == 20  # as the documentation says
    answer = post(plain, {"points": [HERE] * 17 + [FAR] * 3}).json()
    assert (answer["outside"], answer["hint"]) == (3, None)
    assert "outside" not in post(plain, {"points": [HERE] * 16 + [FAR] * 3}).json()
    assert "outside" not in post(plain, {"point": FAR}).json()
    assert "outside" not in post(plain, {"points": [FAR] * 20, "count_outside": False}).json()


def test_a_single_point_is_counted_on_request(plain):
    asked = {"count_outside": True}
    assert [post(plain, {"point": point, **asked}).json()["outside"] for point in (HERE, FAR)] == [0, 1]
    assert post(plain, {"point": HERE, "count_outside": "yes"}).status_code == 422


def test_swapped_coordinates_are_recognised(plain):
    swapped = HERE[::-1]
    assert post(plain, {"points": [swapped] * 20}).json()["hint"] == SWAPPED
    assert post(plain, {"points": [swapped] * 19 + [HERE]}).json()["hint"] is None
    assert post(plain, {"points": [FAR] * 20}).json()["hint"] is None
    problem = post(plain, {"points": [swapped] * 20, "outside": "error"})
    assert "20 of 20 are not; are their coordinates swapped" in problem.json()["detail"]
    assert str(HERE[0]) not in problem.text
    assert "swapped" not in post(plain, {"point": swapped, "outside": "error"}).text
    # Longitudes beyond 90 degrees are no latitudes, and that is said.
    assert "after the longitude" in post(plain, {"points": [[35.0, 139.0]] * 20}).text


def test_the_length_of_an_answer_does_not_tell_how_many_are_outside(plain):
    """Sizes can be seen on the way and are logged; the mechanism reports the same place from all of these points."""
    far = [HERE[0], HERE[1]]
    bodies = [{"points": [HERE] * (20 - count) + [far] * count} for count in (0, 5, 20)]
    bodies += [{"points": [FAR] * 20}, {"points": [HERE[::-1]] * 20}]

    async def work(client):
        return [(await client.post("/v1/perturb", json=body)).content for body in bodies]

    answers = with_service(plain, work)
    ends = {len(answer[answer.index(b',"refused"') :]) for answer in answers}
    assert len(ends) == 1
    counts = [json.loads(answer)["outside"] for answer in answers]
    assert counts == [0, 0, 0, 20, 20]


def test_counting_costs_nobody_a_report(tmp_path):
    settings = dataclasses.replace(settings_with(tmp_path, reports=30.5))
    answer = post(settings, {"points": [FAR] * 22, "user": "ann"}).json()
    assert (answer["outside"], answer["refused"]) == (22, 0)
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.budget("ann").reports == 22
