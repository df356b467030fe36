"""Branch and bound on log-convex interpolants against dense sampling and a closed formula; AIPO at certified scales."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metricdp as mdp
from cli_tools import run
from mechanisms_tools import hand_made, pairs_of_points
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.aipo import proof
from metricdp.mechanisms.aipo import slope_bound as interpolant
from metricdp.mechanisms.aipo.slope_bound import steepest_slope
from metricdp.mechanisms.aipo.split import search_scale
from oracles import count_violations
from problems import random_problem

ORDERS = [1.0, 2.0, math.inf]


def normalised(logs):
    return logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))


def random_table(seed, n_axes, n_outputs, spread):
    rng = np.random.default_rng(seed)
    cells = {1: 5, 2: 3, 3: 2}[n_axes]
    axes = [np.concatenate([[0.0], np.cumsum(rng.uniform(0.2, 2.0, cells))]) for _ in range(n_axes)]
    grid = mdp.Grid.from_breakpoints(axes)
    return grid, normalised(spread * rng.normal(size=(grid.n_anchors, n_outputs)))


def unit_cell(logs):
    n_axes = int(math.log2(len(logs)))
    return mdp.Grid.uniform(np.array([[0.0] * n_axes, [1.0] * n_axes]), 1)


def log_rows(grid, logs, points):
    values = grid.weights(points) @ logs
    return values - np.log(np.exp(values).sum(axis=1, keepdims=True))


def sampled_supremum(grid, logs, p):
    """Differences of ln z at evenly spread points of every cell, a hair inside."""
    shares = np.array(
        list(itertools.product(np.linspace(1e-4, 1 - 1e-4, {1: 200, 2: 21, 3: 9}[grid.n_axes]), repeat=grid.n_axes))
    )
    places = []
    for cell in itertools.product(*[range(count) for count in grid.cells]):
        low, high = (np.array([grid.breakpoints[a][c + end] for a, c in enumerate(cell)]) for end in (0, 1))
        places.append(low + shares * (high - low))
    return float(slopes_at(grid, logs, np.concatenate(places), p).max())


def slopes_at(grid, logs, points, p):
    slopes = []
    for axis in range(grid.n_axes):
        move = 1e-6 * np.eye(grid.n_axes)[axis]
        slopes.append((log_rows(grid, logs, points + move) - log_rows(grid, logs, points - move)) / 2e-6)
    return norm(np.stack(slopes, axis=-1), dual_exponent(p))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    n_axes=st.integers(1, 3),
    n_outputs=st.integers(2, 6),
    p=st.sampled_from([1.0, 1.7, 2.0, math.inf]),
    spread=st.sampled_from([0.03, 0.3, 1.0, 4.0]),
)
def test_the_bound_covers_dense_sampling_and_is_close_to_it(seed, n_axes, n_outputs, p, spread):
    grid, logs = random_table(seed, n_axes, n_outputs, spread)
    found = steepest_slope(grid, logs, p)
    sampled = sampled_supremum(grid, logs, p)
    assert sampled <= found.upper * (1 + 1e-7)
    assert found.upper <= 1.03 * sampled
    assert found.lower <= found.upper <= 1.0011 * found.lower
    assert (found.cell[0] <= found.point).all()
    assert (found.point <= found.cell[1]).all()


# Logarithms at the corners of one cell whose slopes are steepest inside it, found by hill climbing.
STEEP_INSIDE = [
    (1.0, [[3.9, -8.65, 2.53], [10.78, 8.35, -2.24], [-0.96, -1.98, 10.09], [2.52, 2.52, 2.1]]),
    (2.0, [[-5.51, 5.69], [-6.06, 3.84], [-18.68, -8.8], [2.38, 3.3]]),
    (math.inf, [[1.69, -2.6, 1.68], [-6.22, -3.58, 0.17], [0.54, 0.7, 7.0], [-4.14, -5.15, 2.32]]),
    (
        2.0,
        [
            [-7.88, 5.21, 2.59],
            [11.72, -12.25, 12.62],
            [-5.58, -7.67, -5.45],
            [16.79, -8.74, -3.75],
            [3.93, 9.01, -2.23],
            [-11.34, 1.45, 10.35],
            [15.28, 5.79, -5.51],
            [-3.76, 2.71, -1.29],
        ],
    ),
]


@pytest.mark.parametrize(("p", "logs"), STEEP_INSIDE)
def test_slopes_that_are_steepest_inside_a_cell_are_found(p, logs):
    grid = unit_cell(logs)
    found = steepest_slope(grid, np.array(logs), p)
    sampled = sampled_supremum(grid, np.array(logs), p)
    inside = (found.point > 0) & (found.point < 1)
    assert inside.any()
    assert sampled <= found.upper * (1 + 1e-7)
    assert found.upper <= 1.03 * sampled
    cells = interpolant._Cells.of(grid, np.array(logs))
    corners = interpolant._bounds(cells, interpolant._Boxes.whole(1, grid.n_axes), dual_exponent(p))
    assert corners.lower[0] < 0.9 * found.lower
    assert corners.upper[0] >= found.upper


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    steep=st.sampled_from([*STEEP_INSIDE, None]),
    p=st.sampled_from([1.0, 1.3, 2.0, math.inf]),
)
def test_the_bound_of_every_single_box_holds(seed, steep, p):
    rng = np.random.default_rng(seed)
    if steep is None:
        grid, logs = random_table(seed, 2, 4, 10 ** rng.uniform(-1, 1))
    else:
        logs = np.array(steep[1])
        grid = unit_cell(logs)
    n_axes = grid.n_axes
    width = 2.0 ** -rng.integers(0, 4, size=(20, n_axes))
    low = np.floor(rng.random((20, n_axes)) / width) * width
    cells = interpolant._Cells.of(grid, logs)
    boxes = interpolant._Boxes(rng.integers(len(cells.logs), size=20), low, width)
    bound = interpolant._bounds(cells, boxes, dual_exponent(p)).upper
    for number, cell in enumerate(boxes.cell):
        place = np.unravel_index(cell, grid.cells)
        ends = np.array([grid.breakpoints[a][i : i + 2] for a, i in enumerate(place)]).T
        shares = np.clip(low[number] + width[number] * rng.random((200, n_axes)), 1e-5, 1 - 1e-5)
        points = ends[0] + shares * (ends[1] - ends[0])
        assert slopes_at(grid, logs, points, p).max() <= bound[number] * (1 + 1e-6)


def third_derivative(logs, x, twice, once, step=1e-2):
    """∂_m² ∂_ℓ ln Σ f, m = twice and ℓ = once, by differences on the unit cell."""
    grid = unit_cell(logs)
    ahead, aside = step * np.eye(grid.n_axes)[[twice, once]]
    moves = [(a, b) for a in (-1, 0, 1) for b in (-1, 1)]
    points = np.array([x + a * ahead + b * aside for a, b in moves])
    values = np.log(np.exp(grid.weights(points) @ logs).sum(axis=1))
    return sum((1 - 3 * (a == 0)) * b * value for (a, b), value in zip(moves, values, strict=True)) / (2 * step**3)


@pytest.mark.parametrize("n_axes", [2, 3])
@pytest.mark.parametrize("n_outputs", [2, 4])
def test_the_excess_covers_third_derivatives_and_is_close_for_two_outputs(n_axes, n_outputs):
    closest = np.zeros((n_axes, n_axes))
    for seed in range(60):
        rng = np.random.default_rng(seed)
        logs = rng.normal(size=(2**n_axes, n_outputs))
        cells = interpolant._Cells.of(unit_cell(logs), logs)
        low = np.full((1, n_axes), 0.25) + 2.0**-3 * rng.integers(0, 4, size=(1, n_axes))
        boxes = interpolant._Boxes(np.array([0]), low, np.full((1, n_axes), 2.0**-20))
        weights = interpolant._weights(cells, boxes)
        slopes = weights[:, None] @ cells.slopes
        rows = interpolant._softmax(weights @ cells.logs)
        mean = np.einsum("bck,bnck->bnc", rows, slopes)
        excess = interpolant._excess(cells, boxes, weights, slopes, rows, mean)[0] * 2 * 2.0**42
        for twice, once in itertools.product(range(n_axes), repeat=2):
            exact = abs(third_derivative(logs, low[0], twice, once))
            assert exact <= excess[twice, once] * 1.001 + 1e-3
            if exact > 0.1:
                closest[twice, once] = max(closest[twice, once], exact / excess[twice, once])
    if n_outputs == 2:
        assert (closest > np.where(np.eye(n_axes), 0.5, 0.95)).all()


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_a_tight_tolerance_is_reached(n_axes, p):
    grid, logs = random_table(3, n_axes, 5, 1.0)
    found = steepest_slope(grid, logs, p, tolerance=1e-6)
    assert found.lower <= found.upper <= (1 + 1.1e-6) * found.lower


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), n_outputs=st.integers(2, 8), spread=st.floats(0.01, 3.0), side=st.floats(0.1, 3.0))
def test_on_a_line_the_closed_formula_is_an_upper_bound(seed, n_outputs, spread, side):
    grid = mdp.Grid.uniform(np.array([[0.0], [6 * side]]), 6)
    logs = normalised(spread * np.random.default_rng(seed).normal(size=(7, n_outputs)))
    slope = np.abs(np.diff(logs, axis=0)).max() / side
    assert steepest_slope(grid, logs, 2.0).upper <= slope * (1 + math.tanh(slope * side / 2)) * (1 + 1e-12)


@pytest.mark.parametrize("t", [0.01, 0.5, 3.0])
def test_on_a_line_the_closed_formula_is_reached(t):
    """Two outputs whose chances change places, growing and falling by e^t."""
    less, more = 1 / (1 + math.exp(t)), 1 / (1 + math.exp(-t))
    grid = mdp.Grid.uniform(np.array([[0.0], [1.0]]), 1)
    found = steepest_slope(grid, np.log([[less, more], [more, less]]), 2.0)
    assert found.upper == pytest.approx(t * (1 + math.tanh(t / 2)), rel=1e-12)
    assert found.lower == pytest.approx(found.upper, rel=1e-12)


def test_a_target_in_between_is_decided_either_way():
    grid, logs = random_table(1, 2, 5, 1.0)
    exact = steepest_slope(grid, logs, 2.0, tolerance=1e-9)
    assert steepest_slope(grid, logs, 2.0, target=exact.upper * (1 + 1e-6)).upper <= exact.upper * (1 + 1e-6)
    broken = steepest_slope(grid, logs, 2.0, target=exact.lower * (1 - 1e-6))
    assert broken.lower > exact.lower * (1 - 1e-6)


@pytest.mark.parametrize("p", ORDERS)
def test_certificates_follow_the_bound(p):
    grid, logs = random_table(5, 2, 5, 0.5)
    steep = steepest_slope(grid, logs, p, tolerance=1e-8)
    private = mdp.certify(hand_made(grid, logs, epsilon=steep.upper * 1.001, p=p))
    assert private.holds
    assert "branch and bound" in private.claim
    assert 0.998 < private.worst_ratio <= 1
    refused = mdp.certify(hand_made(grid, logs, epsilon=steep.lower * 0.99, p=p))
    assert not refused.holds
    assert "the pair shown violates it" in refused.claim
    assert refused.worst_ratio > 1
    left, right = np.array(refused.worst_where["points"])
    assert np.array_equal(left, np.rint(left * 2**20) / 2**20)
    rows = hand_made(grid, logs, p=p).probabilities([left, right])[:, refused.worst_where["output"]]
    assert abs(math.log(rows[0] / rows[1])) > steep.lower * 0.99 * norm(left - right, p)


def test_floating_point_is_charged():
    grid, logs = random_table(5, 2, 5, 0.5)
    bound = steepest_slope(grid, logs, 2.0, tolerance=1e-12).upper
    cost = hand_made(grid, logs).rounding_cost
    assert 1e-9 < cost / bound < 1e-5
    assert not mdp.certify(hand_made(grid, logs, epsilon=bound / (1 - 1e-9))).holds
    assert not mdp.certify(hand_made(grid, logs, epsilon=bound + 0.9 * cost)).holds
    assert mdp.certify(hand_made(grid, logs, epsilon=bound + 1.1 * cost)).holds


def test_a_slope_that_is_barely_too_steep_is_refused(monkeypatch):
    """The search may end with a slope one rounding above what is allowed; its bound on all others is then unknown."""
    grid, logs = random_table(5, 2, 5, 0.5)
    mechanism = hand_made(grid, logs, epsilon=0.7)

    def barely(grid, logs, p, target):
        return replace(steepest_slope(grid, logs, p), lower=math.nextafter(target, math.inf), upper=math.inf)

    monkeypatch.setattr(proof, "steepest_slope", barely)
    assert proof.certified_ratio(mechanism)[0] > 1
    assert not mdp.certify(mechanism).holds


def test_floating_point_is_charged_by_the_theorem_too():
    logs = np.log([[0.4, 0.6], [0.5, 0.5]])
    grid = mdp.Grid.uniform(np.array([[0.0], [1.0]]), 1)
    mechanism = hand_made(grid, logs)
    epsilon = 2 * math.log(0.5 / 0.4) + 2 * mechanism.rounding_cost
    found = mdp.certify(hand_made(grid, logs, epsilon=epsilon))
    assert "Proposition 3" in found.claim
    closer = mdp.certify(hand_made(grid, logs, epsilon=epsilon - 1.5 * mechanism.rounding_cost))
    assert "Proposition 3" not in closer.claim


@pytest.mark.parametrize("depth", [2000.0, 1e14, 1e200])
def test_what_floats_cannot_hold_is_not_certified(depth):
    grid = mdp.Grid.uniform(np.array([[0.0, 0.0], [1.0, 1.0]]), 1)
    logs = np.array([[0.0, -depth], [-depth, 0.0], [0.0, -depth], [0.0, -depth]])
    assert not mdp.certify(hand_made(grid, logs, epsilon=1e300)).holds


def test_a_search_cut_short_proves_nothing(monkeypatch):
    mechanism = mdp.fit(random_problem(1, n_outputs=6), 2.0, "aipo-e", cells=3, scale="certified")
    assert mdp.certify(mechanism).holds
    monkeypatch.setattr(interpolant, "_ROUNDS", 1)
    found = mdp.certify(mechanism)
    assert not found.holds
    assert "no violating pair was found either" in found.claim
    monkeypatch.undo()
    for limit in ("_WORK", "_MOST_BOXES"):
        with monkeypatch.context() as changed:
            changed.setattr(interpolant, limit, 0)
            assert not mdp.certify(mechanism).holds
    assert mdp.certify(mechanism).holds


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_a_certified_scale_is_private_and_never_worse(n_axes, p):
    problem = random_problem(n_axes, n_axes=n_axes, n_outputs=6, p=p)
    for epsilon, cells in ((0.7, 3), (4.0, 2)):
        plain = mdp.fit(problem, epsilon, "aipo-e", cells=cells)
        mechanism = mdp.fit(problem, epsilon, "aipo-e", cells=cells, scale="certified")
        report = mechanism.report
        assert mechanism.expected_loss(problem) < plain.expected_loss(problem)
        assert report["certificate"]["worst_ratio"] == pytest.approx(report["certified_ratio"])
        assert 0.99 < report["certified_ratio"] <= 1 or report["scale"] > 0.999
        assert report["scales"][0]["scale"] == 0.5
        assert report["scales"][0]["loss"] == pytest.approx(plain.report["loss"])
        assert report["loss"] == min(one["loss"] for one in report["scales"] if one["certified_ratio"] <= 1)
        assert count_violations(mechanism, *pairs_of_points(mechanism.grid, 20_000, seed=n_axes)) == 0
        found = mdp.audit(mechanism, pairs=2000)
        assert found.violation_ratio == 0
        assert found.max_ratio <= 1


def test_splits_and_scales_together():
    problem = random_problem(2, n_outputs=6)
    plain = mdp.fit(problem, 2.0, "aipo", cells=3, splits=5)
    mechanism = mdp.fit(problem, 2.0, "aipo", cells=3, splits=5, scale="certified")
    assert mechanism.report["splits"] == plain.report["splits"]
    assert mechanism.expected_loss(problem) < plain.expected_loss(problem)
    shares = np.array(mechanism.report["budgets"]) / np.array(plain.report["budgets"])
    assert shares == pytest.approx(2 * mechanism.report["scale"], rel=1e-4)


def test_refinement_stays_certified():
    problem = random_problem(0, n_outputs=6, n_records=200, side=10.0)
    plain = mdp.fit(problem, 1.5, "aipo-e", cells=2, scale="certified")
    refined = mdp.fit(problem, 1.5, "aipo-e", cells=2, scale="certified", refine=True)
    assert refined.expected_loss(problem) <= plain.expected_loss(problem)
    assert mdp.certify(refined).holds


def test_a_given_scale_is_certified_or_refused():
    problem = random_problem(1, n_outputs=6)
    mild = mdp.fit(problem, 0.5, "aipo-e", cells=3, scale=0.6)
    assert mild.report["scale"] == pytest.approx(0.6, rel=1e-5)
    with pytest.raises(mdp.NotCertified, match="aipo-e"):
        mdp.fit(problem, 2.0, "aipo-e", cells=2, scale=1.0)
    half = mdp.fit(problem, 0.5, "aipo-e", cells=3, scale=0.5)
    assert np.array_equal(half.log_table, mdp.fit(problem, 0.5, "aipo-e", cells=3).log_table)


def test_time_limits_end_the_search_for_a_scale():
    problem = random_problem(0, n_outputs=20, n_records=400, side=40.0)
    mechanism = mdp.fit(problem, 0.3, "aipo-e", cells=12, scale="certified", time_limit=1e-3)
    assert len(mechanism.report["scales"]) == 1
    assert mdp.certify(mechanism).holds


@pytest.mark.parametrize("scale", [0, -0.5, 1.5, math.nan, "all", None])
def test_bad_scales(scale):
    with pytest.raises(mdp.InvalidInputError, match="`scale` must be"):
        mdp.fit(random_problem(0), 1.0, "aipo", scale=scale)


def test_the_relaxed_variant_has_no_scale():
    with pytest.raises(mdp.InvalidInputError, match="`scale` does not apply to method 'aipo-r'"):
        mdp.fit(random_problem(0), 1.0, "aipo-r", scale="certified")


def test_an_epsilon_below_the_rounding_cost_is_refused():
    with pytest.raises(mdp.InvalidInputError, match=r"`epsilon` must be above .* what rounding errors cost"):
        mdp.fit(random_problem(0), 1e-9, "aipo-e", cells=2)


@pytest.mark.parametrize(
    "ratio",
    [
        lambda s: s,
        lambda s: s * (1 + 0.2 * s),
        lambda s: s * (1 + math.tanh(3 * s)),
        lambda s: 0.3 * s,
        lambda s: 0.0 * s,
        lambda s: 0.9 if s < 0.63 else 1.7,
        lambda s: s + 0.01 * math.sin(40 * s),
    ],
)
def test_the_search_for_a_scale(ratio):
    tried = []

    def ratio_of(scale):
        tried.append(scale)
        return ratio(scale)

    search_scale(ratio_of, 0.5, 12)
    largest = max(s for s in np.linspace(0.5, 1, 5001) if ratio(s) <= 1)
    assert tried[0] == 0.5
    assert len(tried) <= 12
    assert all(0.5 <= scale <= 1 for scale in tried)
    assert max(s for s in tried if ratio(s) <= 1) >= largest - 0.01


def test_the_search_for_a_scale_ends_when_time_does():
    tried = []
    search_scale(tried.append, 0.5, 5)
    assert tried == [0.5]


def test_the_command_line_takes_a_scale(tmp_path):
    problem = random_problem(0)
    np.savez(tmp_path / "problem.npz", records=problem.records, outputs=problem.outputs, loss=problem.loss)
    arguments = ("fit", "problem.npz", "--epsilon", "1", "--method", "aipo-e", "--cells", "2", "--json")
    answer = run(*arguments, "--scale", "certified", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["report"]["scale"] > 0.5
    refused = run(*arguments, "--scale", "full", cwd=tmp_path)
    assert refused.returncode != 0
    message = json.loads(refused.stdout)["error"]["message"]
    assert "`--scale` must be a number in (0, 1] or 'certified', got 'full'" in message
