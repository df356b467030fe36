"""Reports of places that use what earlier reports said: exact noise, then the best output given all reports so far."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import KDTree

from metricdp._validation import FloatArray, finite_array, reject
from metricdp.certificates.proving import require_proof
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem
from metricdp.traces.movement import Movement
from metricdp.traces.raster import Raster
from metricdp.traces.tracker import Tracker

__all__ = ["HistoryRemap"]

# Numbers in a table of cells × outputs: 512 MB.
_MOST_NUMBERS = 2**26


class HistoryRemap:
    """A mechanism for the reports of one person: each is drawn with the certified ε, then remapped by history.

    The draw of `mechanism` is not published. In its place goes the output of `problem` that has the least expected loss
    under the belief of a `Tracker`, which knows this draw, earlier draws and the movement model.

    Guarantee
    ---------
    The output is a function of the draws up to now, of their times and of public data. So n of them together are as
    private as n draws of `mechanism`: at most e^{ε (d₁ + … + dₙ)} times likelier from one sequence of points than from
    another. Times must not depend on the points. With an `InsecureSeed` nothing of this is private.

    Parameters
    ----------
    mechanism : Mechanism
        What is drawn, usually `metricdp.noise`.
    movement : Movement
        A public model of movement.
    problem : Problem
        Its outputs may be reported, and its loss says what a report costs. Cells without a record have the losses of
        the record nearest to them.
    certify : bool
        Whether to demand a proof of the mechanism, and to raise `NotCertified` without one.
    """

    def __init__(self, mechanism: Mechanism, movement: Movement, problem: Problem, *, certify: bool = True) -> None:
        if certify:
            require_proof(mechanism, "`mechanism`")
        self.tracker = Tracker(mechanism, movement)
        self.problem = problem
        self._loss = _loss_of_cells(problem, movement.raster)

    @property
    def mechanism(self) -> Mechanism:
        """What is drawn."""
        return self.tracker.mechanism

    def sample(self, x: ArrayLike, unix_s: float, rng: RandomSource | None = None) -> int:
        """Draw a report for one point, in the coordinates of the mechanism, and return the index of an output."""
        drawn = self._drawn(self.mechanism.sample, x, unix_s, rng)
        if not self.mechanism.has_outputs and self.mechanism.projection is not None:
            drawn = self.mechanism.projection.to_lonlat(drawn[None])[0]
        return self.remap(drawn, unix_s)

    def sample_lonlat(self, lonlat: ArrayLike, unix_s: float, rng: RandomSource | None = None) -> int:
        """Draw a report for one point in degrees, longitude first, and return the index of an output."""
        return self.remap(self._drawn(self.mechanism.sample_lonlat, lonlat, unix_s, rng), unix_s)

    def remap(self, report: Any, unix_s: float, *, reused: bool = False) -> int:
        """Return the index of the best output after a report of the mechanism; as `Tracker.update`."""
        self.tracker.update(report, unix_s, reused=reused)
        return int((self.tracker.belief(unix_s) @ self._loss).argmin())

    def _drawn(self, draw: Any, point: ArrayLike, unix_s: float, rng: RandomSource | None) -> Any:
        # Times are refused before anything is drawn: a draw that is not reported would have cost ε for nothing.
        self.tracker.require_later(unix_s)
        where = finite_array("x", point)
        if where.shape != (2,):
            raise reject("x", "one point, of shape (2,)", f"shape {where.shape}")
        return draw(where[None], rng)[0]


def _loss_of_cells(problem: Problem, raster: Raster) -> FloatArray:
    """Return the mean loss of the records in each cell, by their prior, (cells, outputs)."""
    if (problem.projection is None) != (raster.projection is None):
        raise InvalidInputError("The problem and the movement model must both be in degrees, or neither of them.")
    if problem.n_axes != 2:
        raise reject("problem", "one of two axes", f"{problem.n_axes} axes")
    if raster.n_cells * problem.n_outputs > _MOST_NUMBERS:
        size = raster.n_cells * problem.n_outputs
        msg = f"A table of losses would hold {size:,} numbers, more than {_MOST_NUMBERS:,}; use larger cells."
        raise ProblemTooLargeError(msg)
    where = problem.records
    if problem.projection is not None:
        where = raster.to_plane(problem.projection.to_lonlat(where))
    cells = raster.cells_of(where)
    inside = cells >= 0
    if not inside.any():
        raise InvalidInputError("No record of the problem lies in the cells of the movement model.")
    # Records without a prior still have losses; a trifle of weight keeps cells that hold only such records defined.
    weight = problem.prior + 1e-12 / len(problem.prior)
    mass = np.bincount(cells[inside], weight[inside], minlength=raster.n_cells)
    total = np.zeros((raster.n_cells, problem.n_outputs))
    np.add.at(total, cells[inside], weight[inside, None] * problem.loss[inside])
    held = mass > 0
    total[held] /= mass[held, None]
    if not held.all():
        total[~held] = problem.loss[KDTree(where).query(raster.centres[~held])[1]]
    return total
