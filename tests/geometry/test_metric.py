import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricdp.geometry.norms import dual_exponent, norm, pairwise_distances

ORDERS = [1.0, 1.5, 2.0, 3.0, 400.0, math.inf]


@pytest.mark.parametrize("p", ORDERS)
def test_dual_exponent_is_an_involution_and_conjugate(p):
    q = dual_exponent(p)
    assert 1 / p + 1 / q == pytest.approx(1.0)
    assert dual_exponent(q) == pytest.approx(p)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5), st.sampled_from(ORDERS[:-2]))
def test_norm_is_the_definition(values, p):
    expected = sum(abs(v) ** p for v in values) ** (1 / p)
    assert norm(np.array(values), p) == pytest.approx(expected, rel=1e-9, abs=1e-90)


def test_norm_of_large_order_neither_over_nor_underflows():
    assert norm(np.array([1e200, 1e200]), 400.0) == pytest.approx(1e200 * 2 ** (1 / 400))
    assert norm(np.array([0.0, 0.0]), 400.0) == 0.0
    assert norm(np.array([-3.0, 2.0]), math.inf) == 3.0


@given(st.integers(0, 10**6), st.sampled_from(ORDERS))
def test_hoelder(seed, p):
    a, b = np.random.default_rng(seed).normal(size=(2, 3))
    assert abs(a @ b) <= norm(a, p) * norm(b, dual_exponent(p)) * (1 + 1e-12)


@pytest.mark.parametrize("p", ORDERS)
def test_pairwise_distances_are_norms_of_differences(p):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    expected = [[float(norm(a - b, p)) for b in right] for a in left]
    assert np.allclose(pairwise_distances(left, right, p), expected, rtol=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 32.0, 300.0, 1e5, math.inf])
def test_pairwise_distances_are_norms_of_differences_for_every_order(p):
    """Powers of unscaled differences under- and overflow at large p, and a wrong distance is a wrong guarantee."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(20, 3)) * 50, rng.normal(size=(10, 3)) * 0.01
    left[0] = right[0]
    expected = norm(left[:, None] - right[None], p)
    assert np.allclose(pairwise_distances(left, right, p), expected, rtol=1e-12, atol=0)
    assert pairwise_distances(left, right, p)[0, 0] == 0
