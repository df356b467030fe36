"""Requests made up from the OpenAPI document, sound and unsound ones, against a real server."""

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from service_tools import city, noisy_city, running, saved

load_all_checks()
# A body may fit the schema and break another rule: `point` and `points` at once, or an id that is not there.
LEFT_OUT = CHECKS.get_by_names(["positive_data_acceptance"])


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    files = saved(folder, sharp=city(), spline=noisy_city())
    with running(folder, *files, "--probabilities", "--max-points", "50") as service:
        yield schemathesis.openapi.from_url(f"{service.url}/openapi.json")
        assert "incident" not in service.log.read_text()


@pytest.fixture(scope="module")
def charged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charged")
    files = saved(folder, sharp=city(), spline=noisy_city())
    ledger = folder / "budgets.db"
    with running(folder, *files, "--ledger", ledger, "--max-epsilon", "1000", "--max-points", "50") as service:
        yield schemathesis.openapi.from_url(f"{service.url}/openapi.json")
        assert "incident" not in service.log.read_text()


def check(schema, path, method, mode):
    """Make up requests for an operation and hold every answer against the document."""

    @hypothesis.given(case=schema[path][method].as_strategy(generation_mode=mode))
    @hypothesis.settings(max_examples=30, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    def run(case):
        statuses.append(case.call_and_validate(excluded_checks=LEFT_OUT).status_code)

    statuses = []
    run()
    return statuses


OPERATIONS = [
    ("/v1/perturb", "POST"),
    ("/v1/budget", "POST"),
    ("/v1/probabilities", "POST"),
    ("/v1/mechanisms", "GET"),
    ("/v1/mechanisms/{id}", "GET"),
    ("/v1/mechanisms/{id}/epsilon-map", "GET"),
    ("/v1/mechanisms/{id}/file", "GET"),
    ("/healthz", "GET"),
    ("/readyz", "GET"),
    ("/metrics", "GET"),
]


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda part: part.strip("/"))
@pytest.mark.parametrize("kind", ["plain", "charged"])
def test_sound_requests(request, kind, path, method):
    schema = request.getfixturevalue(kind)
    assert {(path, operation) for path in schema for operation in map(str.upper, schema[path])} == set(OPERATIONS)
    statuses = check(schema, path, method, GenerationMode.POSITIVE)
    assert statuses
    assert max(statuses) < 500
    if (path, kind) not in (("/v1/probabilities", "charged"), ("/v1/budget", "plain")):
        assert 200 in statuses or "{" in path


@pytest.mark.parametrize("path", ["/v1/perturb", "/v1/budget", "/v1/probabilities"])
@pytest.mark.parametrize("kind", ["plain", "charged"])
def test_unsound_requests(request, kind, path):
    statuses = check(request.getfixturevalue(kind), path, "POST", GenerationMode.NEGATIVE)
    assert len(statuses) > 20
    assert 400 <= min(statuses) <= max(statuses) < 500
