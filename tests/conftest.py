"""Shared by all tests: data folders, hypothesis settings and small problems."""

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import metricdp as mdp

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


def random_problem(seed, *, n_axes=2, n_records=60, n_outputs=5, p=2.0, side=4.0, prior=False):
    rng = np.random.default_rng(seed)
    weights = rng.random(n_records) if prior else None
    return mdp.Problem(
        rng.random((n_records, n_axes)) * side,
        rng.random((n_outputs, n_axes)) * side,
        "euclidean",
        prior=weights,
        p=p,
        bounds=[[0.0] * n_axes, [side] * n_axes],
    )


@pytest.fixture
def make_problem():
    return random_problem


@pytest.fixture(scope="session")
def rome():
    """Rome with the usual construction: seed 0, 20 outputs, 50 tasks, p = 2."""
    if "rome" not in mdp.cities.available():
        pytest.skip("needs the folder `rome` where METRICDP_DATA points")
    return mdp.cities.load("rome").problem(outputs=20, tasks=50, seed=0, p=2)
