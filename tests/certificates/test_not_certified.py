"""What is refused carries the pair that breaks it, whoever asked for the proof: `fit`, `load` or `noise`."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.norms import norm
from problems import random_problem


@pytest.fixture(scope="module")
def problem():
    return random_problem(0)


def claims_half(problem, method, **options):
    """Return a mechanism that claims half of the ε that it needs."""
    return replace(mdp.fit(problem, 1.0, method, certify=False, **options), epsilon=0.5)


@pytest.mark.parametrize(
    ("method", "options"), [("em", {}), ("tem", {}), ("spline", {"cells": 3}), ("aipo-e", {"cells": 3})]
)
def test_load_shows_a_pair_that_breaks_the_claim(problem, tmp_path, method, options):
    mechanism = claims_half(problem, method, **options)
    mechanism.save(tmp_path / "m.mdp")
    with pytest.raises(mdp.NotCertified, match=r"m\.mdp") as caught:
        mdp.load(tmp_path / "m.mdp")
    assert_breaks(mechanism, caught.value.certificate)


@pytest.mark.parametrize("method", ["lp", "aipo-r"])
def test_fit_shows_a_pair_that_breaks_the_claim(problem, method):
    with pytest.raises(mdp.NotCertified, match=method) as caught:
        mdp.fit(problem, 2.0, method, cells=3)
    assert_breaks(mdp.fit(problem, 2.0, method, cells=3, certify=False), caught.value.certificate)


def assert_breaks(mechanism, certificate):
    assert not certificate.holds
    left, right = certificate.worst_where["points"]
    logs = np.log(mechanism.probabilities([left, right]))[:, certificate.worst_where["output"]]
    assert abs(logs[0] - logs[1]) > mechanism.epsilon * norm(np.subtract(left, right), mechanism.p)
    assert certificate.worst_ratio > 1


@pytest.mark.parametrize("p", [1.0, 2.0, np.inf])
def test_noise_that_decays_too_fast_shows_a_pair_and_the_noisy_point(tmp_path, p):
    steep = replace(mdp.noise(1.0, p, bounds=[[0.0, 0.0], [4.0, 3.0]]), rate=1.5)
    steep.save(tmp_path / "n.mdp")
    with pytest.raises(mdp.NotCertified) as caught:
        mdp.load(tmp_path / "n.mdp")
    where = caught.value.certificate.worst_where
    here, there, report = (np.array(place) for place in (*where["points"], where["noisy_point"]))
    # Pr[report | x] ∝ e^{-rate ‖report - x‖}.
    rise = 1.5 * (norm(report - there, p) - norm(report - here, p))
    assert rise > 1.0 * norm(here - there, p) > 0
    assert caught.value.certificate.worst_ratio == pytest.approx(1.5, rel=1e-6)


def test_the_certificate_survives_a_process_border(problem):
    with pytest.raises(mdp.NotCertified) as caught:
        mdp.fit(problem, 2.0, "lp", cells=2)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.certificate == caught.value.certificate
