"""The path metric on maps that a stranger made: never below its definition, and in bounded memory."""

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

# Values over 24 orders of magnitude, and sides of cells down to what floats can just tell apart.
epsilons = st.sampled_from([1e-12, 1e-6, 1.0, 1 + 2**-52, 1e6, 1e12]) | st.floats(1e-12, 1e12)
sides = st.sampled_from([2.0**-40, 1e-9, 1e-3, 1.0, 3.0, 1e3]) | st.floats(1e-9, 1e3)
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
        assert Fraction(bound) >= exact


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
        assert Fraction(bound) >= max(exact, Fraction(values.min()) * aside)


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
