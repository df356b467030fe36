"""Shared by all tests: data folders, hypothesis settings and two fixtures."""

import os
from pathlib import Path

import hypothesis
import pytest

import metricdp as mdp
from problems import random_problem

_SHARED = Path(__file__).parents[2] / "shared" / "data"
if "METRICDP_DATA" not in os.environ and _SHARED.is_dir():
    os.environ["METRICDP_DATA"] = str(_SHARED)

hypothesis.settings.register_profile(
    "metricdp",
    deadline=None,  # solver times vary
    derandomize=True,  # the same examples on every machine
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("metricdp")


@pytest.fixture
def make_problem():
    return random_problem


@pytest.fixture(scope="session")
def rome():
    """Rome with the usual construction: seed 0, 20 outputs, 50 tasks, p = 2."""
    if "rome" not in mdp.cities.available():
        pytest.skip("needs the folder `rome` where METRICDP_DATA points")
    return mdp.cities.load("rome").problem(outputs=20, tasks=50, seed=0, p=2)
