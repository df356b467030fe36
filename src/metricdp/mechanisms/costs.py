"""What a mechanism costs its users beside its loss: how far from the truth its reports fall."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from metricdp._validation import FloatArray
from metricdp.drawing.randomness import InsecureSeed
from metricdp.geometry.norms import largest_ratio, norm, pairwise_distances
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem

__all__ = ["SHARE", "costs", "noise_distance"]

# Of reports that fall within the distance in question.
SHARE = 0.95

# Larger tables of probabilities, or more rows where a row takes a millisecond, are not computed: reports are drawn.
_LARGEST_TABLE = 2_000_000
_MOST_SLOW_ROWS = 200

# Reports that are drawn, and how many rows times outputs they may take.
_DRAWS = 50_000
_LARGEST_DRAW = 20_000_000

# Two seeds: with the same one for both, what is reported would depend on who was drawn, through the bits themselves.
_SEED_OF_PEOPLE, _SEED_OF_REPORTS = 0, 1


def costs(mechanism: Mechanism, problem: Problem) -> dict[str, Any]:
    """Return what the report of a fit says of costs, in a fraction of a second for a city.

    `report_distance_95` : the distance between where one is and what is reported that 5 % of reports exceed, over the
        prior. In km on the ground where there is a projection (straight distance on the map, times the most by which
        the ground is longer), in d_p otherwise.
    `report_distance_95_error` : its standard error, 0 where all records and outputs were counted.
    `report_distance_95_without_privacy` : that distance if every record reports its best output.
    `loss_unit`, `loss_without_privacy`, `loss_of_uniform_choice` : what to read the loss beside.
    """
    rows = problem.n_records
    all_counted = rows * problem.n_outputs <= _LARGEST_TABLE and not (mechanism.slow_rows and rows > _MOST_SLOW_ROWS)
    distance, error = _counted(mechanism, problem) if all_counted else _drawn(mechanism, problem)
    return {
        "report_distance_95": distance,
        "report_distance_95_error": error,
        "loss_unit": problem.loss_unit,
        "loss_without_privacy": problem.floor,
        "loss_of_uniform_choice": problem.uniform_loss,
        "report_distance_95_without_privacy": _without_privacy(mechanism, problem),
    }


def noise_distance(mechanism: Any) -> dict[str, float]:
    """Return that distance for noise without outputs, in closed form, with the lattice's step for its error.

    The length in d_p of noise with density ∝ e^{−rate ‖·‖_p} has a gamma distribution of shape N, whatever p is.
    Straight distances on the ground are at most what is given here.
    """
    n_axes = mechanism.bounds.shape[1]
    factor = 1.0
    if mechanism.projection is not None:
        factor = mechanism.distortion.stretch * largest_ratio(2, mechanism.p, n_axes)
    distance = float(gammaincinv(n_axes, SHARE)) / mechanism.rate
    return {"report_distance_95": factor * distance, "report_distance_95_error": factor * mechanism.step}


def _counted(mechanism: Mechanism, problem: Problem) -> tuple[float, float]:
    """Return the distance from the probabilities of all records, and its error, which is 0."""
    chances = problem.prior[:, None] * mechanism.probabilities(problem.records)
    order, stretch = _measure(mechanism)
    lengths = stretch * pairwise_distances(problem.records, problem.outputs, order)
    return _quantile(lengths.ravel(), chances.ravel()), 0.0


def _drawn(mechanism: Mechanism, problem: Problem) -> tuple[float, float]:
    """Return the distance from reports of records that are drawn from the prior, and its standard error.

    The share of drawn reports within a distance has a standard error s. That of the distance is half of what lies
    between the distances for the shares `SHARE` − s and `SHARE` + s.
    """
    count = max(1000, min(_DRAWS, _LARGEST_DRAW // problem.n_outputs))
    people = np.random.default_rng(_SEED_OF_PEOPLE).choice(problem.n_records, count, p=problem.prior)
    # Records are public and nobody sees these reports; a seed makes two fits say the same.
    said = np.asarray(mechanism.sample(problem.records[people], rng=InsecureSeed(_SEED_OF_REPORTS)))
    order, stretch = _measure(mechanism)
    lengths = stretch * norm(problem.records[people] - problem.outputs[said], order)
    share_error = math.sqrt(SHARE * (1 - SHARE) / count)
    low, middle, high = np.quantile(lengths, [SHARE - share_error, SHARE, SHARE + share_error])
    return float(middle), float(high - low) / 2


def _quantile(lengths: FloatArray, weights: FloatArray) -> float:
    """Return the least of some lengths that at least `SHARE` of the weight does not exceed."""
    ranked = lengths.argsort()
    within = weights[ranked].cumsum()
    # A sum of many weights may miss by a rounding error a share that it reaches.
    return float(lengths[ranked[int(np.searchsorted(within / within[-1], SHARE - 1e-12))]])


def _without_privacy(mechanism: Mechanism, problem: Problem) -> float:
    order, stretch = _measure(mechanism)
    best = problem.outputs[problem.loss.argmin(axis=1)]
    return _quantile(stretch * norm(problem.records - best, order), problem.prior)


def _measure(mechanism: Mechanism) -> tuple[float, float]:
    """Return the order of the norm in which people measure, and by how much the ground may be longer than the map."""
    return (mechanism.p, 1.0) if mechanism.distortion is None else (2.0, mechanism.distortion.stretch)
