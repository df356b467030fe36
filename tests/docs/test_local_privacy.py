"""The example of local privacy, number by number: closed forms, and ε-LDP between all pairs of records."""

import runpy
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

import metricdp as mdp

EXAMPLE = Path(__file__).parents[2] / "examples" / "plot_local_privacy.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Return the names that the script defines, after a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["", str(tmp_path_factory.mktemp("picture"))])
        plt.switch_backend("agg")
        return runpy.run_path(str(EXAMPLE))


def e_to(epsilon):
    """Return a fraction just below e^ε: fifty terms of its series, which are all positive."""
    term = total = Fraction(1)
    for n in range(1, 50):
        term *= Fraction(epsilon) / n
        total += term
    return total


def test_the_box_has_a_diameter_of_one(example):
    box = example["problem"].bounds
    assert np.array_equal(box, [[0, 0, 0], [1, 1, 1]])
    assert example["problem"].p == np.inf


def test_joint_randomised_response_has_its_closed_form(example):
    """(e^ε L_true + Σ over the other answers of L) / (e^ε + K − 1), by the floor and the loss of uniform answers."""
    problem = example["problem"]
    for epsilon in example["epsilons"]:
        truth = np.exp(epsilon) - 1
        expected = (truth * problem.floor + problem.n_outputs * problem.uniform_loss) / (truth + problem.n_outputs)
        assert example["losses"]["response, joint", epsilon] == pytest.approx(expected, rel=1e-12)


def test_randomised_response_by_attribute_has_its_closed_form(example):
    """Errors of attributes are added up, so each attribute can be counted alone, with a third of ε."""
    records, levels = example["records"], example["levels"]
    apart = np.abs(records[:, :, None] - levels)
    for epsilon in example["epsilons"]:
        truth = np.exp(epsilon / 3) - 1
        expected = ((truth * apart.min(axis=2) + apart.sum(axis=2)) / (truth + len(levels))).mean()
        assert example["losses"]["response, ε split", epsilon] == pytest.approx(expected, rel=1e-12)


def test_every_design_is_locally_private_between_all_records(example):
    """No column has two entries that are further apart than e^ε (as floating point rounds it)."""
    for (method, epsilon), rows in example["designs"].items():
        table = rows(example["records"])
        assert np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-12)
        limit = e_to(epsilon) * (1 + Fraction(1, 10**12))
        for column in table.T:
            assert Fraction(column.max()) <= limit * Fraction(column.min()), method


def test_splines_are_locally_private_on_the_whole_box_exactly(example):
    """Probabilities are convex combinations of integer control rows, so what holds for all rows holds everywhere."""
    for epsilon in example["epsilons"]:
        mechanism = example["mechanisms"]["spline", epsilon]
        assert mdp.certify(mechanism).holds
        for most, least in zip(mechanism.table.max(axis=0), mechanism.table.min(axis=0), strict=True):
            assert int(most) <= e_to(epsilon) * int(least)


def test_the_optimum_under_ldp_uses_all_that_it_may_and_loses_least(example):
    losses, records = example["losses"], example["records"]
    for epsilon in example["epsilons"]:
        table = example["designs"]["optimum under LDP", epsilon](records)
        assert np.log(table.max(axis=0) / table.min(axis=0)).max() == pytest.approx(epsilon, abs=1e-4)
        others = [loss for (_, other), loss in losses.items() if other == epsilon]
        assert losses["optimum under LDP", epsilon] == min(others)
