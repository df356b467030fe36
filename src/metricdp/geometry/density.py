"""How crowded a place is: the radius around it that holds a given share of all people."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.spatial import cKDTree

from metricdp._chunks import chunks
from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm

__all__ = ["largest_radii", "radii_holding"]

# Neighbours that are looked at first; more where they do not hold enough.
_FIRST_LOOK = 64


def radii_holding(points: FloatArray, places: FloatArray, mass: FloatArray, share: float, p: float) -> FloatArray:
    """Return the smallest radius in d_p around each point within which places hold this share of the mass.

    The radius is 1-Lipschitz: the ball of radius r around x lies in that of radius r + d(x, x') around x'.

    Examples
    --------
    >>> radii_holding(np.array([[0.0]]), np.array([[1.0], [-2.0], [5.0]]), np.array([0.2, 0.3, 0.5]), 0.4, 2).tolist()
    [2.0]
    """
    tree = cKDTree(places)
    # A share that rounding would push beyond the whole is the whole.
    wanted = min(share * mass.sum(), mass.sum() * (1 - 1e-12))
    found = np.full(len(points), np.nan)
    left, look = np.arange(len(points)), min(_FIRST_LOOK, len(places))
    while len(left):
        for part in chunks(len(left), 2 * look):
            distance, near = map(np.asarray, tree.query(points[left[part]], k=np.arange(1, look + 1), p=p))
            enough = np.cumsum(mass[near], axis=1) >= wanted
            first = enough.argmax(axis=1)
            inside = np.where(enough.any(axis=1), distance[np.arange(len(first)), first], np.nan)
            found[left[part]] = inside if look < len(places) else np.where(np.isnan(inside), distance[:, -1], inside)
        left, look = left[np.isnan(found[left])], min(4 * look, len(places))
    return found


def largest_radii(
    grid: Grid, places: FloatArray, mass: FloatArray, share: float, p: float, parts: int = 3
) -> FloatArray:
    """Return a number for each cell of a grid that no `radii_holding` of its points exceeds.

    Every cell is cut into `parts` along each axis: the radius at the middle of a part, and the distance from there to
    its corners, bound all radii in the part.
    """
    fine = Grid.from_breakpoints(
        [np.interp(np.arange(parts * (len(x) - 1) + 1) / parts, np.arange(len(x)), x) for x in grid.breakpoints]
    )
    halves = np.meshgrid(*(np.diff(x) / 2 for x in fine.breakpoints), indexing="ij")
    reach = norm(np.stack(halves, axis=-1), p)
    radius = radii_holding(fine.cell_centres, places, mass, share, p).reshape(fine.cells) + reach
    folded = radius.reshape(list(itertools.chain.from_iterable((cells, parts) for cells in grid.cells)))
    return np.asarray(folded.max(axis=tuple(range(1, folded.ndim, 2))))
