import numpy as np
import pytest

from metricdp import Grid, InvalidInputError
from oracles import naive_weights


def random_grid(seed, n_axes):
    rng = np.random.default_rng(seed)
    return Grid.from_breakpoints([np.cumsum(rng.uniform(0.2, 1.0, size=rng.integers(3, 6))) for _ in range(n_axes)])


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_weights_follow_the_definition(n_axes):
    grid = random_grid(n_axes, n_axes)
    low, high = grid.bounds
    points = np.random.default_rng(1).uniform(low, high, size=(20, n_axes))
    points = np.concatenate([points, grid.anchors[:5], [low, high]])
    found = grid.weights(points).toarray()
    expected = np.array([naive_weights(grid, x) for x in points])
    assert np.allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("n_axes", [1, 2, 3, 4])
def test_weights_reproduce_linear_functions(n_axes):
    grid = random_grid(7, n_axes)
    points = np.random.default_rng(2).uniform(*grid.bounds, size=(50, n_axes))
    weights = grid.weights(points)
    assert np.allclose(weights @ grid.anchors, points)
    assert np.allclose(weights.sum(axis=1), 1.0)
    assert weights.data.min() >= 0


def test_points_outside_are_taken_to_the_box():
    grid = Grid.uniform(np.array([[0.0, 0.0], [1.0, 1.0]]), 3)
    outside = np.array([[-5.0, 0.5], [2.0, 9.0]])
    assert np.array_equal(grid.weights(outside).toarray(), grid.weights(np.array([[0.0, 0.5], [1.0, 1.0]])).toarray())


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_neighbours_differ_in_one_coordinate_by_one_step(n_axes):
    grid = random_grid(3, n_axes)
    for axis in range(n_axes):
        lower, upper, distance = grid.neighbours(axis)
        difference = grid.anchors[upper] - grid.anchors[lower]
        assert np.allclose(difference[:, axis], distance)
        assert (np.delete(difference, axis, axis=1) == 0).all()
        steps = len(grid.breakpoints[axis]) - 1
        assert len(lower) == grid.n_anchors // (steps + 1) * steps


def test_adaptive_breakpoints_are_denser_where_records_are():
    rng = np.random.default_rng(0)
    records = np.concatenate([rng.normal(2.0, 0.1, size=(900, 1)), rng.uniform(0, 10, size=(100, 1))])
    records = np.clip(records, 0, 10)
    grid = Grid.adaptive(np.array([[0.0], [10.0]]), 20, records, np.full(1000, 1e-3))
    inside = ((grid.breakpoints[0] > 1.5) & (grid.breakpoints[0] < 2.5)).sum()
    assert inside >= 12
    assert grid.bounds.tolist() == [[0.0], [10.0]]


def test_adaptive_breakpoints_stay_apart_when_all_records_coincide():
    records = np.full((50, 1), 3.0)
    grid = Grid.adaptive(np.array([[0.0], [10.0]]), 8, records, np.full(50, 0.02))
    assert (np.diff(grid.breakpoints[0]) > 0).all()
    assert grid.anchor_shape == (9,)


def test_unlikely_records_do_not_attract_breakpoints():
    records = np.concatenate([np.full((50, 1), 2.0), np.full((50, 1), 8.0)])
    prior = np.concatenate([np.full(50, 0.02), np.zeros(50)])
    cuts = Grid.adaptive(np.array([[0.0], [10.0]]), 10, records, prior).breakpoints[0]
    assert np.abs(cuts - 2.0).min() < 0.01
    assert np.abs(cuts - 8.0).min() > 0.2


@pytest.mark.parametrize(
    ("cells", "words"),
    [(0, "`cells` must be a whole number of at least 1, got 0."), ((3,), "one for each of the 2 axes")],
)
def test_bad_cells(cells, words):
    with pytest.raises(InvalidInputError, match=words):
        Grid.uniform(np.array([[0.0, 0.0], [1.0, 1.0]]), cells)


@pytest.mark.parametrize("points", [[0.0], [0.0, 0.0], [1.0, 0.0], [[0.0, 1.0]]])
def test_bad_breakpoints(points):
    with pytest.raises(InvalidInputError, match=r"`breakpoints\[0\]` must be at least two strictly increasing"):
        Grid.from_breakpoints([points])


def test_graded_cells_follow_the_cube_root_of_the_density():
    rng = np.random.default_rng(0)
    # Eight times as many records on the left: cells half as wide, but for the share that is added everywhere.
    records = np.concatenate([rng.uniform(0, 1, 8000), rng.uniform(1, 2, 1000)])[:, None]
    prior = np.full(len(records), 1 / len(records))
    bounds = np.array([[0.0], [2.0]])
    points = Grid.graded(bounds, 60, records, prior).breakpoints[0]
    assert points[0] == 0.0
    assert points[-1] == 2.0
    left, right = (np.diff(points[(points > low) & (points < high)]).mean() for low, high in ((0.2, 0.8), (1.2, 1.8)))
    assert right / left == pytest.approx(((1 + 0.03) / (1 / 8 + 0.03)) ** (1 / 3), rel=0.1)


def test_graded_cells_stay_apart_when_all_records_coincide():
    grid = Grid.graded(np.array([[0.0], [1.0]]), 64, np.full((5, 1), 0.3), np.full(5, 0.2))
    assert np.diff(grid.breakpoints[0]).min() > 1e-3
