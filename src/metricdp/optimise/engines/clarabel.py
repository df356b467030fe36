"""Clarabel: linear and second-order cone programs by a homogeneous interior-point method."""

from __future__ import annotations

import threading
import time
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray
from metricdp.optimise.engines._interruptible import interruptible
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import Program, SharedProgram, row_sums

__all__ = ["ENGINE"]

STATUS = {
    "Solved": Status.OPTIMAL,
    "AlmostSolved": Status.INACCURATE,
    "InsufficientProgress": Status.INACCURATE,
    "MaxIterations": Status.INACCURATE,
    "MaxTime": Status.TIME_LIMIT,
    "PrimalInfeasible": Status.INFEASIBLE,
    "AlmostPrimalInfeasible": Status.INFEASIBLE,
}


def solve(program: Program, *, time_limit: float | None = None) -> Solution:
    """Solve a linear program; the answer is interior, accurate to about 1e-9."""
    n_variables = program.cost.size
    identity = sparse.csr_array(sparse.eye_array(n_variables))
    lower = np.zeros(n_variables) if program.lower is None else program.lower.ravel()
    blocks = [program.row_sums(), program.inequality, -identity]
    right = [np.ones(program.n_rows), np.zeros(program.inequality.shape[0]), -lower]
    if program.upper is not None:
        blocks.append(identity)
        right.append(program.upper.ravel())
    values = np.concatenate(right)
    cones = [clarabel.ZeroConeT(program.n_rows), clarabel.NonnegativeConeT(len(values) - program.n_rows)]
    first = program.n_rows
    wanted = slice(first, first + program.inequality.shape[0])
    return _solve(program.cost, sparse.vstack(blocks), values, cones, wanted, 1e-9, time_limit)


def solve_shared(program: SharedProgram, *, gap: float = 1e-7, time_limit: float | None = None) -> Solution:
    """Solve a program with one cone for all outputs, written out in full."""
    n_rows, n_columns = program.cost.shape
    n_sites, dimension = program.operators[0].shape[0], len(program.operators)
    columns = sparse.eye_array(n_columns)
    # Clarabel wants the entries of each cone one after the other.
    order = np.arange(dimension * n_sites * n_columns).reshape(dimension, -1).T.ravel()
    stacked = sparse.csr_array(sparse.vstack([-sparse.kron(operator, columns) for operator in program.operators]))
    equations, right = row_sums(n_rows, n_columns), np.ones(n_rows)
    if program.background is not None and program.support is not None:
        held = np.flatnonzero(~program.support)
        equations = sparse.vstack([equations, sparse.eye_array(program.cost.size, format="csr")[held]])
        right = np.concatenate([right, program.background.ravel()[held]])
    matrix = sparse.vstack([equations, stacked[order]])
    values = np.concatenate([right, np.zeros(len(order))])
    cones: list[Any] = [clarabel.ZeroConeT(len(right))]
    if dimension == 1:
        cones.append(clarabel.NonnegativeConeT(len(order)))
    else:
        cones.extend(clarabel.SecondOrderConeT(dimension) for _ in range(n_sites * n_columns))
    found = _solve(program.cost, matrix, values, cones, slice(len(right), None), gap, time_limit)
    if found.multipliers is None:
        return found
    multipliers = found.multipliers.reshape(n_sites * n_columns, dimension).T.reshape(dimension, n_sites, n_columns)
    return Solution(found.table, multipliers, found.status, found.engine, found.seconds, found.iterations)


def _solve(
    cost: FloatArray,
    matrix: sparse.sparray,
    right: FloatArray,
    cones: list[Any],
    wanted: slice,
    tolerance: float,
    time_limit: float | None,
) -> Solution:
    """Solve A·x + s = b, s in the cones; return the multipliers of the `wanted` rows."""
    started = time.perf_counter()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    if time_limit is not None:
        settings.time_limit = float(time_limit)
    quadratic = sparse.csc_matrix((cost.size, cost.size))
    engine = clarabel.DefaultSolver(quadratic, cost.ravel(), sparse.csc_matrix(matrix), right, cones, settings)
    stop = threading.Event()
    engine.set_termination_callback(lambda _: stop.is_set())
    found = interruptible(engine.solve, stop.set)
    status = STATUS.get(str(found.status), Status.FAILED)
    seconds = time.perf_counter() - started
    if not status.usable:
        return Solution(None, None, status, "clarabel", seconds, found.iterations)
    table = np.array(found.x).reshape(cost.shape)
    return Solution(table, np.array(found.z)[wanted], status, "clarabel", seconds, found.iterations)


ENGINE = Engine(name="clarabel", linear=solve, shared=solve_shared)
