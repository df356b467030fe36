"""A descent for large tables of tensor-product splines (`TensorProgram`): tile by tile, under a decreasing barrier.

Outputs are local: at one place only a few matter. So the table is improved on small tiles of coefficients, for the
outputs that are likely there, with all else held. The current table is feasible for every tile's program, and so
every table on the way is feasible and the descent can stop at any time.

Solving each tile to its optimum would stall at tables whose cones are all tight near the tiles' borders. Instead all
tiles are taken to one level of a barrier, as an interior-point method would, before the level is lowered; and the
tiles are shifted between levels. Tiles of one colour have no cone in common: they are independent tasks, and the table
does not depend on the order in which they finish or on where they run.
"""

from __future__ import annotations

import itertools
import math
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from threadpoolctl import threadpool_limits

from metricdp._clock import Clock
from metricdp._validation import FloatArray, reject
from metricdp.optimise.engines._tile import Tile, improved_tile
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import TensorProgram

__all__ = ["ENGINE", "SCHEDULE"]

# Tells this process, with its number, from those on other machines.
_PROCESS = uuid.uuid4().hex

# Levels of the barrier: the duality gap that a level stands for, as a share of how far the objective lies above the
# sum of the rows' least costs. Steps of 3 to 4: with steps of 5 tiles reached the borders of their cones before their
# neighbours had moved, and stalled there (Rome, 20 outputs, ε = 4, 32 x 32 cells: 0.54 % above the optimum, now 0.02).
SCHEDULE = (0.5, 0.15, 0.05, 0.015, 0.005, 0.0015, 5e-4)

# Sweeps that follow at the last level while they are worthwhile: where outputs reach beyond a tile, what one sweep
# changes at the borders of tiles lets the next one gain.
_MORE_SWEEPS = 6

# From this level on a tile is accepted only if the objective itself falls.
_MONOTONE_BELOW = 6e-3

# Coefficients of a tile along each axis, by number of axes: about 100 to 200 in all. Where outputs reach far beyond a
# tile, more than this share of them being likely at a place, tiles are wider, up to the widest, if they span so many
# 1/ε then and their matrices, outputs x coefficients², have no more entries than this. (Rome, ε = 0.4, 32 x 32 cells,
# above the optimum: with 12 coefficients 0.25 and 0.49 % for 20 and 100 outputs, with 18 of them 0.05 and 0.26 %.)
_SIDE, _WIDEST = {1: 96, 2: 12, 3: 6}, {1: 96, 2: 18, 3: 6}
_FAR_REACHING, _SPAN, _MOST_ENTRIES = 1 / 3, 9.5, 2e7

# Newton steps of a tile at most. Wider tiles have more to settle once the objective must fall: with 8 steps 100 outputs
# ended 0.38 % above the optimum at ε = 0.4, with 12 of them 0.26 %.
_STEPS, _LAST_STEPS_OF_WIDE_TILES = 8, 12

# In a tile only outputs are free whose largest coefficient there is above this.
_LEAST_LIKELY = 1e-4

# Tiles farther from all costs than this many coefficients are left as they are.
_NEAR = 2

# The descent ends once a sweep gains less than this share of the objective's height above the rows' least costs.
_WORTHWHILE = 2e-4


@dataclass(frozen=True)
class _Place:
    """Where a tile lies: its coefficients along each axis, and its colour."""

    parts: tuple[slice, ...]
    colour: int


def solve(
    program: TensorProgram,
    start: FloatArray,
    *,
    gap: float = 3.0,
    until: float | None = None,
    time_limit: float | None = None,
    executor: Executor | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Solution:
    """Lower the objective of `start`, which must lie strictly inside all cones, level by level of the barrier.

    Parameters
    ----------
    program : TensorProgram
        What to solve.
    start : (n_1, …, n_N, outputs) array
        A table inside all cones whose rows sum to 1.
    gap : float
        About how far the start lies above the optimum, as a share of its height above the sum of the rows' least
        costs. Levels of the barrier above it are left out. Too small a gap makes tiles slow, too large a one wastes
        what the start is worth.
    until : float, optional
        The last level of the barrier. By default all levels are taken, and the last again while that gains much.
    time_limit : float, optional
        Seconds; the best table by then is returned.
    executor : Executor, optional
        Where tiles are solved; threads of this process by default.
    progress : callable, optional
        Called after each sweep with the share of the sweeps done and a few words.
    """
    clock = Clock(time_limit)
    if not program.worst_ratio(start) < 1:
        raise reject("start", "strictly inside all cones", "a table that is not")
    with _workers(executor) as pool:
        descent = _Descent(program, start, pool, clock, remote=executor is not None)
        sweeps = descent.run(_levels(gap, until), gap, progress)
    status = Status.TIME_LIMIT if clock.over else Status.IMPROVED
    return Solution(descent.best, None, status, "tiles", clock.spent, sweeps)


@contextmanager
def _workers(executor: Executor | None) -> Iterator[Executor]:
    """Yield where tiles are solved, with one BLAS thread per worker: tiles are many and their matrices small.

    The limit holds here even if tiles go elsewhere, because an executor's workers may be threads of this process.
    """
    with threadpool_limits(1):
        if executor is not None:
            yield executor
            return
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield pool


def _levels(gap: float, until: float | None) -> list[float]:
    """Return the barrier's level in each sweep."""
    if until is not None:
        return [level for level in SCHEDULE if until <= level < gap]
    return [level for level in SCHEDULE if level < gap] + [SCHEDULE[-1]] * _MORE_SWEEPS


def _tile_side(program: TensorProgram, table: FloatArray) -> int:
    """Return how many coefficients a tile has along each axis."""
    n_axes, n_outputs = len(program.axes), table.shape[-1]
    apart = min(float(np.median(program.epsilon)) * axis.length / axis.n_coefficients for axis in program.axes)
    usual, wide = _SIDE[n_axes], 2 * math.ceil(_SPAN / apart / 2)
    far_reaching = np.mean(table > _LEAST_LIKELY) > _FAR_REACHING
    fits = usual < wide <= _WIDEST[n_axes] and n_outputs * wide ** (2 * n_axes) <= _MOST_ENTRIES
    return wide if far_reaching and fits else usual


class _Descent:
    def __init__(
        self, program: TensorProgram, start: FloatArray, pool: Executor, clock: Clock, *, remote: bool
    ) -> None:
        self.program, self.pool, self.clock = program, pool, clock
        self.solve = partial(_remotely_improved, (_PROCESS, os.getpid())) if remote else improved_tile
        self.deadline = None if remote or clock.limit is None else clock.started + clock.limit
        self.table = start.copy()
        self.best, self.least = start, program.objective(start)
        self.ground = float(program.cost.min(axis=-1).sum())
        near = np.ones([2 * _NEAR + 1] * len(program.axes), dtype=bool)
        self.live = ndimage.binary_dilation(np.abs(program.cost).max(axis=-1) > 0, near)
        # The number of cones, each with the weight that tiles give it: the square root of its control value.
        weights = float(np.sqrt(np.maximum(start, 0.0)).sum(axis=-1).mean())
        faces = 1 if program.faces is None else len(program.faces)
        self.n_cones = float(np.prod(program.site_shape)) * faces * weights
        self.side = _tile_side(program, start)

    def run(self, levels: list[float], gap: float, progress: Callable[[float, str], None] | None) -> int:
        """Sweep over the levels; return how many sweeps were made."""
        height = self.least - self.ground
        if not height > 0:
            return 0
        before = gap * height / self.n_cones
        for number, level in enumerate(levels):
            barrier = level * height / self.n_cones
            sooner = self.program.objective(self.table)
            self.sweep(self._shift(number), before, barrier, monotone=level < _MONOTONE_BELOW)
            before = barrier
            value = self.program.objective(self.table)
            if value < self.least:
                self.best, self.least = self.table.copy(), value
            if progress is not None:
                progress((number + 1) / len(levels), f"sweep {number + 1}: loss {value:.4f}")
            if self.clock.over or (level < _MONOTONE_BELOW and sooner - value < _WORTHWHILE * height):
                return number + 1
        return len(levels)

    def _shift(self, number: int) -> tuple[int, ...]:
        """Return by how much the tiles of a sweep are shifted along each axis: borders move to the middles of tiles."""
        half = self.side // 2
        n_axes = len(self.program.axes)
        # All axes, then each pattern of some of them, so that consecutive sweeps share few borders.
        patterns = [(0,) * n_axes, (half,) * n_axes, *itertools.product((0, half), repeat=n_axes)]
        distinct = list(dict.fromkeys(patterns))
        return distinct[number % len(distinct)]

    def sweep(self, shift: tuple[int, ...], before: float, barrier: float, *, monotone: bool) -> None:
        """Take every tile to one level of the barrier, colour by colour."""
        places = [place for place in _tiling(self.program, self.side, shift) if self.live[place.parts].any()]
        for colour in range(2 ** len(shift)):
            if self.clock.over:
                return
            jobs = []
            for place in places:
                if place.colour == colour:
                    outputs = self._free_outputs(place)
                    if len(outputs) > 1:
                        tile = self._tile(place, outputs, before, barrier, monotone=monotone)
                        jobs.append((place, outputs, self.pool.submit(self.solve, tile)))
            for place, outputs, future in jobs:
                change = self._awaited(future)
                if change is not None:
                    block = self.table[place.parts]
                    block[..., outputs] += np.moveaxis(change, 0, -1)

    def _awaited(self, future: Future[tuple[FloatArray | None, int]]) -> FloatArray | None:
        """Return a tile's change; None if it gained nothing, or if time runs out before it is known.

        Tiles here look at the clock themselves, and end soon after it is over.
        """
        if self.clock.over and future.cancel():
            return None
        try:
            return future.result(timeout=None if self.deadline is not None else self.clock.left)[0]
        except TimeoutError:
            future.cancel()
            return None

    def _free_outputs(self, place: _Place) -> NDArray[np.intp]:
        block = self.table[place.parts]
        return np.flatnonzero(block.reshape(-1, block.shape[-1]).max(axis=0) > _LEAST_LIKELY)

    def _tile(self, place: _Place, outputs: NDArray[np.intp], before: float, barrier: float, *, monotone: bool) -> Tile:
        program = self.program
        views = [axis.view(part) for axis, part in zip(program.axes, place.parts, strict=True)]
        around = self.table[tuple(view.used for view in views)][..., outputs]
        sites = np.broadcast_to(program.epsilon, program.site_shape)
        return Tile(
            cost=_outputs_first(program.cost[place.parts][..., outputs]),
            around=_outputs_first(around),
            inside=tuple(view.inside for view in views),
            values=tuple(view.values for view in views),
            slopes=tuple(view.slopes for view in views),
            epsilon=np.ascontiguousarray(sites[tuple(view.sites for view in views)]),
            faces=program.faces,
            reach=max(axis.reach for axis in program.axes),
            before=before,
            barrier=barrier,
            steps=_LAST_STEPS_OF_WIDE_TILES if monotone and self.side > _SIDE[len(program.axes)] else _STEPS,
            monotone=monotone,
            deadline=self.deadline,
        )


def _outputs_first(table: FloatArray) -> FloatArray:
    return np.ascontiguousarray(np.moveaxis(table, -1, 0))


def _tiling(program: TensorProgram, side: int, shift: tuple[int, ...]) -> Iterator[_Place]:
    """Yield tiles that cover all coefficients; two tiles of a colour have no cone in common.

    Neighbours differ in colour along each axis, and no tile is narrower than half a side, which is at least the
    degree: a cone reaches over degree + 1 coefficients, so it cannot skip a tile.
    """
    axes = [_cuts(axis.n_coefficients, side, offset) for axis, offset in zip(program.axes, shift, strict=True)]
    for numbers in itertools.product(*(range(len(cuts) - 1) for cuts in axes)):
        parts = tuple(slice(cuts[number], cuts[number + 1]) for cuts, number in zip(axes, numbers, strict=True))
        yield _Place(parts, sum((number % 2) << axis for axis, number in enumerate(numbers)))


def _cuts(count: int, side: int, shift: int) -> list[int]:
    """Return where an axis of `count` coefficients is cut: every `side` of them, slivers joined to a neighbour."""
    if count < side + side // 2:
        return [0, count]
    inner = [cut for cut in range(shift or side, count, side) if count - cut >= side // 2]
    return [0, *inner, count]


def _remotely_improved(home: tuple[str, int], tile: Tile) -> tuple[FloatArray | None, int]:
    """Solve a tile where an executor works, with one BLAS thread as here, so that results agree.

    Threads of the process at `home` have that limit already. They must not set it themselves: one that is still at work
    when it is lifted would bring it back for good.
    """
    if home == (_PROCESS, os.getpid()):
        return improved_tile(tile)
    with threadpool_limits(1):
        return improved_tile(tile)


ENGINE = Engine(name="tiles", tensor=solve)
