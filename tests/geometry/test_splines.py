"""Control rows and slopes against scipy's B-splines and against the definitions."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from metricdp.geometry.bsplines import AxisSpline, TensorSpline
from metricdp.geometry.grid import Grid

DEGREES = [1, 2, 3]


def random_grid(seed, n_axes, cells=4):
    rng = np.random.default_rng(seed)
    return Grid.from_breakpoints([np.cumsum(rng.uniform(0.3, 1.0, size=cells + 1 + axis)) for axis in range(n_axes)])


def reference(axis, coefficients):
    x, m = axis.breakpoints, axis.degree
    return BSpline(np.concatenate([np.full(m, x[0]), x, np.full(m, x[-1])]), coefficients, m)


@pytest.mark.parametrize("degree", DEGREES)
def test_rows_and_slopes_of_one_axis_are_those_of_the_b_spline(degree):
    grid = random_grid(degree, 1, cells=6)
    axis = AxisSpline(grid.breakpoints[0], degree)
    coefficients = np.random.default_rng(0).normal(size=axis.n_coefficients)
    curve = reference(axis, coefficients)
    rows = axis.extraction @ coefficients
    points = np.random.default_rng(1).uniform(*grid.bounds, size=(200, 1))
    assert np.allclose(TensorSpline(grid, degree).weights(points) @ rows, curve(points[:, 0]), atol=1e-13)
    slopes = (axis.site_slopes @ rows).reshape(axis.n_cells, degree + 1)
    cell, place = grid.locate(points)
    derivative = (axis.bernstein(place[:, 0]) * slopes[cell[:, 0]]).sum(axis=1)
    assert np.allclose(derivative, curve.derivative()(points[:, 0]), atol=1e-11)


@pytest.mark.parametrize("degree", DEGREES)
def test_extraction_keeps_distributions_distributions(degree):
    axis = AxisSpline(random_grid(5, 1, cells=7).breakpoints[0], degree)
    assert axis.extraction.data.min() > 0
    assert np.allclose(axis.extraction.sum(axis=1), 1.0, atol=1e-14)


def test_quadratic_rows_are_the_printed_formula():
    x = np.array([0.0, 1.0, 1.5, 3.0])
    axis = AxisSpline(x, 2)
    z = np.random.default_rng(0).normal(size=5)
    h = np.diff(x)
    inner = [(h[i] * z[i] + h[i - 1] * z[i + 1]) / (h[i - 1] + h[i]) for i in (1, 2)]
    expected = [z[0], z[1], inner[0], z[2], inner[1], z[3], z[4]]
    assert np.allclose(axis.extraction @ z, expected)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_gradients_everywhere_are_convex_combinations_of_site_values(degree, n_axes):
    grid = random_grid(n_axes, n_axes, cells=2)
    spline = TensorSpline(grid, degree)
    rows = np.random.default_rng(0).random(spline.n_rows)
    value, *slopes = spline.site_operators()
    points = np.random.default_rng(1).uniform(*grid.bounds, size=(40, n_axes))
    step = 1e-6
    cell, place = grid.locate(points)
    shape = tuple(axis.n_cells * (degree + 1) for axis in spline.axes)
    for axis in range(n_axes):
        move = np.zeros(n_axes)
        move[axis] = step
        numeric = (spline.weights(points + move) @ rows - spline.weights(points - move) @ rows) / (2 * step)
        control = (slopes[axis] @ rows).reshape(shape)
        for number in range(len(points)):
            block = control[tuple(slice(c * (degree + 1), (c + 1) * (degree + 1)) for c in cell[number])]
            for other, space in enumerate(spline.axes):
                block = np.tensordot(space.bernstein(place[number : number + 1, other])[0], block, axes=(0, 0))
            assert block == pytest.approx(numeric[number], rel=1e-4, abs=1e-6)
    assert np.allclose(np.asarray(value.sum(axis=1)).ravel(), 1.0)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("n_axes", [1, 2])
def test_the_sites_of_smooth_splines_say_all_that_all_sites_say(degree, n_axes):
    spline = TensorSpline(random_grid(3, n_axes, cells=3), degree)
    coefficients = np.random.default_rng(0).random(spline.n_coefficients)
    rows = spline.extraction @ coefficients
    few = np.column_stack([operator @ coefficients for operator in spline.cone_operators()])
    many = np.column_stack([operator @ rows for operator in spline.site_operators()])
    assert len(few) <= len(many)
    assert {tuple(row) for row in few.round(9)} == {tuple(row) for row in many.round(9)}


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_weights_are_a_partition_of_unity(n_axes):
    spline = TensorSpline(random_grid(1, n_axes, cells=2), 3)
    points = np.random.default_rng(0).uniform(*spline.grid.bounds, size=(100, n_axes))
    points = np.concatenate([points, spline.grid.anchors])
    weights = spline.weights(points)
    assert weights.data.min() >= 0
    assert np.allclose(weights.sum(axis=1), 1.0, atol=1e-14)


@pytest.mark.parametrize("degree", DEGREES)
def test_largest_coefficient_bounds_every_coefficient_with_rows_in_the_unit_interval(degree):
    axis = AxisSpline(random_grid(2, 1, cells=6).breakpoints[0], degree)
    rng = np.random.default_rng(0)
    largest = 0.0
    for _ in range(2000):
        coefficients = rng.normal(size=axis.n_coefficients)
        rows = axis.extraction @ coefficients
        scaled = (coefficients - rows.min()) / np.ptp(rows)  # an affine map takes the rows to [0, 1]
        largest = max(largest, np.abs(scaled).max())
    assert largest <= axis.largest_coefficient * (1 + 1e-12)
    assert (axis.largest_coefficient == pytest.approx(1.0)) == (degree <= 2)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("n_axes", [1, 2])
def test_a_coarser_spline_is_the_same_function_on_a_finer_grid(degree, n_axes):
    grid = random_grid(degree, n_axes, cells=3)
    finer = Grid.from_breakpoints([np.sort([*x, *(x[:-1] + 0.3 * np.diff(x)), x[-1] - 1e-3]) for x in grid.breakpoints])
    here, there = TensorSpline(finer, degree), TensorSpline(grid, degree)
    coefficients = np.random.default_rng(0).random((there.n_coefficients, 3))
    points = np.random.default_rng(1).uniform(*grid.bounds, size=(300, n_axes))
    moved = here.from_coarser(there) @ coefficients
    expected = there.weights(points) @ (there.extraction @ coefficients)
    assert np.allclose(here.weights(points) @ (here.extraction @ moved), expected, atol=1e-12)
    assert np.allclose(here.from_coarser(there).sum(axis=1), 1.0, atol=1e-12)
