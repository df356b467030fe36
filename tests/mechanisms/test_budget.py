import math

import numpy as np
import pytest

from metricdp.mechanisms.aipo.split import budgets_from_shares, compose, equal_shares, search_shares

ORDERS = [1.0, 1.5, 2.0, 3.0, math.inf]


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_every_split_composes_to_the_total(p, n_axes):
    shares = np.random.default_rng(0).dirichlet(np.ones(n_axes))
    for split in (shares, equal_shares(n_axes)):
        assert compose(budgets_from_shares(split, 0.7, p), p) == pytest.approx(0.7)


@pytest.mark.parametrize("p", ORDERS)
def test_composition_is_what_the_worst_pair_shows(p):
    """Theorem 1 is tight: f(x) = Σ ε_ℓ x_ℓ reaches ‖ε‖_q · d_p for some pair and never exceeds it."""
    budgets = np.array([0.3, 0.5, 0.1])
    moves = np.random.default_rng(0).uniform(0, 1, size=(100_000, 3))
    moves = np.concatenate([moves, np.eye(3)])
    size = np.linalg.norm(moves, ord=p, axis=1)
    ratio = (moves @ budgets) / size
    assert ratio.max() <= compose(budgets, p) * (1 + 1e-12)
    assert ratio.max() >= compose(budgets, p) * 0.99


def test_equal_split_of_the_paper():
    assert budgets_from_shares(equal_shares(2), 1.0, 2) == pytest.approx([1 / math.sqrt(2)] * 2)
    assert budgets_from_shares(equal_shares(2), 1.0, math.inf) == pytest.approx([0.5, 0.5])
    assert budgets_from_shares(equal_shares(2), 1.0, 1).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("target", [[0.5, 0.5], [0.17, 0.83], [0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.4]])
def test_search_comes_close_to_the_best_split_in_few_evaluations(target):
    calls = []

    def loss_of(shares):
        assert shares.min() >= 0
        assert shares.sum() == pytest.approx(1.0)
        calls.append(shares)
        return float(np.sum((np.sqrt(shares) - np.sqrt(target)) ** 2))

    search_shares(loss_of, len(target), evaluations=20)
    assert len(calls) <= 20
    assert calls[0] == pytest.approx(equal_shares(len(target)))
    assert min(np.abs(shares - target).max() for shares in calls) < 0.05


def test_search_respects_a_small_number_of_evaluations():
    calls = []
    search_shares(lambda shares: calls.append(shares) or float(shares[0]), 3, evaluations=2)
    assert len(calls) == 2
