"""Small random problems, for tests of every room."""

import numpy as np

import metricdp as mdp


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


def weighted_problem(seed, n_axes=2, n_outputs=5, p=2, n_records=60, side=4.0):
    """A problem whose records differ in prior by a factor of up to ten."""
    rng = np.random.default_rng(seed)
    records = rng.uniform(0, side, (n_records, n_axes))
    outputs = rng.uniform(0, side, (n_outputs, n_axes))
    prior = rng.uniform(0.1, 1, n_records)
    bounds = np.array([np.zeros(n_axes), np.full(n_axes, side)])
    return mdp.Problem(records, outputs, "euclidean", prior=prior, p=p, bounds=bounds)
