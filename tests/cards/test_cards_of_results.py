"""Cards of problems, certificates and audits: the figures of the object, and nothing that a browser would run."""

import html
import re
from dataclasses import replace

import pytest

import metricdp as mdp
from problems import random_problem

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def problem():
    return random_problem(0)


@pytest.fixture(scope="module")
def relaxed(problem):
    return mdp.fit(problem, 1.0, "aipo-r", cells=6, certify=False)


def words(thing):
    """Return what a browser would show of a card."""
    return html.unescape(re.sub(r"<[^>]*>", " ", thing._repr_html_()))


def test_a_problem(problem):
    text = words(problem)
    for figure in ("60", "5", "p = 2", "[0, 4] x [0, 4]", f"{problem.floor:.6g}", f"{problem.uniform_loss:.6g}"):
        assert figure in text


def test_a_certificate_says_whether_it_holds_and_where_it_breaks(problem, relaxed):
    holds, broken = mdp.certify(mdp.fit(problem, 1.0, "em")), mdp.certify(relaxed)
    assert "Certificate: proved" in words(holds)
    assert "Certificate: not proved" in words(broken)
    for figure in (broken.claim, f"{broken.worst_ratio:.6g} of ε", str(broken.worst_where["points"])):
        assert figure in words(broken)
    assert EVIL not in replace(holds, claim=EVIL)._repr_html_()
    assert EVIL in words(replace(holds, claim=EVIL))
    assert EVIL not in replace(holds, worst_where={EVIL: EVIL})._repr_html_()


def test_a_certificate_in_metres(problem):
    city = mdp.cities.RoadNetwork("toy", [1, 2, 3], [24.90, 24.92, 24.95], [60.1, 60.12, 60.1], [], [], [])
    ground = mdp.Problem(city.xy, city.xy[:2], "euclidean", projection=city.projection)
    certificate = mdp.certify(mdp.fit(ground, 1.0, "em"))
    assert certificate.metres.statement in words(certificate)
    assert "kilometres" in words(ground)
    assert "kilometres" not in words(problem)


def test_audits(problem, relaxed):
    good, bad = mdp.audit(mdp.fit(problem, 1.0, "em"), pairs=200), mdp.audit(relaxed, pairs=2000)
    assert "no violation found" in words(good)
    assert "a violation was found" in words(bad)
    assert f"{bad.violation_ratio:.4%} of {bad.compared:,}" in words(bad)
    samples = mdp.audit_samples(mdp.fit(problem, 1.0, "em"), samples=20_000, rng=mdp.InsecureSeed(0))
    assert "consistent" in words(samples)
    assert f"ε ≥ {samples.epsilon_lower:.6g}" in words(samples)
    assert "violated" in words(replace(samples, violates=True))
    for one in (bad, samples):
        spoilt = replace(one, worst_pair=one.worst_pair | {"points": EVIL})
        assert EVIL not in spoilt._repr_html_()
        assert EVIL in words(spoilt)
