"""What a mechanism loses on its problem: exactly, or as an estimate with its error where exact rows would take long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.mechanisms.base import Mechanism
from metricdp.problem import Problem

__all__ = ["Loss", "estimated_loss", "exact_loss", "loss_within"]

# Seconds between two looks at the clock, roughly.
_BETWEEN_LOOKS = 0.1

# All records together may take this much less time per record than the first few, and than the first two thousand:
# what is prepared once, and work that neighbours share.
_THAN_FEW, _THAN_MANY = 10.0, 2.0

# Records from which the time of a record is learnt, and the most that an estimate is made from.
_FIRST, _SAMPLE = 50, 2000


@dataclass(frozen=True)
class Loss:
    """An expected loss: its value, its standard error, and whether it is the sum over all records.

    The standard error of an estimate says how far it typically is from the exact loss; that of an exact loss is 0.
    """

    value: float
    error: float
    exact: bool

    @classmethod
    def exactly(cls, value: float) -> Loss:
        """Return a loss without error."""
        return cls(value, 0.0, exact=True)

    def facts(self) -> dict[str, Any]:
        """Return the entries of a report."""
        return {"loss": self.value, "loss_error": self.error, "loss_exact": self.exact}


def exact_loss(mechanism: Mechanism, problem: Problem, clock: Clock) -> Loss | None:
    """Return the loss over all records; None if the clock runs out before, or as soon as it is clear that it will."""
    order = _neighbours_together(problem.records)
    started, total, done, at_once = clock.spent, 0.0, 0, _FIRST
    while done < len(order):
        before = clock.spent
        chosen = order[done : done + at_once]
        total += float(problem.prior[chosen] @ _losses(mechanism, problem, chosen))
        done += len(chosen)
        needed = (clock.spent - started) / done * (len(order) - done)
        if needed > (_THAN_FEW if done < _SAMPLE else _THAN_MANY) * clock.at_most(math.inf):
            return None
        if clock.spent - before < _BETWEEN_LOOKS:
            at_once *= 2
    return Loss.exactly(total)


def _neighbours_together(records: FloatArray) -> NDArray[np.intp]:
    """Return an order of the records, strip by strip, in which neighbours share work (of planar Laplace noise)."""
    across, along = records[:, 0], records[:, -1]
    strips = math.isqrt(len(records)) // 8 + 1
    strip = np.floor(strips * (across - across.min()) / (np.ptp(across) or 1.0))
    return np.lexsort((along, strip))


def estimated_loss(mechanism: Mechanism, problem: Problem, seconds: float) -> Loss:
    """Estimate the loss from records drawn by their prior, up to 2,000 of them and as many as the time allows.

    What a record loses is regressed on what it would lose without privacy and with a uniform choice. The means of these
    two over all records are known, so the estimate's error is that of the residuals.
    """
    clock = Clock(seconds)
    chosen = np.random.default_rng(0).choice(problem.n_records, _SAMPLE, p=problem.prior)
    first = _losses(mechanism, problem, chosen[:_FIRST])
    more = int(_FIRST * max(seconds / clock.spent - 1, 0.0))
    chosen = chosen[: _FIRST + more]
    losses = np.concatenate([first, _losses(mechanism, problem, chosen[_FIRST:])])
    known = np.column_stack([np.ones(len(chosen)), problem.loss[chosen].min(axis=1), problem.loss[chosen].mean(axis=1)])
    weights = np.linalg.lstsq(known, losses, rcond=None)[0]
    residual = losses - known @ weights
    value = float(np.array([1.0, problem.floor, problem.uniform_loss]) @ weights)
    error = math.sqrt(float(residual @ residual) / (len(losses) - known.shape[1]) / len(losses))
    return Loss(value, error, exact=False)


def loss_within(mechanism: Mechanism, problem: Problem, seconds: float) -> Loss:
    """Return the exact loss if it takes at most about so many seconds or there are few records, else an estimate."""
    clock = Clock(seconds)
    if problem.n_records <= 2 * _FIRST:  # an estimate would take as long
        return Loss.exactly(mechanism.expected_loss(problem))
    _losses(mechanism, problem, np.linspace(0, problem.n_records - 1, _FIRST).astype(np.intp))
    if clock.spent * problem.n_records <= _THAN_FEW * _FIRST * seconds:
        found = exact_loss(mechanism, problem, clock)
        if found is not None:
            return found
    return estimated_loss(mechanism, problem, clock.at_most(seconds))


def _losses(mechanism: Mechanism, problem: Problem, chosen: NDArray[np.intp]) -> FloatArray:
    """Return the expected loss at each of the chosen records."""
    return mechanism.losses_at(problem.records[chosen], problem.loss[chosen])
