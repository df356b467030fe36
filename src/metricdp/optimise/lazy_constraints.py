"""The optimal mechanism on finitely many inputs (Bordenabe et al. 2014), with constraints generated lazily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from metricdp._chunks import chunks
from metricdp._clock import Clock
from metricdp._validation import FloatArray, finite_array, norm_order, positive, reject, table, unit_sum
from metricdp.errors import SolverError
from metricdp.geometry.norms import pairwise_distances
from metricdp.optimise.engines import Solution, solve
from metricdp.optimise.pair_constraints import (
    LEAST_COEFFICIENT,
    NO_PAIRS,
    START_NEIGHBOURS,
    Indices,
    Pairs,
    every_output,
    nearest_pairs,
    pair_inequalities,
)
from metricdp.optimise.programs import Program
from metricdp.optimise.repair import make_feasible

__all__ = ["Optimum", "optimal_discrete", "private_between", "solve_lazily"]

# A pair outside the program is added once it is violated by more than the solver's own residuals.
_VIOLATION = 1e-9

# A repaired table this close to a proved bound, relatively, counts as the optimum; removing the last violations of 1e-8
# would take several more solves of nearly the same program.
_GAP = 1e-6

_MOST_ROUNDS = 50


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best private table found, and what is known of it.

    table : rows, private between all pairs of inputs with no tolerance.
    value : its expected loss.
    bound : no private table on these inputs has less (from the multipliers of the last program).
    mix : weight of the uniform distribution that the repair put in.
    rounds, constraints : programs solved, and inequalities of the last one out of all (pairs x outputs).
    complete : whether `value` meets `bound` to 1e-6, relatively: the table is the optimum over all pairs.
    """

    table: FloatArray
    value: float
    bound: float
    mix: float
    rounds: int
    constraints: int
    complete: bool
    solution: Solution


def solve_lazily(
    cost: FloatArray,
    distances: FloatArray,
    epsilon: float,
    start: Pairs,
    *,
    solver: str = "auto",
    clock: Clock | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Optimum:
    """Minimise ⟨cost, Z⟩ over row-stochastic Z with Z_ik ≤ e^{ε d_ij} Z_jk for ALL pairs of inputs i, j.

    The program starts with the pairs `start`; after each round every constraint that its solution violates
    is added, and the solution is repaired against ALL pairs by mixing with uniform. A program with some of
    the pairs is a relaxation, so its dual value bounds the optimum over all pairs; the search ends when a
    repaired table meets that bound, which makes it optimal whatever the start was. The best table is also
    returned when the clock runs out.
    """
    search = _Search(cost, np.exp(-epsilon * distances), solver, Clock(None) if clock is None else clock)
    between = search.shrink[start[:, 0], start[:, 1]]
    near = start[between >= LEAST_COEFFICIENT]
    search.add(*every_output(near, cost.shape[1]))
    for round_ in range(1, _MOST_ROUNDS + 1):
        pairs, outputs = search.solve()
        if progress is not None:
            progress(1 - 0.5**round_ if len(pairs) else 1.0, f"round {round_}: {len(pairs)} violated constraints")
        if not len(pairs) or search.clock.over:
            break
        search.add(pairs, outputs)
    return search.best()


class _Search:
    """Lazy generation of constraints: the program so far, and the best private table so far."""

    def __init__(self, cost: FloatArray, shrink: FloatArray, solver: str, clock: Clock) -> None:
        self.cost, self.shrink, self.solver, self.clock = cost, shrink, solver, clock
        self.known = np.empty(0, dtype=np.int64)
        self.inequality = sparse.csr_array((0, cost.size))
        # Uniform rows are private at any ε, so there is an answer before the first program is solved.
        self.table = np.full(cost.shape, 1 / cost.shape[1])
        self.value, self.bound, self.mix = float(np.vdot(cost, self.table)), -np.inf, 1.0
        self.rounds, self.complete = 0, False
        self.solution: Solution | None = None

    def add(self, pairs: Pairs, outputs: Indices) -> None:
        """Put constraints into the program."""
        added = pair_inequalities(pairs, outputs, self.shrink[pairs[:, 0], pairs[:, 1]], self.cost.shape)
        self.inequality = sparse.csr_array(sparse.vstack([self.inequality, added]))
        self.known = np.concatenate([self.known, self._codes(pairs, outputs)])

    def solve(self) -> tuple[Pairs, Indices]:
        """Solve the program, keep the repaired table if it is the best, return what the solution violates."""
        program = Program(self.cost, self.inequality)
        self.solution = solution = solve(program, solver=self.solver, time_limit=self.clock.left)
        self.rounds += 1
        if solution.multipliers is not None:
            self.bound = max(self.bound, program.dual_value(solution.multipliers))
        if solution.table is None or not np.isfinite(solution.table).all():
            if not solution.status.usable:
                msg = f"{solution.engine} ended with status '{solution.status}' on a feasible program."
                raise SolverError(msg)
            return NO_PAIRS, NO_PAIRS[:, 0]
        rows, mix = private_between(solution.table, self.shrink)
        if program.objective(rows) < self.value:
            self.table, self.value, self.mix = rows, program.objective(rows), mix
        pairs, outputs = self._violated(solution.table)
        self.complete = self.value - self.bound <= _GAP * max(abs(self.value), np.abs(self.cost).max())
        if self.complete:
            return NO_PAIRS, NO_PAIRS[:, 0]
        return pairs, outputs

    def best(self) -> Optimum:
        """Return the best table and what is known of it."""
        assert self.solution is not None
        return Optimum(
            table=self.table,
            value=self.value,
            bound=self.bound,
            mix=self.mix,
            rounds=self.rounds,
            constraints=self.inequality.shape[0],
            complete=self.complete,
            solution=self.solution,
        )

    def _violated(self, rows: FloatArray) -> tuple[Pairs, Indices]:
        """Return the constraints that are violated, are not in the program yet and matter to a solver."""
        pairs, outputs = [], []
        for part in chunks(len(rows), rows.size):
            excess = self.shrink[part, :, None] * rows[part, None, :] - rows[None, :, :]
            excess[self.shrink[part] < LEAST_COEFFICIENT] = 0.0
            first, second, output = np.nonzero(excess > _VIOLATION)
            pairs.append(np.column_stack([first + part.start, second]))
            outputs.append(output)
        every_pair, every_output = np.concatenate(pairs), np.concatenate(outputs)
        new = ~np.isin(self._codes(every_pair, every_output), self.known)
        return every_pair[new], every_output[new]

    def _codes(self, pairs: Pairs, outputs: Indices) -> NDArray[np.int64]:
        n_rows, n_outputs = self.cost.shape
        return np.asarray((pairs[:, 0] * n_rows + pairs[:, 1]) * n_outputs + outputs, dtype=np.int64)


def private_between(rows: FloatArray, shrink: FloatArray) -> tuple[FloatArray, float]:
    """Repair a table until shrink_ij Z_ik ≤ Z_jk for all i, j, k; return it and the uniform weight mixed in.

    The mix that a constraint needs is its violation over the room that uniform rows leave. `make_feasible` takes the
    largest need of all, so only the constraint with the largest need of each row i is handed to it.
    """
    n_outputs = rows.shape[1]
    clipped = np.clip(rows, 0.0, None)
    clipped /= np.maximum(clipped.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    room = (1 - shrink) / n_outputs
    np.fill_diagonal(room, np.inf)
    worst_pairs, worst_outputs = [], []
    for part in chunks(len(rows), rows.size):
        excess = shrink[part, :, None] * clipped[part, None, :] - clipped[None, :, :]
        need = (excess / room[part, :, None]).reshape(excess.shape[0], -1)
        second, output = np.divmod(need.argmax(axis=1), n_outputs)
        worst_pairs.append(np.column_stack([np.arange(part.start, part.start + len(second)), second]))
        worst_outputs.append(output)
    pairs, outputs = np.concatenate(worst_pairs), np.concatenate(worst_outputs)
    # The diagonal needs nothing, and is the largest need only where every true pair has room.
    apart = pairs[:, 0] != pairs[:, 1]
    pairs, outputs = pairs[apart], outputs[apart]
    inequality = pair_inequalities(pairs, outputs, shrink[pairs[:, 0], pairs[:, 1]], (len(rows), n_outputs))
    return make_feasible(rows, inequality)


def optimal_discrete(
    inputs: ArrayLike,
    outputs: ArrayLike,
    loss: ArrayLike | None = None,
    prior: ArrayLike | None = None,
    *,
    epsilon: float,
    p: float = 2,
    solver: str = "auto",
    time_limit: float | None = None,
) -> Optimum:
    """Return the least-loss mechanism on finitely many inputs that is (ε, d_p)-mDP between them.

    Parameters
    ----------
    inputs : (n, N) array
        Secrets, pairwise different.
    outputs : (K, N) array
        Reports.
    loss : (n, K) array, optional
        Cost of report k for secret i; Euclidean distance by default.
    prior : (n,) array, optional
        Uniform by default.
    epsilon, p, solver, time_limit
        As in `metricdp.fit`.

    Examples
    --------
    >>> found = optimal_discrete([[0.0], [1.0]], [[0.0], [1.0]], epsilon=1.0)
    >>> bool(abs(found.value - 1 / (1 + np.e)) < 1e-6)
    True
    """
    where = table("inputs", inputs)
    said = table("outputs", outputs, columns=where.shape[1])
    order, budget = norm_order(p), positive("epsilon", epsilon)
    clock = Clock(None if time_limit is None else positive("time_limit", time_limit))
    price = pairwise_distances(where, said, 2) if loss is None else finite_array("loss", loss)
    if price.shape != (len(where), len(said)):
        raise reject("loss", f"of shape (inputs, outputs) = {(len(where), len(said))}", f"shape {price.shape}")
    weight = np.full(len(where), 1 / len(where)) if prior is None else unit_sum("prior", prior, len(where))
    distances = pairwise_distances(where, where, order)
    if (distances[~np.eye(len(where), dtype=bool)] == 0).any():
        raise reject("inputs", "pairwise different", "a repeated point")
    start = nearest_pairs(where, order, START_NEIGHBOURS)
    return solve_lazily(weight[:, None] * price, distances, budget, start, solver=solver, clock=clock)
