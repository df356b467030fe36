"""Normal equations of the structured solver: one banded matrix per output, coupled by the row sums.

H_k = Σ_sites Aᵀ W_k^{-2} A is banded after a reordering of the rows. The multipliers of the row sums solve
(Σ_k H_k^{-1}) λ = r: by conjugate gradients, each step of which is one banded solve per output, preconditioned with a
dense factor of Σ_k H_k^{-1} from an earlier iteration. That factor stays good for several iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.errors import SolverError
from metricdp.optimise.engines._cones import Scaling
from metricdp.optimise.engines._lapack import cholesky, cholesky_banded, invert_factor, solve, solve_banded

__all__ = ["NormalEquations", "OutOfTimeError"]

_MOST_STEPS = 300


class OutOfTimeError(SolverError):
    """The clock ran out inside a step, which is given up."""


@dataclass(frozen=True)
class _Block:
    """The rows that an output may change, and where the entries of its H_k stand in banded storage."""

    rows: NDArray[np.intp]
    entries: NDArray[np.intp]
    place: tuple[NDArray[np.intp], NDArray[np.intp]]

    @property
    def band(self) -> int:
        return int(self.place[0].max(initial=0))

    @cached_property
    def triangle(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Diagonal and column of everything inside the band."""
        band, column = np.meshgrid(np.arange(self.band + 1), np.arange(len(self.rows)), indexing="ij")
        inside = band + column < len(self.rows)
        return band[inside], column[inside]


class NormalEquations:
    """The pattern of H_k, worked out once, and its factors for the current scaling."""

    def __init__(
        self,
        operators: tuple[sparse.csr_array, ...],
        n_outputs: int,
        support: NDArray[np.bool_] | None,
        pool: Executor,
        workers: int,
        clock: Clock,
    ) -> None:
        self.pool, self.clock = pool, clock
        touches = abs(operators[0])
        for operator in operators[1:]:
            touches = touches + abs(operator)
        pattern = sparse.csr_matrix(touches.T @ touches)
        self.order = reverse_cuthill_mckee(pattern, symmetric_mode=True)
        ordered = [sparse.csr_array(operator[:, self.order]) for operator in operators]
        self.entries = [(i, j) for i in range(len(ordered)) for j in range(i, len(ordered))]
        products = [_row_products(ordered[i], ordered[j]) for i, j in self.entries]
        n_sites, self.n_rows = touches.shape
        row, column, self._assemble = _assembly(products, self.n_rows, n_sites)
        self._shape = (n_sites, n_outputs)
        if support is None:
            self._sites: slice | NDArray[np.intp] = slice(None)
            self._blocks = [_block(np.ones(self.n_rows, dtype=bool), row, column)] * n_outputs
        else:
            self._sites = np.flatnonzero(touches @ support)
            self._blocks = [_block(mask, row, column) for mask in support[self.order].T]
        # An output that nothing may change has no equations.
        busy = [output for output in range(n_outputs) if len(self._blocks[output].rows)]
        self.parts = [busy[first::workers] for first in range(workers)]
        self._factors: list[FloatArray] = [np.empty(0)] * n_outputs
        self._dense: tuple[FloatArray, FloatArray] | None = None
        self._steps = 0
        self._worthwhile_steps = self._refresh_steps()

    def _refresh_steps(self) -> int:
        """Return the conjugate-gradient steps beyond which a new dense factor costs less than going on with the old.

        A factor is bound by arithmetic, a step by memory; the rates are those of two cores, from 272 to 3,364 rows.
        """
        sizes = np.array([len(block.rows) for block in self._blocks], dtype=np.float64)
        bands = np.array([block.band for block in self._blocks])
        factor = (sizes**3).sum() / 90e9 + self.n_rows**3 / 60e9
        step = (8 * self.n_rows**2 + 16 * (sizes * bands).sum()) / 8e9
        return int(np.clip(factor / step, 8, 200))

    def gather(self, values: FloatArray) -> FloatArray:
        """Return the values (sites, outputs) of the sites that an output's support touches, in one line."""
        return np.asarray(values.reshape(-1)[self._sites])

    def spread(self, values: FloatArray) -> FloatArray:
        """Return gathered values (…, all) as (…, sites, outputs), zero where nothing was gathered."""
        result = np.zeros((*values.shape[:-1], math.prod(self._shape)))
        result[..., self._sites] = values
        return result.reshape(*values.shape[:-1], *self._shape)

    def _keep_going(self) -> None:
        """Raise if the time is up. Asked often, because with many outputs one step can take many seconds."""
        if self.clock.over:
            raise OutOfTimeError("The time limit passed inside a step.")

    def update(self, scaling: Scaling) -> None:
        """Factor H_k for a new scaling; renew the dense factor if conjugate gradients grew slow with it."""
        squares = scaling.inverse_squares()
        weights = np.concatenate([self.spread(squares[entry]) for entry in self.entries])
        entries = np.ascontiguousarray((self._assemble @ weights).T)

        def factor(outputs: list[int]) -> None:
            for output in outputs:
                self._keep_going()
                block = self._blocks[output]
                bands = np.zeros((block.band + 1, len(block.rows)), order="F")
                bands[block.place] = entries[output, block.entries]
                self._factors[output] = _banded_factor(bands)

        list(self.pool.map(factor, self.parts))
        if self._dense is None or self._steps > self._worthwhile_steps:
            self._dense = self._dense_factor()
        self._steps = 0

    def solve(self, right: FloatArray) -> FloatArray:
        """Return H_k^{-1} right_k for every output, as columns, zero outside the supports."""
        result = np.zeros_like(right)

        def work(outputs: list[int]) -> None:
            for output in outputs:
                rows = self._blocks[output].rows
                result[rows, output] = solve_banded(self._factors[output], right[rows, output])

        list(self.pool.map(work, self.parts))
        return result

    def solve_coupling(self, right: FloatArray, accuracy: float) -> FloatArray:
        """Return λ with (Σ_k H_k^{-1}) λ = right to a relative accuracy, by preconditioned conjugate gradients."""
        n_outputs = len(self._factors)
        solution, residual = np.zeros_like(right), right.copy()
        ready = self._precondition(residual)
        direction, size = ready.copy(), float(residual @ ready)
        target = accuracy**2 * size
        for step in range(_MOST_STEPS):
            if size <= target or size <= 0:
                break
            self._keep_going()
            image = self.solve(np.repeat(direction[:, None], n_outputs, axis=1)).sum(axis=1)
            length = size / float(direction @ image)
            solution += length * direction
            residual -= length * image
            ready = self._precondition(residual)
            before, size = size, float(residual @ ready)
            direction = ready + (size / before) * direction
            self._steps = max(self._steps, step + 1)
        return solution

    def _precondition(self, residual: FloatArray) -> FloatArray:
        assert self._dense is not None
        factor, scale = self._dense
        return solve(factor, residual / scale) / scale

    def _dense_factor(self) -> tuple[FloatArray, FloatArray]:
        """Return a Cholesky factor of Σ_k H_k^{-1}, scaled to a unit diagonal, and the scale.

        Single precision is enough for a preconditioner, and twice as fast.
        """

        def work(outputs: list[int]) -> NDArray[np.float32]:
            total = np.zeros((self.n_rows, self.n_rows), dtype=np.float32, order="F")
            for output in outputs:
                self._keep_going()
                block = self._blocks[output]
                band, column = block.triangle
                lower = np.zeros((len(block.rows), len(block.rows)), dtype=np.float32, order="F")
                lower[band + column, column] = self._factors[output][band, column]
                invert_factor(lower)
                if len(block.rows) == self.n_rows:
                    total += lower
                else:
                    total[np.ix_(block.rows, block.rows)] += lower
            return total

        coupling = sum(self.pool.map(work, self.parts)).astype(np.float64)  # type: ignore[union-attr]
        scale = np.sqrt(np.diag(coupling))
        coupling /= scale[:, None]
        coupling /= scale
        return _dense_cholesky(coupling), scale


def _block(mask: NDArray[np.bool_], row: NDArray[np.intp], column: NDArray[np.intp]) -> _Block:
    number = np.cumsum(mask) - 1
    entries = np.flatnonzero(mask[row] & mask[column])
    row, column = number[row[entries]], number[column[entries]]
    return _Block(np.flatnonzero(mask), entries, (row - column, column))


def _row_products(
    left: sparse.csr_array, right: sparse.csr_array
) -> tuple[np.ndarray, np.ndarray, FloatArray, np.ndarray]:
    """Return the lower triangles of l_sᵀ r_s + r_sᵀ l_s for every row s (of l_sᵀ l_s if left is right)."""
    (first, weight), (second, other) = _padded(left), _padded(right)
    shape = (left.shape[0], first.shape[1], second.shape[1])
    row = np.broadcast_to(first[:, :, None], shape).ravel()
    column = np.broadcast_to(second[:, None, :], shape).ravel()
    value = (weight[:, :, None] * other[:, None, :]).ravel()
    site = np.repeat(np.arange(shape[0]), shape[1] * shape[2])
    if left is not right:
        row, column = np.concatenate([row, column]), np.concatenate([column, row])
        value, site = np.tile(value, 2), np.tile(site, 2)
    keep = (row >= column) & (value != 0)
    return row[keep], column[keep], value[keep], site[keep]


def _padded(matrix: sparse.csr_array) -> tuple[np.ndarray, FloatArray]:
    """Return column numbers and values of each row, filled up with zeros to one width."""
    counts = np.diff(matrix.indptr)
    row = np.repeat(np.arange(matrix.shape[0]), counts)
    position = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)
    column = np.zeros((matrix.shape[0], int(counts.max())), dtype=np.int64)
    value = np.zeros(column.shape)
    column[row, position] = matrix.indices
    value[row, position] = matrix.data
    return column, value


def _assembly(
    products: list[tuple[np.ndarray, np.ndarray, FloatArray, np.ndarray]], n_rows: int, n_sites: int
) -> tuple[np.ndarray, np.ndarray, sparse.csr_array]:
    """Return the places of the nonzeros of H's lower triangle, and the operator to them from W^{-2} at all sites."""
    codes = np.unique(np.concatenate([row * n_rows + column for row, column, _, _ in products]))
    blocks = [
        sparse.csr_array((value, (np.searchsorted(codes, row * n_rows + column), site)), shape=(len(codes), n_sites))
        for row, column, value, site in products
    ]
    return codes // n_rows, codes % n_rows, sparse.csr_array(sparse.hstack(blocks))


def _banded_factor(bands: FloatArray) -> FloatArray:
    return _with_shift(cholesky_banded, bands, lambda matrix: matrix[0])


def _dense_cholesky(matrix: FloatArray) -> FloatArray:
    return _with_shift(cholesky, matrix, lambda shifted: np.einsum("ii->i", shifted))


def _with_shift(
    factor: Callable[[FloatArray], bool], matrix: FloatArray, diagonal: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Factor a matrix that is positive definite but for rounding, raising its diagonal as little as it takes."""
    for shift in (0.0, *(10.0**power for power in range(-14, -1))):
        shifted = np.array(matrix, order="F")
        diagonal(shifted)[:] *= 1 + shift
        if factor(shifted):
            return shifted
    msg = "The normal equations lost positive definiteness."
    raise SolverError(msg)
