"""The descent by tiles: feasible at every step, near the optimum of the whole program, the same wherever it runs."""

import itertools
import math
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import metricdp as mdp
from metricdp._clock import Clock
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import dual_exponent
from metricdp.mechanisms.spline import background as background_module
from metricdp.mechanisms.spline.background import background
from metricdp.mechanisms.spline.program import spline_program, tensor_program
from metricdp.optimise.engines import Status, solve_shared, solve_tensor, tiles
from metricdp.optimise.engines._tile import improved_tile
from oracles import steepest_site
from problems import random_problem

CASES = list(itertools.product([1, 2, 3], [1.0, 2.0, math.inf], [1, 2, 3]))


def small(n_axes, p=2.0, degree=2, cells=None, epsilon=2.0, n_outputs=4, seed=0):
    """A problem, its spline, its program in tensor form, and uniform rows."""
    problem = random_problem(seed, n_axes=n_axes, n_outputs=n_outputs, p=p, prior=True)
    grid = Grid.uniform(problem.bounds, cells or {1: 60, 2: 9, 3: 3}[n_axes])
    spline = TensorSpline(grid, degree)
    program = tensor_program(problem, spline, epsilon)
    return problem, spline, program, np.full(program.cost.shape, 1 / n_outputs)


def steepest(spline, table, epsilon, p):
    """The worst ‖g‖_q / (ε b), from the definition: control rows, cell by cell."""
    rows = spline.extraction @ table.reshape(-1, table.shape[-1])
    return steepest_site(spline.grid.breakpoints, spline.degree, rows, epsilon, dual_exponent(p))


class Spy(Executor):
    """Solves each tile when it is handed in and keeps it, with what came out."""

    def __init__(self, broken=()):
        self.seen, self.broken = [], broken

    def submit(self, function, tile):
        future = Future()
        answer = (None, 0) if len(self.seen) in self.broken else function(tile)
        self.seen.append((tile, answer[0]))
        future.set_result(answer)
        return future


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_near_the_optimum_of_the_whole_program(n_axes, p, degree):
    problem, spline, program, uniform = small(n_axes, p, degree)
    found = solve_tensor(program, uniform)
    assert found.status is Status.IMPROVED
    assert np.allclose(found.table.sum(axis=-1), 1.0, atol=1e-9)
    assert steepest(spline, found.table, 2.0, p) <= 1 + 1e-9
    whole = spline_program(problem, spline, 2.0)
    best = whole.objective(solve_shared(whole, gap=1e-7).table)
    floor = float(program.cost.min(axis=-1).sum())
    assert whole.objective(found.table.reshape(whole.cost.shape)) == pytest.approx(program.objective(found.table))
    # The height above what no privacy would cost is what a solver can gain or lose.
    assert best - 1e-7 <= program.objective(found.table) <= best + 0.01 * (best - floor)


def test_every_site_has_its_own_epsilon():
    problem, spline, program, uniform = small(2, cells=6)
    shape = program.site_shape
    epsilon = np.random.default_rng(0).uniform(0.5, 3.0, size=shape)
    varied = tensor_program(problem, spline, epsilon)
    found = solve_tensor(varied, uniform).table
    value, *slopes = (operator @ found.reshape(-1, 4) for operator in spline.cone_operators())
    ratio = np.linalg.norm(slopes, axis=0) / (epsilon.reshape(-1, 1) * value)
    assert 0.99 < ratio.max() <= 1 + 1e-9
    # Against the same cones in the general form.
    whole = spline_program(problem, spline, 1.0)
    operators = (whole.operators[0].multiply(epsilon.reshape(-1, 1)).tocsr(), *whole.operators[1:])
    whole = type(whole)(whole.cost, operators)
    best = whole.objective(solve_shared(whole, gap=1e-7).table)
    floor = float(program.cost.min(axis=-1).sum())
    assert best - 1e-7 <= varied.objective(found) <= best + 0.01 * (best - floor)
    constant = tensor_program(problem, spline, np.full(shape, 2.0))
    assert np.array_equal(solve_tensor(constant, uniform).table, solve_tensor(program, uniform).table)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_every_table_on_the_way_is_feasible(p, monkeypatch):
    _, spline, program, uniform = small(2, p, 3, cells=18)
    tables = []
    monkeypatch.setattr(tiles._Descent, "_free_outputs", watch(tiles._Descent._free_outputs, tables))
    solve_tensor(program, uniform, executor=Spy())
    assert len(tables) > 15
    for table in tables:
        assert np.allclose(table.sum(axis=-1), 1.0, atol=1e-9)
        assert steepest(spline, table, 2.0, p) <= 1 + 1e-9


def watch(method, tables):
    def watched(self, place):
        tables.append(self.table.copy())
        return method(self, place)

    return watched


def test_tiles_are_accepted_only_if_they_gain():
    _, _, program, uniform = small(2, degree=3, cells=18)
    spy = Spy()
    solve_tensor(program, uniform, executor=spy)
    gains = [(tile, -np.vdot(tile.cost, change)) for tile, change in spy.seen if change is not None]
    assert len(gains) > 10
    late = [gain for tile, gain in gains if tile.monotone]
    assert late
    assert min(late) > 0
    for tile, change in spy.seen:
        if change is not None:
            before, after = (merit(tile, moved) for moved in (np.zeros_like(change), change))
            assert after < before
            assert np.abs(change.sum(axis=0)).max() < 1e-9


def merit(tile, change):
    """The objective with the barrier, written out site by site; the weights are those of the tile's start."""
    (b0, _, _), (b, gx, gy) = (at_sites(tile, moved) for moved in (np.zeros_like(change), change))
    inside = (tile.epsilon * b) ** 2 - gx**2 - gy**2
    assert inside.min() > 0
    return np.vdot(tile.cost, change) - tile.barrier * 0.5 * (np.sqrt(b0) * np.log(inside)).sum()


def at_sites(tile, change):
    table = tile.around.copy()
    table[(slice(None), *tile.inside)] += change
    (vx, vy), (sx, sy) = tile.values, tile.slopes
    return [np.einsum("si,kij,tj->kst", left, table, right) for left, right in ((vx, vy), (sx, vy), (vx, sy))]


def test_no_two_tiles_of_a_colour_share_a_cone():
    for n_axes, degree in itertools.product([1, 2, 3], [1, 2, 3]):
        _, _, program, _ = small(n_axes, degree=degree, cells={1: 300, 2: 40, 3: 13}[n_axes])
        for side, shift in ((n, s) for n in {tiles._SIDE[n_axes], tiles._WIDEST[n_axes]} for s in shifts(n, n_axes)):
            owner = np.zeros(program.cost.shape[:-1], dtype=int)
            touched = {}
            for place in tiles._tiling(program, side, shift):
                owner[place.parts] += 1
                sites = touched.setdefault(place.colour, np.zeros(program.site_shape, dtype=int))
                views = [axis.view(part) for axis, part in zip(program.axes, place.parts, strict=True)]
                sites[tuple(view.sites for view in views)] += 1
            assert (owner == 1).all()
            assert max(count.max() for count in touched.values()) == 1


def shifts(side, n_axes):
    return itertools.product((0, side // 2), repeat=n_axes)


def test_tiles_are_wider_where_outputs_reach_beyond_them():
    side = 4.0
    for epsilon, cells, expected in [(2.0, 12, 18), (8.0, 12, 12), (2.0, 40, 12)]:
        _, _, program, uniform = small(2, degree=2, cells=cells, epsilon=epsilon)
        assert tiles._tile_side(program, uniform) == expected
        wide = 18 * epsilon * side / (cells + 2)
        assert (wide >= tiles._SPAN) == (expected == 18 or epsilon == 8.0)
        # Outputs that are likely at few places are local, whatever ε is.
        local = np.where(np.arange(4) == 0, 1.0, 0.0) * np.ones_like(uniform)
        assert tiles._tile_side(program, local) == 12
    many = type(program)(np.zeros((14, 14, 200)), program.axes, program.epsilon)
    assert tiles._tile_side(many, np.full(many.cost.shape, 1 / 200)) == 12  # its matrices would be too large
    for n_axes in (1, 3):
        _, _, program, uniform = small(n_axes)
        assert tiles._tile_side(program, uniform) == tiles._SIDE[n_axes]


def test_the_same_table_wherever_tiles_are_solved():
    _, _, program, uniform = small(2, degree=2, cells=20)
    here = solve_tensor(program, uniform).table
    with ThreadPoolExecutor(3) as pool:
        assert np.array_equal(here, solve_tensor(program, uniform, executor=pool).table)
    assert np.array_equal(here, solve_tensor(program, uniform, executor=Spy()).table)


def test_a_tile_that_fails_leaves_the_rest_in_order():
    _, spline, program, uniform = small(2, cells=20)
    found = solve_tensor(program, uniform, executor=Spy(broken={0, 3, 4})).table
    assert steepest(spline, found, 2.0, 2.0) <= 1 + 1e-9
    assert program.objective(found) < program.objective(uniform)


def test_a_limit_ends_the_descent_with_what_there_is():
    _, spline, program, uniform = small(2, degree=3, cells=60, n_outputs=8)
    early = solve_tensor(program, uniform, time_limit=1.0)  # the first gain takes 0.05 s, and all of them more than 8 s
    assert early.status is Status.TIME_LIMIT
    assert early.seconds < 6  # by far less on a machine that is not busy
    assert steepest(spline, early.table, 2.0, 2.0) <= 1 + 1e-9
    assert program.objective(early.table) < program.objective(uniform)
    late = solve_tensor(program, uniform, time_limit=1e-9)
    assert np.array_equal(late.table, uniform)


def test_a_start_outside_the_cones_is_refused():
    _, _, program, uniform = small(2)
    bad = uniform.copy()
    bad[4, 4] = [1.0, 0.0, 0.0, 0.0]
    with pytest.raises(mdp.InvalidInputError, match="`start` must be strictly inside all cones"):
        solve_tensor(program, bad)


def test_costs_may_be_shifted_and_scaled():
    _, _, program, uniform = small(2, cells=6)
    shifted = type(program)(1000.0 * (program.cost - 7.0), program.axes, program.epsilon)
    assert np.allclose(solve_tensor(shifted, uniform).table, solve_tensor(program, uniform).table, atol=1e-6)


def test_a_program_of_no_cost_stays_where_it_is():
    _, _, program, uniform = small(1)
    free = type(program)(np.zeros_like(program.cost), program.axes, program.epsilon, program.faces)
    assert np.array_equal(solve_tensor(free, uniform).table, uniform)


def test_rounding_that_allows_no_step_leaves_a_tile_as_it_is():
    _, _, program, uniform = small(2, cells=4)
    spy = Spy()
    solve_tensor(program, uniform, executor=spy)
    tile = spy.seen[0][0]
    assert improved_tile(type(tile)(**{**vars(tile), "before": 0.0})) == (None, 0)


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_the_background_is_feasible_and_about_as_good_as_laplace_with_remap(n_axes, p, degree):
    problem, spline, program, _ = small(n_axes, p, degree, cells={1: 60, 2: 20, 3: 4}[n_axes])
    found = background(problem, spline, program, 2.0, Clock(None))
    assert np.allclose(found.sum(axis=-1), 1.0, atol=1e-12)
    assert steepest(spline, found, 2.0, p) < 1
    assert program.objective(found) < 0.75 * problem.uniform_loss + 0.25 * problem.floor
    if n_axes < 3 and degree > 1:  # three axes have few cells here, and degree 1 is flat: their rates are much smaller
        peer = mdp.fit(problem, 2.0, "laplace-remap").expected_loss(problem)
        assert program.objective(found) < peer + 0.15 * (peer - problem.floor)


def test_a_background_that_finds_no_time_is_none():
    problem, spline, program, _ = small(2)
    assert background(problem, spline, program, 2.0, Clock(1e-9)) is None


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_slacks_of_one_output_near_some_coefficients(n_axes, p, degree):
    _, _, program, _ = small(n_axes, p, degree)
    table = np.random.default_rng(0).uniform(0.1, 1.0, size=program.cost.shape)
    ((everywhere),) = program.slacks(table)
    near = [slice(1, axis.n_coefficients - 1) for axis in program.axes]
    sites, slack = program.slack_near(table[..., 2], near)
    assert np.allclose(slack, everywhere[(slice(None), *sites)][..., 2])
    for axis, part, used in zip(program.axes, sites, near, strict=True):
        expected = np.flatnonzero((axis.end > used.start) & (axis.first < used.stop))
        assert np.array_equal(np.arange(part.start, part.stop), expected)
    sites, slack = program.slack_near(table[..., 2], [slice(3, 3), *near[1:]])
    assert slack.size == 0


@pytest.mark.parametrize(("n_axes", "p", "degree"), CASES)
def test_slopes_of_a_background_are_looked_at_where_outputs_are_likely(n_axes, p, degree):
    """Against all sites: the same worst slopes wherever an output is likelier than the trace of uniform."""
    _, _, program, _ = small(n_axes, p, degree)
    shape = program.cost.shape
    centres = np.random.default_rng(1).uniform(0, shape[0], size=(shape[-1], n_axes))
    away = np.abs(np.stack(np.indices(shape[:-1]), axis=-1)[..., None, :] - centres).sum(axis=-1)
    table = np.exp(-3.0 * away) + 1e-6 / shape[-1]
    table[..., 0] = 1e-6 / shape[-1]  # never likely
    worst, along = background_module._steepness(program, table, degree)
    ((slack),) = program.slacks(table)
    assert worst == pytest.approx((program.size(slack[1:]) / slack[0]).max(), rel=1e-9)
    for axis, found in enumerate(along):
        others = tuple(other for other in range(n_axes + 1) if other != axis)
        expected = background_module._per_cell(np.abs(slack[1 + axis] / slack[0]).max(axis=others), degree)
        steep = expected > 0.75 * expected.max()  # what is left out has at most half of the steepest slopes
        assert np.allclose(found[steep], expected[steep])
        assert (found <= expected + 1e-12).all()


def test_levels_of_the_barrier_may_end_early():
    assert tiles._levels(3.0, 0.005) == [0.5, 0.15, 0.05, 0.015, 0.005]
    assert tiles._levels(0.02, 0.0015) == [0.015, 0.005, 0.0015]
    assert tiles._levels(0.02, None)[:4] == [0.015, 0.005, 0.0015, 5e-4]
    assert len(tiles._levels(0.02, None)) == 4 + tiles._MORE_SWEEPS
