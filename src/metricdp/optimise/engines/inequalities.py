"""Linear programs of no particular form, by HiGHS; Ctrl-C stops it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import highspy
import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray
from metricdp.errors import SolverError
from metricdp.optimise.engines._interruptible import interruptible
from metricdp.optimise.engines.base import Status
from metricdp.optimise.engines.highs import STATUS, prepared

__all__ = ["Variables", "solve_inequalities"]


@dataclass(frozen=True)
class Variables:
    """A solver's answer: the variables, None if it stopped before it had any."""

    variables: FloatArray | None
    status: Status
    iterations: int


def solve_inequalities(
    cost: FloatArray, matrix: sparse.csr_array, right: FloatArray, *, time_limit: float | None = None
) -> Variables:
    """Minimise ⟨cost, v⟩ over v ≥ 0 with matrix · v ≤ right, by an interior-point method."""
    engine = prepared({"solver": "ipm"}, time_limit)
    if engine.passModel(_model(cost, sparse.csc_array(matrix), right)) == highspy.HighsStatus.kError:
        raise SolverError("HiGHS did not accept the model.")
    stop = threading.Event()
    # The interior-point method is followed by a crossover, which ends with the simplex method.
    for event in (engine.cbIpmInterrupt, engine.cbSimplexInterrupt):
        event.subscribe(lambda step: step.interrupt() if stop.is_set() else None)
    interruptible(engine.run, stop.set)
    status = STATUS.get(engine.getModelStatus(), Status.FAILED)
    found, info = engine.getSolution(), engine.getInfo()
    values = np.array(found.col_value)
    if not found.value_valid or not np.isfinite(values).all():
        return Variables(None, status, 0)
    iterations = max(info.ipm_iteration_count, info.simplex_iteration_count)
    return Variables(values, status if status is Status.OPTIMAL else Status.INACCURATE, int(iterations))


def _model(cost: FloatArray, matrix: sparse.csc_array, right: FloatArray) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
    model.row_lower_, model.row_upper_ = np.full(len(right), -highspy.kHighsInf), right
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    return model
