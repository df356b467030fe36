"""Zero violations, with no tolerance at all, for methods that promise privacy; and the ones that do not, caught."""

import dataclasses
import math

import numpy as np
import pytest

import metricdp as mdp
from mechanisms_tools import hand_made, pairs_of_points
from metricdp.geometry.norms import norm
from metricdp.mechanisms.exponential.mechanism import Exponential
from oracles import count_violations
from problems import random_problem

ORDERS = [1.0, 2.0, math.inf]


@pytest.mark.parametrize("method", ["aipo", "aipo-e"])
@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize("pairs", [30_000, pytest.param(600_000, marks=pytest.mark.slow)])
def test_no_violation_over_many_pairs_of_points(method, p, n_axes, pairs):
    if method == "aipo" and n_axes == 1:
        pytest.skip("one axis leaves nothing to split: aipo is aipo-e")
    problem = random_problem(n_axes, n_axes=n_axes, n_outputs=6, p=p)
    for epsilon, cells in ((0.7, 3), (8.0, 2)):  # with coarse cells the guarantee is nearly tight
        mechanism = mdp.fit(problem, epsilon, method, cells=cells, splits=6)
        left, right = pairs_of_points(mechanism.grid, pairs, seed=n_axes)
        assert count_violations(mechanism, left, right) == 0


@pytest.mark.parametrize("p", ORDERS)
def test_the_relaxed_variant_is_caught(p):
    problem = random_problem(1, n_outputs=6, p=p)
    with pytest.raises(mdp.NotCertified, match="aipo-r"):
        mdp.fit(problem, 2.0, "aipo-r", cells=3)
    mechanism = mdp.fit(problem, 2.0, "aipo-r", cells=3, certify=False)
    left, right = pairs_of_points(mechanism.grid, 60_000, seed=0)
    assert count_violations(mechanism, left, right) > 0
    certificate = mdp.certify(mechanism)
    assert not certificate.holds
    assert certificate.worst_ratio > 1
    assert "violates" in certificate.claim
    a, b = np.array(certificate.worst_where["points"])
    rows = np.log(mechanism.probabilities([a, b])[:, certificate.worst_where["output"]])
    assert abs(rows[0] - rows[1]) / (2.0 * norm(a - b, p)) == pytest.approx(certificate.worst_ratio)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_the_certificate_is_proposition_3_by_brute_force(p, n_axes):
    problem = random_problem(4, n_axes=n_axes, n_outputs=3, p=p)
    mechanism = mdp.fit(problem, 1.3, "aipo-e", cells=2)
    table = np.exp(mechanism.log_table)
    steepest = np.zeros(n_axes)
    for i, a in enumerate(mechanism.grid.anchors):
        for j, b in enumerate(mechanism.grid.anchors):
            differs = np.flatnonzero(a != b)
            if len(differs) == 1 and abs(a - b).max() == pytest.approx(2.0):
                slope = np.abs(np.log(table[i] / table[j])).max() / abs(a - b).max()
                steepest[differs[0]] = max(steepest[differs[0]], slope)
    q = {1.0: math.inf, 2.0: 2.0, math.inf: 1.0}[p]
    bound = 2 * np.linalg.norm(steepest, ord=q) + mechanism.rounding_cost
    assert mdp.certify(mechanism).worst_ratio == pytest.approx(bound / 1.3, rel=1e-9)


def test_one_steep_entry_among_thousands_is_rejected_with_its_place():
    mechanism = mdp.fit(random_problem(0, n_outputs=8), 1.0, "aipo-e", cells=12)
    assert mdp.certify(mechanism).holds
    logs = mechanism.log_table.copy()
    logs[77, 3] += 0.5
    tampered = hand_made(mechanism.grid, logs)
    certificate = mdp.certify(tampered)
    assert not certificate.holds
    assert certificate.worst_where["output"] == 3
    near = np.abs(np.array(certificate.worst_where["points"]) - mechanism.grid.anchors[77]).max()
    assert near < 4 / 12


def test_claiming_half_the_budget_is_rejected():
    mechanism = mdp.fit(random_problem(0), 1.0, "aipo-e", cells=4)
    assert not mdp.certify(hand_made(mechanism.grid, mechanism.log_table, epsilon=0.5)).holds
    # Proposition 3 covers all of ε and not a bit less; the slopes themselves are known better.
    assert "Proposition 3" in mdp.certify(hand_made(mechanism.grid, mechanism.log_table, epsilon=1.0)).claim
    less = mdp.certify(hand_made(mechanism.grid, mechanism.log_table, epsilon=0.99999))
    assert less.holds
    assert "branch and bound" in less.claim


def test_certificates_of_unknown_classes_are_refused():
    fitted = mdp.fit(random_problem(0), 1.0, "em")
    own = {name: staticmethod(lambda *_: None) for name in mdp.Mechanism.__abstractmethods__}
    odd = type("Odd", (mdp.Mechanism,), {"kind": "odd", **own})(
        outputs=fitted.outputs, bounds=fitted.bounds, epsilon=1.0, p=2.0, method="odd"
    )
    found = mdp.certify(odd)
    assert not found.holds
    assert "no proof is known for the class Odd" in found.claim
    with pytest.raises(mdp.InvalidInputError, match=r"must be a metricdp.Mechanism, got str"):
        mdp.certify("mechanism.mdp")


def test_a_subclass_does_not_inherit_the_proof_of_its_parent():
    """It may draw something else: this one reports the first output on one half of the box and the last on the other."""

    class Loud(Exponential):
        def _rows(self, points):
            return np.eye(self.n_outputs)[np.where(points[:, 0] < self.bounds.mean(axis=0)[0], 0, -1)]

    fitted = mdp.fit(random_problem(0), 1.0, "em")
    loud = Loud(**{one.name: getattr(fitted, one.name) for one in dataclasses.fields(fitted)})
    assert mdp.certify(fitted).holds
    assert loud.kind == fitted.kind
    assert not mdp.certify(loud).holds
