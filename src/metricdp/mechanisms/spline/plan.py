"""How fine a design by tiles can be in a given time, from measured rates of each of its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.grid import Grid
from metricdp.mechanisms.options import free_memory_gb
from metricdp.mechanisms.spline.fit import has_coarser, tiles_memory_estimate_gb
from metricdp.problem import Problem

__all__ = ["TilePlan"]

# Orders of norms whose cones have few faces; others stand for polytopes of 32 faces, which make tiles slow.
_ORDERS = (1.0, 2.0, math.inf)

# Processor seconds of a sweep for each variable, and for each coefficient and output, likely or not: Rome took 3e-5 to
# 5.5e-5 for a variable with up to 100 outputs, and twice that with 1,000. Threads wait for each other at times, as if
# there were this much less of them.
_PER_VARIABLE, _PER_COEFFICIENT, _LOST_WORKERS = 4.5e-5, 3e-7, 0.25

# Coefficients along a side of a tile; a quarter of all tiles have the same colour.
_TILE = 12

# Sweeps from a background to the end; from a background on a grid that finer ones follow; on such a finer one that is
# not the last; and on the last.
_ALL_SWEEPS, _FIRST_SWEEPS, _NEXT_SWEEPS, _LAST_SWEEPS = 8, 6, 3, 5

# Seconds for each control site and output, and for each that is likely: rounding to integers, the loss and the proof.
# Rome, 20 to 1,000 outputs, 128 x 128 to 200 x 200 cells: 1.3 to 7.8 s, within a tenth of this but for one of five.
_PER_WEIGHT, _PER_LIKELY_WEIGHT = 4e-8, 8e-7

# Seconds of the background for each output and square of its labels, and for each output and coefficient, the check of
# the start included: Rome, 400 and 1,000 outputs, took 3 to 31 s before that check, on 40 x 40 to 240 x 240 cells.
_PER_SQUARE, _PER_START = 1.3e-8, 7e-7

# Seconds of a whole program with 20 outputs on 24 x 24 cells to the coarse gap, and its growth with the cells.
_WHOLE_SECONDS, _WHOLE_EXPONENT = 2.2, 3.6

# An output is free in a tile up to about this far beyond where it is nearest, over 1/ε.
_REACH = 8.5

# Outputs are local where at most this share of them is likely at a place. Elsewhere tiles alone converge slowly, and
# start from a coarser solution of the whole program, unless there are more outputs than this. On Rome, 20 outputs, a
# minute gives 3.012 both ways at ε = 0.8, where the share is 0.55.
_LOCAL, _MOST_WHOLE_OUTPUTS = 0.6, 60

# Cells finer than the finest, over 1/ε, gain nothing that can be seen. Designs on cells coarser than the coarsest lose
# to Laplace noise with remap, and often find no start: Rome, ε = 8, 20 outputs: 2.5465 against 2.5449 on 188 x 188
# cells.
_FINEST, _COARSEST = 0.12, 2.0
_MOST_CELLS = 320

# Bytes of a file for each control site and likely output (Rome: 10 to 15). Phones and pages load files, so designs end
# at so many MB, or at so many for each output if that is more: finer cells would change the last digits of the loss.
_BYTES_PER_LIKELY_WEIGHT, _LARGEST_FILE_MB, _LARGEST_FILE_MB_PER_OUTPUT = 12.5, 36.0, 0.36

# Share of the time left that a design may be expected to take.
_TIME_SHARE = 0.85


@dataclass(frozen=True)
class TilePlan:
    """What the time of a design by tiles depends on.

    n_outputs : K.
    likely : outputs that are free at a place, on average.
    side : ε times the longest side of the box.
    slowdown : how many seconds by the wall clock a processor second takes, on a machine with other work.
    varied : whether ε varies over the box. Noise with its least ε is then too poor a start.
    workers : tiles that are worked on at once.
    """

    n_outputs: int
    likely: float
    side: float
    slowdown: float = 1.0
    degree: int = 3
    varied: bool = False
    workers: int = 1

    @classmethod
    def of(
        cls, problem: Problem, epsilon: float | EpsilonMap, slowdown: float = 1.0, workers: int = 1
    ) -> TilePlan | None:
        """Look at a problem; None where designs by tiles were not measured."""
        if problem.n_axes != 2 or problem.p not in _ORDERS:
            return None
        grid = Grid.graded(problem.bounds, 24, problem.records, problem.prior)
        tree = KDTree(problem.outputs)
        nearest, _ = tree.query(grid.cell_centres, p=problem.p)
        local = epsilon if isinstance(epsilon, EpsilonMap) else EpsilonMap.constant(problem.bounds, epsilon)
        around = nearest + _REACH / local.at(grid.cell_centres)
        likely = tree.query_ball_point(grid.cell_centres, around, p=problem.p, return_length=True)
        longest = float((problem.bounds[1] - problem.bounds[0]).max())
        return cls(
            n_outputs=problem.n_outputs,
            likely=float(np.mean(likely)),
            side=local.max * longest,
            slowdown=slowdown,
            varied=not local.is_constant,
            workers=workers,
        )

    @property
    def is_local(self) -> bool:
        """Whether tiles can do without a coarser solution."""
        if self.varied:
            return False
        return self.n_outputs > _MOST_WHOLE_OUTPUTS or self.likely <= _LOCAL * self.n_outputs

    def finishing_seconds(self, cells: int) -> float:
        """Return the time from coefficients to a proved mechanism."""
        weights = _PER_WEIGHT * self.n_outputs + _PER_LIKELY_WEIGHT * self.likely
        return self.slowdown * weights * (self.degree * cells + 1) ** 2

    def seconds(self, cells: int) -> float:
        """Return the time of a whole design."""
        return self.slowdown * (self._start_seconds(cells) + self._tiles_seconds(cells)) + self.finishing_seconds(cells)

    def _start_seconds(self, cells: int) -> float:
        """Return the time of what tiles start from: a background, or a whole program on half the cells."""
        if not self.is_local:
            return _WHOLE_SECONDS * (cells / 48) ** _WHOLE_EXPONENT * self.n_outputs / 20
        squares = min(1024.0, self.side / 0.35 + 30) ** 2
        coefficients = (self._nested(cells)[0] + self.degree) ** 2
        return (_PER_SQUARE * squares + _PER_START * coefficients) * self.n_outputs

    def _tiles_seconds(self, cells: int) -> float:
        grids = self._nested(cells)
        if not self.is_local:
            sweeps = [_LAST_SWEEPS]
        elif len(grids) == 1:
            sweeps = [_ALL_SWEEPS]
        else:
            sweeps = [_FIRST_SWEEPS, *[_NEXT_SWEEPS] * (len(grids) - 2), _LAST_SWEEPS]
        work = sum(
            count * (one + self.degree) ** 2 / self._workers_on(one) for count, one in zip(sweeps, grids, strict=True)
        )
        return (_PER_VARIABLE * self.likely + _PER_COEFFICIENT * self.n_outputs) * work

    def _workers_on(self, cells: int) -> float:
        """Return how many workers have something to do: tiles of one colour are worked on at once."""
        tiles = ((cells + self.degree) / _TILE) ** 2 / 4
        return max(1.0, min(self.workers, tiles) - _LOST_WORKERS)

    def _nested(self, cells: int) -> list[int]:
        """Return the cells per axis of the grids of a design by tiles, the coarsest first."""
        grids = [cells]
        while self.is_local and has_coarser((grids[0],) * 2, self.side):
            grids.insert(0, grids[0] // 2)
        return grids

    def file_mb(self, cells: int) -> float:
        """Return about how large the file will be, in MB."""
        return _BYTES_PER_LIKELY_WEIGHT * self.likely * (self.degree * cells + 1) ** 2 / 1e6

    def affordable_cells(self, seconds: float) -> int:
        """Return the most cells per axis, a number with coarser grids, whose design takes so many seconds at most."""
        fits = (cells for cells in self._worthwhile_cells() if self.seconds(cells) <= _TIME_SHARE * seconds)
        return max(fits, default=0)

    def seconds_for(self, width: float) -> float:
        """Return the time in which cells no wider than this over 1/ε can be afforded; infinite if they cannot."""
        narrow = (cells for cells in self._worthwhile_cells() if self.width(cells) <= width)
        return min((self.seconds(cells) / _TIME_SHARE for cells in narrow), default=math.inf)

    def width(self, cells: int) -> float:
        """Return how wide so many cells per axis are on average, over 1/ε."""
        return self.side / cells if cells else math.inf

    def _worthwhile_cells(self) -> Iterator[int]:
        """Yield numbers of cells per axis that are neither too wide nor too fine, and fit memory and files."""
        most = int(min(_MOST_CELLS, max(self.side / _FINEST, 48.0)))
        memory = 0.5 * free_memory_gb()
        largest = max(_LARGEST_FILE_MB, _LARGEST_FILE_MB_PER_OUTPUT * self.n_outputs)
        for cells in (*range(2, 48, 2), *range(48, most + 1, 8)):
            fine = self.width(cells) <= _COARSEST
            small = tiles_memory_estimate_gb((cells, cells), self.degree, self.n_outputs) <= memory
            if fine and small and self.file_mb(cells) <= largest:
                yield cells
