"""The best single answer that a belief gives: the point with the least expected distance, or its square."""

from __future__ import annotations

import numpy as np

from metricdp._validation import FloatArray, choice
from metricdp.traces.raster import Raster

__all__ = ["LOSSES", "best_point"]

LOSSES = ("euclidean", "squared")

# Root mean square distance from the middle of a cell of side 1 to its other points. A belief says which cell somebody
# is in, not that they are at its centre: distances to a cell are √(d² + spread²), which keeps derivatives finite, too.
_SPREAD = 6**-0.5

# Newton's method stops when steps are shorter than this share of a cell.
_CLOSE = 1e-3
_MOST_STEPS = 50


def best_point(belief: FloatArray, raster: Raster, loss: str = "euclidean") -> FloatArray:
    """Return the point of the plane with the least expected loss, (2,).

    Parameters
    ----------
    belief : (cells,) array
        Chances, sum 1.
    raster : Raster
        The cells.
    loss : "euclidean" or "squared"
        What is minimised: the expected distance (the geometric median of the belief) or its square (the mean).

    Examples
    --------
    >>> best_point(np.array([0.6, 0.0, 0.4]), Raster([0, 0], 1.0, (3, 1)), "squared").round(3).tolist()
    [1.3, 0.5]
    """
    weights = belief.reshape(raster.shape)
    # Distances in cells from the centre of the first cell; margins suffice for the mean.
    axes = [np.arange(side, dtype=np.float64) for side in raster.shape]
    mean = np.array([weights.sum(axis=1) @ axes[0], weights.sum(axis=0) @ axes[1]])
    best = _median(weights, axes, mean) if choice("loss", loss, LOSSES) == "euclidean" else mean
    return np.asarray(raster.corner + raster.cell_km * (best + 0.5))


def _median(weights: FloatArray, axes: list[FloatArray], start: FloatArray) -> FloatArray:
    """Return the minimum of the convex function m ↦ Σ w √(‖m − c‖² + spread²) by Newton's method."""
    here: FloatArray = start
    step: FloatArray = np.zeros(2)
    lowest = np.inf
    for _ in range(_MOST_STEPS):
        value, gradient, hessian = _derivatives(weights, axes, here)
        if value > lowest:  # too far: the function is convex, so half the step is better or stops soon
            here, step = here - step / 2, step / 2
        else:
            lowest, step = value, np.asarray(-np.linalg.solve(hessian, gradient))
            here = here + step
        if np.abs(step).max() < _CLOSE:
            break
    return here


def _derivatives(weights: FloatArray, axes: list[FloatArray], here: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return value, gradient and Hessian; sums over cells are products with the axes on either side."""
    dx, dy = here[0] - axes[0], here[1] - axes[1]
    squared = np.add.outer(dx**2, dy**2 + _SPREAD**2)
    pull = weights / np.sqrt(squared)  # w / d
    value = float(np.vdot(pull, squared))
    rows, columns = pull.sum(axis=1), pull.sum(axis=0)
    gradient = np.array([rows @ dx, columns @ dy])
    pull /= squared  # w / d³
    mixed = dx @ pull @ dy
    across = np.array([[pull.sum(axis=1) @ dx**2, mixed], [mixed, pull.sum(axis=0) @ dy**2]])
    return value, gradient, rows.sum() * np.eye(2) - across
