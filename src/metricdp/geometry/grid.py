"""Step 1 of the paper: the box cut into cells, with an anchor at every cell corner."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.ndimage import gaussian_filter1d

from metricdp._validation import FloatArray, finite_array, integer, reject

__all__ = ["Grid", "along_axis"]

_MARGINAL_BINS = 4096

# Share of the largest marginal that is added to it everywhere in graded grids, so that no cell grows too wide.
_LEAST_DENSITY = 0.03


def along_axis(operator: sparse.sparray, axis: int, shape: Sequence[int]) -> sparse.csr_array:
    """Lift a one-axis operator to the product grid: I ⊗ … ⊗ operator ⊗ … ⊗ I."""
    before = int(np.prod(shape[:axis]))
    after = int(np.prod(shape[axis + 1 :]))
    left = sparse.kron(sparse.eye_array(before), operator)
    return sparse.csr_array(sparse.kron(left, sparse.eye_array(after)))


@dataclass(frozen=True)
class Grid:
    """Axis-aligned cells over a box; anchors are numbered with the last axis fastest."""

    breakpoints: tuple[FloatArray, ...]

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for points in self.breakpoints:
            points.flags.writeable = False  # copies and unpickled arrays start as writable ones

    @classmethod
    def uniform(cls, bounds: FloatArray, cells: int | Sequence[int]) -> Grid:
        """Cut each axis of the box into equal cells; one number serves every axis.

        Examples
        --------
        >>> Grid.uniform(np.array([[0.0, 0.0], [3.0, 2.0]]), cells=(3, 2)).anchor_shape
        (4, 3)
        """
        n_axes = bounds.shape[1]
        per_axis = [cells] * n_axes if isinstance(cells, (int, np.integer)) else list(cells)
        if len(per_axis) != n_axes:
            raise reject("cells", f"one whole number or one for each of the {n_axes} axes", repr(cells))
        counts = [integer("cells", count, 1) for count in per_axis]
        return cls.from_breakpoints(
            [np.linspace(low, high, count + 1) for low, high, count in zip(*bounds, counts, strict=True)]
        )

    @classmethod
    def adaptive(cls, bounds: FloatArray, cells: int | Sequence[int], records: FloatArray, prior: FloatArray) -> Grid:
        """Cut each axis at quantiles of 0.8 · (records' marginal) + 0.2 · uniform: finer where people are."""
        axes = []
        for axis, edges in enumerate(cls.uniform(bounds, cells).breakpoints):
            # A histogram spreads records that share a coordinate, so that cuts stay apart.
            place = np.linspace(edges[0], edges[-1], _MARGINAL_BINS + 1)
            mass, _ = np.histogram(records[:, axis], bins=place, weights=prior)
            share = np.linspace(0.0, 1.0, _MARGINAL_BINS + 1)
            below = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
            cut = np.interp(np.linspace(0.0, 1.0, len(edges)), 0.8 * below + 0.2 * share, place)
            cut[0], cut[-1] = edges[0], edges[-1]
            axes.append(cut)
        return cls.from_breakpoints(axes)

    @classmethod
    def graded(cls, bounds: FloatArray, cells: int | Sequence[int], records: FloatArray, prior: FloatArray) -> Grid:
        """Cut each axis so that cells per length grow like the cube root of the records' smoothed marginal.

        Sides differ less than with `adaptive`: for many cells, where all of them are to be small against 1/ε.
        """
        axes = []
        for axis, edges in enumerate(cls.uniform(bounds, cells).breakpoints):
            place = np.linspace(edges[0], edges[-1], _MARGINAL_BINS + 1)
            mass, _ = np.histogram(records[:, axis], bins=place, weights=prior)
            smooth = gaussian_filter1d(mass, _MARGINAL_BINS / 100, mode="nearest")
            density = np.cbrt(smooth / smooth.max() + _LEAST_DENSITY)
            below = np.concatenate([[0.0], np.cumsum(density)])
            cut = np.interp(np.linspace(0.0, below[-1], len(edges)), below, place)
            cut[0], cut[-1] = edges[0], edges[-1]
            axes.append(cut)
        return cls.from_breakpoints(axes)

    @classmethod
    def from_breakpoints(cls, breakpoints: Sequence[ArrayLike]) -> Grid:
        """Cut each axis at the given increasing breakpoints, box edges included."""
        axes = []
        for axis, given in enumerate(breakpoints):
            points = finite_array(f"breakpoints[{axis}]", given)
            if points.ndim != 1 or len(points) < 2 or (np.diff(points) <= 0).any():
                raise reject(f"breakpoints[{axis}]", "at least two strictly increasing numbers", points)
            points.flags.writeable = False
            axes.append(points)
        return cls(tuple(axes))

    def halved(self) -> Grid:
        """Return the grid with every cell cut in two along each axis.

        Examples
        --------
        >>> Grid.from_breakpoints([[0.0, 1.0, 4.0]]).halved().breakpoints[0].tolist()
        [0.0, 0.5, 1.0, 2.5, 4.0]
        """
        return Grid.from_breakpoints(
            [
                np.interp(np.arange(2 * len(points) - 1) / 2, np.arange(len(points)), points)
                for points in self.breakpoints
            ]
        )

    def thinned(self) -> Grid:
        """Return the grid with every second breakpoint of each axis, which must have an even number of cells.

        Examples
        --------
        >>> Grid.from_breakpoints([[0.0, 0.5, 1.0, 2.5, 4.0]]).thinned().breakpoints[0].tolist()
        [0.0, 1.0, 4.0]
        """
        return Grid.from_breakpoints([points[::2] for points in self.breakpoints])

    def on_lattice(self, step: float) -> Grid:
        """Return the grid with breakpoints moved to multiples of `step`, a power of two; the box does not shrink.

        Examples
        --------
        >>> Grid.from_breakpoints([[0.1, 0.6, 0.9]]).on_lattice(0.25).breakpoints[0].tolist()
        [0.0, 0.5, 1.0]
        """
        axes = []
        for points in self.breakpoints:
            steps = np.rint(points / step)
            steps[0], steps[-1] = np.floor(points[0] / step), np.ceil(points[-1] / step)
            axes.append(steps * step)
        return Grid.from_breakpoints(axes)

    def including(self, breakpoints: Sequence[FloatArray]) -> Grid:
        """Return the grid with more breakpoints, inside its box.

        One of its own that lies closer to one of them than a quarter of its neighbouring cells gives way to it: slivers
        of cells cost time and gain nothing. A grid that has all of them already stays as it is.

        Examples
        --------
        >>> Grid.from_breakpoints([[0.0, 1.0, 2.0, 3.0]]).including([np.array([0.0, 0.9, 1.5, 3.0])]).breakpoints[0]
        array([0. , 0.9, 1.5, 2. , 3. ])
        """
        axes = []
        for own, given in zip(self.breakpoints, breakpoints, strict=True):
            room = np.minimum(np.diff(own)[:-1], np.diff(own)[1:]) / 4
            nearest = np.abs(own[1:-1, None] - given).min(axis=1)
            kept = own[1:-1][(nearest >= room) | (nearest == 0)]
            axes.append(np.unique(np.concatenate([own[[0, -1]], kept, given])))
        return Grid.from_breakpoints(axes)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the breakpoints by name, for files."""
        return {f"breakpoints_{axis}": points for axis, points in enumerate(self.breakpoints)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], bounds: FloatArray) -> Grid:
        """Rebuild from `to_arrays`; the breakpoints must span the box."""
        grid = cls.from_breakpoints([arrays[f"breakpoints_{axis}"] for axis in range(bounds.shape[1])])
        if not np.array_equal(grid.bounds, bounds):
            raise reject("breakpoints", "arrays that span the box of the mechanism", grid.bounds.tolist())
        return grid

    @property
    def n_axes(self) -> int:
        """N, the dimension of the secret domain."""
        return len(self.breakpoints)

    @property
    def anchor_shape(self) -> tuple[int, ...]:
        """Anchors along each axis."""
        return tuple(len(points) for points in self.breakpoints)

    @property
    def n_anchors(self) -> int:
        """Anchors in all."""
        return int(np.prod(self.anchor_shape))

    @property
    def bounds(self) -> FloatArray:
        """The (2, N) box that the cells cover."""
        return np.array([[points[0], points[-1]] for points in self.breakpoints]).T

    @cached_property
    def anchors(self) -> FloatArray:
        """The (J, N) anchor records."""
        axes = np.meshgrid(*self.breakpoints, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, self.n_axes)

    @property
    def cells(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(count - 1 for count in self.anchor_shape)

    @cached_property
    def cell_centres(self) -> FloatArray:
        """The (cells, N) midpoints of the cells, last axis fastest.

        Examples
        --------
        >>> Grid.from_breakpoints([[0.0, 2.0, 6.0]]).cell_centres.tolist()
        [[1.0], [4.0]]
        """
        middles = [(edges[:-1] + edges[1:]) / 2 for edges in self.breakpoints]
        return np.stack(np.meshgrid(*middles, indexing="ij"), axis=-1).reshape(-1, self.n_axes)

    def cell_numbers(self, points: FloatArray) -> NDArray[np.intp]:
        """Return the number of the cell that holds each point; a shared border belongs to the upper cell."""
        cell, _ = self.locate(points)
        return np.asarray(np.ravel_multi_index(tuple(cell.T), self.cells))

    def neighbours(self, axis: int) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
        """Return the pairs of ℓ-neighbours (Definition 4): lower anchors, upper anchors, distances Δ."""
        numbers = np.arange(self.n_anchors).reshape(self.anchor_shape)
        count = self.anchor_shape[axis]
        lower = np.take(numbers, range(count - 1), axis=axis)
        upper = np.take(numbers, range(1, count), axis=axis)
        sides = np.diff(self.breakpoints[axis])
        along = [1] * self.n_axes
        along[axis] = -1
        distance = np.broadcast_to(sides.reshape(along), lower.shape)
        return lower.ravel(), upper.ravel(), distance.ravel()

    def locate(self, points: FloatArray) -> tuple[NDArray[np.intp], FloatArray]:
        """Return each point's cell (its lower corner, per axis) and its place u in the cell, in [0, 1].

        Points outside are taken to the nearest point of the box: clamping is 1-Lipschitz in
        every ℓ_p norm, so it costs no privacy.
        """
        cell = np.empty(points.shape, dtype=np.intp)
        place = np.empty(points.shape)
        for axis, edges in enumerate(self.breakpoints):
            x = np.clip(points[:, axis], edges[0], edges[-1])
            cell[:, axis] = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
            left = edges[cell[:, axis]]
            place[:, axis] = np.clip((x - left) / (edges[cell[:, axis] + 1] - left), 0.0, 1.0)
        return cell, place

    def weights(self, points: FloatArray) -> sparse.csr_array:
        """Return the multilinear weights w_γ(x) of Definition 5 as a sparse (points, anchors) matrix."""
        cell, place = self.locate(points)
        corners = np.array(list(itertools.product((0, 1), repeat=self.n_axes)))
        strides = np.array([int(np.prod(self.anchor_shape[axis + 1 :])) for axis in range(self.n_axes)])
        anchor = (cell @ strides)[:, None] + corners @ strides
        weight = np.ones(anchor.shape)
        for axis in range(self.n_axes):
            sides = np.column_stack([1 - place[:, axis], place[:, axis]])
            weight *= sides[:, corners[:, axis]]
        ends = np.arange(len(points) + 1) * len(corners)
        return sparse.csr_array((weight.ravel(), anchor.ravel(), ends), shape=(len(points), self.n_anchors))
