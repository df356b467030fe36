"""Problems with four axes: what is offered works and is proved, and what is not is refused in words."""

import math

import numpy as np
import pytest

import metricdp as mdp
from metricdp._clock import Clock
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.spline.fit import SplineOptions, design_on, memory_estimate_gb
from metricdp.mechanisms.spline.program import near_coarser, spline_program, worthwhile_coefficients
from problems import weighted_problem

METHODS = [
    ("em", {}),
    ("laplace-remap", {"squares": 6}),
    ("aipo-e", {"cells": 1}),
    ("spline", {"cells": 2, "degree": 1}),
    ("spline", {"cells": (2, 1, 1, 2), "degree": 2}),
    ("spline", {"cells": 1, "degree": 3}),
]


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_fit_certify_sample_save_and_load(method, options, p, tmp_path):
    problem = weighted_problem(0, n_axes=4, n_outputs=4, p=p, n_records=40)
    mechanism = mdp.fit(problem, 0.7, method, **options)
    certificate = mdp.certify(mechanism)
    assert certificate.holds
    assert certificate.p == p
    assert mechanism.expected_loss(problem) < problem.uniform_loss
    path = tmp_path / "four.mdp"
    mechanism.save(path)
    again = mdp.load(path)
    points = np.random.default_rng(1).uniform(*problem.bounds, (50, 4))
    rows = mechanism.probabilities(points)
    assert np.array_equal(again.probabilities(points), rows)
    seeds = (mdp.InsecureSeed(3) for _ in range(2))
    drawn, drawn_again = (one.sample(points, rng=seed) for one, seed in zip((mechanism, again), seeds, strict=True))
    assert np.array_equal(drawn, drawn_again)
    apart = np.linalg.norm(points[:, None] - points, ord=p, axis=2)
    used = rows[:, (rows > 0).any(axis=0)]  # an output that no noisy point is remapped to has probability 0 everywhere
    change = np.abs(np.log(used[:, None] / used)).max(axis=2)
    # The lattice and rounding add far less than this.
    assert (change <= 0.7 * apart + 1e-6).all()


def test_auto_tries_splines():
    problem = weighted_problem(0, n_axes=4, n_outputs=4, n_records=40)
    mechanism = mdp.fit(problem, 0.7, time_limit=10)
    tried = {one["method"] for one in mechanism.report["tried"]}
    assert {"em", "laplace-remap", "spline"} <= tried
    assert mdp.certify(mechanism).holds


def crowded_problem(n_axes):
    """Most people are in one corner of the box."""
    rng = np.random.default_rng(5)
    records = np.concatenate([rng.uniform(0, 0.5, (150, n_axes)), rng.uniform(0, 4, (10, n_axes))])
    return mdp.Problem(records, rng.uniform(0, 4, (4, n_axes)), "euclidean", bounds=[[0.0] * n_axes, [4.0] * n_axes])


def weight_of(problem, breakpoints, number):
    """What the records weigh at one coefficient of degree 2, from Cox and de Boor's recursion."""

    def basis(knots, j, degree, x):
        if degree == 0:
            last = knots[j + 1] == knots[-1] and x == knots[-1]
            return float(knots[j] <= x < knots[j + 1] or (last and knots[j] < x))
        rising, falling = knots[j + degree] - knots[j], knots[j + degree + 1] - knots[j + 1]
        left = (x - knots[j]) / rising * basis(knots, j, degree - 1, x) if rising else 0.0
        right = (knots[j + degree + 1] - x) / falling * basis(knots, j + 1, degree - 1, x) if falling else 0.0
        return left + right

    knots = [[points[0]] * 2 + list(points) + [points[-1]] * 2 for points in breakpoints]
    return sum(
        mass * math.prod(basis(along, j, 2, x) for along, j, x in zip(knots, number, record, strict=True))
        for record, mass in zip(problem.records.tolist(), problem.prior.tolist(), strict=True)
    )


def test_finer_cells_free_the_coefficients_that_weigh_a_tenth_of_the_mean():
    problem = crowded_problem(4)
    spline = TensorSpline(Grid.uniform(problem.bounds, 2), 2)
    breakpoints = [points.tolist() for points in spline.grid.breakpoints]
    weights = [weight_of(problem, breakpoints, number) for number in np.ndindex(4, 4, 4, 4)]
    expected = np.array(weights) >= 0.1 * np.mean(weights)
    assert 0.05 < expected.mean() < 0.5
    assert np.array_equal(worthwhile_coefficients(problem, spline), expected)
    # All are free with fewer axes, and where people are spread over the box.
    for other in (crowded_problem(3), weighted_problem(0, n_axes=4, n_records=200)):
        assert worthwhile_coefficients(other, TensorSpline(Grid.uniform(other.bounds, 2), 2)) is None


def test_a_finer_design_keeps_the_coarser_where_hardly_anybody_is():
    problem, options = crowded_problem(4), SplineOptions(gap=1e-4)
    coarse = design_on(problem, 2.0, Grid.uniform(problem.bounds, 1), options, Clock(None))
    grid = Grid.uniform(problem.bounds, 2).on_lattice(coarse.mechanism.step)
    fine = design_on(problem, 2.0, grid, options, Clock(None), coarse)
    assert fine.mechanism.report["loss"] < coarse.mechanism.report["loss"]
    assert mdp.certify(fine.mechanism).holds
    spline = TensorSpline(grid, 2)
    worthwhile = worthwhile_coefficients(problem, spline)
    free = near_coarser(
        spline_program(problem, spline, 2.0), spline, coarse.spline, coarse.coefficients, worthwhile
    ).support
    assert (free[~worthwhile].sum(axis=1) == 2).all()
    assert free[worthwhile].mean() > 0.9
    assert fine.mechanism.report["support_share"] == pytest.approx(free.mean())


def test_auto_does_without_splines_for_other_norms():
    problem = weighted_problem(0, n_axes=4, n_outputs=3, p=1.5, n_records=20)
    mechanism = mdp.fit(problem, 0.7, time_limit=10)
    assert all(one["method"] != "spline" for one in mechanism.report["tried"])


def test_what_is_not_supported_is_refused_in_words():
    problem = weighted_problem(0, n_axes=4, n_outputs=3, p=1.5, n_records=20)
    with pytest.raises(mdp.InvalidInputError, match=r"`p` must be 1, 2 or inf for a spline with 4 axes, got 1\.5"):
        mdp.fit(problem, 0.7, "spline", cells=1)
    problem = weighted_problem(0, n_axes=4, n_outputs=3, n_records=20)
    with pytest.raises(mdp.InvalidInputError, match="`solver` must be another than 'tiles' with more than 3 axes"):
        mdp.fit(problem, 0.7, "spline", solver="tiles")
    with pytest.raises(mdp.ProblemTooLargeError, match="take fewer `cells`"):
        mdp.fit(problem, 0.7, "spline", cells=40)


def test_the_estimate_of_memory_does_not_refuse_what_fits():
    """Trips in Helsinki, 20 outputs: 4 cells along each axis took 0.7 GB with degree 2, 6 took 1.1 GB with degree 1.

    Of that 0.2 GB were there before the fit.
    """
    assert 0.5 < memory_estimate_gb((4, 4, 4, 4), 2, 20) < 5
    assert 0.9 < memory_estimate_gb((6, 6, 6, 6), 1, 20) < 5
