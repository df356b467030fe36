"""What the service answers: the law of its outputs, coordinates, order, and what it refuses."""

import asyncio
import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import metricdp as mdp
from chance_tools import follow
from metricdp.errors import InvalidInputError, NotCertified
from metricdp.files import content_hash
from metricdp.mechanisms.families import METHODS
from metricdp.service import LedgerOptions, Settings, create_app, state
from perturb_tools import nearest, points
from problems import random_problem
from service_tools import CENTRE, call, city, ledger_options, noisy_city, plane, post, saved, with_service


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    kinds = {
        method: dataclasses.replace(mdp.fit(random_problem(1), epsilon=1, method=method), projection=CENTRE)
        for method in ("em", "laplace", "tem")
    }
    return saved(folder, spline=noisy_city(), sharp=city(), bare=plane(), **kinds)


@pytest.fixture(scope="module")
def settings(files):
    return Settings(files=files, probabilities=True, access_log=False)


def ids(answer):
    assert answer.status_code == 200, answer.text
    return np.array([output["id"] for output in answer.json()["outputs"]])


def fits(drawn, row):
    return follow(np.bincount(drawn, minlength=len(row)), row)


@pytest.mark.parametrize("name", ["spline", "em", "laplace", "tem"])
@pytest.mark.parametrize("coordinates", ["lonlat", "projected"])
def test_outputs_follow_the_mechanism(settings, files, name, coordinates):
    mechanism = mdp.load(next(file for file in files if file.stem == name))
    place = np.array([[1.3, 2.9]])
    sent = CENTRE.to_lonlat(place) if coordinates == "lonlat" else place
    body = {"points": np.repeat(sent, 20_000, axis=0).tolist(), "mechanism": name, "coordinates": coordinates}
    drawn = ids(post(settings, body))
    assert fits(drawn, mechanism.probabilities(place)[0])
    # The test can tell: draws for a place 500 m away are another matter.
    assert not fits(drawn, mechanism.probabilities(place + 0.5)[0])


def test_single_requests_follow_the_mechanism_when_they_are_drawn_together(settings):
    place = np.array([[1.3, 2.9]])
    body = {"point": CENTRE.to_lonlat(place)[0].tolist()}

    async def work(client):
        answers = []
        for _ in range(10):
            answers += await asyncio.gather(*(client.post("/v1/perturb", json=body) for _ in range(100)))
        return np.concatenate([ids(answer) for answer in answers])

    drawn = with_service(settings, work)
    assert len(drawn) == 1000
    assert fits(drawn, noisy_city().probabilities(place)[0])


def test_outputs_are_places_of_the_mechanism(settings):
    places = points(50)
    degrees = post(settings, {"points": CENTRE.to_lonlat(places).tolist(), "mechanism": "sharp"}).json()
    kilometres = post(settings, {"points": places.tolist(), "mechanism": "sharp", "coordinates": "projected"}).json()
    bare = post(settings, {"points": places.tolist(), "mechanism": "bare"}).json()
    expected = nearest(places)
    for answer in (degrees, kilometres, bare):
        assert [output["id"] for output in answer["outputs"]] == expected.tolist()
        assert answer["refused"] == 0
    lonlat = CENTRE.to_lonlat(plane().outputs)
    assert degrees["outputs"] == [{"id": k, "lon": lonlat[k, 0], "lat": lonlat[k, 1]} for k in expected.tolist()]
    assert kilometres["outputs"] == [
        {"id": k, "x": plane().outputs[k, 0], "y": plane().outputs[k, 1]} for k in expected.tolist()
    ]
    assert bare["outputs"] == kilometres["outputs"]
    assert degrees["mechanism"] == "sharp"
    assert degrees["sha256"] == content_hash(city())


def test_everybody_gets_the_answer_to_their_own_request(settings):
    """Requests of many sizes and both kinds of coordinates, drawn together."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 40, 120)
    batches = [points(size, seed) for seed, size in enumerate(sizes)]

    async def work(client):
        return await asyncio.gather(
            *(
                client.post(
                    "/v1/perturb",
                    json={"mechanism": "sharp", "points": CENTRE.to_lonlat(batch).tolist()}
                    if number % 2
                    else {"mechanism": "sharp", "points": batch.tolist(), "coordinates": "projected"},
                )
                for number, batch in enumerate(batches)
            )
        )

    for batch, answer in zip(batches, with_service(settings, work), strict=True):
        assert ids(answer).tolist() == nearest(batch).tolist()


def test_a_large_batch_is_drawn_aside_and_in_order(settings):
    places = points(60_000)
    answer = post(settings, {"points": places.tolist(), "mechanism": "bare"})
    assert (ids(answer) == nearest(places)).all()


def test_probabilities_are_those_of_the_mechanism(settings, files):
    places = points(30)
    for file in files:
        mechanism, name = mdp.load(file), file.stem
        body = {"points": places.tolist(), "mechanism": name, "coordinates": "projected"}
        answer = post(settings, body, "/v1/probabilities").json()
        assert np.array_equal(answer["probabilities"], mechanism.probabilities(places))
        assert answer["mechanism"] == name
        assert answer["sha256"] == content_hash(mechanism)
        if mechanism.projection is not None:
            body = {"points": CENTRE.to_lonlat(places).tolist(), "mechanism": name}
            again = post(settings, body, "/v1/probabilities").json()["probabilities"]
            assert np.allclose(again, mechanism.probabilities(places), rtol=1e-6, atol=1e-12)


def test_probabilities_are_off_unless_asked_for(files):
    answer = post(Settings(files=files, access_log=False), {"points": [[24.9, 60.1]]}, "/v1/probabilities")
    assert answer.status_code == 404
    assert "--probabilities" in answer.json()["detail"]
    assert Settings(files=files, page=True).probabilities


def test_mechanisms(settings, files):
    listed = call(settings, "GET", "/v1/mechanisms").json()["mechanisms"]
    assert [one["id"] for one in listed] == [file.stem for file in files]
    for one, file in zip(listed, files, strict=True):
        mechanism = mdp.load(file)
        assert one["method"] == mechanism.method
        assert one["label"] == METHODS[mechanism.method].label
        assert one["epsilon"] == mechanism.epsilon
        assert one["plane_epsilon"] == float(mechanism.plane_epsilon)
        assert one["rounding"] == mechanism.rounding
        assert one["p"] == mechanism.p
        assert one["sha256"] == content_hash(file)
        assert one["n_outputs"] == mechanism.n_outputs
        assert one["n_axes"] == 2
        assert one["bounds"] == mechanism.bounds.tolist()
        assert one["certified"] is True
        assert one["claim"] == mdp.certify(mechanism).claim
        assert one["loss"] == mechanism.report.get("loss")
        assert one["lower_bound"] is None
        degrees = mechanism.projection is not None
        assert one["projection"] == ({"lon_deg": CENTRE.lon_deg, "lat_deg": CENTRE.lat_deg} if degrees else None)
        assert one["unit"] == ("km" if degrees else None)
        detail = call(settings, "GET", f"/v1/mechanisms/{file.stem}").json()
        assert {key: detail[key] for key in one if key != "loaded_at"} == {
            key: one[key] for key in one if key != "loaded_at"
        }
        assert detail["outputs_projected"] == mechanism.outputs.tolist()
        assert detail["certificate"]["holds"] is True
        assert detail["certificate"]["checked"] > 0
        if degrees:
            features = detail["outputs"]["features"]
            assert detail["outputs"]["type"] == "FeatureCollection"
            assert [feature["id"] for feature in features] == list(range(mechanism.n_outputs))
            places = [feature["geometry"]["coordinates"] for feature in features]
            assert np.array_equal(places, CENTRE.to_lonlat(mechanism.outputs))
        else:
            assert detail["outputs"] is None


def test_a_method_that_nobody_knows_is_called_by_its_name(tmp_path):
    (file,) = saved(tmp_path, home=dataclasses.replace(city(), method="home-made"))
    (one,) = call(Settings(files=(file,), access_log=False), "GET", "/v1/mechanisms").json()["mechanisms"]
    assert (one["method"], one["label"]) == ("home-made", "home-made")


def test_other_numbers_of_axes(tmp_path):
    line = mdp.fit(mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean"), epsilon=200, method="em")
    space = mdp.fit(random_problem(0, n_axes=3, p=1.0), epsilon=1, method="em")
    settings = Settings(files=saved(tmp_path, line=line, space=space), access_log=False)
    answer = post(settings, {"points": [[0.5], [3.6], [0.9]]})
    assert answer.json()["outputs"] == [{"id": 0, "point": [1.0]}, {"id": 1, "point": [3.0]}, {"id": 0, "point": [1.0]}]
    answer = post(settings, {"point": [1.0, 2.0, 3.0], "mechanism": "space"}).json()
    (output,) = answer["outputs"]
    assert output["point"] == space.outputs[output["id"]].tolist()
    assert post(settings, {"point": [1.0, 2.0]}).json()["errors"] == [
        {"where": "point", "rule": "must be a list of 1 numbers"}
    ]
    assert post(settings, {"point": [1.0], "coordinates": "lonlat"}).status_code == 422


def test_an_infinite_norm_is_named(tmp_path):
    mechanism = mdp.fit(random_problem(0, p=np.inf), epsilon=1, method="em")
    answer = call(Settings(files=saved(tmp_path, box=mechanism), access_log=False), "GET", "/v1/mechanisms")
    assert answer.json()["mechanisms"][0]["p"] == "inf"


def test_points_outside_the_box(settings):
    far = [[24.0, 60.0], CENTRE.to_lonlat([[2.0, 2.0]])[0].tolist()]
    assert ids(post(settings, {"points": far, "mechanism": "sharp"})).tolist() == [0, 4]
    answer = post(settings, {"points": far, "mechanism": "sharp", "outside": "error"})
    assert answer.status_code == 422
    assert "1 of 2" in answer.json()["detail"]
    inside = post(settings, {"points": far[1:], "mechanism": "sharp", "outside": "error"})
    assert ids(inside).tolist() == [4]
    # Degrees are rounded on their way; a corner of the box is not outside.
    corner = CENTRE.to_lonlat([[4.0, 4.0]])[0].tolist()
    assert post(settings, {"point": corner, "mechanism": "sharp", "outside": "error"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "points"),
        ({"points": []}, "points"),
        ({"point": [1, 2], "points": [[1, 2]]}, "points"),
        ({"points": [[1, 2], [1, 2, 3]]}, "points.1"),
        ({"points": [[1, 2], [1, "2"]]}, "points.1.1"),
        ({"points": [[1, 2], [1, None]]}, "points.1.1"),
        ({"points": [[1, 2], [True, 2]]}, "points.1.0"),
        ({"points": [[1, 2], 7]}, "points.1"),
        ({"points": [[1, 2], [181, 2]]}, "points.1.0"),
        ({"points": [[1, 2], [1, 91]]}, "points.1.1"),
        ({"point": [1, -91]}, "point.1"),
        ({"points": "all"}, "points"),
        ({"point": [1, 2], "outside": "drop"}, "outside"),
        ({"point": [1, 2], "coordinates": "utm"}, "coordinates"),
        ({"point": [1, 2], "mechanism": "nobody"}, "mechanism"),
        ({"point": [1, 2], "mechanism": 7}, "mechanism"),
        ({"point": [1, 2], "user": "ann"}, "user"),
        ({"points": [[1, 2]], "users": ["ann"]}, "users"),
        ({"point": [1, 2], "24.123456": 1}, "body"),
        ([[1, 2]], "body"),
        ("24.123456", "body"),
    ],
)
def test_what_a_body_may_not_say(settings, body, where):
    answer = post(settings, body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 422
    assert [error["where"] for error in problem["errors"]] == [where]
    assert all(error["rule"] for error in problem["errors"])
    assert "24.123456" not in answer.text


def test_too_many_points(files):
    settings = Settings(files=files, max_points=10, access_log=False)
    assert post(settings, {"points": [[24.9, 60.1]] * 10}).status_code == 200
    answer = post(settings, {"points": [[24.9, 60.1]] * 11})
    assert answer.status_code == 422
    assert "at most 10" in answer.json()["detail"]


def test_unknown_paths_and_methods(settings):
    assert call(settings, "GET", "/v1/mechanisms/nobody").status_code == 404
    for method, path, status in (
        ("GET", "/v2/24.123456", 404),
        ("DELETE", "/v1/perturb", 405),
        ("GET", "/docs", 404),
        ("GET", "/healthz/?lon=24.123456", 404),  # a redirection would repeat the query
    ):
        answer = call(settings, method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status
        assert "24.123456" not in answer.text


def test_openapi_has_models_and_examples_that_work(settings, files, tmp_path):
    document = call(settings, "GET", "/openapi.json").json()
    assert set(document["paths"]) == {
        "/v1/perturb", "/v1/budget", "/v1/probabilities", "/v1/mechanisms", "/v1/mechanisms/{id}",
        "/v1/mechanisms/{id}/epsilon-map", "/v1/mechanisms/{id}/file", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    charged = Settings(files=files, access_log=False, ledger=LedgerOptions(tmp_path / "budgets.db", max_epsilon=10_000))
    for chosen in (settings, charged):
        document = call(chosen, "GET", "/openapi.json").json()
        for path in ("/v1/perturb", "/v1/probabilities"):
            content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            assert content["schema"]["additionalProperties"] is False
            assert content["schema"]["properties"]["points"]
            for example in content["examples"].values():
                answer = post(chosen, example["value"], path)
                assert answer.status_code == (200 if path == "/v1/perturb" or chosen.probabilities else 404)
    text = json.dumps(document)
    assert all(
        f"#/components/schemas/{name}" in text for name in ("PerturbAnswer", "ProblemDetails", "MechanismDetailMessage")
    )
    assert {"bearer", "header"} == set(document["components"]["securitySchemes"])


def test_health(settings):
    assert call(settings, "GET", "/healthz").json() == {"alive": True}
    ready = call(settings, "GET", "/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"] is True
    assert ready.json()["stale"] == []


def test_metrics(settings):
    async def work(client):
        await client.post("/v1/perturb", json={"points": [[24.9, 60.1]] * 7})
        await client.post("/v1/perturb", json={"points": "none"})
        await client.get("/v1/nowhere/24.123456")
        return (await client.get("/metrics")).text

    lines = with_service(settings, work).splitlines()
    assert 'metricdp_requests_total{method="POST",route="/v1/perturb",status="200"} 1.0' in lines
    assert 'metricdp_requests_total{method="POST",route="/v1/perturb",status="422"} 1.0' in lines
    assert 'metricdp_requests_total{method="GET",route="unknown",status="404"} 1.0' in lines
    assert 'metricdp_points_total{mechanism="spline"} 7.0' in lines
    assert 'metricdp_refused_total{mechanism="spline"} 0.0' in lines
    assert any(
        line.startswith('metricdp_mechanism_info{epsilon="1",id="spline",method="spline",sha256="') for line in lines
    )
    assert any(line.startswith('metricdp_request_seconds_count{route="/v1/perturb"} 2.0') for line in lines)
    assert "24.123456" not in "\n".join(lines)


def test_only_certified_mechanisms_are_served(tmp_path):
    problem = random_problem(0, n_records=20)
    mechanism = mdp.fit(problem, epsilon=1, method="lp", cells=2, certify=False)
    with pytest.raises(NotCertified, match=r"bad\.mdp"):
        create_app(Settings(files=saved(tmp_path, bad=mechanism)))
    (tmp_path / "damaged.mdp").write_bytes(b"PK no more")
    with pytest.raises(InvalidInputError, match="mechanism file"):
        create_app(Settings(files=(tmp_path / "damaged.mdp",)))
    with pytest.raises(FileNotFoundError):
        create_app(Settings(files=(tmp_path / "missing.mdp",)))


def test_two_files_of_one_name(tmp_path, files):
    (tmp_path / "a").mkdir()
    other = saved(tmp_path / "a", spline=plane())
    with pytest.raises(InvalidInputError, match="different names"):
        create_app(Settings(files=(*files, *other)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"files": ()},
        {"max_points": 0},
        {"body_seconds": 0},
        {"requests_per_second": 0},
        {"cors": ("*",)},
        {"cors": ("https://example.org/path",)},
        {"tiles": "https://example.org/tiles"},
        {"tiles": "https://example.org/{z}/{x}/{y}; script-src *"},
    ],
)
def test_settings_that_break_a_rule(files, wrong):
    with pytest.raises(InvalidInputError):
        Settings(**({"files": files} | wrong))


def test_what_lives_between_requests_knows_no_http():
    above = re.compile(r"^ *(from|import) (metricdp\.service\.(http|page)|fastapi|starlette|uvicorn)\b", re.MULTILINE)
    files = list(Path(state.__file__).parent.glob("*.py"))
    assert len(files) > 5
    assert not [path.name for path in files if above.search(path.read_text())]


NAMES = ('Kamppi, "the" centre', "<img src=x onerror=alert(1)>", "Töölö", "", "Töölö")
OWN_IDS = {"text": ("node/1", "7", "</script>", "ü", "a b"), "integers": (2**63 - 1, -(2**63), 2**53 + 1, 0, -1)}


@pytest.mark.parametrize("kind", OWN_IDS)
@pytest.mark.parametrize("charged", [False, True])
def test_places_are_reported_by_their_own_ids_and_names(tmp_path, kind, charged):
    own = OWN_IDS[kind]
    named = dataclasses.replace(city(), output_ids=own, output_names=NAMES)
    ledger = ledger_options(tmp_path, 1e6) if charged else None
    settings = Settings(files=saved(tmp_path, named=named), ledger=ledger, access_log=False)
    places, who = points(50), {"user": "ann"} if charged else {}
    expected = nearest(places).tolist()
    lonlat, plain = CENTRE.to_lonlat(plane().outputs), plane().outputs
    answer = post(settings, {"points": CENTRE.to_lonlat(places).tolist(), **who}).json()
    assert answer["outputs"] == [
        {"id": own[k], "name": NAMES[k], "lon": lonlat[k, 0], "lat": lonlat[k, 1]} for k in expected
    ]
    answer = post(settings, {"points": places.tolist(), "coordinates": "projected", **who}).json()
    assert answer["outputs"] == [{"id": own[k], "name": NAMES[k], "x": plain[k, 0], "y": plain[k, 1]} for k in expected]
    detail = call(settings, "GET", "/v1/mechanisms/named").json()
    labels = [{"id": one, "name": name} for one, name in zip(own, NAMES, strict=True)]
    assert detail["places"] == labels
    assert [feature["properties"] for feature in detail["outputs"]["features"]] == labels
    assert [feature["id"] for feature in detail["outputs"]["features"]] == list(own)


def test_places_without_names_or_ids(tmp_path):
    files = saved(
        tmp_path,
        plain=city(),
        ids=dataclasses.replace(city(), output_ids=OWN_IDS["text"]),
        names=dataclasses.replace(city(), output_names=NAMES),
    )
    settings = Settings(files=files, access_log=False)
    (place,) = CENTRE.to_lonlat(plane().outputs[1:2]).tolist()
    for name, label in {"plain": {"id": 1}, "ids": {"id": "7"}, "names": {"id": 1, "name": NAMES[1]}}.items():
        (output,) = post(settings, {"point": place, "mechanism": name}).json()["outputs"]
        assert output == {**label, "lon": place[0], "lat": place[1]}
        detail = call(settings, "GET", f"/v1/mechanisms/{name}").json()
        assert (detail["places"] is None) == (name == "plain")
        assert detail["outputs"]["features"][1]["properties"] == label


def test_long_names_in_any_script_take_no_more_bytes_than_utf_8(tmp_path):
    names = tuple(letter * 256 for letter in "日本語ñ🏴")
    settings = Settings(files=saved(tmp_path, named=dataclasses.replace(city(), output_names=names)), access_log=False)
    places = points(500)
    answer = post(settings, {"points": places.tolist(), "coordinates": "projected"})
    assert [output["name"] for output in answer.json()["outputs"]] == [names[k] for k in nearest(places)]
    assert len(answer.content) < 500 * (4 * 256 + 100)


def test_files_are_given_out_for_devices_alone(settings, files):
    """Only where probabilities are on, and only of kinds that devices can draw from; they are the files themselves."""
    shown = replace(settings, probabilities=True)
    names = {path.stem: path for path in files}
    assert call(shown, "GET", "/v1/mechanisms/spline/file").content == names["spline"].read_bytes()
    assert call(shown, "GET", "/v1/mechanisms/laplace/file").content == names["laplace"].read_bytes()
    assert "cannot draw" in call(shown, "GET", "/v1/mechanisms/tem/file").json()["detail"]
    hidden = call(replace(settings, probabilities=False), "GET", "/v1/mechanisms/spline/file")
    assert (hidden.status_code, "--probabilities" in hidden.json()["detail"]) == (404, True)
    assert call(shown, "GET", "/v1/mechanisms/spline").json()["on_device"] == ["draw", "probabilities"]
    assert call(shown, "GET", "/v1/mechanisms/none/file").status_code == 404
