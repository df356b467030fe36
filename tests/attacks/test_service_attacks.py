"""What answers, their sizes and their times tell about others' points, and what one caller can do to another."""

import asyncio
import json
import time

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import metricdp as mdp
from metricdp.service import Settings
from metricdp.service.state.answers import Outside
from problems import random_problem
from service_tools import JSON, ledger_options, noisy_city, post, saved, with_service

QUIET = {"access_log": False}


def mechanisms():
    problem = random_problem(0)
    return {
        "em": mdp.fit(problem, 1.0, "em"),
        "laplace": mdp.fit(problem, 1.0, "laplace"),
        "spline": mdp.fit(problem, 1.0, "spline", cells=3),
        "city": noisy_city(),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("mechanisms"), **mechanisms())


def body(mechanism, point, **more):
    return {"point": list(point), "coordinates": "projected", "mechanism": mechanism, **more}


# Sizes


def test_an_answer_is_as_long_as_its_output_says(files):
    """Nothing of the point is in the answer besides the output: not in its length and not in its headers."""

    async def work(client):
        seen = {}
        for point in ([2.0123, 2.0456], [0.0001, 3.9999], [-70.5, 12345.678]):
            for _ in range(60):
                answer = await client.post("/v1/perturb", json=body("spline", point))
                output = answer.json()["outputs"][0]["id"]
                seen.setdefault(output, set()).add((answer.content, tuple(sorted(answer.headers.items()))))
        return seen

    seen = with_service(Settings(files=files, **QUIET), work)
    assert len(seen) > 1
    assert all(len(answers) == 1 for answers in seen.values())


def test_answers_are_not_compressed(files):
    """Compressed, a batch's length would tell how often outputs repeat, and so how near to each other points are."""
    answer = post(
        Settings(files=files, **QUIET),
        {"points": [[1.0, 1.0]] * 2000, "coordinates": "projected"},
        headers={"Accept-Encoding": "gzip, br, zstd, deflate"},
    )
    assert "content-encoding" not in answer.headers
    assert int(answer.headers["content-length"]) == len(answer.content) > 50_000


def test_an_error_about_points_outside_does_not_say_which(files):
    settings = Settings(files=files, **QUIET)
    inside, outside = [1.0, 1.0], [99.5, 1.0]
    answers = [
        post(settings, {"points": points, "coordinates": "projected", "outside": "error"})
        for points in ([inside, inside, outside], [outside, inside, inside], [inside, [-3.25, 7.5], inside])
    ]
    assert {answer.status_code for answer in answers} == {422}
    assert len({answer.content for answer in answers}) == 1


# Times


@pytest.mark.parametrize("name", ["em", "laplace", "spline"])
@pytest.mark.parametrize("other", [[0.0123, 0.0456], [9.0123, 9.0456]], ids=["corner", "outside"])
def test_times_do_not_tell_two_points_apart(files, name, other):
    """Three hundred requests for each, in random order; by chance alone the bound is six standard deviations away."""
    asked = [json.dumps(body(name, point)).encode() for point in ([2.0123, 2.0456], other)]
    order = np.random.default_rng(0).permutation(np.repeat([0, 1], 300))

    async def work(client):
        seconds = []
        for which in (0, 1, 0, 1, *order):
            start = time.perf_counter()
            await client.post("/v1/perturb", content=asked[which], headers=JSON)
            seconds.append(time.perf_counter() - start)
        return np.array(seconds[4:])

    seconds = with_service(Settings(files=files, **QUIET), work)
    first, second = seconds[order == 0], seconds[order == 1]
    rank = mannwhitneyu(first, second).statistic / (len(first) * len(second))
    assert abs(rank - 0.5) < 0.145


# Requests that are drawn together


async def together(client, *bodies):
    return await asyncio.gather(*(client.post("/v1/perturb", content=one, headers=JSON) for one in bodies))


@pytest.mark.parametrize("user", ["ann\\u0000i", "\\u0000", "\\ud800", "x" * 257, ""])
def test_an_id_that_is_refused_is_refused_alone(files, tmp_path, user):
    """With NUL in an id, everybody in the same transaction got 503, and the service called itself unusable."""
    settings = Settings(files=files, ledger=ledger_options(tmp_path, 100.0), **QUIET)

    async def work(client):
        bad = f'{{"point": [1.0, 1.0], "user": "{user}"}}'
        many = f'{{"points": [[1.0, 1.0], [2.0, 2.0]], "users": ["bob", "{user}"]}}'
        answers = await together(client, '{"point": [1.0, 1.0], "user": "bob"}', bad, many)
        return answers, await client.get("/readyz")

    answers, ready = with_service(settings, work)
    assert [answer.status_code for answer in answers] == [200, 422, 422]
    assert ready.status_code == 200
    for answer in answers[1:]:
        assert "ann" not in answer.text
    with mdp.Ledger(tmp_path / "budgets.db") as ledger:
        assert ledger.users()["user"].tolist() == ["bob"]


@pytest.mark.parametrize("name", ["em", "laplace", "spline", "city"])
def test_points_at_the_end_of_the_world_harm_nobody(files, name):
    """Requests share one call, which must not fail for what a stranger put into it."""
    far = [1e308, -1.7976931348623157e308, 1e154, 5e-324, -0.0, 2.0**63]

    async def work(client):
        bodies = [json.dumps(body(name, [value, -value])) for value in far]
        return await together(client, *bodies, json.dumps(body(name, [1.0, 1.0])))

    answers = with_service(Settings(files=files, **QUIET), work)
    assert [answer.status_code for answer in answers] == [200] * (len(far) + 1)


def test_neighbours_do_not_change_what_is_drawn(files):
    """A caller who floods the service with one point learns nothing of another's: the frequencies stay what they are."""
    count = 20_000

    async def work(client):
        flood = json.dumps({"points": [[0.1, 0.1]] * count, "coordinates": "projected", "mechanism": "spline"})
        alone = json.dumps({"points": [[3.5, 3.5]] * count, "coordinates": "projected", "mechanism": "spline"})
        return [
            [output["id"] for output in answer.json()["outputs"]] for answer in await together(client, flood, alone)
        ]

    drawn = with_service(Settings(files=files, **QUIET), work)
    mechanism = mechanisms()["spline"]
    for ids, point in zip(drawn, ([0.1, 0.1], [3.5, 3.5]), strict=True):
        expected = mechanism.probabilities([point])[0] * count
        counts = np.bincount(ids, minlength=len(expected))
        common = expected > 5  # a rarer output that comes once would be a large surprise to this statistic
        assert counts[~common].sum() < 20
        counts, expected = counts[common], expected[common]
        assert (((counts - expected) ** 2 / expected).sum()) < 40  # four degrees of freedom: 1 in 10⁷ by chance


class Watched:
    """A mechanism that writes down how many points are converted and compared."""

    def __init__(self, mechanism):
        self.mechanism, self.projection, self.work = mechanism, self, []

    def to_xy_km(self, lon, lat):
        self.work.append(("converted", len(lon)))
        return self.mechanism.projection.to_xy_km(lon, lat)

    def outside_box(self, points, margin):
        self.work.append(("compared", len(points)))
        return self.mechanism.outside_box(points, margin)


@pytest.mark.parametrize("degrees", [True, False])
def test_counting_points_outside_is_the_same_work_wherever_they_lie(degrees):
    """More work only for points that are all outside would tell by its time, on the network, that they are."""
    mechanism = noisy_city()
    inside = mechanism.projection.to_lonlat(mechanism.bounds.mean(axis=0)[None])[0] if degrees else [0.0, 0.0]
    seen = {}
    for name, point in {"inside": inside, "swapped": inside[::-1], "far": [170.0, -80.0], "north": [0.0, 90.0]}.items():
        watched = Watched(mechanism)
        found = Outside.of(watched, np.array([point]), degrees=degrees)
        seen[name] = watched.work, found.count, found.swapped
    assert len({str(work) for work, _, _ in seen.values()}) == 1
    assert seen["inside"][1:] == (0, False)
    assert seen["far"][1:] == (1, False)
    assert not degrees or seen["swapped"][1:] == (1, True)
