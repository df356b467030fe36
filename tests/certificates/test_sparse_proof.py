"""Sparse tables: the proof against the definition in fractions and against dense twins; what a reader must refuse."""

import copy
import itertools
import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import metricdp as mdp
from metricdp.mechanisms.spline import proof, slopes, thinning
from metricdp.mechanisms.spline.sparse_table import SUM_BITS, SparseTable
from oracles import site_ratio_power
from problems import random_problem

CASES = [(1, 2.0, 1), (1, 1.0, 3), (2, 2.0, 1), (2, 2.0, 2), (2, 2.0, 3), (2, 1.0, 2), (2, math.inf, 2), (3, 2.0, 1)]


@pytest.fixture(scope="module")
def sparse_fit():
    """A function that fits splines whose tables are sparse although they are small, with tails cut off early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinning, "SPARSE_FROM", 0)
        patch.setattr(thinning, "_TAKEN_OFF", 0.3)

        def fit(n_axes, p, degree, seed=0, epsilon=3.0):
            problem = random_problem(seed, n_axes=n_axes, n_outputs=5, p=p)
            return mdp.fit(problem, epsilon, "spline", cells={1: 8, 2: 4, 3: 2}[n_axes], degree=degree)

        yield fit


def extras_of(table):
    """The extras as a dense array, entry by entry."""
    dense = np.zeros(table.shape, dtype=np.int64)
    place = 0
    for site, count in enumerate(table.counts):
        for _ in range(count):
            dense[site, table.columns[place]] = table.extras[place]
            place += 1
    return dense


def from_extras(extras, floor):
    present = extras > 0
    return SparseTable(
        extras.shape[1],
        floor,
        present.sum(axis=1).astype(np.uint16),
        np.nonzero(present)[1].astype(np.uint16),
        extras[present],
    )


def dense_twin(mechanism):
    return replace(mechanism, table=extras_of(mechanism.table) + mechanism.table.floor)


def worst_power(mechanism):
    """The largest ratio over all sites and outputs, from the definition."""
    places = itertools.product(range(mechanism.degree + 1), repeat=mechanism.grid.n_axes)
    cells = itertools.product(*map(range, mechanism.grid.cells))
    return max(
        site_ratio_power(mechanism, cell, a, k)
        for (cell, a), k in itertools.product(itertools.product(cells, list(places)), range(mechanism.n_outputs))
    )


def holds_by_definition(mechanism):
    epsilon = Fraction(repr(mechanism.epsilon))
    return worst_power(dense_twin(mechanism)) <= (epsilon**2 if mechanism.p == 2 else epsilon)


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_sparse_and_dense_tables_are_proved_alike(sparse_fit, n_axes, p, degree):
    mechanism = sparse_fit(n_axes, p, degree)
    table = mechanism.table
    assert isinstance(table, SparseTable)
    assert (extras_of(table) == 0).any()  # something is left to the floor
    found, twin = mdp.certify(mechanism), mdp.certify(dense_twin(mechanism))
    assert found.holds
    assert holds_by_definition(mechanism)
    assert (found.worst_ratio, found.checked) == (twin.worst_ratio, twin.checked)
    points = np.random.default_rng(0).uniform(*mechanism.bounds, size=(200, n_axes))
    assert np.allclose(mechanism.probabilities(points), dense_twin(mechanism).probabilities(points), rtol=1e-12)


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_the_floor_is_no_larger_than_it_must_be(sparse_fit, n_axes, p, degree):
    mechanism = sparse_fit(n_axes, p, degree)
    table = mechanism.table
    assert table.floor == 65 or not holds_by_definition(
        replace(mechanism, table=replace(table, floor=table.floor - 130))
    )


def corrupted(rng, mechanism):
    """Move units within a row: some to an output at the floor, some so that an output falls to the floor."""
    extras = extras_of(mechanism.table)
    row = int(rng.integers(len(extras)))
    giver = int(rng.choice(np.flatnonzero(extras[row])))
    taker = int(rng.choice(np.delete(np.arange(extras.shape[1]), giver)))
    most = int(extras[row, giver])
    units = most if rng.random() < 0.1 else min(int(2 ** rng.uniform(0, SUM_BITS)), most)
    extras[row, giver] -= units
    extras[row, taker] += units
    return replace(mechanism, table=from_extras(extras, mechanism.table.floor))


@pytest.mark.parametrize("wanted", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_verdict_over_many_corruptions_is_right(sparse_fit, wanted):
    rng = np.random.default_rng(0)
    mechanisms = [
        sparse_fit(2, 2.0, 1), sparse_fit(1, 2.0, 3), sparse_fit(1, 1.0, 2), sparse_fit(1, math.inf, 1, seed=1)
    ]  # fmt: skip
    verdicts = {True: [], False: []}
    while min(map(len, verdicts.values())) < wanted:
        corrupt = corrupted(rng, mechanisms[rng.integers(len(mechanisms))])
        harmless = holds_by_definition(corrupt)
        if len(verdicts[harmless]) < wanted:
            verdicts[harmless].append(mdp.certify(corrupt).holds)
    assert sum(verdicts[True]) == wanted
    assert sum(verdicts[False]) == 0


def test_a_site_next_to_the_window_is_checked(sparse_fit):
    """An extra at one row only: the cones that break first are those of its neighbours, which have none."""
    mechanism = sparse_fit(1, 2.0, 1)
    extras = np.zeros(mechanism.table.shape, dtype=np.int64)
    extras[:, 0] = 1 << SUM_BITS
    extras[4, 0] -= 1 << 30
    extras[4, 1] = 1 << 30
    lonely = replace(mechanism, table=from_extras(extras, 1 << 29))
    assert not holds_by_definition(lonely)
    assert not mdp.certify(lonely).holds
    assert mdp.certify(replace(lonely, table=from_extras(extras, 1 << 35))).holds


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_windows_and_dense_tables_that_are_cut_are_proved_alike(sparse_fit, monkeypatch, n_axes, p, degree):
    """Cells that meet at a cut, and extras that lie on it, are checked as if there were none."""
    rng = np.random.default_rng(degree)
    mechanism = sparse_fit(n_axes, p, degree)
    tried = [mechanism, *(corrupted(rng, mechanism) for _ in range(6))]
    whole = [mdp.certify(one) for one in tried]
    cell = (degree + 1) ** n_axes
    monkeypatch.setattr(slopes, "LARGEST_PART", 2 * cell)
    monkeypatch.setattr(slopes, "_SMALL_WINDOW", cell)
    monkeypatch.setattr(proof, "LARGEST_PART", 2 * cell * mechanism.n_outputs)
    for one, expected in zip(tried, whole, strict=True):
        for found in (mdp.certify(one), mdp.certify(dense_twin(one))):
            assert found.holds == expected.holds == holds_by_definition(one)
            assert not found.holds or found.worst_ratio == expected.worst_ratio


def test_every_cell_with_an_extra_is_in_one_window(sparse_fit, monkeypatch):
    """Cells are counted by their lower corners, against a loop over all cells of all outputs."""
    monkeypatch.setattr(slopes, "LARGEST_PART", 20)
    monkeypatch.setattr(slopes, "_SMALL_WINDOW", 9)
    monkeypatch.setattr(slopes, "_ROWS_PER_EXTRA", 2)
    mechanism = sparse_fit(2, 2.0, 2)
    extras = extras_of(mechanism.table).reshape(9, 9, -1)
    edges = mechanism.breakpoint_steps
    seen = [
        (window.output, int(x), int(y))
        for window in slopes.windows(mechanism.table, edges, 2)
        for x, y in itertools.product(*(points[:-1] for points in window.breakpoints))
    ]
    needed = {
        (k, int(edges[0][i]), int(edges[1][j]))
        for i, j, k in itertools.product(range(4), range(4), range(extras.shape[-1]))
        if extras[2 * i : 2 * i + 3, 2 * j : 2 * j + 3, k].any()
    }
    assert len(seen) == len(set(seen))
    assert needed <= set(seen)


def forged(table, **changes):
    return replace(table, **{name: change(getattr(table, name)) for name, change in changes.items()})


def at(place, value):
    def change(array):
        changed = array.copy()
        changed[place] = value
        return changed

    return change


FORGERIES = {
    "a floor of 0": lambda t: forged(t, floor=lambda _: 0),
    "a huge floor": lambda t: forged(t, floor=lambda _: 2**53),
    "a floor that is no integer": lambda t: forged(t, floor=lambda f: f + 0.5),
    "a floor that is true": lambda t: forged(t, floor=lambda _: True),
    "an extra of 0": lambda t: forged(t, extras=at(0, 0)),
    "a negative extra": lambda t: forged(t, extras=lambda e: at(1, -1)(at(0, e[0] + e[1] + 1)(e))),
    "a sum off by one": lambda t: forged(t, extras=lambda e: at(0, e[0] + 1)(e)),
    "a sum that wraps": lambda t: replace(
        t, counts=np.full(1, 2**14 + 1, np.uint16), columns=np.arange(2**14 + 1).astype(np.uint16),
        extras=np.full(2**14 + 1, 2**50), n_outputs=2**15,
    ),
    "columns that fall": lambda t: forged(t, columns=lambda c: at(0, c[1])(at(1, c[0])(c))),
    "a column twice": lambda t: forged(t, columns=lambda c: at(1, c[0])(c)),
    "a column beyond the outputs": lambda t: forged(t, columns=at(int(t.counts[0]) - 1, 5)),
    "an empty site": lambda t: forged(t, counts=lambda c: at(0, 0)(at(1, c[0] + c[1])(c))),
    "a count too many": lambda t: forged(t, counts=lambda c: at(0, c[0] + 1)(c)),
    "no site": lambda t: replace(
        t, counts=np.empty(0, np.uint16), columns=np.empty(0, np.uint16), extras=np.empty(0, np.int64)
    ),
    "wide counts": lambda t: forged(t, counts=lambda c: c.astype(np.int64)),
    "a table of two axes": lambda t: forged(t, extras=lambda e: e[:, None]),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_tables_are_refused_by_the_proof_and_by_the_reader(sparse_fit, tmp_path, forgery):
    mechanism = sparse_fit(2, 2.0, 2)
    assert mechanism.table.counts[0] >= 2
    bad = replace(mechanism, table=FORGERIES[forgery](mechanism.table))
    assert bad.table.fault()
    assert not mdp.certify(bad).holds
    with pytest.raises(mdp.InvalidInputError):
        bad.save(tmp_path / "bad.mdp")
    assert not list(tmp_path.iterdir())


def test_files_keep_sparse_tables(sparse_fit, tmp_path):
    mechanism = sparse_fit(2, 2.0, 3)
    mechanism.save(tmp_path / "sparse.mdp")
    again = mdp.load(tmp_path / "sparse.mdp")
    for name in ("counts", "columns", "extras"):
        assert np.array_equal(getattr(again.table, name), getattr(mechanism.table, name))
    assert again.table.floor == mechanism.table.floor
    assert mdp.files.content_hash(again) == mdp.files.content_hash(mechanism)
    assert mdp.check_sampler(again, samples=200_000, rng=mdp.InsecureSeed(0)).fits


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_of_sparse_tables_stay_read_only(sparse_fit, copied):
    table = copied(sparse_fit(1, 2.0, 1)).table
    for array in (table.counts, table.columns, table.extras):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_what_thinning_takes_off_is_seen_by_no_loss():
    problem = random_problem(0, n_axes=2, n_outputs=5)
    dense = mdp.fit(problem, 3.0, "spline", cells=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thinning, "SPARSE_FROM", 0)
        sparse = mdp.fit(problem, 3.0, "spline", cells=6)
    assert sparse.expected_loss(problem) == pytest.approx(dense.expected_loss(problem), rel=1e-4)
