"""The lattice of inputs: powers of two, exact multiples, points of the box only."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricdp as mdp
from metricdp.geometry.lattice import lattice_step, snap, snap_inside, to_integers

sides = st.floats(1e-12, 1e9)
centres = st.floats(-1e3, 1e3)


def box(*axes):
    return np.array(axes, dtype=float).T


@given(side=sides, centre=centres)
def test_the_step_is_a_power_of_two_and_fine_against_the_box(side, centre):
    bounds = box((centre, centre + side))
    width = bounds[1, 0] - bounds[0, 0]
    if width == 0 or np.abs(bounds).max() >= 2**51 * width / 2**20:
        return
    step = lattice_step(bounds)
    assert math.frexp(step)[0] == 0.5
    assert step <= 2.0**-20
    assert step == 2.0**-20 or 2**20 <= width / step < 2**21
    if width >= 1:
        assert step == 2.0**-20


def test_the_shortest_side_decides():
    assert lattice_step(box((0, 8), (0, 0.5))) == 2.0**-21
    assert lattice_step(box((0, 8), (0, 0.499))) == 2.0**-22


@pytest.mark.parametrize(
    "bounds",
    [box((2**31, 2**31 + 1)), box((1e6, 1e6 + 1e-6)), box((0, 1e6), (0, 1e-9)), box((0, 2.0**31))],
)
def test_a_box_too_far_away_for_its_lattice_is_refused(bounds):
    with pytest.raises(mdp.InvalidInputError, match="`bounds` must be within 2\\^51 lattice steps"):
        lattice_step(bounds)


@pytest.mark.parametrize("bounds", [box((0, 0)), box((1, 0)), box((0, math.inf)), box((0, math.nan))])
def test_no_box_at_all(bounds):
    with pytest.raises(mdp.InvalidInputError, match="`bounds` must be a finite lower corner below"):
        lattice_step(bounds)


@given(
    x=st.floats(-1e6, 1e6),
    exponent=st.integers(-31, -1),
)
def test_snapping_is_exact_nearest_and_idempotent(x, exponent):
    step = 2.0**exponent
    (snapped,) = snap(np.array([x]), step)
    (number,) = to_integers(np.array([x]), step)
    assert number.dtype == np.int64
    assert Fraction(float(snapped)) == int(number) * Fraction(step)
    assert abs(Fraction(float(snapped)) - Fraction(x)) <= Fraction(step) / 2
    assert snap(np.array([snapped]), step)[0] == snapped


@given(low=st.floats(-10, 10), side=st.floats(1e-3, 10), where=st.lists(st.floats(-0.5, 1.5), min_size=1))
def test_snapped_points_stay_inside_and_apart(low, side, where):
    bounds = box((low, low + side))
    step = lattice_step(bounds)
    points = (low + side * np.array(where))[:, None]
    inside = snap_inside(points, bounds, step)
    assert (bounds[0] <= inside).all()
    assert (inside <= bounds[1]).all()
    assert np.array_equal(inside, snap(inside, step))
    gaps = np.diff(np.unique(inside))
    assert (gaps >= step).all()
    near = np.clip(points, *bounds)
    assert (np.abs(inside - near) <= step).all()
