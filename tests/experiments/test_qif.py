"""Agreement with libqif (PyPI `qif`), an independent implementation, on unit grids."""

from __future__ import annotations

import numpy as np
import pytest

from metricdp.optimise.lazy_constraints import optimal_discrete

EPSILON = 0.7

# qif.mechanism.d_privacy.min_loss_given_d on unit k x k grids: uniform prior, outputs = inputs, Euclidean loss.
KNOWN = {5: 1.448197, 6: 1.617001, 7: 1.755576}


def unit_grid(k):
    return np.array([(i % k, i // k) for i in range(k * k)], dtype=float)


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


@pytest.mark.parametrize("k", sorted(KNOWN))
def test_optimum_equals_the_known_value(k):
    points = unit_grid(k)
    found = optimal_discrete(points, points, epsilon=EPSILON)
    assert found.complete
    assert found.value == pytest.approx(KNOWN[k], abs=1e-5)
    apart = distances(points)
    allowed = np.exp(EPSILON * apart)[:, :, None] * found.table[None, :, :]
    assert (found.table[:, None, :] <= allowed * (1 + 1e-9)).all()


@pytest.mark.parametrize(("k", "epsilon"), [(3, 0.3), (4, EPSILON), (4, 2.0)])
def test_optimum_equals_qif(k, epsilon):
    qif = pytest.importorskip("qif")
    points = unit_grid(k)
    apart = distances(points)
    prior = np.arange(1.0, k * k + 1)
    prior /= prior.sum()
    table = qif.mechanism.d_privacy.min_loss_given_d(
        prior, k * k, lambda a, b: epsilon * apart[a, b], lambda a, b: apart[a, b]
    )
    theirs = float((prior[:, None] * table * apart).sum())
    ours = optimal_discrete(points, points, prior=prior, epsilon=epsilon)
    assert ours.value == pytest.approx(theirs, abs=1e-5)
    assert ours.bound <= theirs + 1e-6


def test_exponential_mechanism_equals_the_formula():
    qif = pytest.importorskip("qif")
    apart = distances(unit_grid(5))
    theirs = qif.mechanism.d_privacy.exponential(25, lambda a, b: EPSILON * apart[a, b])
    weights = np.exp(-EPSILON / 2 * apart)
    np.testing.assert_allclose(theirs, weights / weights.sum(axis=1, keepdims=True), atol=1e-12)


def test_planar_laplace_on_a_grid_equals_the_integral():
    qif = pytest.importorskip("qif")
    k = 4
    theirs = np.asarray(qif.mechanism.geo_ind.planar_laplace_grid(k, k, 1.0, EPSILON))
    # Midpoint rule over the plane; noise that leaves the grid goes to the nearest cell.
    step = 0.05
    axis = (np.arange(-800, 800) + 0.5) * step
    x, y = np.meshgrid(axis, axis)
    density = EPSILON**2 / (2 * np.pi) * np.exp(-EPSILON * np.hypot(x, y)) * step**2
    for start in (0, 5, 7):
        column = np.clip(np.rint(x + start % k), 0, k - 1)
        row = np.clip(np.rint(y + start // k), 0, k - 1)
        ours = np.bincount((row * k + column).astype(int).ravel(), density.ravel(), minlength=k * k)
        np.testing.assert_allclose(theirs[start], ours, atol=2e-4)
