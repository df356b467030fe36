"""The card of a mechanism says what it promises and costs, and who says so."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.card import card_facts, mechanism_card
from problems import random_problem


@pytest.fixture(scope="module")
def helsinki():
    return mdp.fit(mdp.cities.load("helsinki").problem(outputs=4, tasks=4, seed=0), 8.0, "em")


def rows(mechanism, **said):
    return dict(mechanism_card(card_facts(mechanism, **said)).rows)


def test_a_city_in_metres(helsinki):
    said = rows(helsinki, certificate=mdp.certify(helsinki).to_dict(), figures_from="fit")
    assert said["promise"].startswith("Within 125 m no report is more than e (about 2.72) times likelier")
    assert said["protection radius"].startswith("125 m for a ratio of e, 86.6 m for a ratio of 2; rounding counts for ")
    assert said["expected loss"] == f"{helsinki.report['loss']:.4g} km, exact"
    assert said["95 % of reports"].startswith("within ")
    assert said["ε"] == "8 per true km, measured in d_2"
    assert "km; longitude 24.9" in said["box"]
    assert said["certificate"].startswith("proved here: (8.0, d_2)-mDP")
    assert said["on the ground"].startswith("On the ground (WGS 84)")


def test_the_promise_holds_between_any_two_places_of_the_box(helsinki):
    facts = card_facts(helsinki)
    rng = np.random.default_rng(0)
    low, high = helsinki.bounds
    here = rng.uniform(low, high, (4000, 2))
    angle = rng.uniform(0, 2 * np.pi, 4000)
    for name, ratio in (("protection_radius_e", math.e), ("protection_radius_2", 2)):
        radius = facts[name] / helsinki.distortion.stretch
        there = np.clip(here + radius * np.column_stack([np.cos(angle), np.sin(angle)]), low, high)
        found = helsinki.probabilities(here) / helsinki.probabilities(there)
        assert 1.05 < found.max() <= ratio


@pytest.mark.parametrize("p", [1, 1.5, 2, math.inf])
def test_radii_on_the_ground_are_straight_distances(p):
    problem = mdp.cities.load("helsinki").problem(outputs=3, tasks=3, seed=0, p=p)
    mechanism = mdp.fit(problem, 8.0, "em")
    per_km = mdp.certify(mechanism).metres.epsilon_per_km
    facts = card_facts(mechanism)
    assert facts["protection_radius_e"] == 1 / per_km
    # Along a diagonal d_p is longer than the straight distance by 2^(1/p − 1/2).
    assert per_km == pytest.approx(8 * 2 ** max(0, 1 / p - 0.5))
    assert facts["protection_radius_2"] == pytest.approx(math.log(2) / per_km)


def test_plain_coordinates_and_noise():
    said = rows(mdp.fit(random_problem(0), 2.0, "em"))
    assert said["claim, not proved here"].startswith("Within 0.5 no report")
    assert said["box"] == "[0, 4] x [0, 4]"
    assert "km" not in " ".join(said.values())
    noise = rows(mdp.noise(2.0, lonlat_bounds=[[12.2, 41.6], [12.8, 42.1]]))
    assert noise["outputs"] == "none: it reports coordinates"
    assert noise["95 % of reports (says the report)"].startswith("within 2.4 km of where one is (estimate, ")
    assert not any("loss" in label for label in noise)


def test_estimates_are_called_estimates():
    mechanism = mdp.fit(random_problem(0), 1.0, "em")
    said = rows(mechanism.with_report(loss_exact=False, loss_error=0.01, report_distance_95_error=0.021))
    assert said["expected loss (says the report)"].endswith("(estimate, standard error 0.01)")
    assert said["95 % of reports (says the report)"].endswith("(estimate, standard error 0.021)")


def test_who_proved_it_is_said_plainly():
    mechanism = mdp.fit(random_problem(0), 1.0, "em")
    assert rows(mechanism)["certificate"] == ("not proved here; the report says that it was proved when it was made")
    bare = mdp.fit(random_problem(0), 1.0, "em", certify=False)
    assert rows(bare)["certificate"] == "not proved here, and the report has no certificate"
    leaky = mdp.fit(random_problem(0), 1.0, "lp", cells=2, certify=False)
    said = rows(leaky, certificate=mdp.certify(leaky).to_dict())
    assert said["promise"] == "None: what it claims could not be proved."
    assert said["certificate"].startswith("NOT PROVED: Not (1.0, d_2)-mDP: rows jump")


def test_a_box_at_a_pole_promises_nothing():
    mechanism = replace(mdp.fit(random_problem(0), 1.0, "em"), projection=Equirectangular(0.0, 89.99))
    said = rows(mechanism)
    assert said["promise"].startswith("None on the ground")
    assert said["protection radius"] == "none for a ratio of e, none for a ratio of 2"


HOSTILE = [
    {"loss": "<script>alert(1)</script>"},
    {"loss": True, "loss_error": []},
    {"loss": 10**400},
    {"loss": math.nan, "report_distance_95": math.inf},
    {"report_distance_95": -1.0},
    {"report_distance_95": {"a": 1}, "report_distance_95_error": None},
    {"loss_unit": "<img src=x onerror=alert(1)>"},
    {"loss_unit": "\x1b[2J" * 1000},
    {"loss_unit": 7},
    {"certificate": "proved by a king"},
    {"loss_without_privacy": None},
]


@pytest.mark.parametrize("facts", HOSTILE, ids=str)
def test_reports_of_strangers_do_no_harm(facts):
    mechanism = mdp.fit(random_problem(0), 1.0, "em").with_report(**facts)
    page = mechanism._repr_html_()
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert len(page) < 8000
    assert json.loads(json.dumps(card_facts(mechanism), allow_nan=False))["loss_unit"] in (
        "",
        facts.get("loss_unit", "")[:40] if isinstance(facts.get("loss_unit"), str) else "",
    )


def test_a_notebook_shows_the_card():
    page = mdp.fit(random_problem(0), 1.0, "em")._repr_html_()
    assert page.startswith("<table><caption>Mechanism em, ε = 1</caption>")
    assert "not proved here" in page
