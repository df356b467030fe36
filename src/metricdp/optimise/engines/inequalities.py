"""Linear programs of no particular form, by scipy's interface to HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from metricdp._validation import FloatArray
from metricdp.optimise.engines._interruptible import interruptible
from metricdp.optimise.engines.base import Status

__all__ = ["Variables", "solve_inequalities"]

STATUS = {0: Status.OPTIMAL, 1: Status.TIME_LIMIT, 2: Status.INFEASIBLE}


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
    options = {} if time_limit is None else {"time_limit": time_limit}
    # scipy-stubs does not know that `linprog` takes sparse matrices.
    solve: Any = linprog
    found = interruptible(
        lambda: solve(cost, A_ub=matrix, b_ub=right, bounds=(0, None), method="highs-ipm", options=options)
    )
    if found.x is None or not np.isfinite(found.x).all():
        return Variables(None, STATUS.get(found.status, Status.FAILED), 0)
    status = Status.OPTIMAL if found.status == 0 else Status.INACCURATE
    return Variables(np.asarray(found.x), status, int(found.nit))
