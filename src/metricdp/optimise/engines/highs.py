"""HiGHS: linear programs by its interior-point method, without crossover."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import highspy
import numpy as np
from scipy import sparse

from metricdp.errors import SolverError
from metricdp.optimise.engines._interruptible import interruptible
from metricdp.optimise.engines.base import Engine, Solution, Status
from metricdp.optimise.programs import Program

__all__ = ["ENGINE", "STATUS", "prepared"]

STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.OPTIMAL,
    highspy.HighsModelStatus.kTimeLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kInterrupt: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kUnknown: Status.INACCURATE,
    highspy.HighsModelStatus.kInfeasible: Status.INFEASIBLE,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: Status.INFEASIBLE,
}


def solve(program: Program, *, time_limit: float | None = None) -> Solution:
    """Solve a linear program; the answer is interior (no crossover), accurate to about 1e-8."""
    started = time.perf_counter()
    engine = prepared({"solver": "ipm", "run_crossover": "off", "ipm_optimality_tolerance": 1e-9}, time_limit)
    # A warning means that coefficients below 1e-9 were taken as zero; the repair corrects the violations that follow.
    if engine.passModel(_model(program)) == highspy.HighsStatus.kError:
        raise SolverError("HiGHS did not accept the model.")
    # run() answers kWarning when it stops early; the model status says why.
    stop = threading.Event()
    engine.cbIpmInterrupt += lambda event: event.interrupt() if stop.is_set() else None
    if interruptible(engine.run, stop.set) == highspy.HighsStatus.kError:
        return Solution(None, None, Status.FAILED, "highs", time.perf_counter() - started, 0)
    status = STATUS.get(engine.getModelStatus(), Status.FAILED)
    info = engine.getInfo()
    found = engine.getSolution()
    table = multipliers = None
    if status.usable and found.value_valid:
        table = np.array(found.col_value).reshape(program.cost.shape)
        if found.dual_valid:
            multipliers = -np.array(found.row_dual)[program.n_rows :]
    # HiGHS falls back to the simplex method silently if the method asked for is not built in.
    ran = "highs-ipm" if info.ipm_iteration_count > 0 or info.simplex_iteration_count <= 0 else "highs-simplex"
    iterations = max(info.ipm_iteration_count, info.simplex_iteration_count)
    return Solution(table, multipliers, status, ran, time.perf_counter() - started, int(iterations))


def prepared(options: Mapping[str, Any], time_limit: float | None) -> Any:
    """Return a silent HiGHS with these options."""
    engine = highspy.Highs()  # type: ignore[no-untyped-call]
    limit = {} if time_limit is None else {"time_limit": float(time_limit)}
    for name, value in {"output_flag": False, **options, **limit}.items():
        _check(engine.setOptionValue(name, value), f"option {name}={value}")
    return engine


def _check(status: highspy.HighsStatus, what: str) -> None:
    if status != highspy.HighsStatus.kOk:
        msg = f"HiGHS did not accept the {what} (status {status})."
        raise SolverError(msg)


def _model(program: Program) -> highspy.HighsLp:
    matrix = sparse.csc_array(sparse.vstack([program.row_sums(), program.inequality]))
    n_inequalities, n_variables = program.inequality.shape
    infinity = highspy.kHighsInf
    model = highspy.HighsLp()
    model.num_col_ = n_variables
    model.num_row_ = matrix.shape[0]
    model.col_cost_ = program.cost.ravel()
    model.col_lower_ = np.zeros(n_variables) if program.lower is None else program.lower.ravel()
    model.col_upper_ = np.full(n_variables, infinity) if program.upper is None else program.upper.ravel()
    model.row_lower_ = np.concatenate([np.ones(program.n_rows), np.full(n_inequalities, -infinity)])
    model.row_upper_ = np.concatenate([np.ones(program.n_rows), np.zeros(n_inequalities)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    return model


ENGINE = Engine(name="highs", linear=solve)
