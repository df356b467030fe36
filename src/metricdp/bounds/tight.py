"""The tight lower bound: mDP joins records to cluster centres, and the centres are private from each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from metricdp._clock import Clock
from metricdp._validation import FloatArray, integer
from metricdp.bounds.base import BoundOptions, floor_bound, rounded_down
from metricdp.geometry.norms import norm
from metricdp.mechanisms.options import require_memory
from metricdp.optimise.engines import Solution, Status, solve, solve_shared
from metricdp.optimise.pair_constraints import LEAST_COEFFICIENT, Pairs, pair_inequalities, spanning_pairs
from metricdp.optimise.programs import SharedProgram
from metricdp.problem import Problem

__all__ = ["Clusters", "cluster_cost", "cluster_records", "tight_bound"]

Indices = NDArray[np.intp]

_LLOYD_ROUNDS = 50

# Bytes per inequality at the peak of an interior-point solve, measured with 500 to 2,000 clusters and rounded up.
_BYTES_PER_INEQUALITY = 2000

# How much longer than a distance chains of pairs may be. Those of the 8 nearest alone are 4.6 % longer on average (for
# 1,000 centres in Rome), as if ε were that much larger; these, of 19 pairs per centre, 0.5 %.
_STRETCH = 0.02

# Pairs of centres this close, as ε times their distance, are left out.
_CLOSEST = 1e-9

# Relative gap between the bound and the value of its program; what is left of it loosens the bound.
_GAP = 1e-7


def tight_bound(problem: Problem, epsilon: float, options: BoundOptions) -> float:
    """Return the larger of the clusters' bound (`cluster_cost`) and the loss without privacy."""
    clusters = integer("clusters", options.clusters, 1)
    neighbours = integer("neighbours", options.neighbours, 1)
    seed = integer("seed", options.seed, 0)
    by_clusters = _by_clusters(problem, epsilon, clusters, neighbours, seed, options)
    return max(floor_bound(problem, epsilon, options), by_clusters)


def _by_clusters(
    problem: Problem, epsilon: float, count: int, neighbours: int, seed: int, options: BoundOptions
) -> float:
    clock = Clock(options.time_limit)
    count = min(count, problem.n_records)
    groups = cluster_records(problem, count, seed, clock)
    cost, constant = cluster_cost(problem, epsilon, groups)
    pairs = spanning_pairs(groups.centres, problem.p, neighbours, _STRETCH if count > neighbours else 0.0)
    needed = len(pairs) * problem.n_outputs * _BYTES_PER_INEQUALITY / 1e9
    require_memory(needed, f"{count} `clusters` and {problem.n_outputs} outputs", "take fewer `clusters`")
    # `norm` errs by a few roundings; a longer distance only loosens a constraint.
    distances = norm(groups.centres[pairs[:, 0]] - groups.centres[pairs[:, 1]], problem.p) * (1 + 1e-14)
    shrink = np.exp(-epsilon * distances)
    # Pairs left out loosen the bound. Far ones hardly bind; nearly coincident centres leave the feasible set without an
    # interior, which the solver needs.
    kept = (shrink >= LEAST_COEFFICIENT) & (shrink <= 1 - _CLOSEST)
    program = _program(cost, pairs[kept], shrink[kept])
    if options.progress is not None:
        options.progress(0.1, f"{len(groups.centres)} clusters, {kept.sum() * problem.n_outputs} inequalities")
    solution = _solve(program, options.solver, clock)
    if options.progress is not None:
        options.progress(1.0, f"{solution.engine}: {solution.status}")
    bound = problem.floor - constant if solution.multipliers is None else program.dual_value(solution.multipliers)
    return rounded_down(bound + constant, problem)


def _program(cost: FloatArray, pairs: Pairs, shrink: FloatArray) -> SharedProgram:
    """Return min ⟨cost, Z⟩ with shrink · Z_ik ≤ Z_jk for ordered pairs (i, j) and every output k."""
    one_output = np.zeros(len(pairs), dtype=np.intp)
    return SharedProgram(cost, (-pair_inequalities(pairs, one_output, shrink, (len(cost), 1)),))


def _solve(program: SharedProgram, solver: str, clock: Clock) -> Solution:
    """Solve with the structured engine, or with a general one on the program written out in full."""
    if program.operators[0].shape[0] == 0:  # one cluster, or all far apart: no row constrains another
        return Solution(None, np.zeros((1, 0, program.cost.shape[1])), Status.OPTIMAL, "none", 0.0, 0)
    if solver == "auto":
        found = solve_shared(program, gap=_GAP, time_limit=clock.left)
        # Where ε is so small that all rows nearly agree, the structured engine can stall short of the optimum.
        if found.status is not Status.INACCURATE:
            return found
    found = solve(program.expand(), solver=solver, time_limit=clock.left)
    if found.multipliers is None:
        return found
    return replace(found, multipliers=found.multipliers.reshape(1, -1, program.cost.shape[1]))


@dataclass(frozen=True)
class Clusters:
    """A partition of the records: centres in the box, each record's cluster and distance to its centre."""

    centres: FloatArray
    label: Indices
    radius: FloatArray


def cluster_records(problem: Problem, count: int, seed: int, clock: Clock | None = None) -> Clusters:
    """Group records around at most `count` centres by Lloyd's algorithm, weighted by the prior.

    Any partition gives a valid bound; compact clusters give a tight one. Centres are means of records, so
    they lie in the box. Assignment is by d_p, the distance the bound pays for. When time runs out, the last is taken.
    """
    lived = np.flatnonzero(problem.prior > 0)
    places, first = np.unique(problem.records[lived], axis=0, return_index=True)
    if len(places) <= count:
        centres = problem.records[lived[np.sort(first)]]
    else:
        generator = np.random.default_rng(seed)
        centres = places[generator.choice(len(places), count, replace=False)]
        for _ in range(_LLOYD_ROUNDS):
            if clock is not None and clock.over:
                break
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
