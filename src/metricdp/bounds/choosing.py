"""The public function: which lower bound to compute."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from metricdp._log import LOG
from metricdp._progress import Tell, told
from metricdp._validation import choice, positive, reject
from metricdp.bounds.base import BoundOptions, Budget, floor_bound
from metricdp.bounds.paper import paper_bound
from metricdp.bounds.tight import tight_bound
from metricdp.geometry.earth import distortion
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.path_metric import PathMetric
from metricdp.problem import Problem

__all__ = ["BOUNDS", "lower_bound"]

# A new lower bound is a function of the problem, ε in the plane and the options; `kind` is its name here.
BOUNDS: Mapping[str, Callable[[Problem, Budget, BoundOptions], float]] = {
    "tight": tight_bound,
    "paper": paper_bound,
    "floor": floor_bound,
}


def lower_bound(
    problem: Problem,
    epsilon: float | EpsilonMap,
    clusters: int = 1000,
    kind: str = "tight",
    *,
    neighbours: int = 64,
    cells: int | Sequence[int] | None = None,
    seed: int = 0,
    solver: str = "auto",
    time_limit: float | None = None,
    progress: Tell | bool | None = None,
) -> float:
    """Return a number that the expected loss of no (ε, d_p)-mDP mechanism on the box can fall below.

    With a projection ε is per true km: true distances are at most λ times those on the map, so a mechanism that is
    private on the ground is (ελ, d_p)-mDP on the map, and that is what the bound is for.

    Parameters
    ----------
    problem : Problem
        Records, outputs, loss, prior, norm and box.
    epsilon : float or EpsilonMap
        Privacy budget per unit of distance. For a map, which must cover the box, the bound is for mechanisms that keep
        its promise along paths inside the box; "paper" takes its largest ε.
    clusters : int
        For "tight": groups of records. More is tighter and slower. Where clusters times outputs exceed about 100,000
        an interior-point method would take too long: a first-order method then comes close to the optimum, with the
        likeliest outputs of each cluster only, which is looser and still valid. 10,000 clusters take a few minutes.
    kind : "tight", "paper" or "floor"
        "floor" is the loss without privacy, Σ π(x) min_k L(x, k). "paper" is Proposition 5 on grid cells, as it stands;
        it can fall below the floor. "tight" joins records to cluster centres by mDP itself (see
        `metricdp.bounds.tight.cluster_cost`), keeps the centres private from each other, and is at least the floor.
    neighbours : int
        For "tight": how many nearest centres each centre is kept private from, directly or by chains at most 2 % longer
        than their distance. Fewer is looser, still valid.
    cells : int or sequence, optional
        For "paper": cells along each axis, 16 in the plane by default.
    seed : int
        Where clustering starts.
    solver, time_limit, progress
        As in `metricdp.fit`. When time runs out the answer is a looser bound.

    Notes
    -----
    The answer is a dual value, computed from the solver's multipliers (`Program.dual_value`). Any
    multipliers give a bound, so it does not rest on the solver's accuracy; 1e-12 of the sizes involved is
    taken off for rounding.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> bool(problem.floor < lower_bound(problem, 1.0) < problem.uniform_loss)
    True
    """
    if not isinstance(problem, Problem):
        raise reject("problem", "a metricdp.Problem", type(problem).__name__)
    budget = _budget(problem, epsilon)
    bound = BOUNDS[choice("kind", kind, tuple(BOUNDS))]
    started = time.perf_counter()
    with told(progress, "lower bound") as tell:
        options = BoundOptions(
            cells=cells,
            solver=solver,
            time_limit=time_limit,
            progress=tell,
            clusters=clusters,
            neighbours=neighbours,
            seed=seed,
        )
        found = bound(problem, budget, options)
    LOG.info("lower bound %r at ε = %s: %.6g in %.2f s", kind, epsilon, found, time.perf_counter() - started)
    return found


def _budget(problem: Problem, epsilon: float | EpsilonMap) -> Budget:
    """Return what a private mechanism may spend in the plane, ε times λ on the ground."""
    stretch = 1.0 if problem.projection is None else distortion(problem.projection, problem.bounds).stretch
    if not isinstance(epsilon, EpsilonMap):
        return Budget(positive("epsilon", epsilon) * stretch)
    if not epsilon.covers(problem.bounds):
        rule = f"a map that covers the box of the problem, {problem.bounds.tolist()}"
        raise reject("epsilon", rule, f"one of {epsilon.bounds.tolist()}")
    # Paths leave the box nowhere, so the map ends with it. λ is rounded up by far more than this product is off.
    plane = epsilon.cropped(problem.bounds).times(stretch)
    return Budget(plane.max, PathMetric(plane, problem.p))
