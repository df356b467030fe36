"""Clarabel: conic programs by a homogeneous interior-point method."""

from __future__ import annotations

import time

import clarabel
import numpy as np
from scipy import sparse

from metricdp.programs.base import Program
from metricdp.solvers.base import Solution, Status

__all__ = ["solve"]

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
    """Solve a program; the answer is interior, accurate to about 1e-9."""
    started = time.perf_counter()
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    if time_limit is not None:
        settings.time_limit = float(time_limit)
    matrix, right, cones = _conic(program)
    n_variables = program.cost.size
    quadratic = sparse.csc_matrix((n_variables, n_variables))
    found = clarabel.DefaultSolver(quadratic, program.cost.ravel(), matrix, right, cones, settings).solve()
    status = STATUS.get(str(found.status), Status.FAILED)
    seconds = time.perf_counter() - started
    if not status.usable:
        return Solution(None, None, status, "clarabel", seconds, found.iterations)
    table = np.array(found.x).reshape(program.cost.shape)
    n_inequalities = program.inequality.shape[0]
    multipliers = np.array(found.z)[program.n_rows : program.n_rows + n_inequalities]
    return Solution(table, multipliers, status, "clarabel", seconds, found.iterations)


def _conic(program: Program) -> tuple[sparse.csc_matrix, np.ndarray, list[object]]:
    """Return A, b and cones of A·x + s = b, s in the cones."""
    n_variables = program.cost.size
    identity = sparse.eye_array(n_variables)
    lower = np.zeros(n_variables) if program.lower is None else program.lower.ravel()
    blocks = [program.row_sums(), program.inequality, -identity]
    right = [np.ones(program.n_rows), np.zeros(program.inequality.shape[0]), -lower]
    if program.upper is not None:
        blocks.append(identity)
        right.append(program.upper.ravel())
    matrix = sparse.csc_matrix(sparse.vstack(blocks))
    values = np.concatenate(right)
    cones = [
        clarabel.ZeroConeT(program.n_rows),
        clarabel.NonnegativeConeT(len(values) - program.n_rows),
    ]
    return matrix, values, cones
