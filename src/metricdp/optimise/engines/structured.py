"""A primal-dual interior-point method for tables whose outputs share one cone (`SharedProgram`).

Mehrotra's predictor–corrector with Nesterov–Todd scaling. Two things set it apart from a general code. Outputs are
coupled by the row sums only, so a step costs one small banded factorisation per output (see `_normal`). And
uniform rows lie strictly inside every cone, so the iteration starts feasible and stays so: whenever it is stopped,
its table satisfies the cones and its multipliers give a valid bound.

Where only a support may differ from a background, the variables are the differences. With a background the starting
point is infeasible: slacks start deeper in the cones than the table allows. The infeasibility (`open_share` of the
first) is reduced to zero over the iterations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.errors import SolverError
from metricdp.optimise.engines import _cones as cones
from metricdp.optimise.engines._normal import NormalEquations, OutOfTimeError
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import SharedProgram

__all__ = ["ENGINE"]

_MOST_ITERATIONS = 200

# Share of the way to the border of the cones that a step goes.
_TO_THE_BORDER = 0.99

# Relative accuracy of the coupling equations, over the relative gap.
_ROUGHNESS = 1e-3

# How deep slacks start with a background, as a share of the depth of uniform rows; 0.1 to 0.3 took the fewest
# iterations.
_FIRST_DEPTH = 0.2
# After several steps in a row that are shorter than this, the iteration ends.
_SHORT_STEP = 1e-4


@dataclass
class _Iterate:
    """Change of the table, slack, multipliers of cones and row sums, and the share of the first infeasibility left."""

    table: FloatArray
    slack: FloatArray
    dual: FloatArray
    price: FloatArray
    open_share: float


@dataclass(frozen=True)
class _Step:
    """A direction: change of the table, of the prices, and W^{-1} Δslack and W Δdual."""

    table: FloatArray
    price: FloatArray
    scaled_slack: FloatArray
    scaled_dual: FloatArray


def solve(
    program: SharedProgram,
    *,
    gap: float = 1e-7,
    time_limit: float | None = None,
) -> Solution:
    """Solve to a relative duality gap.

    Parameters
    ----------
    program : SharedProgram
        What to solve.
    gap : float
        Relative gap between the table's value and the bound from the multipliers at which to stop.
    time_limit : float, optional
        Seconds; the table by then is feasible, only not optimal.
    """
    clock = Clock(time_limit)
    workers = max(1, min(os.cpu_count() or 1, program.cost.shape[1]))
    # One BLAS thread per worker: outputs are many and their matrices small.
    with threadpool_limits(1), ThreadPoolExecutor(workers) as pool, _stopping(clock):
        operators, scale = _scaled(program.operators)
        normal = NormalEquations(operators, program.cost.shape[1], program.support, pool, workers, clock)
        method = _InteriorPoint(program, operators, scale, normal)
        status, iterations = method.run(gap, clock)
    table, multipliers = method.answer()
    return Solution(table, multipliers, status, "structured", clock.spent, iterations)


@contextmanager
def _stopping(clock: Clock) -> Iterator[None]:
    """Stop the clock if an exception leaves the block, Ctrl-C above all: the pool waits for its threads."""
    try:
        yield
    except BaseException:
        clock.stop()
        raise


def _scaled(operators: tuple[sparse.csr_array, ...]) -> tuple[tuple[sparse.csr_array, ...], FloatArray]:
    """Scale the cone of each site, which changes nothing about it, so that uniform rows lie equally deep in all."""
    scale = 1 / np.asarray(operators[0].sum(axis=1)).ravel()
    return tuple(sparse.csr_array(sparse.diags_array(scale) @ operator) for operator in operators), scale


class _InteriorPoint:
    def __init__(
        self,
        program: SharedProgram,
        operators: tuple[sparse.csr_array, ...],
        scale: FloatArray,
        normal: NormalEquations,
    ) -> None:
        self.program, self.scale, self.normal = program, scale, normal
        self.cost = program.cost[normal.order]
        self.forward = [sparse.csr_array(operator[:, normal.order]) for operator in operators]
        self.backward = [sparse.csr_array(operator.T) for operator in self.forward]
        uniform = np.full(self.cost.shape, 1 / self.cost.shape[1])
        self.start = uniform if program.background is None else program.background[normal.order]
        self.missing = 1 - self.start.sum(axis=1)
        self.offset = self._map(self.start)
        # A background may lie on the border of its cones, so slacks start deeper; this is the first infeasibility.
        self.first_infeasibility = -(0.0 if program.background is None else _FIRST_DEPTH) * self._map(uniform)

    def run(self, gap: float, clock: Clock) -> tuple[Status, int]:
        """Iterate; return the status and the iterations made."""
        self.at = self._first()
        stuck = 0
        for iteration in range(_MOST_ITERATIONS):
            distance = self._relative_gap()
            if distance <= gap:
                return Status.OPTIMAL, iteration
            # Errors of the row sums are corrected in the next step, so early steps may be inaccurate.
            self.accuracy = min(max(_ROUGHNESS * distance, 1e-10), 1e-3)
            if clock.over:
                return Status.TIME_LIMIT, iteration
            try:
                with np.errstate(divide="raise", invalid="raise", over="raise"):
                    length = self._advance()
            except OutOfTimeError:  # inside a step; the last iterate is the answer
                return Status.TIME_LIMIT, iteration
            except (SolverError, FloatingPointError):  # rounding allows no further step; the last iterate is the answer
                return Status.INACCURATE, iteration
            stuck = stuck + 1 if length < _SHORT_STEP else 0
            if stuck == 3:
                return Status.INACCURATE, iteration
        return Status.INACCURATE, _MOST_ITERATIONS

    def answer(self) -> tuple[FloatArray, FloatArray]:
        """Return the table in the caller's order, and the multipliers (operators, sites, columns)."""
        table = np.empty_like(self.at.table)
        table[self.normal.order] = self.start + self.at.table
        return table, self._multipliers()

    def _multipliers(self) -> FloatArray:
        """Return the multipliers of the program's own cones, before they were scaled."""
        return self.normal.spread(self.at.dual) * self.scale[:, None]

    def _first(self) -> _Iterate:
        slack = self.offset - self.first_infeasibility
        # On the central path dual = μ slack^{-1}; μ of the size of the cost is safely above the optimum's.
        size = 0.05 * float(np.abs(self.cost).max()) or 1.0
        dual = size * cones.inverse(slack)
        open_share = float(self.first_infeasibility.any())
        return _Iterate(np.zeros_like(self.cost), slack, dual, np.zeros(len(self.cost)), open_share)

    def _map(self, table: FloatArray) -> FloatArray:
        return np.stack([self.normal.gather(operator @ table) for operator in self.forward])

    def _map_back(self, dual: FloatArray) -> FloatArray:
        parts = self.normal.spread(dual)
        return np.asarray(sum(operator @ part for operator, part in zip(self.backward, parts, strict=True)))

    def _relative_gap(self) -> float:
        value = float(np.vdot(self.cost, self.start + self.at.table))
        bound = self.program.dual_value(self._multipliers())
        # While the iterate is infeasible its value is no bound: becoming feasible may cost about `open_share` of it.
        size = max(abs(value), 1e-12 * float(np.abs(self.cost).sum()), 1e-300)
        return abs(value - bound) / size + self.at.open_share

    def _advance(self) -> float:
        """Make one predictor–corrector step; return the shorter of its two step lengths."""
        at = self.at
        scaling = cones.Scaling.of(at.slack, at.dual)
        self.normal.update(scaling)
        centre = cones.Interior.of(scaling.apply(at.dual))
        self.dual_residual = self.cost - self._map_back(at.dual) - at.price[:, None]
        complementarity = float(np.vdot(at.slack, at.dual))
        affine = self._direction(scaling, -centre.point)
        first = min(1.0, centre.longest_step(affine.scaled_slack))
        second = min(1.0, centre.longest_step(affine.scaled_dual))
        ahead = cones.complementarity(centre.point, first * affine.scaled_slack, second * affine.scaled_dual)
        centring = min(1.0, max(1e-4, ahead / complementarity)) ** 3
        target = -cones.product(affine.scaled_slack, affine.scaled_dual)
        target[0] += centring * complementarity / at.slack[0].size
        step = self._direction(scaling, centre.divide(target) - centre.point)
        first = min(1.0, _TO_THE_BORDER * centre.longest_step(step.scaled_slack))
        second = min(1.0, _TO_THE_BORDER * centre.longest_step(step.scaled_dual))
        table, open_share = at.table + first * step.table, (1 - first) * at.open_share
        slack = self.offset + self._map(table) - open_share * self.first_infeasibility
        dual = at.dual + second * scaling.apply_inverse(step.scaled_dual)
        self.at = _Iterate(table, slack, dual, at.price + second * step.price, open_share)
        return min(first, second)

    def _direction(self, scaling: cones.Scaling, target: FloatArray) -> _Step:
        """Solve W^{-1} Δslack + W Δdual = target with the table's rows summing to 1 and the dual feasible."""
        at = self.at
        gap = at.open_share * self.first_infeasibility
        right = self._map_back(scaling.apply_inverse(target - scaling.apply_inverse(gap))) - self.dual_residual
        missing = self.missing - at.table.sum(axis=1)
        price = self.normal.solve_coupling(missing - self.normal.solve(right).sum(axis=1), self.accuracy)
        table = self.normal.solve(right + price[:, None])
        scaled_slack = scaling.apply_inverse(self._map(table) + gap)
        return _Step(table, price, scaled_slack, target - scaled_slack)


ENGINE = Engine(name="structured", shared=solve)
