"""The square cells on which beliefs about a position are held."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import FloatArray, checked_box, finite_array, freeze_arrays, integer, positive, reject, table
from metricdp.errors import ProblemTooLargeError

__all__ = ["Raster"]

# A belief over so many cells takes 8 MB, and a prediction about a tenth of a second.
_MOST_CELLS = 2**20


@dataclass(frozen=True, eq=False)
class Raster:
    """A rectangle of square cells in the plane of a projection, or in a plane without one.

    Cells are numbered along the second axis first: cell (i, j) has the number i · shape[1] + j.

    corner : (2,) array, the south-west corner, in km of the projection (in units of the plane without one).
    cell_km : the side of a cell.
    shape : how many cells there are from west to east and from south to north.
    projection : how the plane maps to longitude and latitude; None for points that are no degrees.
    """

    corner: FloatArray
    cell_km: float
    shape: tuple[int, int]
    projection: Any = None

    def __post_init__(self) -> None:
        corner = finite_array("corner", self.corner)
        if corner.shape != (2,):
            raise reject("corner", "of shape (2,)", f"shape {corner.shape}")
        sides = tuple(integer("shape", side, 1) for side in self.shape)
        if len(sides) != 2:
            raise reject("shape", "two numbers of cells", f"{len(sides)} of them")
        _check_size(sides)
        object.__setattr__(self, "corner", corner)
        object.__setattr__(self, "cell_km", positive("cell_km", self.cell_km))
        object.__setattr__(self, "shape", sides)
        freeze_arrays(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)

    @classmethod
    def over(cls, box_km: ArrayLike, cell_km: float, projection: Any = None) -> Raster:
        """Return the fewest cells that cover a (2, 2) box, lower corner first, with the box in their middle.

        Examples
        --------
        >>> Raster.over([[0, 0], [1, 0.5]], 0.3).shape
        (4, 2)
        """
        box, side = checked_box(box_km), positive("cell_km", cell_km)
        if box.shape[1] != 2:
            raise reject("bounds", "of two axes", f"{box.shape[1]} of them")
        # Slightly less than the quotient, so that a box of whole cells does not get one more by rounding.
        counts = np.ceil(np.ptp(box, axis=0) / side - 1e-9)
        _check_size(counts)
        nx, ny = (max(1, int(count)) for count in counts)
        corner = box.mean(axis=0) - side * np.array([nx, ny]) / 2
        return cls(corner, side, (nx, ny), projection)

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return self.shape[0] * self.shape[1]

    @property
    def bounds(self) -> FloatArray:
        """The (2, 2) box that the cells fill."""
        return np.array([self.corner, self.corner + self.cell_km * np.array(self.shape)])

    @property
    def centres(self) -> FloatArray:
        """The cells' centres, (cells, 2), in the plane."""
        axes = (low + self.cell_km * (np.arange(n) + 0.5) for low, n in zip(self.corner, self.shape, strict=True))
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def cells_of(self, xy_km: FloatArray) -> NDArray[np.intp]:
        """Return the number of the cell that holds each point of the plane, -1 where there is none."""
        where = np.floor((xy_km - self.corner) / self.cell_km)
        inside = ((where >= 0) & (where < self.shape)).all(axis=1)
        cells = np.full(len(xy_km), -1, dtype=np.intp)
        cells[inside] = where[inside].astype(np.intp) @ (self.shape[1], 1)
        return cells

    def to_plane(self, points: ArrayLike, name: str = "points") -> FloatArray:
        """Return points as users give them, degrees where there is a projection, in the plane."""
        given = table(name, points, columns=2)
        return given if self.projection is None else self.projection.to_xy_km(given[:, 0], given[:, 1])

    def from_plane(self, xy_km: FloatArray) -> FloatArray:
        """Return points of the plane as users want them, degrees where there is a projection."""
        return xy_km if self.projection is None else self.projection.to_lonlat(xy_km)


def _check_size(shape: Any) -> None:
    cells = math.prod(float(side) for side in shape)
    if cells > _MOST_CELLS:
        msg = f"{cells:,.0f} cells are more than {_MOST_CELLS:,}; take a larger `cell_km` or a smaller box (`bounds`)."
        raise ProblemTooLargeError(msg)
