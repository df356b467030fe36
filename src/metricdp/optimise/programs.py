"""The two forms of optimisation programs that engines solve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._validation import FloatArray

__all__ = ["Program", "SharedProgram", "row_sums"]


@dataclass(frozen=True)
class Program:
    """Minimise ⟨cost, Z⟩ over row-stochastic tables Z (rows, columns) with G·vec(Z) ≤ 0.

    vec(Z) lists Z row by row. Entries are bounded by `lower` and `upper` (0 and no bound if None).
    Every mechanism table of the library is of this form: rows are distributions and privacy is
    homogeneous in them.
    """

    cost: FloatArray
    inequality: sparse.csr_array
    lower: FloatArray | None = None
    upper: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """Distributions in the table."""
        return self.cost.shape[0]

    @property
    def n_columns(self) -> int:
        """Outputs."""
        return self.cost.shape[1]

    def row_sums(self) -> sparse.csr_array:
        """Return the operator that takes vec(Z) to the sums of its rows."""
        return row_sums(self.n_rows, self.n_columns)

    def objective(self, table: FloatArray) -> float:
        """Return ⟨cost, table⟩."""
        return float(np.vdot(self.cost, table))

    def dual_value(self, multipliers: FloatArray) -> float:
        """Return a lower bound on the optimum, from any multipliers of G·vec(Z) ≤ 0.

        For every s ≥ 0 and every feasible Z: ⟨cost, Z⟩ ≥ ⟨cost + Gᵀs, Z⟩ ≥ Σ_rows min_columns (cost + Gᵀs),
        because each row of Z is a distribution. So the value bounds the optimum however
        inaccurate the multipliers are; negative ones are taken as zero.
        """
        if self.lower is not None or self.upper is not None:
            msg = "dual_value is for programs without entry bounds"
            raise ValueError(msg)
        price = self.cost + (self.inequality.T @ np.maximum(multipliers, 0.0)).reshape(self.cost.shape)
        return float(price.min(axis=1).sum())


@dataclass(frozen=True)
class SharedProgram:
    """Minimise ⟨cost, Z⟩ over row-stochastic tables Z (rows, columns) whose columns all lie in one cone.

    The cone is given by operators A_0, …, A_d of shape (sites, rows): every column z must satisfy
    ‖(A_1 z, …, A_d z)‖_2 ≤ A_0 z at every site; with A_0 alone that is A_0 z ≥ 0. Columns are coupled only
    by the row sums, which the structured solver exploits. Entries of feasible tables are non-negative, or at least
    bounded by `largest_entry` in size.

    With a `background`, a feasible table, and a `support`, a mask, only entries of the support may differ from the
    background. The background itself is feasible, so such a program always has a solution no worse than it.
    """

    cost: FloatArray
    operators: tuple[sparse.csr_array, ...]
    largest_entry: float | None = None
    background: FloatArray | None = None
    support: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if (self.background is None) != (self.support is None):
            msg = "a background and a support go together"
            raise ValueError(msg)

    def objective(self, table: FloatArray) -> float:
        """Return ⟨cost, table⟩."""
        return float(np.vdot(self.cost, table))

    def excess(self, table: FloatArray) -> FloatArray:
        """Return ‖(A_1 Z, …)‖_2 − A_0 Z at every site and column: positive where the cone is left."""
        return _cone_excess(np.stack([operator @ table for operator in self.operators]))

    def dual_value(self, multipliers: FloatArray) -> float:
        """Return a lower bound on the optimum, from any multipliers (operators, sites, columns).

        For every y in the (self-dual) cone and every feasible Z: ⟨cost, Z⟩ ≥ ⟨price, Z⟩, price = cost − Aᵀy. The free
        entries of a row have a known sum, so the row adds at least that sum times the least price if entries are
        non-negative, and in any case the sum times the middle price less |price − middle| times the largest entry.
        Multipliers outside the cone are first lifted into it.
        """
        lifted = multipliers.copy()
        lifted[0] += np.maximum(_cone_excess(lifted), 0.0)
        price = self.cost - sum(operator.T @ part for operator, part in zip(self.operators, lifted, strict=True))
        fixed, total, free = 0.0, np.ones(len(price)), price
        if self.background is not None and self.support is not None:
            held = np.where(self.support, 0.0, self.background)
            fixed, total = float(np.vdot(price, held)), 1 - held.sum(axis=1)
            free = np.where(self.support, price, np.nan)
        if self.largest_entry is None:
            return fixed + float(total @ np.nanmin(free, axis=1))
        middle = np.nanmedian(free, axis=1)
        return fixed + float(total @ middle - self.largest_entry * np.nansum(np.abs(free - middle[:, None])))

    def expand(self) -> Program:
        """Return a linear program's general form, for engines that know no structure."""
        if len(self.operators) > 1:
            msg = "only a program with one operator is linear"
            raise ValueError(msg)
        columns = sparse.eye_array(self.cost.shape[1])
        return Program(self.cost, sparse.csr_array(-sparse.kron(self.operators[0], columns)))


def row_sums(n_rows: int, n_columns: int) -> sparse.csr_array:
    """Return the operator that takes vec(Z) to the sums of its rows."""
    return sparse.csr_array(sparse.kron(sparse.eye_array(n_rows), np.ones((1, n_columns))))


def _cone_excess(points: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.square(points[1:]).sum(axis=0)) - points[0])
