"""Programs whose value no (ε, d_p)-mDP mechanism can beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.problem import Problem

__all__ = ["Clusters", "cluster_cost", "cluster_records", "farthest_distances", "least_loss_per_cell"]

Indices = NDArray[np.intp]

_LLOYD_ROUNDS = 50


@dataclass(frozen=True)
class Clusters:
    """A partition of the records: centres in the box, each record's cluster and distance to its centre."""

    centres: FloatArray
    label: Indices
    radius: FloatArray


def cluster_records(problem: Problem, count: int, seed: int) -> Clusters:
    """Group records around at most `count` centres by Lloyd's algorithm, weighted by the prior.

    Any partition gives a valid bound; compact clusters give a tight one. Centres are means of records, so
    they lie in the box. Assignment is by d_p, the distance the bound pays for.
    """
    lived = np.flatnonzero(problem.prior > 0)
    places, first = np.unique(problem.records[lived], axis=0, return_index=True)
    if len(places) <= count:
        centres = problem.records[lived[np.sort(first)]]
    else:
        generator = np.random.default_rng(seed)
        centres = places[generator.choice(len(places), count, replace=False)]
        for _ in range(_LLOYD_ROUNDS):
            centres = _means(problem, _nearest(centres, problem)[0], len(centres))
    label, radius = _nearest(centres, problem)
    return Clusters(centres, label, radius)


def _nearest(centres: FloatArray, problem: Problem) -> tuple[Indices, FloatArray]:
    _, label = cKDTree(centres).query(problem.records, p=problem.p)
    return np.asarray(label), norm(problem.records - centres[label], problem.p)


def _means(problem: Problem, label: Indices, count: int) -> FloatArray:
    mass = np.bincount(label, problem.prior, minlength=count)
    sums = [np.bincount(label, problem.prior * column, minlength=count) for column in problem.records.T]
    kept = mass > 0
    means = np.stack(sums, axis=1)[kept] / mass[kept, None]
    return np.clip(means, problem.bounds[0], problem.bounds[1])


def cluster_cost(problem: Problem, epsilon: float, clusters: Clusters) -> tuple[FloatArray, float]:
    """Return (cost, constant): every mDP mechanism z has loss ≥ ⟨cost, z(centres)⟩ + constant.

    For a record x at distance r from its centre c, mDP gives z(x) ≥ e^{−εr} z(c); the rest of the mass of
    z(x), 1 − e^{−εr}, loses min_k L(x, k) at least. So x loses at least e^{−εr} ⟨z(c), L(x, ·)⟩
    + (1 − e^{−εr}) min_k L(x, k), linear in z(c).
    """
    kept = np.exp(-epsilon * clusters.radius)
    weights = (problem.prior * kept, (clusters.label, np.arange(problem.n_records)))
    gather = sparse.csr_array(weights, shape=(len(clusters.centres), problem.n_records))
    constant = problem.prior @ ((1 - kept) * problem.loss.min(axis=1))
    return np.asarray(gather @ problem.loss), float(constant)


def least_loss_per_cell(problem: Problem, grid: Grid) -> tuple[FloatArray, Indices]:
    """Return π(C_m) · min_{x ∈ C_m} L(x, y_k) for the cells that hold prior mass, and their numbers.

    Proposition 5 for a prior on finitely many records. Let z̄_k(C_m) be the prior-weighted mean of z_k over
    the records of a cell; it is a distribution over k, the loss is at least Σ_m π(C_m) Σ_k z̄_k(C_m) min_{x
    ∈ C_m} L(x, y_k), and means over two cells are within e^{ε d̂} of each other, d̂ the largest distance
    between points of the two. (The paper takes the mean by volume and min p·L; with a uniform prior the two
    agree.)
    """
    lived = problem.prior > 0
    cell = grid.cell_numbers(problem.records[lived])
    numbers, label = np.unique(cell, return_inverse=True)
    least = np.full((len(numbers), problem.n_outputs), np.inf)
    np.minimum.at(least, label, problem.loss[lived])
    mass = np.bincount(label, problem.prior[lived])
    return mass[:, None] * least, numbers


def farthest_distances(grid: Grid, numbers: Indices, p: float) -> FloatArray:
    """Return d̂_p of Section "Optimal gap analysis": the largest distance between points of two cells."""
    place = np.unravel_index(numbers, tuple(count - 1 for count in grid.shape))
    reach = np.empty((len(numbers), len(numbers), grid.n_axes))
    for axis, (edges, at) in enumerate(zip(grid.breakpoints, place, strict=True)):
        low, high = edges[at], edges[at + 1]
        reach[:, :, axis] = np.maximum(high[:, None] - low[None, :], high[None, :] - low[:, None])
    return norm(reach, p)
