"""Certificates of mechanisms whose ε varies: fractions from the definition, and paths that the test finds itself."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.path_metric import PathMetric
from oracles import site_ratio_power, steiner_distances
from problems import random_problem

# A box of 6 x 6 in 3 x 3 cells of quite different ε.
VALUES = [[0.3, 0.8, 0.5], [0.6, 1.6, 0.4], [1.0, 0.35, 0.7]]
HERE = mdp.EpsilonMap([[0, 1.5, 4.25, 6], [0, 2, 3.5, 6]], VALUES)


def fitted(seed=0, p=2.0, degree=2, cells=5, n_outputs=3, here=HERE):
    problem = random_problem(seed, n_outputs=n_outputs, p=p, side=6.0, n_records=150)
    return mdp.fit(problem, here, "spline", cells=cells, degree=degree)


def naive_epsilon(mechanism, cell):
    """The least ε of the map's cells that a cell of the grid meets, as a fraction."""
    here, grid = mechanism.epsilon_map, mechanism.grid
    meets = [
        [i for i in range(n) if edges[i] < points[c + 1] and points[c] < edges[i + 1]]
        for n, edges, points, c in zip(here.shape, here.breakpoints, grid.breakpoints, cell, strict=True)
    ]
    return min(Fraction(repr(float(here.values[place]))) for place in itertools.product(*meets))


def sites_of(mechanism):
    places = list(itertools.product(range(mechanism.degree + 1), repeat=mechanism.grid.n_axes))
    return itertools.product(itertools.product(*map(range, mechanism.grid.cells)), places)


def keeps_its_promise(mechanism, sites=None, outputs=None):
    """Compare every site of every cell with the cell's own ε, as fractions."""
    power = 2 if mechanism.p == 2 else 1
    return all(
        site_ratio_power(mechanism, cell, a, k) <= naive_epsilon(mechanism, cell) ** power
        for cell, a in (sites_of(mechanism) if sites is None else sites)
        for k in (range(mechanism.n_outputs) if outputs is None else outputs)
    )


def sites_by_row(mechanism):
    """For every control row the (cell, site) whose slopes it enters."""
    m = mechanism.degree
    counts = [m * cells + 1 for cells in mechanism.grid.cells]
    by_row = {row: [] for row in range(math.prod(counts))}
    for cell, a in sites_of(mechanism):
        place = np.array([m * i + j for i, j in zip(cell, a, strict=True)])
        for axis, move in itertools.product(range(len(counts)), (-1, 0, 1)):
            other = place + move * (np.arange(len(counts)) == axis)
            if (other >= 0).all() and (other < counts).all():
                by_row[int(np.ravel_multi_index(other, counts))].append((cell, a))
    return by_row


@pytest.mark.parametrize(("p", "degree"), [(2.0, 1), (2.0, 2), (2.0, 3), (1.0, 2), (math.inf, 2)])
def test_the_verdict_turns_exactly_at_each_cells_own_epsilon(p, degree):
    mechanism = fitted(p=p, degree=degree, cells=3)
    assert keeps_its_promise(mechanism)
    assert mdp.certify(mechanism).holds
    power = 2 if p == 2 else 1
    here = mechanism.epsilon_map
    by_cell = {}
    for cell, a in sites_of(mechanism):
        middle = [(points[i] + points[i + 1]) / 2 for points, i in zip(mechanism.grid.breakpoints, cell, strict=True)]
        own = tuple(np.searchsorted(edges, x) - 1 for edges, x in zip(here.breakpoints, middle, strict=True))
        worst = max(site_ratio_power(mechanism, cell, a, k) for k in range(mechanism.n_outputs))
        by_cell[own] = max(by_cell.get(own, 0), worst)
    largest = np.unravel_index(here.values.argmax(), here.shape)
    for own, worst in by_cell.items():
        root = math.sqrt(worst) if p == 2 else float(worst)
        for epsilon in (root * (1 + shift) for shift in (-1e-12, -2e-16, 0.0, 2e-16, 1e-12)):
            values = here.values.copy()
            values[own] = epsilon
            claimed = replace(
                mechanism, epsilon=float(values.max()), epsilon_map=mdp.EpsilonMap(here.breakpoints, values)
            )
            fair = Fraction(repr(epsilon)) ** power >= worst
            assert mdp.certify(claimed).holds == fair, (own, epsilon, largest)


@pytest.mark.parametrize("wanted", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_verdict_over_many_corruptions_is_right(wanted):
    """Units moved within one row, or ε of one cell of the map moved; fractions say whether a cone breaks."""
    rng = np.random.default_rng(0)
    verdicts = {True: [], False: []}
    mechanisms = [fitted(seed, degree=degree, cells=3) for degree in (1, 2, 3) for seed in (0, 1)] + [fitted(p=1.0)]
    touched = [sites_by_row(mechanism) for mechanism in mechanisms]
    while min(map(len, verdicts.values())) < wanted:
        which = rng.integers(len(mechanisms))
        mechanism = mechanisms[which]
        row = int(rng.integers(len(mechanism.table)))
        giver, taker = rng.choice(3, size=2, replace=False)
        units = min(int(2 ** rng.uniform(0, 41)), int(mechanism.table[row, giver]) - 1)
        if units < 1:
            continue
        table = mechanism.table.copy()
        table[row, giver] -= units
        table[row, taker] += units
        corrupt = replace(mechanism, table=table)
        harmless = keeps_its_promise(corrupt, touched[which][row], [giver, taker])
        if len(verdicts[harmless]) < wanted:
            verdicts[harmless].append(mdp.certify(corrupt).holds)
    assert sum(verdicts[True]) == wanted
    assert sum(verdicts[False]) == 0


def test_a_cell_that_meets_several_cells_of_the_map_has_the_least_of_them():
    """A map whose borders are not the grid's cannot hide a small ε inside a cell."""
    mechanism = fitted(here=mdp.EpsilonMap.constant(np.array([[0.0, 0], [6, 6]]), 0.9))
    assert mdp.certify(mechanism).holds
    inside = mdp.EpsilonMap([[0, 2.3, 2.4, 6], [0, 3.1, 3.2, 6]], [[0.9, 0.9, 0.9], [0.9, 1e-3, 0.9], [0.9, 0.9, 0.9]])
    forged = replace(mechanism, epsilon_map=inside)
    assert not keeps_its_promise(forged)
    found = mdp.certify(forged)
    assert not found.holds
    with pytest.raises(mdp.InvalidInputError, match="Nothing was proved"):
        found.between([0, 0], [1, 1])


def judged(mechanism, points, allowed):
    """Count (pairs, outputs) in which the logarithms differ by more than is allowed, with no tolerance."""
    logs = np.log(mechanism.probabilities(points))
    broken = 0
    for k in range(mechanism.n_outputs):
        broken += int((np.abs(logs[:, None, k] - logs[None, :, k]) > allowed).sum())
    return broken


@pytest.mark.parametrize("count", [200, pytest.param(1500, marks=pytest.mark.slow)])
def test_no_pair_breaks_the_path_metric_that_the_test_finds_itself(count):
    mechanism = fitted(cells=10, degree=3)
    spread = np.random.default_rng(1).uniform(0, 6, (3 * count, 2))
    borders = [np.abs(spread[:, [axis]] - HERE.breakpoints[axis][1:-1]).min(axis=1) for axis in (0, 1)]
    points = mechanism.snap(spread[np.minimum(*borders) > 0.1][:count])
    allowed = steiner_distances(HERE.breakpoints, VALUES, points, 65)
    # Half as many nodes lengthen paths of more than a kilometre by less than 0.75 %, and twice as many shorten them by
    # a third of that: such paths are overestimated by less than 1 %. Shorter ones, and those that begin near a border,
    # have a test of their own, where the metric is exact.
    far = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1)) > 1
    some = slice(0, 150)
    coarser = steiner_distances(HERE.breakpoints, VALUES, points[some], 33)
    assert (coarser / np.where(far, allowed, np.inf)[some, some]).max() < 1.0075
    assert count < 1500 or far.sum() // 2 >= 10**6
    assert judged(mechanism, points, allowed) == 0
    # The metric is not vacuous: half of it is broken.
    assert judged(mechanism, points, 0.5 * allowed) > 0
    # The library's own bound of pairs is an upper bound too, and straight lines are longer.
    first, second = np.triu_indices(min(count, 200), k=1)
    metric = PathMetric(mechanism.epsilon_map, 2.0)
    bound = metric.between(points[first], points[second])
    apart = far[first, second]
    assert (bound >= allowed[first, second] / 1.01)[apart].all()
    assert np.median(bound / allowed[first, second]) < 1.02
    assert (metric.straight(points[first], points[second]) >= bound).all()


def test_short_steps_inside_cells_and_across_borders_where_the_metric_is_exact():
    mechanism = fitted(cells=10)
    rng = np.random.default_rng(2)
    step, edges = mechanism.step, mechanism.epsilon_map.breakpoints
    for _ in range(300):
        cell = [int(rng.integers(3)), int(rng.integers(3))]
        low, high = (np.array([edges[axis][cell[axis] + side] for axis in (0, 1)]) for side in (0, 1))
        # Inside: farther from the border than long, so that no way around is shorter.
        length = 2.0 ** rng.uniform(-20, -3)
        start = rng.uniform(low + 0.2, high - 0.2, (50, 2))
        angle = rng.uniform(0, 2 * np.pi, 50)
        end = start + length * np.column_stack([np.cos(angle), np.sin(angle)])
        start, end = mechanism.snap(start), mechanism.snap(end)
        exact = VALUES[cell[0]][cell[1]] * np.sqrt(((end - start) ** 2).sum(axis=1))
        change = np.abs(np.log(mechanism.probabilities(start)) - np.log(mechanism.probabilities(end)))
        assert (change <= exact[:, None]).all()
        # Straight across a border: each part is the shortest way from its point to the border.
        axis = int(rng.integers(2))
        number = int(rng.integers(1, 3))
        other = rng.integers(3)
        before, after = [number - 1, other], [number, other]
        if axis == 1:
            before, after = before[::-1], after[::-1]
        steps = rng.integers(1, 2**16, (2, 50))
        place = np.empty((50, 2))
        place[:, axis] = edges[axis][number]
        place[:, 1 - axis] = rng.uniform(edges[1 - axis][other] + 0.2, edges[1 - axis][other + 1] - 0.2, 50)
        place = mechanism.snap(place)
        move = np.zeros(2)
        move[axis] = step
        left, right = place - steps[0][:, None] * move, place + steps[1][:, None] * move
        exact = (VALUES[before[0]][before[1]] * steps[0] + VALUES[after[0]][after[1]] * steps[1]) * step
        change = np.abs(np.log(mechanism.probabilities(left)) - np.log(mechanism.probabilities(right)))
        assert (change <= exact[:, None]).all()


def test_along_a_border_the_smaller_epsilon_counts():
    mechanism = fitted(cells=10)
    edges = mechanism.epsilon_map.breakpoints
    ticks = mechanism.snap(np.linspace(2.1, 3.4, 400))
    line = np.column_stack([np.full(400, edges[0][1]), ticks])  # between 0.8 and 1.6
    logs = np.log(mechanism.probabilities(line))
    allowed = min(VALUES[0][1], VALUES[1][1]) * np.abs(ticks[:, None] - ticks)
    assert (np.abs(logs[:, None] - logs[None, :]).max(axis=2) <= allowed).all()


def test_a_path_that_bends_at_a_border_obeys_the_law_of_refraction():
    """Two half planes: the best crossing point is found by a fine search, and the bound comes within a few percent."""
    metric = PathMetric(mdp.EpsilonMap([[0, 5, 10], [0, 10]], [[0.4], [2.0]]), 2.0)
    a, b = np.array([[4.0, 1.0]]), np.array([[6.0, 9.0]])
    crossing = np.linspace(0, 10, 100_001)
    best = (0.4 * np.hypot(1, crossing - 1) + 2.0 * np.hypot(1, 9 - crossing)).min()
    assert best <= metric.between(a, b)[0] <= 1.05 * best
    straight = 0.5 * (0.4 + 2.0) * math.hypot(2, 8)
    assert metric.straight(a, b)[0] == pytest.approx(straight, rel=1e-9)
    assert metric.straight(a, b)[0] >= straight


def test_straight_lines_are_integrated_exactly_and_rounded_up():
    rng = np.random.default_rng(3)
    metric = PathMetric(HERE, 2.0)
    a, b = rng.uniform(0, 6, (2, 200, 2))
    a[:20, 0] = 1.5  # on a border
    b[:10, 0] = 1.5  # along it
    found = metric.straight(a, b)
    share = (np.arange(20_000) + 0.5) / 20_000
    for one, other, value in zip(a, b, found, strict=True):
        fine = HERE.most_within(one + share[:, None] * (other - one), 0.0).mean() * math.hypot(*(other - one))
        assert value == pytest.approx(fine, rel=2e-3)
    assert metric.straight(a, a).tolist() == [0.0] * 200
    exact = [
        # 1.5 of 0.3, 2.75 of 0.6 and 1 of 1.0, from left to right
        (([0, 1.0], [5.25, 1.0]), Fraction(3, 10) * Fraction(3, 2) + Fraction(6, 10) * Fraction(11, 4) + 1),
    ]
    for (one, other), value in exact:
        got = metric.straight(np.array([one]), np.array([other]))[0]
        assert Fraction(got) >= value
        assert got == pytest.approx(float(value), rel=1e-10)


def test_between_bounds_pairs_of_any_mechanism():
    mechanism = fitted()
    found = mdp.certify(mechanism)
    a, b = [0.5, 0.5], [3.0, 3.0]
    one = found.between(a, b)
    assert isinstance(one, float)
    assert found.between([a, b], [b, a]).tolist() == [one, one]
    assert found.between([-9, 0.5], a) == found.between([0, 0.5], a)  # outside counts as the border
    # Within a lattice cell only rounding is left, with the ε around.
    assert found.between(a, a) == pytest.approx(0.3 * mechanism.rounding, rel=1e-6)
    logs = np.log(mechanism.probabilities([a, b]))
    assert np.abs(logs[0] - logs[1]).max() <= one
    plain = mdp.certify(mdp.fit(random_problem(0), 2.0, "em"))
    assert plain.between([0, 0], [3, 4]) == pytest.approx(10.0, rel=1e-9)
    assert plain.radius([1, 1]) == pytest.approx(0.5, rel=1e-9)
    with pytest.raises(mdp.InvalidInputError, match="as many points"):
        found.between([a, a], [b])
    with pytest.raises(mdp.InvalidInputError, match="no projection"):
        found.between_lonlat(a, b)
    with pytest.raises(mdp.InvalidInputError, match="`ratio` must be above 1"):
        found.radius(a, ratio=1.0)


def test_the_radius_around_a_place_is_one_over_epsilon_deep_inside_a_region():
    here = mdp.EpsilonMap([[0, 10, 20], [0, 10]], [[0.5], [2.0]])
    metric = PathMetric(here, 2.0)
    points = np.array([[2.0, 5.0], [15.0, 5.0], [9.0, 5.0], [10.0, 5.0]])
    # From 9.0 the other side begins after 1: 0.5 of the exponent is spent, the rest lasts for 0.25 there.
    assert metric.radii(points, 1.0) == pytest.approx([2.0, 0.5, 1.25, 0.5], rel=1e-9)
    rng = np.random.default_rng(0)
    metric = PathMetric(HERE, 2.0)
    centres = rng.uniform(0, 6, (300, 2))
    radii = metric.radii(centres, 0.7)
    angle = rng.uniform(0, 2 * np.pi, 300)
    around = np.clip(centres + radii[:, None] * np.column_stack([np.cos(angle), np.sin(angle)]), 0, 6)
    assert (metric.straight(centres, around) <= 0.7 * (1 + 1e-9)).all()


def test_on_the_ground_the_map_is_per_true_kilometre():
    problem = mdp.cities.load("helsinki").problem(outputs=6, tasks=10, seed=0)
    (west, south), (east, north) = problem.bounds
    middle = (west + east) / 2
    here = mdp.EpsilonMap([[west, middle, east], [south, north]], [[1.0], [3.0]])
    mechanism = mdp.fit(problem, here, "spline", cells=6)
    found = mdp.certify(mechanism)
    assert found.holds
    assert found.paths.least == 1.0
    assert found.paths.radius_most == 1.0
    assert "from 1.0 to 3.0" in found.paths.statement
    assert "on the ground" in found.paths.statement
    assert found.metres.epsilon_per_km == 3.0
    assert json.loads(json.dumps(found.to_dict()))["paths"]["cells"] == [2, 1]
    assert "promise" not in found.to_dict()
    # 100 m of the plane are at least 100 m / κ on the ground.
    a, b = [[west + 0.1, south + 0.2]], [[west + 0.2, south + 0.2]]
    assert found.between(a, b)[0] == pytest.approx(0.1 / mechanism.distortion.kappa, rel=1e-4)
    degrees = [mechanism.projection.to_lonlat(point) for point in (a, b)]
    assert found.between_lonlat(*degrees)[0] == pytest.approx(found.between(a, b)[0], rel=1e-6)
    corners = [[west, south], [east, south]]
    expected = [math.log(1.05) / 1.0, math.log(1.05) / 3.0]
    assert found.radius(corners, ratio=1.05) == pytest.approx(expected, rel=1e-3)
    assert (found.radius(corners, ratio=1.05) < expected).all()
    assert found.radius_lonlat(mechanism.projection.to_lonlat(corners), ratio=1.05) == pytest.approx(expected, rel=1e-3)
