"""How fine a design by tiles can be in a given time, from measured rates of each of its parts."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from metricdp.geometry.grid import Grid
from metricdp.mechanisms.options import free_memory_gb
from metricdp.mechanisms.spline.fit import tiles_memory_estimate_gb
from metricdp.problem import Problem

__all__ = ["TilePlan"]

# Orders of norms whose cones have few faces; others stand for polytopes of 32 faces, which make tiles slow.
_ORDERS = (1.0, 2.0, math.inf)

# Processor seconds of all sweeps for each variable: Rome took 4e-4 to 6e-4 on a quiet machine, up to 8e-4 on a busy
# one.
_PER_VARIABLE = 5.5e-4

# Seconds for each control site and output: rounding to integers, the loss and the proof.
_PER_WEIGHT = 6e-7

# Seconds of the background for each output and square of its labels.
_PER_SQUARE = 2e-7

# Seconds of a whole program with 20 outputs on 24 x 24 cells to the coarse gap, and its growth with the cells.
_WHOLE_SECONDS, _WHOLE_EXPONENT = 3.0, 3.6

# An output is free in a tile up to about this far beyond where it is nearest, over 1/ε.
_REACH = 8.5

# Outputs are local where a tile of 12 coefficients is at least this wide, over 1/ε. Elsewhere tiles alone converge
# slowly, and start from a coarser solution of the whole program, unless there are more outputs than this. On Rome, 20
# outputs, ε = 0.8, a minute gives 3.016 on 110 x 110 cells without the coarser solution, 3.018 on 78 x 78 with it.
_LOCAL, _TILE_CELLS, _MOST_WHOLE_OUTPUTS = 4.0, 12, 60

# Cells finer than this, over 1/ε, gain nothing that can be seen.
_FINEST = 0.12
_MOST_CELLS = 320

# Share of the time left that a design may be expected to take.
_TIME_SHARE = 0.85


@dataclass(frozen=True)
class TilePlan:
    """What the time of a design by tiles depends on.

    n_outputs : K.
    likely : outputs that are free at a place, on average.
    side : ε times the longest side of the box.
    slowdown : how many seconds by the wall clock a processor second takes, on a machine with other work.
    """

    n_outputs: int
    likely: float
    side: float
    slowdown: float = 1.0
    degree: int = 3

    @classmethod
    def of(cls, problem: Problem, epsilon: float, slowdown: float = 1.0) -> TilePlan | None:
        """Look at a problem; None where designs by tiles were not measured."""
        if problem.n_axes != 2 or problem.p not in _ORDERS:
            return None
        grid = Grid.graded(problem.bounds, 24, problem.records, problem.prior)
        tree = KDTree(problem.outputs)
        nearest, _ = tree.query(grid.cell_centres, p=problem.p)
        around = nearest + _REACH / epsilon
        likely = tree.query_ball_point(grid.cell_centres, around, p=problem.p, return_length=True)
        longest = float((problem.bounds[1] - problem.bounds[0]).max())
        return cls(problem.n_outputs, float(np.mean(likely)), epsilon * longest, slowdown)

    def is_local(self, cells: int) -> bool:
        """Return whether tiles can do without a coarser solution."""
        return self.n_outputs > _MOST_WHOLE_OUTPUTS or _TILE_CELLS * self.side / cells >= _LOCAL

    def finishing_seconds(self, cells: int) -> float:
        """Return the time from coefficients to a proved mechanism."""
        return self.slowdown * _PER_WEIGHT * (self.degree * cells + 1) ** 2 * self.n_outputs

    def seconds(self, cells: int) -> float:
        """Return the time of a whole design."""
        workers = os.cpu_count() or 1
        tiles = _PER_VARIABLE * (cells + self.degree) ** 2 * self.likely / workers
        if self.is_local(cells):
            start = _PER_SQUARE * self.n_outputs * min(1024.0, self.side / 0.35 + 30) ** 2
        else:
            start = _WHOLE_SECONDS * (cells / 48) ** _WHOLE_EXPONENT * self.n_outputs / 20
        return self.slowdown * (tiles + start) + self.finishing_seconds(cells)

    def affordable_cells(self, seconds: float) -> int:
        """Return the most cells per axis, an even number, whose design takes so many seconds at most."""
        most = int(min(_MOST_CELLS, max(self.side / _FINEST, 48.0)))
        memory = 0.5 * free_memory_gb()
        fits = (
            cells
            for cells in range(2, most + 1, 2)
            if self.seconds(cells) <= _TIME_SHARE * seconds
            and tiles_memory_estimate_gb((cells, cells), self.degree, self.n_outputs) <= memory
        )
        return max(fits, default=0)
