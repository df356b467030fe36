"""Following one person by their reports: the best estimate after each of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metricdp._validation import FloatArray, choice, reject
from metricdp.mechanisms.base import Mechanism
from metricdp.traces.estimates import LOSSES, best_point
from metricdp.traces.likelihoods import checked_report, log_likelihood, require_common_ground
from metricdp.traces.movement import Movement, normalised, scaled_likelihoods
from metricdp.traces.times import require_seconds

__all__ = ["Tracker", "estimate_of"]


class Tracker:
    """The best estimate of where one person is, given all their reports so far.

    Each report multiplies the belief by Pr[report | cell] (Bayes' rule); between reports the movement model carries it
    on. A tracker never sees a true point, so all that it says is post-processing.

    Guarantee
    ---------
    Start, resets and cells depend on the movement model, which is public, and on reports and times. Whatever privacy
    the reports have together (n reports of a mechanism of ε: nε per km), the estimates have too, and no less.

    Parameters
    ----------
    mechanism : Mechanism
        What the reports were drawn with: one with outputs, or `metricdp.noise`.
    movement : Movement
        A public model of movement about the same places.
    loss : "euclidean" or "squared"
        What estimates minimise in expectation: the distance to the true point, or its square.

    Examples
    --------
    >>> import metricdp as mdp
    >>> from metricdp.traces import Raster
    >>> noise = mdp.noise(epsilon=1, bounds=[[0, 0], [10, 1]])
    >>> movement = Movement(Raster([0, 0], 1.0, (10, 1)), np.ones(10), [np.ones((3, 1))], [60])
    >>> tracker = Tracker(noise, movement)
    >>> first, second = tracker.update([2.5, 0.5], unix_s=0), tracker.update([6.5, 0.5], unix_s=60)
    >>> first.round(1).tolist(), second.round(1).tolist()  # nobody moves so far in a minute
    ([2.5, 0.5], [4.8, 0.5])
    """

    def __init__(self, mechanism: Mechanism, movement: Movement, *, loss: str = "euclidean") -> None:
        require_common_ground(mechanism, movement.raster)
        self.mechanism, self.movement, self.loss = mechanism, movement, choice("loss", loss, LOSSES)
        self.reset()

    def reset(self) -> None:
        """Forget all reports."""
        self._belief: FloatArray = self.movement.prior
        self._unix_s: float | None = None
        self._report: Any = None

    @property
    def unix_s(self) -> float | None:
        """When the last report that counted was made; None before the first."""
        return self._unix_s

    def update(self, report: Any, unix_s: float, *, reused: bool = False) -> FloatArray:
        """Take a report into account and return where the person now is: (lon, lat), or (x, y) without a projection.

        Parameters
        ----------
        report : int, str or (lon, lat)
            The index or the id of an output, or the point that noise reported.
        unix_s : float
            When it was made, after all reports before it. The same report at the same time again changes nothing.
        reused : bool
            Whether it is an earlier answer given again, as within a period of a ledger's schedule. It is no new
            observation: only the time goes on. It must be the last report that counted.
        """
        when = self._checked_time(unix_s)
        given = checked_report(self.mechanism, report)
        if reused or when == self._unix_s:
            self._require_again(given, reused=reused)
            return self.estimate(when)
        logs = log_likelihood(self.mechanism, self.movement.raster, given)
        self._belief = normalised(self.belief(when) * scaled_likelihoods(logs))
        self._unix_s, self._report = when, given
        return self.estimate()

    def belief(self, unix_s: float | None = None) -> FloatArray:
        """Return the chance of every cell, (cells,), when the last report was made or at a later time."""
        if unix_s is None or self._unix_s is None:
            return self._belief
        return self.movement.predict(self._belief, self._checked_time(unix_s) - self._unix_s)

    def estimate(self, unix_s: float | None = None) -> FloatArray:
        """Return the best estimate when the last report was made or at a later time, without a new report."""
        return estimate_of(self.belief(unix_s), self.movement, self.loss)

    def require_later(self, unix_s: float) -> None:
        """Refuse a time at which no further report can be made."""
        if self._checked_time(unix_s) == self._unix_s:
            raise reject("unix_s", "after the last report's", "the same time")

    def _require_again(self, report: Any, *, reused: bool) -> None:
        if np.array_equal(report, self._report) and self._report is not None:
            return
        if reused:
            raise reject("reused", "False for a report that this tracker has not just counted", "True")
        raise reject("unix_s", "after the last report's, for another report", "the same time")

    def _checked_time(self, unix_s: float) -> float:
        if np.ndim(unix_s):
            raise reject("unix_s", "one number of seconds", f"shape {np.shape(unix_s)}")
        try:
            when = float(unix_s)
        except (TypeError, ValueError):
            raise reject("unix_s", "a number of seconds", type(unix_s).__name__) from None
        if not math.isfinite(when):
            raise reject("unix_s", "finite", repr(when))
        require_seconds("unix_s", when)
        if self._unix_s is not None and when < self._unix_s:
            raise reject("unix_s", "no earlier than the last report's", f"{self._unix_s - when:g} s before it")
        return when


def estimate_of(belief: FloatArray, movement: Movement, loss: str) -> FloatArray:
    """Return the best point of a belief as users want it, (lon, lat) where there is a projection."""
    point = best_point(belief, movement.raster, loss)
    return np.asarray(movement.raster.from_plane(point[None])[0])
