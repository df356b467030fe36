"""The tight lower bound: mDP joins records to cluster centres, and the centres are private from each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from metricdp._clock import Clock
from metricdp._validation import FloatArray, integer
from metricdp.bounds.base import BoundOptions, Budget, floor_bound, rounded_down
from metricdp.mechanisms.options import require_memory
from metricdp.optimise.engines import Solution, Status, solve, solve_shared
from metricdp.optimise.pair_ascent import LocalPairs, ascend
from metricdp.optimise.pair_constraints import (
    LEAST_COEFFICIENT,
    Pairs,
    pair_inequalities,
    ranked_pairs,
    spanning_pairs,
)
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

# Up to about so many inequalities an interior-point method finds the optimum; beyond, a first-order method comes close.
_LARGEST_INTERIOR, _PAIRS_PER_CENTRE = 2_000_000, 19

# For the first-order method: each centre is paired with its neighbours of these ranks. Near ones make chains short, and
# far ones let multipliers travel in few iterations.
_RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20, 24, 29, 35, 42, 50, 60)
_ITERATIONS = 2000

# Outputs of each centre that pairs constrain, as many as the number of inequalities allows, and the memory of each.
_LEAST_NEAR, _MOST_NEAR, _MOST_INEQUALITIES = 8, 48, 6_000_000
_BYTES_PER_LOCAL_INEQUALITY = 200

# Relative gap between the bound and the value of its program; what is left of it loosens the bound.
_GAP = 1e-7


def tight_bound(problem: Problem, budget: Budget, options: BoundOptions) -> float:
    """Return the larger of the clusters' bound (`cluster_cost`) and the loss without privacy."""
    clusters = integer("clusters", options.clusters, 1)
    neighbours = integer("neighbours", options.neighbours, 1)
    seed = integer("seed", options.seed, 0)
    by_clusters = _by_clusters(problem, budget, clusters, neighbours, seed, options)
    return max(floor_bound(problem, budget, options), by_clusters)


def _by_clusters(
    problem: Problem, budget: Budget, count: int, neighbours: int, seed: int, options: BoundOptions
) -> float:
    clock = Clock(options.time_limit)
    count = min(count, problem.n_records)
    groups = cluster_records(problem, count, seed)
    cost, constant = cluster_cost(problem, budget, groups)
    few = count * _PAIRS_PER_CENTRE * problem.n_outputs <= _LARGEST_INTERIOR
    bounded = _interior if few or options.solver != "auto" else _first_order
    return rounded_down(bounded(problem, budget, groups.centres, cost, neighbours, options, clock) + constant, problem)


def _interior(
    problem: Problem,
    budget: Budget,
    centres: FloatArray,
    cost: FloatArray,
    neighbours: int,
    options: BoundOptions,
    clock: Clock,
) -> float:
    """Return the bound of all outputs and of pairs whose chains are hardly longer than distances."""
    count = len(centres)
    pairs = spanning_pairs(centres, problem.p, neighbours, _STRETCH if count > neighbours else 0.0)
    needed = len(pairs) * problem.n_outputs * _BYTES_PER_INEQUALITY / 1e9
    require_memory(needed, f"{count} `clusters` and {problem.n_outputs} outputs", "take fewer `clusters`")
    pairs, shrink = _binding(centres, pairs, budget, problem.p)
    program = _program(cost, pairs, shrink)
    options.say(0.1, f"{count} clusters, {len(pairs) * problem.n_outputs} inequalities")
    solution = _solve(program, options.solver, clock)
    options.say(1.0, f"{solution.engine}: {solution.status}")
    # Rows of least cost are a bound without any multipliers.
    return float(cost.min(axis=1).sum()) if solution.multipliers is None else program.dual_value(solution.multipliers)


def _first_order(
    problem: Problem,
    budget: Budget,
    centres: FloatArray,
    cost: FloatArray,
    neighbours: int,
    options: BoundOptions,
    clock: Clock,
) -> float:
    """Return the bound of the cheapest outputs of each centre, and of pairs at growing distances."""
    ranks = [rank for rank in _RANKS if rank <= neighbours]
    pairs, shrink = _binding(centres, ranked_pairs(centres, problem.p, ranks), budget, problem.p)
    n_near = int(min(problem.n_outputs, _MOST_NEAR, max(_LEAST_NEAR, _MOST_INEQUALITIES // max(1, len(pairs)))))
    needed = len(pairs) * n_near * _BYTES_PER_LOCAL_INEQUALITY / 1e9
    require_memory(needed, f"{len(centres)} `clusters`", "take fewer `clusters`")
    near = np.argpartition(cost, n_near - 1, axis=1)[:, :n_near]
    options.say(0.0, f"{len(centres)} clusters, {n_near} outputs each, about {len(pairs) * n_near} inequalities")
    return ascend(LocalPairs(cost, pairs, shrink, near), clock, _ITERATIONS, options.say)


def _binding(centres: FloatArray, pairs: Pairs, budget: Budget, p: float) -> tuple[Pairs, FloatArray]:
    """Return the pairs that can bind, and e^{−ε d} of each. Pairs left out loosen the bound."""
    shrink = np.exp(-budget.between(centres[pairs[:, 0]], centres[pairs[:, 1]], p))
    # Far pairs hardly bind; nearly coincident centres leave the feasible set without an interior, which solvers need.
    kept = (shrink >= LEAST_COEFFICIENT) & (shrink <= 1 - _CLOSEST)
    return pairs[kept], shrink[kept]


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
    """A partition of the records: centres in the box, and each record's cluster."""

    centres: FloatArray
    label: Indices


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
            centres = _means(problem, _nearest(centres, problem), len(centres))
    return Clusters(centres, _nearest(centres, problem))


def _nearest(centres: FloatArray, problem: Problem) -> Indices:
    _, label = cKDTree(centres).query(problem.records, p=problem.p)
    return np.asarray(label)


def _means(problem: Problem, label: Indices, count: int) -> FloatArray:
    mass = np.bincount(label, problem.prior, minlength=count)
    sums = [np.bincount(label, problem.prior * column, minlength=count) for column in problem.records.T]
    kept = mass > 0
    means = np.stack(sums, axis=1)[kept] / mass[kept, None]
    return np.clip(means, problem.bounds[0], problem.bounds[1])


def cluster_cost(problem: Problem, budget: Budget, clusters: Clusters) -> tuple[FloatArray, float]:
    """Return (cost, constant): every mDP mechanism z has loss ≥ ⟨cost, z(centres)⟩ + constant.

    For a record x at distance r from its centre c, mDP gives z(x) ≥ e^{−εr} z(c); the rest of the mass of
    z(x), 1 − e^{−εr}, loses min_k L(x, k) at least. So x loses at least e^{−εr} ⟨z(c), L(x, ·)⟩
    + (1 − e^{−εr}) min_k L(x, k), linear in z(c). Where ε varies, εr is an upper bound of their path distance.
    """
    kept = np.exp(-budget.between(problem.records, clusters.centres[clusters.label], problem.p))
    weights = (problem.prior * kept, (clusters.label, np.arange(problem.n_records)))
    gather = sparse.csr_array(weights, shape=(len(clusters.centres), problem.n_records))
    constant = problem.prior @ ((1 - kept) * problem.loss.min(axis=1))
    return np.asarray(gather @ problem.loss), float(constant)
