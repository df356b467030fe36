"""Lower bounds: never above what a private mechanism achieves, and exact where the whole program fits."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metricdp import InvalidInputError, Problem, ProblemTooLargeError, fit
from metricdp.bounds import tight
from metricdp.bounds.choosing import lower_bound
from metricdp.bounds.tight import cluster_records
from metricdp.optimise.pair_constraints import spanning_pairs
from oracles import dense_optimum, distance


def random_problem(seed, n=40, n_axes=2, p=2.0):
    generator = np.random.default_rng(seed)
    records = generator.random((n, n_axes)) * 5
    outputs = generator.random((4, n_axes)) * 5
    loss = generator.random((n, 4)) * 3 if seed % 2 else "euclidean"
    return Problem(records, outputs, loss, prior=generator.dirichlet(np.ones(n)), p=p)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_with_a_cluster_per_record_it_is_the_optimum_on_the_records(p):
    problem = random_problem(2, n=8, p=p)
    reach = np.array([[distance(a, b, p) for b in problem.records] for a in problem.records])
    expected = dense_optimum(problem.prior[:, None] * problem.loss, reach, 0.6)
    assert lower_bound(problem, 0.6, clusters=8) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    epsilon=st.sampled_from([0.05, 0.4, 1.5, 8.0]),
    p=st.sampled_from([1.0, 2.0, math.inf]),
    clusters=st.integers(1, 45),
    neighbours=st.integers(1, 10),
)
def test_no_private_mechanism_beats_it(seed, epsilon, p, clusters, neighbours):
    problem = random_problem(seed, p=p, n_axes=1 + seed % 2)
    loss = fit(problem, epsilon=epsilon, method="aipo-e", cells=6).expected_loss(problem)
    tight = lower_bound(problem, epsilon, clusters=clusters, neighbours=neighbours, seed=seed)
    assert problem.floor - 1e-9 <= tight <= loss
    assert lower_bound(problem, epsilon, kind="paper", cells=5) <= loss
    assert lower_bound(problem, epsilon, kind="floor") <= loss


@pytest.fixture
def first_order(monkeypatch):
    monkeypatch.setattr(tight, "_LARGEST_INTERIOR", 0)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_the_first_order_method_comes_close_to_the_optimum_from_below(p, first_order):
    problem = random_problem(2, n=8, p=p)
    reach = np.array([[distance(a, b, p) for b in problem.records] for a in problem.records])
    expected = dense_optimum(problem.prior[:, None] * problem.loss, reach, 0.6)
    found = lower_bound(problem, 0.6, clusters=8)
    assert problem.floor < expected * 0.99
    assert expected * (1 - 2e-3) <= found <= expected * (1 + 1e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    epsilon=st.sampled_from([0.05, 0.4, 1.5, 8.0]),
    p=st.sampled_from([1.0, 2.0, math.inf]),
    clusters=st.integers(1, 45),
    near=st.integers(1, 4),
)
def test_no_private_mechanism_beats_the_first_order_method(seed, epsilon, p, clusters, near, first_order):
    """With any number of outputs kept, down to one of four, and after few iterations too."""
    problem = random_problem(seed, p=p, n_axes=1 + seed % 2)
    loss = fit(problem, epsilon=epsilon, method="aipo-e", cells=6).expected_loss(problem)
    exact = lower_bound(problem, epsilon, clusters=clusters, seed=seed, solver="highs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tight, "_MOST_NEAR", near)
        patch.setattr(tight, "_ITERATIONS", 1 + seed % 200)
        found = lower_bound(problem, epsilon, clusters=clusters, seed=seed)
    assert problem.floor - 1e-9 <= found <= min(loss, exact + 1e-7)


def test_outputs_that_are_left_out_loosen_the_bound(first_order, monkeypatch):
    problem = random_problem(4, n=60)
    bounds = []
    for near in (1, 2, 4):
        monkeypatch.setattr(tight, "_MOST_NEAR", near)
        bounds.append(lower_bound(problem, 0.5, clusters=60))
    assert bounds[0] < bounds[1] < bounds[2]


def test_a_first_order_bound_keeps_its_time_limit(first_order):
    problem = random_problem(4, n=300)
    said = []
    found = lower_bound(
        problem, 0.5, clusters=300, time_limit=0.01, progress=lambda share, words: said.append((share, words))
    )
    assert problem.floor - 1e-9 <= found
    assert said[-1][0] < 1  # stopped before all iterations


def test_more_clusters_and_neighbours_tighten_it():
    problem = random_problem(4, n=300)
    by_clusters = [lower_bound(problem, 0.5, clusters=count) for count in (3, 30, 300)]
    assert by_clusters[0] < by_clusters[1] < by_clusters[2]
    assert lower_bound(problem, 0.5, clusters=60, neighbours=2) < lower_bound(problem, 0.5, clusters=60, neighbours=12)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 40),
    n_axes=st.integers(1, 3),
    p=st.sampled_from([1.0, 2.0, 3.0, math.inf]),
    neighbours=st.integers(1, 45),
    stretch=st.sampled_from([0.0, 0.02, 0.3]),
)
def test_chains_of_pairs_are_hardly_longer_than_distances(seed, n, n_axes, p, neighbours, stretch):
    points = np.random.default_rng(seed).random((n, n_axes))
    pairs = spanning_pairs(points, p, neighbours, stretch)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((i, j, distance(points[i], points[j], p)) for i, j in pairs.tolist())
    assert all(graph.has_edge(j, i) and i != j for i, j in graph.edges)
    chains = dict(nx.all_pairs_dijkstra_path_length(graph))
    for i in range(n):
        reach = np.array([distance(points[i], other, p) for other in points])
        for j in np.argsort(reach, kind="stable")[1 : neighbours + 1]:
            assert chains[i][j] <= (1 + stretch) * reach[j] * (1 + 1e-12)


def test_points_that_coincide_are_joined_without_harm():
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert {(2, 3), (3, 2)} <= set(map(tuple, spanning_pairs(points, 2.0, 3, 0.02).tolist()))


def test_pairs_that_chains_imply_exactly_are_left_out():
    line = np.arange(6.0)[:, None]
    near = {(i, j) for i in range(6) for j in range(6) if abs(i - j) == 1}
    pairs = set(map(tuple, spanning_pairs(line, 1.0, 5, 0.0).tolist()))
    assert near <= pairs
    # The first few ranks are taken together, the end's fifth neighbour comes later.
    assert (0, 5) not in pairs


def test_less_budget_costs_more():
    problem = random_problem(4, n=50)
    bounds = [lower_bound(problem, epsilon, clusters=50) for epsilon in (0.1, 0.5, 2.0, 50.0)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == pytest.approx(problem.floor, abs=1e-6)
    best_constant = (problem.prior @ problem.loss).min()
    assert lower_bound(problem, 1e-6, clusters=50) == pytest.approx(best_constant, abs=1e-4)


def test_floor():
    problem = Problem([[0.0], [1.0], [3.0]], [[0.0], [3.0]], "euclidean", prior=[2.0, 1.0, 1.0])
    assert lower_bound(problem, 1.0, kind="floor") == pytest.approx(0.25, abs=1e-9)
    assert lower_bound(problem, 1.0, kind="floor") <= problem.floor


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_paper_bound_against_its_definition(p):
    problem = random_problem(6, p=p)
    edges = [np.linspace(low, high, 4) for low, high in problem.bounds.T]
    cells = list(itertools.product(range(3), range(3)))
    kept, cost = [], []
    for i, j in cells:
        x, y = problem.records.T
        here = (np.clip(np.searchsorted(edges[0], x, "right") - 1, 0, 2) == i) & (
            np.clip(np.searchsorted(edges[1], y, "right") - 1, 0, 2) == j
        )
        if here.any():
            kept.append((i, j))
            cost.append(problem.prior[here].sum() * problem.loss[here].min(axis=0))
    corners = [list(itertools.product(edges[0][i : i + 2], edges[1][j : j + 2])) for i, j in kept]
    reach = np.array([[max(distance(a, b, p) for a in one for b in two) for two in corners] for one in corners])
    expected = dense_optimum(np.array(cost), reach, 0.7)
    assert lower_bound(problem, 0.7, kind="paper", cells=3) == pytest.approx(expected, abs=1e-5)


def test_tight_beats_the_paper():
    problem = random_problem(8, n=200)
    assert lower_bound(problem, 0.5, kind="paper", cells=8) < lower_bound(problem, 0.5, clusters=64)


@pytest.mark.parametrize("solver", ["highs", "clarabel"])
def test_an_unfinished_solve_is_still_a_bound(solver):
    problem = random_problem(4, n=300)
    hasty = lower_bound(problem, 0.5, clusters=100, time_limit=1e-4, solver=solver)
    assert problem.floor - 1e-9 <= hasty <= lower_bound(problem, 0.5, clusters=100) + 1e-9


def test_solvers_agree():
    problem = random_problem(4, n=100)
    bounds = [lower_bound(problem, 0.5, clusters=30, solver=solver) for solver in ("highs", "clarabel")]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-6)


def test_negative_losses_are_bounded_too():
    problem = random_problem(4, n=50)
    shifted = Problem(problem.records, problem.outputs, problem.loss - 10, prior=problem.prior)
    gap = lower_bound(problem, 0.5, clusters=20) - lower_bound(shifted, 0.5, clusters=20)
    assert gap == pytest.approx(10, abs=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_clusters_partition_the_records_by_distance(p):
    problem = random_problem(9, n=120, p=p)
    groups = cluster_records(problem, 11, seed=1)
    low, high = problem.bounds
    assert ((groups.centres >= low) & (groups.centres <= high)).all()
    for x, label in zip(problem.records, groups.label, strict=True):
        reach = [distance(x, centre, p) for centre in groups.centres]
        assert reach[label] == pytest.approx(min(reach))


def test_repeated_records_and_zero_mass_are_harmless():
    problem = Problem([[0.0], [0.0], [1.0], [1.0], [5.0]], [[0.0], [1.0]], "euclidean", prior=[1, 1, 1, 1, 0])
    alike = Problem([[0.0], [1.0], [5.0]], [[0.0], [1.0]], "euclidean", prior=[1, 1, 0])
    assert lower_bound(problem, 1.0) == pytest.approx(lower_bound(alike, 1.0), abs=1e-9)
    assert lower_bound(problem, 1.0) == pytest.approx(1 / (1 + math.e), abs=1e-6)


def test_progress_and_seed():
    problem = random_problem(4, n=100)
    seen = []
    one = lower_bound(problem, 0.5, clusters=9, seed=3, progress=lambda fraction, _: seen.append(fraction))
    assert seen[-1] == 1.0
    assert one == lower_bound(problem, 0.5, clusters=9, seed=3)
    assert one != lower_bound(problem, 0.5, clusters=9, seed=4)


def test_bad_input_is_named():
    problem = random_problem(4)
    with pytest.raises(InvalidInputError, match="`kind` must be one of 'tight', 'paper', 'floor', got 'best'"):
        lower_bound(problem, 1.0, kind="best")
    with pytest.raises(InvalidInputError, match="`clusters` must be a whole number of at least 1, got 0"):
        lower_bound(problem, 1.0, clusters=0)
    with pytest.raises(InvalidInputError, match="`epsilon` must be a positive finite number"):
        lower_bound(problem, -1.0)
    with pytest.raises(InvalidInputError, match=r"`problem` must be a metricdp\.Problem"):
        lower_bound("rome", 1.0)


def test_only_cells_with_records_cost_memory():
    problem = random_problem(4, n=20)
    exact = lower_bound(problem, 1.0, neighbours=19)
    assert lower_bound(problem, 1.0, kind="paper", cells=100_000) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(("kind", "remedy"), [("tight", "take fewer `clusters`"), ("paper", "take fewer `cells`")])
def test_what_would_not_fit_is_refused(monkeypatch, kind, remedy):
    monkeypatch.setattr("metricdp.mechanisms.options.free_memory_gb", lambda: 1e-9)
    with pytest.raises(ProblemTooLargeError, match=remedy):
        lower_bound(random_problem(4), 1.0, kind=kind)
