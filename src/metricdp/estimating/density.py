"""How people are spread over cells, from their private reports, with error bars."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm as normal

from metricdp._places import axis_names
from metricdp._progress import Tell, told
from metricdp._validation import FloatArray, fraction, freeze_arrays, positive, reject
from metricdp.estimating.cells import CellGrid, counted, parts_within
from metricdp.estimating.mixture import covariance, shares
from metricdp.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Density", "estimate_density"]


@dataclass(frozen=True, eq=False)
class Density:
    """The share of people in each cell.

    lower, upper : (cells, N) arrays, the corners of each cell in the mechanism's coordinates.
    shape : cells along each axis; the last axis counts fastest.
    share : (cells,) array that sums to 1.
    standard_error : (cells,) array, from the Fisher information.
    low, high : (cells,) arrays, the ends of the error bars, not below 0.
    confidence : of the error bars, for each cell on its own.
    reports : how many there were.
    may_rise : by how much the log-likelihood may rise at most if the iteration went on.
    """

    lower: FloatArray
    upper: FloatArray
    shape: tuple[int, ...]
    share: FloatArray
    standard_error: FloatArray
    low: FloatArray
    high: FloatArray
    confidence: float
    reports: int
    may_rise: float
    steps: int
    seconds: float
    projection: Any = None

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __repr__(self) -> str:
        return f"Density(cells={len(self.share)}, reports={self.reports:,})"

    @property
    def table(self) -> pd.DataFrame:
        """A row for each cell: its middle (`lon` and `lat`, or `x`, …), `share`, `low`, `high`, `standard_error`.

        `people` is the share times the number of reports.
        """
        import pandas as pd  # noqa: PLC0415 - takes long to import

        middle = (self.lower + self.upper) / 2
        names: tuple[str, ...] = axis_names(middle.shape[1])
        if self.projection is not None:
            names, middle = ("lon", "lat"), self.projection.to_lonlat(middle)
        figures = {name: getattr(self, name) for name in ("share", "low", "high", "standard_error")}
        return pd.DataFrame(dict(zip(names, middle.T, strict=True)) | figures | {"people": self.share * self.reports})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for `--json`; the keys are documented in docs/json.md."""
        rows = [{str(name): float(value) for name, value in row.items()} for row in self.table.to_dict("records")]
        names = ("confidence", "reports", "may_rise", "steps", "seconds")
        sides = [float(one) for one in self.upper[0] - self.lower[0]]
        return (
            {"shape": list(self.shape), "sides": sides}
            | {name: getattr(self, name) for name in names}
            | {"cells": rows}
        )


def estimate_density(
    mechanism: Mechanism,
    reports: ArrayLike,
    *,
    cell: float | None = None,
    confidence: float = 0.95,
    progress: Tell | bool | None = None,
) -> Density:
    """Return the share of people in each cell of the mechanism's box, with error bars.

    Maximum likelihood by expectation maximisation: which shares of people in the cells make the reports that came as
    likely as possible? The mechanism is public, so Pr[report | cell] is known. Only the reports are used, so this is
    post-processing: it costs no privacy.

    Parameters
    ----------
    mechanism : Mechanism
        That drew the reports.
    reports : (n,) integers, or (n, N) array
        Numbers of outputs; for `metricdp.noise` reported points in the mechanism's coordinates.
    cell : float, optional
        The least side of a cell, in the mechanism's coordinates (kilometres of the map). 1/ε by default; smaller cells
        can hardly be told apart, and their bars are wide.
    confidence : float
        Of the error bars.
    progress : callable, bool or None
        Told how far the iteration is, see `fit`.

    Guarantee
    ---------
    Assumed: one report from each person, drawn independently; people are spread evenly within squares of side 1/ε, into
    which larger cells are split for the estimate; those outside the box are counted in the cells at its border. Then
    for many reports each bar holds the true share with the given confidence, and is as narrow as the Fisher information
    allows for an unbiased estimate. People who crowd together within less than 1/ε make bars too narrow.

    Examples
    --------
    >>> import metricdp as mdp
    >>> mechanism = mdp.noise(2.0, bounds=[[0.0], [4.0]])
    >>> people = np.random.default_rng(0).uniform(0, 2, (20_000, 1))
    >>> found = mdp.estimate_density(mechanism, mechanism.sample(people, mdp.InsecureSeed(0)), cell=2.0)
    >>> bool(found.low[0] <= 1 <= found.high[0]), found.share.round(1).tolist()
    (True, [1.0, 0.0])
    """
    started = time.perf_counter()
    if not isinstance(mechanism, Mechanism):
        raise reject("mechanism", "a metricdp.Mechanism", type(mechanism).__name__)
    level = fraction("confidence", confidence)
    rate = _rate(mechanism)
    side = 1 / rate if cell is None else positive("cell", cell)
    if side < (1 - 1e-6) / rate:
        msg = f"Cells of {side:.3g} are smaller than 1/ε = {1 / rate:.3g}, so reports hardly tell them apart."
        warnings.warn(msg, stacklevel=2)
    grid = CellGrid.over(mechanism.bounds, side)
    with told(progress, "estimating") as tell:
        tell(0.0, f"what reports say of {grid.n_cells:,} cells")
        parts = parts_within(mechanism, grid, rate)
        seen = counted(mechanism, reports, grid.split(parts), rate)
        fine, may_rise, steps = shares(seen.rows, seen.counts, tell)
        tell(0.95, "error bars")
        total = float(seen.counts.sum())
        spread = grid.sums(parts, grid.sums(parts, covariance(seen.rows, fine, total)).T)
        share, deviation = grid.sums(parts, fine), np.sqrt(np.maximum(np.diag(spread), 0.0))
    reach = float(normal.ppf(0.5 + level / 2)) * deviation
    return Density(
        lower=grid.lower,
        upper=grid.lower + grid.sides,
        shape=grid.shape,
        share=share,
        standard_error=deviation,
        low=np.maximum(share - reach, 0.0),
        high=share + reach,
        confidence=level,
        reports=int(total),
        may_rise=may_rise,
        steps=steps,
        seconds=time.perf_counter() - started,
        projection=mechanism.projection,
    )


def _rate(mechanism: Mechanism) -> float:
    """Return the ε by which cells are sized, per unit of the mechanism's coordinates: with a map of ε its smallest."""
    kappa = float(mechanism.plane_epsilon) / mechanism.epsilon
    epsilon = mechanism.epsilon if mechanism.epsilon_map is None else mechanism.epsilon_map.min
    return kappa * epsilon or mechanism.epsilon
