"""Maps of ε: validation, canonical form, lookups and lattices, against definitions."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metricdp as mdp
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid

BOX = np.array([[0.0, 0.0], [3.0, 2.0]])


def small_map():
    return mdp.EpsilonMap([[0, 1, 2, 3], [0, 1, 2]], [[0.5, 1.0], [2.0, 0.25], [1.5, 3.0]])


@pytest.mark.parametrize(
    ("breakpoints", "values", "words"),
    [
        ([[0, 1, 1]], [1, 1], "strictly increasing"),
        ([[0]], [], "strictly increasing"),
        ([[[0, 1]]], [1], "strictly increasing"),
        ([[0, 1], [0, 1]], [1], r"of shape \(1, 1\)"),
        ([], [], "of shape"),
        ([[0, 1, 2]], [1, 0], r"positive everywhere, got 0.0 at index \(1,\)"),
        ([[0, 1, 2]], [1, -2], "positive everywhere"),
        ([[0, 1, 2]], [1, np.nan], "finite everywhere"),
        ([[0, 1, np.inf]], [1, 1], "finite everywhere"),
        ([[0, 1, 2]], "many", "an array of numbers"),
    ],
)
def test_what_is_no_map_is_refused(breakpoints, values, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.EpsilonMap(breakpoints, values)


def test_equal_neighbours_are_joined_so_that_equal_maps_are_equal():
    fine = mdp.EpsilonMap([[0, 1, 2, 3], [0, 1, 2]], [[0.5, 0.5], [0.5, 0.5], [2, 2]])
    coarse = mdp.EpsilonMap([[0, 2, 3], [0, 2]], [[0.5], [2]])
    assert fine == coarse
    assert hash(fine) == hash(coarse)
    assert fine.shape == (2, 1)
    assert fine != mdp.EpsilonMap([[0, 2, 3], [0, 2]], [[0.5], [1]])
    assert fine != "a map"
    constant = mdp.EpsilonMap([[0, 1, 2, 3], [0, 1, 2]], np.full((3, 2), 0.7))
    assert constant == mdp.EpsilonMap([[0, 3], [0, 2]], [[0.7]])
    assert constant.is_constant
    assert (constant.min, constant.max) == (0.7, 0.7)


def test_a_map_cannot_be_changed_whether_copied_or_unpickled():
    given = np.array([0.5, 2.0])
    here = mdp.EpsilonMap([[0, 1, 2]], given)
    given[0] = 9
    for one in (here, copy.deepcopy(here), pickle.loads(pickle.dumps(here))):
        assert one == mdp.EpsilonMap([[0, 1, 2]], [0.5, 2.0])
        with pytest.raises(ValueError, match="read-only"):
            one.values[0] = 9
        with pytest.raises(ValueError, match="read-only"):
            one.breakpoints[0][0] = 9


def naive_values(here, point):
    """ε of every closed cell that holds a point."""
    cells = itertools.product(*(range(n) for n in here.shape))
    return [
        float(here.values[cell])
        for cell in cells
        if all(edges[i] <= x <= edges[i + 1] for x, edges, i in zip(point, here.breakpoints, cell, strict=True))
    ]


def test_a_point_has_the_least_epsilon_of_the_cells_it_touches():
    here = small_map()
    ticks = np.arange(0, 3.01, 0.25), np.arange(0, 2.01, 0.25)
    points = np.array(list(itertools.product(*ticks)))
    assert here.at(points).tolist() == [min(naive_values(here, point)) for point in points]
    assert here.most_within(points, 0.0).tolist() == [max(naive_values(here, point)) for point in points]
    assert here.at([[-5, 0.5], [9, 9]]).tolist() == [0.5, 3.0]  # the nearest point of the map
    wide = here.most_within(points, 10.0)
    assert wide.tolist() == [3.0] * len(points)


@given(st.lists(st.floats(0, 8), min_size=1, max_size=6), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_least_over_cells_of_another_grid(cuts, seed):
    rng = np.random.default_rng(seed)
    here = mdp.EpsilonMap([[0, 2, 3.5, 6, 8]], rng.uniform(0.1, 2, 4))
    other = np.unique([0.0, 8.0, *cuts])
    found = here.least_over([other])
    for low, high, value in zip(other, other[1:], found, strict=False):
        meets = (here.breakpoints[0][:-1] < high) & (here.breakpoints[0][1:] > low)
        assert value == here.values[meets].min()


def test_covers():
    here = small_map()
    assert here.covers(BOX)
    assert here.covers([[0.5, 0.5], [1, 1]])
    assert not here.covers([[0.0, -0.1], [3.0, 2.0]])
    assert not here.covers([[0.0, 0.0], [3.1, 2.0]])
    assert not here.covers([[0.0], [3.0]])


def test_a_map_over_a_box_on_a_lattice():
    here = mdp.EpsilonMap([[-1, 0.1, 0.9, 2.26, 2.3, 5]], [1, 2, 3, 4, 5])
    moved = here.over(np.array([[0.0], [3.0]]), 0.25)
    # 0.1 goes to the border of the box and 2.26 and 2.3 to one lattice point, so two cells vanish.
    assert moved == mdp.EpsilonMap([[0, 1, 2.25, 3]], [2, 3, 5])
    # A box that was moved outwards to the lattice is covered as well.
    assert here.over(np.array([[-1.25], [5.25]]), 0.25).bounds.ravel().tolist() == [-1.25, 5.25]


def test_a_grid_takes_the_borders_of_a_map_and_stays_as_it_is_with_them():
    grid = Grid.uniform(BOX, (6, 4))
    borders = [np.array([0, 0.4, 1.2, 1.5, 3]), np.array([0, 2.0])]
    found = grid.including(borders)
    # 0.5 is closer to 0.4 than a quarter of its cells, so it gives way; 1.0 is not.
    assert found.breakpoints[0].tolist() == [0, 0.4, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0]
    assert found.breakpoints[1].tolist() == grid.breakpoints[1].tolist()
    for again in (found, found.halved()):
        for points, same in zip(again.including(borders).breakpoints, again.breakpoints, strict=True):
            assert np.array_equal(points, same)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_site_obeys_the_least_epsilon_of_the_cells_it_stands_for(degree):
    grid = Grid.uniform(BOX, (3, 2))
    values = np.array([[5.0, 1.0], [2.0, 4.0], [3.0, 6.0]])
    found = TensorSpline(grid, degree).least_at_sites(values)
    axes = TensorSpline(grid, degree).axes
    for index in itertools.product(*(range(len(axis.distinct_sites)) for axis in axes)):
        touched = []
        for axis, number in zip(axes, index, strict=True):
            cell, a = divmod(int(axis.distinct_sites[number]), degree + 1)
            both = degree >= 2 and a == 0 and cell > 0
            touched.append([cell - 1, cell] if both else [cell])
        assert found[index] == min(values[cell] for cell in itertools.product(*touched))
