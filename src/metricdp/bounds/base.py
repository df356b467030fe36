"""What every lower bound takes and how its value is rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._rounding import product_above
from metricdp._validation import FloatArray
from metricdp.geometry.norms import norm_above
from metricdp.geometry.path_metric import PathMetric
from metricdp.mechanisms.options import GridOptions
from metricdp.problem import Problem

__all__ = ["BoundOptions", "Budget", "floor_bound", "rounded_down"]

# A dual value is a sum of at most a few million rounded terms; this covers their rounding many times over.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class BoundOptions(GridOptions):
    """The options of `metricdp.lower_bound`, which explains them."""

    clusters: int = 1000
    neighbours: int = 64
    seed: int = 0

    def say(self, share: float, words: str) -> None:
        """Tell the caller how far the bound is."""
        if self.progress is not None:
            self.progress(share, words)


@dataclass(frozen=True)
class Budget:
    """What every private mechanism may spend between two points of the plane.

    epsilon : ε, the largest of the map if there is one.
    paths : the metric of the map; None for one ε.
    """

    epsilon: float
    paths: PathMetric | None = None

    def between(self, left: FloatArray, right: FloatArray, p: float) -> FloatArray:
        """Return exponents that no private mechanism exceeds between pairs of points (n, N), not rounded below them."""
        if self.paths is not None:
            return self.paths.between(left, right)
        return product_above(self.epsilon, norm_above(left - right, p))


def rounded_down(value: float, problem: Problem) -> float:
    """Return `value` less what rounding may have added to it."""
    size = float(problem.prior @ np.abs(problem.loss).max(axis=1))
    return value - _ROUNDING * (abs(value) + size)


def floor_bound(problem: Problem, budget: Budget, options: BoundOptions) -> float:  # noqa: ARG001 - for any ε
    """Return the loss without privacy, Σ π(x) min_k L(x, k)."""
    return rounded_down(problem.floor, problem)
