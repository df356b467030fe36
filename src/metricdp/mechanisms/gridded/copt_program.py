"""The linear program of copt (ConstOPT): free weights near each output, the exponential mechanism elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import logsumexp

from metricdp._validation import FloatArray

__all__ = ["WeightsProgram", "weights_program"]

Indices = NDArray[np.intp]

# The worst row alone leaves most rows undetermined; among equals the mean loss decides.
_MEAN_WEIGHT = 1e-3


@dataclass(frozen=True)
class WeightsProgram:
    """Minimise ⟨cost, v⟩ over v ≥ 0 with matrix · v ≤ right; `weights` reads the table off v.

    fallback : the exponential mechanism's table, which is feasible.
    """

    cost: FloatArray
    matrix: sparse.csr_array
    right: FloatArray
    expand: sparse.csr_array
    fallback: FloatArray

    def weights(self, variables: FloatArray) -> FloatArray:
        """Return the weights Q of a solution, before their rows are normalised."""
        return np.maximum(self.expand @ variables[:-1], 0.0).reshape(self.fallback.shape)

    @staticmethod
    def worst_loss(variables: FloatArray) -> float:
        """Return λ, the least loss of the worst row."""
        return float(variables[-1])


def weights_program(
    loss: FloatArray,
    mass: FloatArray,
    apart: FloatArray,
    away: FloatArray,
    slope: float,
    nearest: int,
) -> WeightsProgram:
    """Return the program of copt for the weights P_uv = S_u Q_uv of inputs u and outputs v.

    Parameters
    ----------
    loss : (n, K) array
        Expected loss of output v at input u.
    mass : (n,) array
        Prior of each input; inputs without any put no limit on the worst loss.
    apart : (n, n) array
        Distances between inputs.
    away : (n, K) array
        Distances between inputs and outputs.
    slope : float
        Lipschitz constant s of the log weights. Normalising the rows may double it.
    nearest : int
        r, how many inputs nearest to each output have free weights.

    Notes
    -----
    With B_v the r inputs nearest to v, the variables are P_uv for u ∈ B_v, a scale Y_v ≥ 0 per output and
    λ; for u ∉ B_v, P_uv stands for Y_v e^{−s d(u,v)}. S_u = Σ_v e^{−s d(u,v)} is the exponential
    mechanism's row sum. The program is

        min  λ + 10⁻³ Σ_u mass_u Σ_v P_uv loss_uv / S_u
        s.t. Σ_v P_uv loss_uv / S_u ≤ λ                for every u with mass_u > 0
             Σ_v P_uv / S_u ≥ 1                        for every u
             P_uv ≤ e^{s d(u,u')} P_u'v                for all u, u' ∈ B_v
             P_uv ≤ e^{s d(u,u')} Y_v e^{−s d(u',v)}   for u ∈ B_v, u' ∉ B_v
             Y_v e^{−s d(u',v)} ≤ e^{s d(u,u')} P_uv   for u ∈ B_v, u' ∉ B_v.

    Of the last two lines only the tightest u' is kept for each (u, v), which is the same. Between two inputs
    outside B_v the triangle inequality does the rest. Normalised rows lose at most λ, since sums are at
    least 1. ConstOPT as usually stated has S_u = 1, which fits outputs that are the inputs themselves; with
    few outputs, rows far from all of them could reach 1 only by inflating every other row. Measured against
    S_u, the exponential mechanism (P_uv = e^{−s d(u,v)}) is always feasible, and the program improves on it.
    The last term of the objective decides between tables whose worst row is equally good.
    """
    n_inputs, n_outputs = away.shape
    near = np.argsort(away, axis=0, kind="stable")[: min(nearest, n_inputs)].T
    logs = -slope * away
    log_sums = logsumexp(logs, axis=1)
    expand = _expand(near, np.exp(logs - log_sums[:, None]))
    sum_rows = sparse.kron(sparse.eye_array(n_inputs), np.ones((1, n_outputs)))
    row_losses = sparse.csr_array(sum_rows @ sparse.diags_array(loss.ravel()) @ expand)
    lived = np.flatnonzero(mass > 0)
    private = [_between_near(near, log_sums[:, None] - log_sums - slope * apart)]
    private.append(_against_far(near, slope * apart, slope * away, log_sums))
    others = sparse.csr_array(sparse.vstack([-(sum_rows @ expand), *private]))
    worst = sparse.csr_array(np.concatenate([np.full(len(lived), -1.0), np.zeros(others.shape[0])])[:, None])
    matrix = sparse.csr_array(sparse.hstack([sparse.vstack([row_losses[lived], others]), worst]))
    right = np.zeros(matrix.shape[0])
    right[len(lived) : len(lived) + n_inputs] = -1.0
    cost = np.append(_MEAN_WEIGHT * (row_losses.T @ mass), 1.0)
    return WeightsProgram(cost, matrix, right, expand, np.exp(logs - log_sums[:, None]))


def _expand(near: Indices, exponential: FloatArray) -> sparse.csr_array:
    """Return the operator from (free Q output by output, then the scales Y) to vec(Q)."""
    n_inputs, n_outputs = exponential.shape
    n_free = near.size
    outputs = np.arange(n_outputs)
    far = np.ones(exponential.shape, dtype=bool)
    far[near, outputs[:, None]] = False
    far_input, far_output = np.nonzero(far)
    rows = np.concatenate([(near * n_outputs + outputs[:, None]).ravel(), far_input * n_outputs + far_output])
    columns = np.concatenate([np.arange(n_free), n_free + far_output])
    values = np.concatenate([np.ones(n_free), exponential[far]])
    return sparse.csr_array((values, (rows, columns)), shape=(n_inputs * n_outputs, n_free + n_outputs))


def _between_near(near: Indices, log_shrink: FloatArray) -> sparse.csr_array:
    """Return e^{−s d(u,u')} P_uv − P_u'v ≤ 0 for all u, u' in B_v, in terms of Q."""
    n_outputs, count = near.shape
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    starts = np.arange(n_outputs)[:, None] * count
    shrink = np.exp(log_shrink[near[:, first], near[:, second]])
    columns = np.stack([starts + first, starts + second], axis=-1).reshape(-1)
    values = np.stack([shrink, np.full(shrink.shape, -1.0)], axis=-1).reshape(-1)
    ends = np.arange(0, len(values) + 1, 2)
    return sparse.csr_array((values, columns, ends), shape=(shrink.size, near.size + n_outputs))


def _against_far(near: Indices, apart: FloatArray, away: FloatArray, log_sums: FloatArray) -> sparse.csr_array:
    """Return Q_uv ≤ up_uv Y_v and low_uv Y_v ≤ Q_uv, the tightest of what inputs outside B_v ask for.

    `apart` and `away` are distances times s.
    """
    n_outputs, count = near.shape
    if count == len(away):
        return sparse.csr_array((0, near.size + n_outputs))
    up, low = np.empty(near.shape), np.empty(near.shape)
    for output, inside in enumerate(near):
        far = np.setdiff1d(np.arange(len(away)), inside)
        to_far, from_far = apart[np.ix_(inside, far)], away[far, output]
        up[output] = np.exp((to_far - from_far).min(axis=1) - log_sums[inside])
        low[output] = np.exp(-(to_far + from_far).min(axis=1) - log_sums[inside])
    free = sparse.eye_array(near.size)
    scale = sparse.kron(sparse.eye_array(n_outputs), np.ones((count, 1)))
    above = sparse.hstack([free, -sparse.diags_array(up.ravel()) @ scale])
    below = sparse.hstack([-free, sparse.diags_array(low.ravel()) @ scale])
    return sparse.csr_array(sparse.vstack([above, below]))
