"""The best guess of a place: weighted geometric medians, each with a bound that no other guess can beat.

With weights w_i on places x_i, a guess x̂ costs f(x̂) = Σ_i w_i |x_i − x̂|, which is convex. If g is a subgradient of f
at x̂, then the least cost is at least f(x̂) − |g| |x* − x̂|, where x* is a best guess. By the triangle inequality
W |x* − x̂| ≤ f(x*) + f(x̂) ≤ 2 f(x̂), W being the sum of the weights. So f(x*) ≥ f(x̂) (1 − 2 |g| / W): the cost of the
guess is enclosed, wherever the iteration stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from metricdp._chunks import chunks
from metricdp._validation import FloatArray

__all__ = ["Guesses", "best_chances", "best_guesses"]

# The share by which the cost of a guess may exceed its bound before the iteration stops.
_TOLERANCE = 1e-4
_MOST_STEPS = 400

# The steps before which the nearest place is tried.
_TRIES = {2, 5, 10, 20, 50, 100, 200}

# Floating point loses less than this share of a sum; bounds are lowered by it.
_ROUNDING = 1e-11

# Steps uphill from each start, when the guess is to lie within a radius of the truth as often as possible.
_CLIMB = 5

# Places from which it starts, times places: all of up to 2,000 places are starts.
_STARTS = 4_000_000


@dataclass(frozen=True)
class Guesses:
    """One guess for each row of weights.

    points : (m, N) array, the guesses.
    cost : (m,) array, Σ_i w_i |x_i − guess|, not divided by the sum of the weights.
    least : (m,) array, a lower bound on the cost of any guess.
    """

    points: FloatArray
    cost: FloatArray
    least: FloatArray


def best_guesses(places: FloatArray, weights: FloatArray) -> Guesses:
    """Return a guess for each row of weights (m, n) over places (n, N), whose expected distance is about the least.

    With one axis the guess is the weighted median, which is exact. With more it is found by Weiszfeld's iteration in
    the form of Vardi and Zhang (2000), which also holds on the places themselves.

    Examples
    --------
    >>> found = best_guesses(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([[3.0, 1.0, 1.0]]))
    >>> found.points.tolist(), found.cost.tolist()
    ([[0.0, 0.0]], [2.0])
    """
    solve = _medians if places.shape[1] == 1 else _iterated
    parts = [solve(places, weights[part]) for part in chunks(len(weights), len(places))]
    points, cost, least = (
        np.concatenate([getattr(one, name) for one in parts]) for name in ("points", "cost", "least")
    )
    return Guesses(points, cost, least)


def _medians(places: FloatArray, weights: FloatArray) -> Guesses:
    order = np.argsort(places[:, 0])
    line, ranked = places[order, 0], weights[:, order]
    below = ranked.cumsum(axis=1)
    middle = line[(below >= below[:, -1:] / 2).argmax(axis=1)]
    cost = (ranked * np.abs(line - middle[:, None])).sum(axis=1)
    return Guesses(middle[:, None], cost, cost * (1 - _ROUNDING))


def _iterated(places: FloatArray, weights: FloatArray) -> Guesses:
    total = weights.sum(axis=1)
    total[total == 0] = 1.0  # a report that never comes costs nothing, wherever the guess is
    found = Guesses((weights @ places) / total[:, None], np.empty(len(weights)), np.zeros(len(weights)))
    open_ = np.arange(len(weights))
    for step in range(_MOST_STEPS):
        here = found.points[open_]
        if step in _TRIES:
            here = _or_at_a_place(places, weights[open_], here)
        new, cost, least = _step(places, weights[open_], total[open_], here)
        found.points[open_], found.cost[open_] = here, cost
        found.least[open_] = np.maximum(found.least[open_], least)
        left = cost - found.least[open_] > _TOLERANCE * cost
        if not left.any() or step == _MOST_STEPS - 1:
            break
        open_ = open_[left]
        found.points[open_] = new[left]
    return found


def _step(
    places: FloatArray, weights: FloatArray, total: FloatArray, here: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the next guesses, what those at hand cost, and a lower bound on the cost of any."""
    distance = cdist(here, places)
    cost = np.einsum("ij,ij->i", weights, distance)
    on_place = distance == 0
    pull = np.divide(weights, distance, out=np.zeros_like(distance), where=~on_place)
    strength = pull.sum(axis=1)
    strength[strength == 0] = 1.0
    new = (pull @ places) / strength[:, None]
    slope = strength * np.sqrt(np.square(here - new).sum(axis=1))
    held = np.where(on_place, weights, 0.0).sum(axis=1)
    free = np.divide(np.maximum(slope - held, 0.0), slope, out=np.zeros_like(slope), where=slope > 0)
    # The smallest subgradient is what the pull of others leaves over the weight of the place itself.
    least = cost * np.maximum(1 - 2 * free * slope / total - _ROUNDING, 0.0)
    return here + free[:, None] * (new - here), cost, least


def _or_at_a_place(places: FloatArray, weights: FloatArray, here: FloatArray) -> FloatArray:
    """Return the guesses, or the places nearest to them where those cost less.

    A best guess on a place is approached slowly and never reached, so it is tried.
    """
    distance = cdist(here, places)
    near = places[distance.argmin(axis=1)]
    cost_here = np.einsum("ij,ij->i", weights, distance)
    cost_near = np.einsum("ij,ij->i", weights, cdist(near, places))
    return np.where((cost_near <= cost_here)[:, None], near, here)


def best_chances(places: FloatArray, weights: FloatArray, guesses: FloatArray, radius: float) -> FloatArray:
    """Return, for each row of weights, the weight within a radius of the best guess that was found for it.

    The search climbs from three starts, each time to the mean of what lies within the radius: from the guess that is
    given, from the likeliest place, and from the best of many places. A better guess may exist, so the answer is what
    an adversary reaches, not a bound.
    """
    some_places = places[:: max(1, -(-(len(places) ** 2) // _STARTS))]
    discs = (cdist(some_places, places) <= radius).astype(np.float64)
    found = np.zeros(len(weights))
    for part in chunks(len(weights), len(places)):
        some = weights[part]
        starts = (guesses[part], places[some.argmax(axis=1)], some_places[(some @ discs.T).argmax(axis=1)])
        for start in starts:
            found[part] = np.maximum(found[part], _climbed(places, some, start, radius))
    return found


def _climbed(places: FloatArray, weights: FloatArray, start: FloatArray, radius: float) -> FloatArray:
    here, best = start, np.zeros(len(weights))
    for _ in range(_CLIMB):
        inside = np.where(cdist(here, places) <= radius, weights, 0.0)
        mass = inside.sum(axis=1)
        best = np.maximum(best, mass)
        here = np.divide(inside @ places, mass[:, None], out=here.copy(), where=mass[:, None] > 0)
    return best
