"""The workflow that publishes: no tokens, built once, and nothing but what was checked."""

from pathlib import Path

import yaml

from release.check import supported

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
TEXT = (WORKFLOWS / "release.yml").read_text(encoding="utf-8")
JOBS = yaml.safe_load(TEXT)["jobs"]
TESTS = yaml.safe_load((WORKFLOWS / "tests.yml").read_text(encoding="utf-8"))["jobs"]


def commands(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_nothing_secret_is_needed():
    assert "secrets" not in TEXT
    assert "TOKEN" not in TEXT
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}


def test_only_publishing_gets_an_identity_and_a_person_approves_it():
    trusted = {name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})}
    assert trusted == {"pypi", "npm"}
    for name in trusted:
        assert JOBS[name]["environment"] == name
        assert set(JOBS[name]["needs"]) == {"tests", "build"}


def test_it_is_built_once_and_published_as_checked():
    built = commands(JOBS["build"])
    assert built == ['python -m release.versions "$GITHUB_REF_NAME"', "make release-check"]
    for name in ("pypi", "npm"):
        assert not any("checkout" in step.get("uses", "") for step in JOBS[name]["steps"])
        assert "download-artifact" in JOBS[name]["steps"][0]["uses"]
    assert commands(JOBS["npm"]) == ["npm publish ./dist/*.tgz --provenance --access public"]


def test_every_supported_python_is_tried():
    assert supported() == ["3.11", "3.12", "3.13"]
    assert TESTS["tests"]["strategy"]["matrix"]["python"] == supported()
    for job in (JOBS["build"], TESTS["release-check"]):
        (given,) = (step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
        assert given["python-version"].split() == supported()
