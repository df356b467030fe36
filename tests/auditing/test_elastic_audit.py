"""Audits against a map of ε: an honest mechanism passes, one that claims too much in one region is convicted."""

from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from problems import random_problem

HERE = mdp.EpsilonMap([[0, 2, 4], [0, 4]], [[0.5], [2.0]])


@pytest.fixture(scope="module")
def mechanism():
    return mdp.fit(random_problem(1, n_records=100), HERE, "spline", cells=12)


def too_steep(mechanism):
    """The same table with a claim that is too strong on the right half only."""
    weaker = mdp.EpsilonMap(mechanism.epsilon_map.breakpoints, [[0.5], [1.0]])
    return replace(mechanism, epsilon=1.0, epsilon_map=weaker)


def test_probabilities_are_judged_by_the_path_metric(mechanism):
    found = mdp.audit(mechanism, pairs=3000)
    assert found.violation_ratio == 0
    assert 0.5 < found.max_ratio <= 1
    forged = mdp.audit(too_steep(mechanism), pairs=3000)
    assert forged.violation_ratio > 0
    assert forged.max_ratio > 1.5
    assert min(x for x, _ in forged.worst_pair["points"]) > 1.5
    assert not mdp.certify(too_steep(mechanism)).holds


def test_a_refused_claim_shows_a_pair(mechanism):
    found = mdp.certify(too_steep(mechanism))
    assert "the pair shown violates it" in found.claim
    pair = np.array(found.worst_where["points"])
    rise = np.abs(np.diff(np.log(mechanism.probabilities(pair)), axis=0)).max()
    assert rise > 1.0 * np.linalg.norm(pair[1] - pair[0])


def test_samples_are_judged_by_the_path_metric(mechanism):
    honest = mdp.audit_samples(mechanism, samples=40_000, rng=mdp.InsecureSeed(0))
    assert honest.epsilon == 2.0
    assert not honest.violates
    forged = mdp.audit_samples(too_steep(mechanism), samples=200_000, rng=mdp.InsecureSeed(0))
    assert forged.violates
    # A function states no claim; the map says what is promised, and where.
    pair = [[[2.5, 2.0], [3.5, 2.0]]]

    def draw(points):
        return mechanism.sample(points, mdp.InsecureSeed(draw.seed))

    draw.seed = 0
    claimed = {"epsilon": mdp.EpsilonMap([[0, 4], [0, 4]], [[0.2]]), "p": 2.0, "n_outputs": 5, "pairs": pair}
    assert mdp.audit_samples(draw, **claimed, samples=40_000).violates
    draw.seed = 1
    assert not mdp.audit_samples(draw, **claimed | {"epsilon": HERE}, samples=40_000).violates
    with pytest.raises(mdp.InvalidInputError, match="a map that covers the box and all pairs"):
        mdp.audit_samples(draw, **claimed | {"pairs": [[[2.5, 2.0], [9.5, 2.0]]]}, samples=40_000)
