"""What `auto` makes of tiles: where it uses them, how fine it designs, and that nothing gets worse by it."""

import math
import os
import threading
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import metricdp as mdp
from metricdp._clock import Clock
from metricdp.geometry.grid import Grid
from metricdp.mechanisms import auto
from metricdp.mechanisms.spline import fit
from metricdp.mechanisms.spline.plan import TilePlan
from metricdp.optimise.engines import tiles
from metricdp.optimise.engines._tile import improved_tile
from problems import random_problem


def test_more_time_buys_more_cells_and_more_outputs_cost_some():
    plan = TilePlan.of(random_problem(0, n_outputs=30, side=40.0), 1.0)
    cells = [plan.affordable_cells(seconds) for seconds in (0.01, 5, 20, 80)]
    assert cells[0] == 0
    assert cells == sorted(set(cells))
    assert all(plan.seconds(count) <= seconds for count, seconds in zip(cells[1:], (5, 20, 80), strict=True))
    many = TilePlan.of(random_problem(0, n_outputs=300, side=40.0), 1.0)
    assert many.affordable_cells(20) < plan.affordable_cells(20)


def test_cells_that_are_wide_against_the_noise_are_not_worth_a_design():
    plan = TilePlan.of(random_problem(0, n_outputs=30, side=40.0), 10.0)
    finest = plan.affordable_cells(100.0)
    assert finest >= 200  # 40 km times 10 per km, over 2
    assert plan.seconds(150) < 0.5 * plan.seconds(finest)
    assert plan.affordable_cells(plan.seconds(150) / 0.85) == 0


def test_a_busy_machine_gets_fewer_cells():
    problem = random_problem(0, n_outputs=30, side=40.0)
    quiet, busy = (TilePlan.of(problem, 1.0, slowdown) for slowdown in (1.0, 4.0))
    assert busy.seconds(50) == pytest.approx(4 * quiet.seconds(50))
    assert 0 < busy.affordable_cells(20) < quiet.affordable_cells(20)
    assert auto._slowdown(8.0, 2.0) == 4.0
    assert auto._slowdown(8.0, 12.0) == 1.0  # several threads on a quiet machine
    assert auto._slowdown(0.1, 0.001) == 1.0  # too short to tell
    assert auto._slowdown(8.0, 0.0) == 10.0


def test_the_likely_outputs_of_a_place_are_counted():
    problem = random_problem(0, n_outputs=40, side=40.0)
    plan = TilePlan.of(problem, 1.0)
    places = Grid.graded(problem.bounds, 24, problem.records, problem.prior).cell_centres
    away = np.linalg.norm(places[:, None] - problem.outputs, axis=2)
    assert plan.likely == pytest.approx((away <= away.min(axis=1, keepdims=True) + 8.5).sum(axis=1).mean())


@pytest.mark.parametrize(("n_axes", "p"), [(1, 2.0), (3, 2.0), (2, 1.5)])
def test_no_plan_where_tiles_were_not_measured(n_axes, p):
    assert TilePlan.of(random_problem(0, n_axes=n_axes, p=p), 1.0) is None


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize(("side", "local"), [(60.0, True), (3.0, False)])
def test_auto_designs_by_tiles(side, local, p, monkeypatch):
    problem = random_problem(0, n_records=200, n_outputs=6, side=side, p=p)
    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: 24)
    assert TilePlan.of(problem, 1.0).is_local is local
    mechanism = mdp.fit(problem, 1.0, time_limit=60)
    splines = [one for one in mechanism.report["tried"] if one["method"] == "spline"]
    assert splines == [{"method": "spline", "solver": "tiles", "cells": [24, 24], "loss": splines[0]["loss"]}]
    assert mechanism.report["loss"] == min(one["loss"] for one in mechanism.report["tried"])
    assert mechanism.report["certificate"]["holds"]


def test_more_workers_buy_more_cells():
    problem = random_problem(0, n_outputs=30, side=40.0)
    two, eight = (TilePlan.of(problem, 1.0, workers=count) for count in (2, 8))
    assert two.affordable_cells(20) < eight.affordable_cells(20)
    # 95 is odd, so that there is no coarser grid.
    assert two.seconds(95) - eight.seconds(95) == pytest.approx(two._tiles_seconds(95) * (1 - 1.75 / 7.75))


@pytest.mark.parametrize("side", [60.0, 3.0])
def test_auto_solves_its_tiles_where_it_is_told(side, monkeypatch):
    """With the same cells, the spline's loss is the same to the last digit."""
    problem = random_problem(0, n_records=200, n_outputs=6, side=side)
    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: 24)
    here = mdp.fit(problem, 1.0, time_limit=60)
    threads = []
    with ThreadPoolExecutor(2, initializer=lambda: threads.append(threading.get_ident())) as pool:
        there = mdp.fit(problem, 1.0, time_limit=60, executor=pool)
        assert threads  # they start when something is handed in
        assert pool.submit(int).result() == 0  # the pool is the caller's, and still open
    assert there.report["tried"] == here.report["tried"]
    assert "tiles" in {one.get("solver") for one in there.report["tried"]}


@pytest.mark.parametrize("executor", ["tcp://a:1", "dask://", 3])
def test_auto_refuses_what_is_no_executor(executor):
    with pytest.raises(mdp.InvalidInputError, match=r"`executor` must be None, a concurrent.futures.Executor or dask:"):
        mdp.fit(random_problem(0), 1.0, executor=executor)


def test_a_limit_that_is_too_short_for_a_spline_names_a_longer_one():
    problem = random_problem(0, n_records=300, n_outputs=60, side=60.0)
    mechanism = mdp.fit(problem, 4.0, time_limit=2)
    assert mechanism.method != "spline"
    longer = mechanism.report["longer_time_limit"]
    assert longer % 10 == 0
    plan = TilePlan.of(problem, 4.0, workers=os.cpu_count())
    assert plan.width(plan.affordable_cells(longer)) <= auto._COMPETITIVE
    assert "longer_time_limit" not in mdp.fit(random_problem(0), 1.0, time_limit=5).report


def test_the_longer_limit_is_at_least_twice_the_one_that_was_too_short():
    plan = TilePlan.of(random_problem(0, n_outputs=30, side=40.0), 1.0)
    needed = plan.seconds_for(auto._COMPETITIVE)
    assert plan.seconds_for(0.5) > needed
    assert auto._longer_limit(plan, 5.0, 1.0, []) == 10 * math.ceil((5 + needed) / 10)
    assert auto._longer_limit(plan, 5.0, 4000.0, [{"cells": [14, 20]}]) == 8000
    # One that is fine enough has lost: finer ones gain next to nothing.
    assert auto._longer_limit(plan, 5.0, 1.0, [{"cells": [24, 40]}]) is None
    assert auto._longer_limit(None, 5.0, 1.0, []) is None
    # In a box this long no spline is fine enough, however long it may take.
    assert auto._longer_limit(TilePlan(60, 20.0, side=640.0), 5.0, 1.0, []) is None


def test_more_workers_than_tiles_of_a_colour_are_of_no_use():
    problem = random_problem(0, n_outputs=30, side=40.0)
    two, four, many = (TilePlan.of(problem, 1.0, workers=count).seconds(45) for count in (2, 4, 5000))
    assert two > four
    assert four == many  # 48 coefficients: 4 x 4 tiles, 4 of each colour


class Silent(Executor):
    """Takes tasks and never answers, as a cluster does that has lost its workers."""

    def __init__(self, *, cancellable):
        self.cancellable, self.taken = cancellable, 0

    def submit(self, *_):
        self.taken += 1
        future = Future()
        if not self.cancellable:
            future.set_running_or_notify_cancel()
        return future


@pytest.mark.parametrize("cancellable", [True, False])
def test_the_limit_holds_where_an_executor_never_answers(cancellable, monkeypatch):
    problem = random_problem(0, n_records=200, n_outputs=6, side=60.0)
    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: 24)
    executor = Silent(cancellable=cancellable)
    started = time.monotonic()
    mechanism = mdp.fit(problem, 1.0, time_limit=3, executor=executor)
    assert executor.taken
    assert time.monotonic() - started < 60  # it would wait for ever
    assert mechanism.report["certificate"]["holds"]


def test_blas_has_its_threads_back_after_an_executor_s_tasks_were_left(monkeypatch):
    """A thread that is still at work when the design ends must not bring the limit of one thread back."""
    before = {one["filepath"]: one["num_threads"] for one in threadpool_info()}
    problem = random_problem(0, n_records=200, n_outputs=6, side=60.0)
    at_work, may_end = threading.Event(), threading.Event()

    def slow(tile):
        at_work.set()
        may_end.wait(60)
        return improved_tile(tile)

    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: 24)
    monkeypatch.setattr(tiles, "improved_tile", slow)
    with ThreadPoolExecutor(1) as pool:
        mdp.fit(problem, 1.0, time_limit=2, executor=pool)
        assert at_work.is_set()
        may_end.set()
    assert {one["filepath"]: one["num_threads"] for one in threadpool_info()} == before


def test_a_finer_design_starts_from_a_coarser_one():
    problem = random_problem(0, n_outputs=5, side=3.0)
    grid = Grid.uniform(problem.bounds, 6)
    coarse = fit.design_on(problem, 1.0, grid, fit.SplineOptions(gap=fit.COARSE_GAP, degree=3), Clock(None))
    options = fit.SplineOptions(solver="tiles", degree=3)
    fine = fit.design_by_tiles(problem, 1.0, coarse.spline.grid.halved(), options, Clock(None), coarse)
    assert fine.mechanism.report["start_loss"] == pytest.approx(coarse.mechanism.report["loss"], rel=1e-4)
    best = mdp.fit(problem, 1.0, "spline", breakpoints=fine.spline.grid.breakpoints, degree=3, gap=1e-7)
    height = best.report["loss"] - problem.floor
    assert best.report["loss"] - 1e-6 <= fine.mechanism.report["loss"] <= best.report["loss"] + 0.005 * height


def test_finer_cells_go_where_slopes_press(monkeypatch):
    problem = random_problem(0, n_records=200, n_outputs=6, side=3.0)
    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: 24)
    laid = []
    design = auto.design_by_tiles
    monkeypatch.setattr(auto, "design_by_tiles", lambda *args: laid.append((args[2], args[5])) or design(*args))
    mdp.fit(problem, 1.0, time_limit=60)
    ((fine, coarse),) = laid
    for few, many in zip(coarse.spline.grid.breakpoints, fine.breakpoints, strict=True):
        assert len(many) == 2 * len(few) - 1
        assert set(few) <= set(many)
    pressed, halved = (grid.breakpoints[0] for grid in (fine, coarse.spline.grid.halved()))
    assert not np.array_equal(pressed, halved)


def test_sparse_tables_finish_in_proportion_to_what_is_likely():
    few, many = (TilePlan(n_outputs, 8.0, 200.0) for n_outputs in (100, 1000))
    assert few.finishing_seconds(100) < many.finishing_seconds(100) < 10 * few.finishing_seconds(100)
    assert TilePlan(100, 80.0, 200.0).finishing_seconds(100) > 5 * few.finishing_seconds(100)


def test_dense_rows_count_in_the_memory_of_a_design_and_sparse_ones_do_not():
    dense, sparse = (fit.tiles_memory_estimate_gb((60, 60), 3, n_outputs) for n_outputs in (100, 200))
    assert dense == pytest.approx((16 * 63**2 + 6 * 181**2) * 100 * 8 / 1e9)
    assert sparse == pytest.approx(16 * 63**2 * 200 * 8 / 1e9)


@pytest.mark.parametrize("limit", [0.5, 3.0])
def test_limits_are_kept(limit):
    problem = random_problem(0, n_records=2000, n_outputs=30, side=40.0)
    clock = Clock(None)
    mechanism = mdp.fit(problem, 1.0, time_limit=limit)
    assert clock.spent < 1.2 * limit + 2 + 4  # four seconds for a busy machine
    assert mechanism.report["certificate"]["holds"]


def test_the_last_design_is_not_better_by_accident(monkeypatch):
    """A finer design that comes out worse is not taken."""
    problem = random_problem(0, n_outputs=6, side=60.0)
    cells = iter([48, 48, 60, 60])
    monkeypatch.setattr(TilePlan, "affordable_cells", lambda _, seconds: next(cells, 0))
    losses = {}

    def worse(problem, epsilon, plan, count, *_):
        made = mdp.fit(problem, epsilon, "spline", cells=4 if count == 60 else 8)
        losses[count] = made.report["loss"]
        return made

    monkeypatch.setattr(auto, "_tiled", worse)
    mechanism = mdp.fit(problem, 1.0, time_limit=60)
    assert losses[60] > losses[48]
    assert min(losses[48], mechanism.report["loss"]) == mechanism.report["loss"]


def test_which_designs_start_on_a_coarser_grid():
    assert fit.has_coarser((48, 48), 26.0)
    assert not fit.has_coarser((48, 48), 27.0)  # coarser cells would be wider than 1.1 over ε
    assert not fit.has_coarser((46, 48), 20.0)  # too few
    assert not fit.has_coarser((64, 51), 20.0)  # not all in pairs
    assert TilePlan(20, 5.0, 40.0)._nested(160) == [40, 80, 160]
    assert TilePlan(20, 5.0, 200.0)._nested(160) == [160]
    assert TilePlan(20, 18.0, 40.0)._nested(160) == [160]  # a whole program comes first
    whole = TilePlan(100, 5.0, 40.0)
    assert whole.seconds(160) > whole.seconds(80) > whole.seconds(40)


def test_coarser_grids_find_what_reaches_farther_than_a_tile(monkeypatch):
    problem = random_problem(3, n_records=300, n_outputs=6, side=10.0)
    grid, options = Grid.graded(problem.bounds, 48, problem.records, problem.prior), fit.SplineOptions(solver="tiles")
    seen = []
    improved = fit._improved

    def watched(program, *args, **more):
        seen.append((program.cost.shape[0] - options.degree, more.get("until")))
        return improved(program, *args, **more)

    monkeypatch.setattr(fit, "_improved", watched)
    nested = fit.design_by_tiles(problem, 1.0, grid, options, Clock(None)).mechanism
    assert seen == [(24, fit._COARSE_UNTIL), (48, None)]
    assert mdp.certify(nested).holds
    monkeypatch.setattr(fit, "has_coarser", lambda *_: False)
    alone = fit.design_by_tiles(problem, 1.0, grid, options, Clock(None)).mechanism
    assert nested.report["loss"] < alone.report["loss"]


def test_without_time_for_a_coarser_grid_the_limit_is_kept_and_the_design_certified():
    problem = random_problem(3, n_records=300, n_outputs=6, side=10.0)
    mechanism = mdp.fit(problem, 1.0, "spline", solver="tiles", cells=96, breakpoints="graded", time_limit=0.5)
    assert mechanism.report["certificate"]["holds"]


def test_files_stay_small_however_long_a_design_may_take():
    few, many = TilePlan(100, 12.0, 79.0), TilePlan(400, 12.0, 79.0)
    cells = [plan.affordable_cells(3600.0) for plan in (few, many)]
    assert 36 >= few.file_mb(cells[0]) > 32
    assert 144 >= many.file_mb(cells[1]) > 120
    assert few.affordable_cells(20.0) < cells[0] < cells[1]
