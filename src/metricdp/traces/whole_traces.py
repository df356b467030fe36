"""Traces of many persons at once: the estimate after each report, or given all reports of the person."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, choice, reject
from metricdp.mechanisms.base import Mechanism
from metricdp.traces.estimates import LOSSES
from metricdp.traces.likelihoods import checked_report, log_likelihood, require_common_ground
from metricdp.traces.movement import Movement, normalised, scaled_likelihoods
from metricdp.traces.times import checked_times
from metricdp.traces.tracker import estimate_of

__all__ = ["smooth", "track"]

# Numbers in the beliefs that a smoother keeps at once: 128 MB. Of longer traces it keeps some and recomputes the rest.
_MOST_NUMBERS = 2**24

Rows = NDArray[np.intp]


def track(
    mechanism: Mechanism,
    movement: Movement,
    reports: Any,
    unix_s: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    reused: ArrayLike | None = None,
    loss: str = "euclidean",
) -> FloatArray:
    """Return what a `Tracker` says after each report, (n, 2).

    Parameters
    ----------
    mechanism, movement, loss
        As for `Tracker`.
    reports : (n,) indices or ids, or (n, 2) points
        As for `Tracker.update`.
    unix_s : (n,) array
        When each was made; increasing for each person, in any order between persons.
    ids : (n,) array, optional
        Whose report it is. All are one person's by default. Persons are tracked separately.
    reused : (n,) booleans, optional
        Which reports are earlier answers given again, and so no new observations. None of them by default.
    """
    given = _Reports(mechanism, movement, reports, unix_s, ids, reused, loss)
    estimates = np.empty((given.n_reports, 2))
    for draws, repeats in given.persons():
        for row, belief in zip(draws, given.filtered(draws, movement.prior), strict=True):
            estimates[row] = estimate_of(belief, movement, loss)
            for repeat in repeats.get(int(row), ()):
                estimates[repeat] = estimate_of(given.carried(belief, row, repeat), movement, loss)
    return estimates


def smooth(
    mechanism: Mechanism,
    movement: Movement,
    reports: Any,
    unix_s: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    reused: ArrayLike | None = None,
    loss: str = "euclidean",
) -> FloatArray:
    """Return the best estimate of each point given all reports of its person, earlier and later ones, (n, 2).

    Parameters as for `track`. The guarantee is that of the reports, as for `Tracker`.
    """
    given = _Reports(mechanism, movement, reports, unix_s, ids, reused, loss)
    estimates = np.empty((given.n_reports, 2))
    for draws, repeats in given.persons():
        for row, belief in given.smoothed(draws, repeats):
            estimates[row] = estimate_of(belief, movement, loss)
    return estimates


class _Reports:
    """Reports of several persons, checked."""

    def __init__(
        self,
        mechanism: Mechanism,
        movement: Movement,
        reports: Any,
        unix_s: ArrayLike,
        ids: ArrayLike | None,
        reused: ArrayLike | None,
        loss: str,
    ) -> None:
        require_common_ground(mechanism, movement.raster)
        choice("loss", loss, LOSSES)
        self.mechanism, self.movement = mechanism, movement
        self.reports = [checked_report(mechanism, report) for report in reports]
        self.times = np.asarray(self._one_each("unix_s", unix_s), dtype=np.float64)
        names = np.zeros(self.n_reports) if ids is None else self._one_each("ids", ids)
        self.whose = np.unique(names, return_inverse=True)[1]
        flags = self._one_each("reused", np.zeros(self.n_reports, dtype=bool) if reused is None else reused)
        if flags.dtype != np.bool_ and self.n_reports:
            raise reject("reused", "made of booleans", str(flags.dtype))
        self.reused = flags.astype(bool)

    @property
    def n_reports(self) -> int:
        return len(self.reports)

    def persons(self) -> Iterator[tuple[Rows, dict[int, list[int]]]]:
        """Yield for each person the rows of draws, in order of time, and the rows that repeat each of them."""
        order = np.argsort(self.whose, kind="stable")
        starts = np.flatnonzero(np.diff(self.whose[order])) + 1
        for rows in np.split(order, starts) if len(order) else ():
            checked_times(self.times[rows], len(rows))
            yield rows[~self.reused[rows]], self._repeats(rows)

    def filtered(self, draws: Rows, belief: FloatArray, since: int | None = None) -> Iterator[FloatArray]:
        """Yield the belief after each draw, from a belief after the draw in row `since`."""
        for row in draws:
            expected = belief if since is None else self.carried(belief, since, row)
            belief = normalised(expected * self._likelihood(row))
            since = row
            yield belief

    def smoothed(self, draws: Rows, repeats: dict[int, list[int]]) -> Iterator[tuple[int, FloatArray]]:
        """Yield rows and beliefs given all reports, from the last draw to the first.

        The filter's belief is kept at the start of each block, and made again within a block when that is smoothed.
        """
        blocks = np.array_split(draws, math.ceil(len(draws) / self._block_length(len(draws))))
        entries: list[tuple[FloatArray, int | None]] = []
        belief, since = self.movement.prior, None
        for block in blocks:
            entries.append((belief, since))
            for after in self.filtered(block, belief, since):
                belief = after
            since = int(block[-1])
        # What the next draw and all after it say about where the person is at the next draw.
        ahead, follower = np.ones(self.movement.raster.n_cells), None
        for block, entry in zip(reversed(blocks), reversed(entries), strict=True):
            beliefs = list(self.filtered(block, *entry))
            for row, forward in zip(reversed(block), reversed(beliefs), strict=True):
                for repeat in repeats.get(int(row), ()):
                    then = self._looked_back(ahead, follower, repeat)
                    yield repeat, normalised(self.carried(forward, row, repeat) * then)
                later = self._looked_back(ahead, follower, row)
                yield int(row), normalised(forward * later)
                ahead, follower = later * self._likelihood(row), row

    def carried(self, belief: FloatArray, since: int, row: int) -> FloatArray:
        """Return a belief carried on by the movement, from one row's time to another's."""
        return self.movement.predict(belief, self.times[row] - self.times[since])

    def _looked_back(self, ahead: FloatArray, follower: int | None, row: int) -> FloatArray:
        if follower is None:
            return ahead
        later = self.movement.look_back(ahead, self.times[follower] - self.times[row])
        return np.asarray(later / later.max())  # only ratios count; products of many would underflow

    def _likelihood(self, row: int) -> FloatArray:
        return scaled_likelihoods(log_likelihood(self.mechanism, self.movement.raster, self.reports[row]))

    def _block_length(self, n_draws: int) -> int:
        """Return all draws if their beliefs fit into memory, otherwise the length that needs least memory."""
        if n_draws * self.movement.raster.n_cells <= _MOST_NUMBERS:
            return n_draws
        return math.isqrt(n_draws) + 1

    def _repeats(self, rows: Rows) -> dict[int, list[int]]:
        """Return for each draw the rows that repeat it; a repetition must be that of the last draw."""
        found: dict[int, list[int]] = {}
        last: int | None = None
        for row in rows.tolist():
            if not self.reused[row]:
                last = row
            elif last is None or not np.array_equal(self.reports[row], self.reports[last]):
                raise reject("reused", "False for a report that is not its person's last draw", f"True at index {row}")
            else:
                found.setdefault(last, []).append(row)
        return found

    def _one_each(self, name: str, values: Any) -> NDArray[Any]:
        array = np.asarray(values)
        if array.shape != (self.n_reports,):
            raise reject(name, f"of shape ({self.n_reports},), one for each report", f"shape {array.shape}")
        return array
