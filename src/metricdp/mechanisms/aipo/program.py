"""Step 2 of the paper: anchor perturbation optimisation (APO) as sparse linear programs."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid, along_axis
from metricdp.optimise.programs import Program
from metricdp.problem import Problem

__all__ = ["approx_apo", "memory_estimate_gb", "neighbour_inequalities", "surrogate_cost"]

# Bytes per nonzero of the constraint matrix at the peak of an interior-point solve: the matrix in two
# layouts, the normal equations and their factor. Measured on 16x15 to 40x40 cells, rounded up.
_PEAK_BYTES_PER_NONZERO = 2000


def surrogate_cost(problem: Problem, grid: Grid) -> FloatArray:
    """Proposition 4: c̃(anchor j, k) = Σ_records w_j(x) π(x) L(x, y_k), with multilinear weights w_j."""
    return np.asarray(grid.weights(problem.records).T @ (problem.prior[:, None] * problem.loss))


def neighbour_inequalities(grid: Grid, budgets: FloatArray, n_outputs: int) -> sparse.csr_array:
    """Eq. (APO): Z_ik − e^{ε_ℓ Δ_ℓ} Z_jk ≤ 0 for ℓ-neighbours i, j, both ways, every axis ℓ and output k.

    Each row is divided by e^{ε_ℓ Δ_ℓ}, which leaves its meaning and keeps its entries within [−1, 1]
    however large a cell is.
    """
    blocks = []
    for axis, budget in enumerate(budgets):
        sides = np.diff(grid.breakpoints[axis])
        shrink = sparse.diags_array(np.exp(-budget * sides))
        count = len(sides)
        lower = sparse.eye_array(count, count + 1, k=0)
        upper = sparse.eye_array(count, count + 1, k=1)
        for this, other in ((lower, upper), (upper, lower)):
            blocks.append(along_axis(shrink @ this - other, axis, grid.anchor_shape))
    return sparse.csr_array(sparse.kron(sparse.vstack(blocks), sparse.eye_array(n_outputs)))


def approx_apo(cost: FloatArray, grid: Grid, budgets: FloatArray) -> Program:
    """Return Definition 8 (Approx-APO) for given per-axis budgets ε_ℓ."""
    return Program(cost, neighbour_inequalities(grid, budgets, cost.shape[1]))


def memory_estimate_gb(shape: tuple[int, ...], n_outputs: int) -> float:
    """Estimate the peak memory of one solve, in GB, from the anchors per axis alone."""
    n_anchors = float(np.prod([float(count) for count in shape]))
    pairs = sum(n_anchors * (count - 1) / count for count in shape)
    return 4 * pairs * n_outputs * _PEAK_BYTES_PER_NONZERO / 1e9
