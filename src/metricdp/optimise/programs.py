"""The three forms of optimisation programs that engines solve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._chunks import chunks
from metricdp._validation import FloatArray

__all__ = ["AxisOperators", "AxisView", "Program", "SharedProgram", "TensorProgram", "row_sums"]


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


@dataclass(frozen=True)
class AxisView:
    """The sites of an axis that a part of its coefficients touches, and the coefficients that those sites use.

    inside : where the part stands in `used`.
    values, slopes : the operators from the used coefficients to the sites.
    """

    sites: slice
    used: slice
    inside: slice
    values: FloatArray
    slopes: FloatArray


@dataclass(frozen=True)
class AxisOperators:
    """Control values and slopes along one axis, as operators (sites, coefficients) from the axis' coefficients.

    Each site uses a few consecutive coefficients only. The axis is `length` long, in the units of 1/ε.
    """

    values: sparse.csr_array
    slopes: sparse.csr_array
    length: float

    @property
    def n_sites(self) -> int:
        """Sites along the axis."""
        return int(self.values.shape[0])

    @property
    def n_coefficients(self) -> int:
        """Coefficients along the axis."""
        return int(self.values.shape[1])

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """The first coefficient that each site uses."""
        return np.asarray(self._used.indices[self._used.indptr[:-1]])

    @cached_property
    def end(self) -> NDArray[np.intp]:
        """One more than the last coefficient that each site uses."""
        return np.asarray(self._used.indices[self._used.indptr[1:] - 1] + 1)

    @property
    def reach(self) -> int:
        """How far apart two coefficients are at most that one site uses."""
        return int((self.end - self.first).max()) - 1

    def view(self, part: slice) -> AxisView:
        """Return the sites that use some consecutive coefficients, and their operators."""
        touching = np.flatnonzero((self.end > part.start) & (self.first < part.stop))
        if not len(touching) or part.start >= part.stop:
            nothing = slice(0, 0)
            return AxisView(nothing, nothing, nothing, np.empty((0, 0)), np.empty((0, 0)))
        sites = slice(int(touching[0]), int(touching[-1]) + 1)
        used = slice(int(self.first[sites].min()), int(self.end[sites].max()))
        inside = slice(part.start - used.start, part.stop - used.start)
        return AxisView(sites, used, inside, self.values[sites, used].toarray(), self.slopes[sites, used].toarray())

    @cached_property
    def _used(self) -> sparse.csr_array:
        used = sparse.csr_array(abs(self.values) + abs(self.slopes))
        # Slopes of values that are equal but for rounding are not used.
        used.data[used.data < 1e-12 * used.data.max()] = 0.0
        used.eliminate_zeros()
        used.sort_indices()
        return used


@dataclass(frozen=True)
class TensorProgram:
    """Minimise ⟨cost, Z⟩ over tables Z (n_1, …, n_N, outputs) of tensor-product coefficients, rows summing to 1.

    At every site of the product of the axes the value b and the gradient g of each output, linear in its coefficients,
    must satisfy ‖g‖_2 ≤ ε b, or n·g ≤ ε b for each of the `faces` n if there are any. It is a `SharedProgram` whose
    operators are Kronecker products, which solvers of small parts of the table make use of.

    cost : (n_1, …, n_N, outputs).
    epsilon : the ε of each site, an array that broadcasts to the sites (S_1, …, S_N).
    faces : (faces, N), or None for the Euclidean norm.
    """

    cost: FloatArray
    axes: tuple[AxisOperators, ...]
    epsilon: FloatArray
    faces: FloatArray | None = None

    @property
    def site_shape(self) -> tuple[int, ...]:
        """Sites along each axis."""
        return tuple(axis.n_sites for axis in self.axes)

    def objective(self, table: FloatArray) -> float:
        """Return ⟨cost, table⟩."""
        return float(np.vdot(self.cost, table))

    def slacks(self, table: FloatArray) -> Iterator[FloatArray]:
        """Yield (ε b, g_1, …, g_N) at the sites as (1 + N, S_1, …, S_N, outputs), a few outputs at a time."""
        for some in chunks(table.shape[-1], int(np.prod(self.site_shape))):
            part = np.ascontiguousarray(table[..., some])
            slack = np.stack([self._at_sites(part, steep) for steep in (None, *range(len(self.axes)))])
            slack[0] *= self.epsilon[..., None]
            yield slack

    def slack_near(self, coefficients: FloatArray, near: Sequence[slice]) -> tuple[tuple[slice, ...], FloatArray]:
        """Return the sites that use coefficients in a box, and (ε b, g_1, …, g_N) of one output (n_1, …, n_N) there."""
        views = [axis.view(part) for axis, part in zip(self.axes, near, strict=True)]
        sites = tuple(view.sites for view in views)
        used = coefficients[tuple(view.used for view in views)]
        parts = []
        for steep in (None, *range(len(views))):
            part = used
            for number, view in enumerate(views):
                operator = view.slopes if number == steep else view.values
                part = np.moveaxis(np.tensordot(operator, part, axes=(1, number)), 0, number)
            parts.append(part)
        slack = np.stack(parts)
        slack[0] *= np.broadcast_to(self.epsilon, self.site_shape)[sites]
        return sites, slack

    def worst_ratio(self, table: FloatArray) -> float:
        """Return the largest ‖g‖ / (ε b) over sites and outputs; infinite where b is not positive."""
        return max(float(self._ratio(slack).max()) for slack in self.slacks(table))

    def worst_excess(self, table: FloatArray) -> float:
        """Return the largest (‖g‖ − ε b) / ε over sites and outputs: positive where the cone is left."""
        return max(
            float(((self.size(slack[1:]) - slack[0]) / self.epsilon[..., None]).max()) for slack in self.slacks(table)
        )

    def size(self, gradient: FloatArray) -> FloatArray:
        """Return ‖g‖ of gradients (N, …), or the largest n·g over the faces n."""
        if self.faces is None:
            return np.asarray(np.sqrt(np.square(gradient).sum(axis=0)))
        return np.asarray(np.max([np.tensordot(face, gradient, axes=1) for face in self.faces], axis=0))

    def _ratio(self, slack: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(slack[0] > 0, self.size(slack[1:]) / slack[0], np.inf)

    def _at_sites(self, table: FloatArray, steep: int | None) -> FloatArray:
        """Return values (`steep` None) or slopes along axis `steep` of coefficients (n_1, …, n_N, outputs)."""
        for number, axis in enumerate(self.axes):
            operator = axis.slopes if number == steep else axis.values
            first = np.moveaxis(table, number, 0)
            moved = (operator @ first.reshape(len(first), -1)).reshape(-1, *first.shape[1:])
            table = np.moveaxis(moved, 0, number)
        return table


def row_sums(n_rows: int, n_columns: int) -> sparse.csr_array:
    """Return the operator that takes vec(Z) to the sums of its rows."""
    return sparse.csr_array(sparse.kron(sparse.eye_array(n_rows), np.ones((1, n_columns))))


def _cone_excess(points: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.square(points[1:]).sum(axis=0)) - points[0])
