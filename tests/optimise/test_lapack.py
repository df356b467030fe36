"""Cholesky factors in place: against numpy, in both memory orders, one triangle only, and with the lock released."""

import threading
import time

import numpy as np
import pytest

from metricdp.optimise.engines import _lapack as lapack


def definite(size, seed=0, count=None):
    """Symmetric positive definite matrices."""
    factors = np.random.default_rng(seed).normal(size=(count or 1, size, size))
    matrices = factors @ factors.transpose(0, 2, 1) + np.eye(size)
    return matrices if count else matrices[0]


def lower_of(matrix):
    """A copy of the lower triangle whose other entries are not numbers."""
    return np.where(np.tril(np.ones(matrix.shape[-2:], dtype=bool)), matrix, np.nan)


def symmetric(lower):
    below = np.tril(lower)
    return below + np.tril(lower, -1).T


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", [1, 2, 37])
def test_factor_solve_and_invert(order, size):
    matrix = definite(size)
    factor = np.array(lower_of(matrix), order=order)
    assert lapack.cholesky(factor)
    assert np.allclose(np.tril(factor), np.linalg.cholesky(matrix))
    right = np.arange(1.0, size + 1)
    assert np.allclose(lapack.solve(factor, right), np.linalg.solve(matrix, right))
    assert np.array_equal(right, np.arange(1.0, size + 1))
    assert lapack.invert_factor(factor)
    assert np.allclose(symmetric(factor), np.linalg.inv(matrix))


def test_single_precision():
    matrix = definite(20)
    factor = np.array(lower_of(matrix), dtype=np.float32, order="F")
    assert lapack.cholesky(factor)
    assert lapack.invert_factor(factor)
    assert factor.dtype == np.float32
    assert np.allclose(symmetric(factor), np.linalg.inv(matrix), rtol=1e-3, atol=1e-4)


def test_all_inverses_and_products():
    matrices = definite(9, count=5)
    inverses = lower_of(matrices)
    assert lapack.invert_all(inverses)
    for inverse, matrix in zip(inverses, matrices, strict=True):
        assert np.allclose(symmetric(inverse), np.linalg.inv(matrix))
    vectors = np.random.default_rng(1).normal(size=(5, 9))
    expected = np.stack([np.linalg.solve(matrix, vector) for matrix, vector in zip(matrices, vectors, strict=True)])
    assert np.allclose(lapack.multiply_all(inverses, vectors), expected)
    nothing = np.empty((0, 9, 9))
    assert lapack.invert_all(nothing)
    assert lapack.multiply_all(nothing, np.empty((0, 9))).shape == (0, 9)


def test_banded_matrices():
    size, band = 12, 3
    apart = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    matrix = np.where(apart <= band, definite(size, seed=3), 0.0) + 20 * np.eye(size)
    bands = np.zeros((band + 1, size), order="F")
    for offset in range(band + 1):
        bands[offset, : size - offset] = np.diag(matrix, -offset)
    assert lapack.cholesky_banded(bands)
    right = np.linspace(-1, 2, size)
    assert np.allclose(lapack.solve_banded(bands, right), np.linalg.solve(matrix, right))


def test_what_is_not_positive_definite_is_said_to_be_so():
    matrix = definite(5)
    matrix[3, 3] = -1.0
    assert not lapack.cholesky(matrix.copy())
    assert not lapack.invert_all(np.stack([definite(5), matrix]))
    bands = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 0.0]], order="F")
    assert not lapack.cholesky_banded(bands)
    broken = definite(5)
    broken[2, 1] = np.nan
    assert not lapack.cholesky(broken) or np.isnan(broken).any()


def test_other_threads_run_while_a_matrix_is_factored():
    """With the lock held, the counting thread could not move between the two looks."""
    matrix = np.asfortranarray(definite(1500))
    counted, go_on = [0], True

    def count():
        while go_on:
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        moved = 0
        for _ in range(10):
            factor = matrix.copy(order="F")
            before = counted[0]
            lapack.cholesky(factor)
            moved += counted[0] - before
    finally:
        go_on = False
        thread.join()
    # A call that held the lock would let the other thread run at its beginning and end only: a count or two each.
    assert moved > 200
