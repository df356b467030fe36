"""The path metric on maps that a stranger made: never below its definition, and in bounded memory."""

import math
import subprocess
import sys
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.path_metric import PathMetric
from metricdp.mechanisms.promise import Promise

# Values over 24 orders of magnitude and the ends of what floats hold, and sides of cells down to what floats can just
# tell apart: beside 0 that is the least of all positive floats.
LEAST = 5e-324
epsilons = (
    st.sampled_from([LEAST, 3 * LEAST, 1e-310, 1e-12, 1e-6, 0.3, 1.0, 1 + 2**-52, 1e6, 1e12, 1e300])
    | st.floats(1e-12, 1e12)
    | st.floats(LEAST, 1e300)
)
sides = (
    st.sampled_from([LEAST, 3 * LEAST, 1e-310, 2.0**-1022, 1e-300, 2.0**-40, 1e-9, 1e-3, 1.0, 3.0, 1e3, 1e300])
    | st.floats(1e-9, 1e3)
    | st.floats(LEAST, 1e300)
)
starts = st.sampled_from([0.0, -0.0, -1.0, 1e3, -1e3, 1 / 3])


def made(start, widths):
    """Borders of cells, those that floats cannot tell apart left out."""
    return np.unique(np.append(start, start + np.cumsum(widths)))


def places(rng, edges, count):
    """Points in cells, on borders and next to them, ends included."""
    near = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    found = np.concatenate([rng.choice(near, count // 2), rng.uniform(edges[0], edges[-1], count - count // 2)])
    return rng.permutation(np.clip(found, edges[0], edges[-1]))


@hypothesis.given(starts, st.lists(st.tuples(sides, epsilons), min_size=2, max_size=8), st.integers(0, 10**6))
@hypothesis.settings(max_examples=60)
def test_on_a_line_no_answer_is_below_the_integral(start, cells, seed):
    """There is one path on a line, so the metric is its integral, here in fractions."""
    edges = made(start, [side for side, _ in cells])
    hypothesis.assume(len(edges) > 2)
    values = np.array([value for _, value in cells])[: len(edges) - 1]
    local = EpsilonMap([edges], values)
    rng = np.random.default_rng(seed)
    left, right = (places(rng, edges, 12) for _ in range(2))
    found = Promise(local.max, 2, 0.0, local.bounds, PathMetric(local, 2)).between(left[:, None], right[:, None])
    for a, b, bound in zip(*np.sort([left, right], axis=0).tolist(), found.tolist(), strict=True):
        exact = sum(
            Fraction(value) * max(min(Fraction(b), Fraction(high)) - max(Fraction(a), Fraction(low)), 0)
            for low, high, value in zip(edges[:-1].tolist(), edges[1:].tolist(), values.tolist(), strict=True)
        )
        assert bound == math.inf or Fraction(bound) >= exact


@hypothesis.given(st.lists(st.tuples(sides | st.just(0.0), sides | st.just(0.0)), min_size=1, max_size=5), epsilons)
@hypothesis.settings(max_examples=60)
def test_one_epsilon_times_a_distance_is_never_rounded_down(moves, epsilon):
    """Of orders 1, 2 and ∞ the distance, or its square, is a fraction; a map of one value and no map at all agree."""
    there = np.array(moves)
    box = np.array([[0.0, 0.0], [2e300, 2e300]])
    for p in (1.0, 2.0, np.inf):
        alone = Promise(epsilon, p, 0.0, box)
        of_a_map = Promise(epsilon, p, 0.0, box, PathMetric(EpsilonMap.constant(box, epsilon), p))
        bounds = alone.between(0 * there, there), of_a_map.between(0 * there, there)
        for (x, y), *found in zip(there.tolist(), *(bound.tolist() for bound in bounds), strict=True):
            across, along = Fraction(x), Fraction(y)
            power = 2 if p == 2 else 1
            exact = {1.0: across + along, 2.0: across**2 + along**2, np.inf: max(across, along)}[p]
            for bound in found:
                assert bound == math.inf or Fraction(bound) ** power >= Fraction(epsilon) ** power * exact
                assert (bound == 0) == (exact == 0)


@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 0.4999])
@pytest.mark.parametrize("beyond", [1.0, 2.0])
def test_places_as_near_as_floats_can_be_are_not_promised_to_be_one(epsilon, beyond):
    """ε times the least positive float is below it; the answer was 0, which promises equal chances."""
    local = EpsilonMap([[-1.0, 0.0, 1.0]], [epsilon, beyond * epsilon])
    promise = Promise(local.max, 2, 0.0, local.bounds, PathMetric(local, 2))
    assert promise.between([0.0], [LEAST])[0] > 0
    assert Promise(epsilon, 2, 0.0, local.bounds).between([0.0], [LEAST])[0] > 0
    assert promise.between([LEAST], [LEAST])[0] == 0


@hypothesis.given(
    st.integers(2, 3),
    st.sampled_from([1.0, 1.5, 2.0, np.inf]),
    starts,
    st.lists(st.tuples(sides, epsilons), min_size=2, max_size=5),
    st.integers(0, 10**6),
)
@hypothesis.settings(max_examples=60)
def test_layers_cannot_be_crossed_for_less(n_axes, p, start, layers, seed):
    """Of layers across one axis, a path must cross all that lie between; the others cost it at least the least ε."""
    edges = made(start, [side for side, _ in layers])
    hypothesis.assume(len(edges) > 2)
    values = np.array([value for _, value in layers])[: len(edges) - 1]
    others = [np.array([-1.0, 0.0, 2.0])] * (n_axes - 1)
    # A hair makes the other axes cells of their own, which may only lower what is compared with.
    shaped = values.reshape(-1, *[1] * (n_axes - 1)) * (
        1 + 1e-9 * np.arange(2 ** (n_axes - 1)).reshape([2] * (n_axes - 1))
    )
    local = EpsilonMap([edges, *others], shaped)
    rng = np.random.default_rng(seed)
    left, right = (
        np.column_stack([places(rng, edges, 10), *(places(rng, other, 10) for other in others)]) for _ in range(2)
    )
    found = Promise(local.max, p, 0.0, local.bounds, PathMetric(local, p)).between(left, right)
    for a, b, bound in zip(left.tolist(), right.tolist(), found.tolist(), strict=True):
        low, high = sorted([Fraction(a[0]), Fraction(b[0])])
        exact = sum(
            Fraction(value) * max(min(high, Fraction(above)) - max(low, Fraction(below)), 0)
            for below, above, value in zip(edges[:-1].tolist(), edges[1:].tolist(), values.tolist(), strict=True)
        )
        aside = max(abs(Fraction(x) - Fraction(y)) for x, y in zip(a[1:], b[1:], strict=True))
        assert bound == math.inf or Fraction(bound) >= max(exact, Fraction(values.min()) * aside)


@pytest.mark.parametrize(("n_axes", "cells"), [(8, 3), (6, 5), (3, 60)])
def test_a_map_of_many_axes_takes_little_memory(n_axes, cells):
    """A mechanism file of kilobytes may hold one; its chains would take many gigabytes."""
    program = f"""
import resource
import numpy as np
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.path_metric import PathMetric
resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)
values = np.random.default_rng(0).uniform(1, 2, ({cells},) * {n_axes})
metric = PathMetric(EpsilonMap([np.arange({cells} + 1.0)] * {n_axes}, values), 1.0)
ends = np.full((1, {n_axes}), 0.5), np.full((1, {n_axes}), {cells} - 0.5)
print(float(metric.between(*ends)[0]))
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1_500_000
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    distance = n_axes * (cells - 1)
    assert distance <= float(done.stdout) <= 2 * distance


def test_radii_on_a_map_of_many_cells_are_rounded_down():
    """Each of a million additions loses nearly half a unit in the last place, and all of them in one direction."""
    most, count = (5726623061 + 0.4375) * 2.0**-34, 1_600_000
    borders = np.arange(count + 1) * 2.0**-10
    local = EpsilonMap([borders], np.where(np.arange(count) % 2, most, most / 2))
    (radius,) = PathMetric(local, 2.0).radii(np.array([[0.0]]), 511.0)
    first = Fraction(borders[1])
    exact = first + (511 - Fraction(most / 2) * first) / Fraction(most)
    assert exact * (1 - Fraction(1, 10**9)) < Fraction(radius) <= exact
