"""Exact draws: every possible draw enumerated, the law compared with the table's as fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import metricdp as mdp
from chance_tools import follow
from metricdp.drawing import exact_draws
from metricdp.drawing.exact_draws import AliasTables, SparseAliasTables, _coins, draw_in_proportion
from metricdp.mechanisms.spline import sampler as spline_sampler
from metricdp.mechanisms.spline.integer_rows import integer_rows
from metricdp.mechanisms.spline.sampler import BernsteinSampler
from oracles import spline_law
from problems import random_problem


def random_weights(rng, n_rows, n_outputs, total):
    """Rows of weights ≥ 1 with one sum."""
    cuts = np.array([np.sort(rng.choice(total - 1, n_outputs - 1, replace=False)) + 1 for _ in range(n_rows)])
    return np.diff(np.column_stack([np.zeros(n_rows, int), cuts, np.full(n_rows, total)]), axis=1).astype(np.int64)


def law_by_enumeration(sampler, point, monkeypatch):
    """Feed the sampler every combination of the integers it asks for, once each."""
    sides = []
    for edges, x in zip(sampler.breakpoints, point, strict=True):
        cell = max(i for i in range(len(edges) - 1) if edges[i] <= x)
        sides += [int(edges[cell + 1] - edges[cell])] * sampler.degree
    tables = sampler.tables
    dense = isinstance(tables, AliasTables)
    bounds = [*sides, tables.n_outputs, 2**tables.height_bits] if dense else [*sides, tables.total]
    draws = np.indices(bounds).reshape(len(bounds), -1)
    by_bound = slice(None, -1) if dense else slice(None)  # the last of a dense table are bits of a word
    asked = iter(zip(bounds[by_bound], draws[by_bound], strict=True))

    def scripted(_source, bound, _count=None):
        expected, values = next(asked)
        assert (np.asarray(bound) == expected).all()
        return values

    def scripted_coins(source, numerators, denominators):
        return scripted(source, denominators) < numerators

    class Heights:
        def words(self, count):
            assert count == draws.shape[1]
            return draws[-1].astype(np.uint64) << np.uint64(64 - tables.height_bits)

    monkeypatch.setattr(exact_draws, "integers_below", scripted)
    monkeypatch.setattr(spline_sampler, "coins_of_ratios", scripted_coins)
    outputs = sampler.draw(np.tile(point, (draws.shape[1], 1)), Heights())
    assert next(asked, None) is None
    counts = np.bincount(outputs, minlength=tables.n_outputs)
    return [Fraction(int(count), draws.shape[1]) for count in counts]


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n_axes", [1, 2])
def test_every_possible_draw_adds_up_to_the_table_s_law(degree, n_axes, monkeypatch):
    rng = np.random.default_rng(degree)
    breakpoints = [np.array([0, 2, 5]), np.array([-1, 1])][:n_axes]
    n_sites = math.prod(degree * (len(edges) - 1) + 1 for edges in breakpoints)
    for n_outputs in (1, 2, 3):
        weights = random_weights(rng, n_sites, n_outputs, n_outputs * 8)
        sampler = BernsteinSampler(breakpoints, degree, AliasTables(weights))
        for point in itertools.product(*(range(edges[0], edges[-1] + 1) for edges in breakpoints)):
            expected = spline_law(breakpoints, degree, weights, point)
            assert law_by_enumeration(sampler, np.array(point), monkeypatch) == expected


def random_extras(rng, n_rows, n_outputs, bits):
    """Rows of extras ≥ 0 that sum to 2^bits, most of them 0, and the same as entries."""
    extras = np.zeros((n_rows, n_outputs), dtype=np.int64)
    for row in extras:
        likely = rng.choice(n_outputs, rng.integers(1, min(n_outputs, 1 << bits) + 1), replace=False)
        row[likely] = random_weights(rng, 1, len(likely), 1 << bits)[0]
    counts = (extras > 0).sum(axis=1)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return extras, (ends, np.nonzero(extras)[1].astype(np.uint16), extras[extras > 0])


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n_axes", [1, 2])
def test_every_possible_draw_adds_up_to_the_sparse_table_s_law(degree, n_axes, monkeypatch):
    rng = np.random.default_rng(degree)
    breakpoints = [np.array([0, 2, 5]), np.array([-1, 1])][:n_axes]
    n_sites = math.prod(degree * (len(edges) - 1) + 1 for edges in breakpoints)
    for n_outputs, floor in ((1, 1), (2, 3), (5, 2)):
        extras, entries = random_extras(rng, n_sites, n_outputs, 3)
        sampler = BernsteinSampler(breakpoints, degree, SparseAliasTables(n_outputs, floor, *entries, sum_bits=3))
        for point in itertools.product(*(range(edges[0], edges[-1] + 1) for edges in breakpoints)):
            expected = spline_law(breakpoints, degree, extras + floor, point)
            assert law_by_enumeration(sampler, np.array(point), monkeypatch) == expected


@given(seed=st.integers(0, 2**32), n_outputs=st.integers(1, 40), bits=st.integers(0, 7), floor=st.integers(1, 5))
def test_sparse_alias_columns_hold_every_weight_exactly(seed, n_outputs, bits, floor):
    extras, entries = random_extras(np.random.default_rng(seed), 6, n_outputs, bits)
    tables = SparseAliasTables(n_outputs, floor, *entries, sum_bits=bits)
    row, unit = (part.ravel() for part in np.indices((6, n_outputs * floor + (1 << bits))))
    counts = np.zeros_like(extras)
    np.add.at(counts, (row, tables.owner(row, unit)), 1)
    assert np.array_equal(counts, extras + floor)


@given(seed=st.integers(0, 2**32), n_outputs=st.integers(1, 40), bits=st.integers(1, 5))
def test_alias_columns_hold_every_weight_exactly(seed, n_outputs, bits):
    rng = np.random.default_rng(seed)
    total = n_outputs << bits
    weights = random_weights(rng, 6, n_outputs, total)
    weights[0] = 0
    weights[0, seed % n_outputs] = total
    tables = AliasTables(weights)
    row, column, height = (part.ravel() for part in np.indices((6, n_outputs, 2**bits)))
    drawn = tables.owner(row, column, height)
    counts = np.zeros_like(weights)
    np.add.at(counts, (row, drawn), 1)
    assert np.array_equal(counts, weights)


@pytest.mark.parametrize("weights", [[[3, 3]], [[4, 4], [4, 5]], [[9, -1]]])
def test_tables_of_other_sums_are_refused(weights):
    with pytest.raises(ValueError, match="power of two"):
        AliasTables(np.array(weights))


@given(seed=st.integers(0, 2**32), n_outputs=st.integers(1, 300), concentration=st.sampled_from([1e-3, 1.0, 100.0]))
def test_integer_rows_are_near_and_sum_exactly(seed, n_outputs, concentration):
    rows = np.random.default_rng(seed).dirichlet(np.full(n_outputs, concentration), size=5)
    weights = integer_rows(rows)
    total = int(weights[0].sum())
    assert total % n_outputs == 0
    assert (total // n_outputs).bit_count() == 1
    assert (weights.sum(axis=1) == total).all()
    # One for the remainder, and what 53 bits cannot tell of the sum.
    assert np.abs(weights - rows * total).max() <= 2 + n_outputs * total * 2.0**-52


def test_too_many_outputs_are_refused():
    with pytest.raises(mdp.InvalidInputError, match="`outputs` must be at most 1048576, got 1048577"):
        integer_rows(np.empty((1, 2**20 + 1)))


@pytest.mark.parametrize("n_outputs", [3, 200])
def test_counts_match_the_certified_row(n_outputs):
    problem = random_problem(1, n_outputs=n_outputs)
    mechanism = mdp.fit(problem, 1.0, "spline", cells=4, degree=2)
    for point in ([1.234, 3.21], [0.0, 4.0], [9.0, -9.0]):
        drawn = mechanism.sample(np.tile(point, (200_000, 1)))
        assert follow(np.bincount(drawn, minlength=n_outputs), mechanism.probabilities([point])[0])


def test_draws_do_not_depend_on_how_points_are_split():
    mechanism = mdp.fit(random_problem(1), 1.0, "spline", cells=4)
    points = np.random.default_rng(0).uniform(-1, 5, size=(100_000, 2))
    drawn = mechanism.sample(points)
    assert drawn.shape == (100_000,)
    rows = mechanism.probabilities(points)
    # Each block of points has its own law, whichever thread drew it.
    for block in np.array_split(np.arange(100_000), 7):
        assert follow(np.bincount(drawn[block], minlength=5), rows[block].mean(axis=0))
    assert len(mechanism.sample(np.empty((0, 2)))) == 0


def test_what_a_seed_touched_is_marked():
    mechanism = mdp.fit(random_problem(1), 1.0, "spline", cells=4)
    points = np.ones((5, 2))
    seeded = mechanism.sample(points, mdp.InsecureSeed(1))
    assert isinstance(seeded, mdp.NotPrivate)
    assert isinstance(seeded[:2] + 1, mdp.NotPrivate)
    assert np.array_equal(seeded, mechanism.sample(points, mdp.InsecureSeed(1)))
    assert type(mechanism.sample(points)) is np.ndarray


class Scripted:
    """Words from a list, for draws that chance would show once in a lifetime."""

    secure = False

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def unit(value):
    """Return a word from which the value is drawn below 2^40 + 1."""
    return value * 2**64 // (2**40 + 1) + 2


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ([unit(0)], 0),  # the first unit belongs to the first column
        ([unit(2**40 - 1)], 0),
        ([unit(2**40), 2**62 - 1], 1),  # the only unit of a column of a quarter unit, and the coin says yes
        ([unit(2**40), 2**62, 2**63, unit(5)], 0),  # the coin is tied, then says no: another draw
        ([unit(2**40), 2**62 + 1, unit(2**40), 0], 1),
    ],
)
def test_weights_below_a_unit_are_drawn_by_a_coin(words, drawn):
    source = Scripted(*words)
    assert draw_in_proportion(np.array([[1.0, 2.0**-42]]), source).tolist() == [drawn]
    assert not source.left


def test_coins_with_more_than_64_digits_are_exact():
    chance = 2.0**-60 * (1 + 2.0**-52)  # digits 60 and 112
    first = 2**4
    for words, heads in (
        ([first - 1], True),
        ([first + 1], False),
        ([first, 2**16 - 1], True),
        ([first, 2**16 + 1], False),
    ):
        assert _coins(np.array([chance]), Scripted(*words)).tolist() == [heads]


def test_draws_are_in_proportion_row_by_row():
    weights = np.array([[1.0, 0.5, 0.0], [0.25, 1.0, 1e-3], [1e-300, 1.0, 1e-13]])
    drawn = draw_in_proportion(np.repeat(weights, 100_000, axis=0), mdp.InsecureSeed(3)).reshape(3, -1)
    counts = np.array([np.bincount(row, minlength=3) for row in drawn])
    assert counts[0, 2] == counts[2, 0] == 0
    assert chisquare(counts[0, :2], 1e5 * weights[0, :2] / 1.5).pvalue > 1e-4
    assert chisquare(counts[1], 1e5 * weights[1] / weights[1].sum()).pvalue > 1e-4


def test_millions_of_columns_do_not_overflow():
    """2^40 units for each of 2^23 columns are more than 64 bits hold; an outsider may bring so many outputs."""
    weights = np.ones((1, 2**23 + 1000))
    weights[:, : 2**22] = 0
    drawn = [int(draw_in_proportion(weights, mdp.InsecureSeed(seed))[0]) for seed in range(4)]
    assert all(2**22 <= column < weights.shape[1] for column in drawn)
    assert len(set(drawn)) == 4
