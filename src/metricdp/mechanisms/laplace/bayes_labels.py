"""The Bayes remap: for each square the output of least posterior loss, by convolutions over the squares around."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, sparse
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree

from metricdp._chunks import chunks
from metricdp._clock import Clock
from metricdp._validation import FloatArray
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.mechanisms.laplace.mechanism import NoiseFrame
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.problem import Problem

__all__ = ["BayesLabels"]

# In squares whose prior predictive mass is below this share of the largest, rounding errors of the Fourier transform
# are as large as the posterior losses.
_RESOLVED = 1e-11

# Records further than this from a square, over the rate, need not count in it: e^-40 is below the rounding of the
# transform over all squares; what tiles do not see, (1 + 16) e^-16 = 2e-6 of the noise, shows in no loss.
_FAR, _FAR_FROM_TILE = 40.0, 16.0

# The outputs tried in a tile are those among the so many cheapest of a record so near to it, over the rate. Squares
# further than that from all records take the nearest known label.
_CHEAPEST, _NEAR = 16, 10.0

# With so few outputs most of them are candidates everywhere, and so are those of so few tiles. Tiles must promise to
# save this share of the transforms, because they also gather losses.
_FEW_OUTPUTS, _FEW_TILES, _WORTHWHILE = 24, 16, 0.5

# Side of a tile, as a multiple of how far it sees and at least so many squares: narrow tiles have few candidates, wide
# ones little waste around them.
_TILE_SIDE, _LEAST_SIDE = 2.0, 48

# Numbers that are transformed at once, so that they stay in the processor's cache, and numbers in the losses of
# records whose cheapest outputs are found at once.
_TRANSFORMED, _COMPARED = 2**16, 2**22


@dataclass(frozen=True, eq=False)
class _Tile:
    """Squares that are labelled together, and the outputs that may be their labels.

    start, stop : the first square along each axis, and the one after the last.
    far : how far around them records count, in squares along each axis.
    """

    start: NDArray[np.intp]
    stop: NDArray[np.intp]
    far: NDArray[np.intp]
    candidates: NDArray[np.intp]

    @property
    def box(self) -> tuple[slice, ...]:
        """Where the tile lies in an array over all squares."""
        return tuple(map(slice, self.start, self.stop))

    def region(self, shape: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first squares, and those after the last, of what the tile sees."""
        return np.maximum(self.start - self.far, 0), np.minimum(self.stop + self.far, shape)

    def padded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return sizes of a periodic transform in which what the tile sees from the wrong side is far away."""
        low, high = self.region(shape)
        widest = np.maximum(self.stop - low, high - self.start) - 1
        sizes = np.maximum(widest + np.minimum(self.far, widest), high - low - 1) + 1
        return tuple(fft.next_fast_len(int(size), real=True) for size in sizes)


@dataclass(frozen=True, eq=False)
class BayesLabels:
    """The output of least Σ_x π(x) L(x, y_k) f(s − x) for each square s, f the density of the noise.

    The records are spread over the nearest squares, so that the sum is a convolution. Only outputs that are cheap for
    records near a square can be its best label, so the squares are cut into tiles that try their candidates alone, if
    that is less work than to try all outputs everywhere. Labels are post-processing: they matter for the loss alone.
    """

    problem: Problem
    squares: Squares
    frame: NoiseFrame
    rate: float
    _kernels: dict[tuple[int, ...], NDArray[np.complex128]] = field(default_factory=dict)

    def find(self, clock: Clock, say: Callable[[float, str], None]) -> tuple[NDArray[np.intp], dict[str, Any]]:
        """Return the labels, in the shape of the squares, and facts for the report.

        When the clock runs out, a tile takes the best of the outputs tried, and the nearest ones if it tried none.
        """
        tiles, known = self._plan()
        labels = np.zeros(self.squares.shape, dtype=np.intp)
        tried: set[int] = set()
        for number, tile in enumerate(tiles):
            if tried and clock.over:
                self._take_nearest(labels, tiles[number:])
                break
            best = np.full(labels[tile.box].shape, np.inf)
            for outputs, costs in self._costs(tile):
                _improve(labels[tile.box], best, outputs, costs)
                tried.update(outputs.tolist())
                if len(tiles) == 1:
                    say(len(tried) / self.problem.n_outputs, f"{len(tried)} of {self.problem.n_outputs} outputs tried")
                if clock.over:
                    break
            say((number + 1) / len(tiles), f"{number + 1} of {len(tiles)} tiles remapped")
        # Noisy points hardly ever fall where nothing is known; such squares take the nearest known label.
        nearest = distance_transform_edt(~known, return_distances=False, return_indices=True)
        facts = {"outputs_tried": len(tried), "squares_resolved": float(known.mean())}
        return labels[tuple(nearest)], facts

    def _plan(self) -> tuple[list[_Tile], NDArray[np.bool_]]:
        """Return the tiles to label, and in which squares these labels will be right."""
        shape = np.array(self.squares.shape)
        whole = _Tile(0 * shape, shape, self._in_squares(_FAR), np.arange(self.problem.n_outputs))
        view = self._view(whole)
        mass = view.blurred(self.problem.prior[view.seen, None])[0]
        resolved = mass > _RESOLVED * mass.max()
        if self.problem.n_outputs > _FEW_OUTPUTS and math.prod(self._tile_counts) > _FEW_TILES:
            tiles = list(self._cut())
            if sum(map(self._work, tiles)) < _WORTHWHILE * self._work(whole):
                return tiles, resolved & self._near_records()
        return [whole], resolved

    def _work(self, tile: _Tile) -> float:
        return len(tile.candidates) * math.prod(tile.padded(self.squares.shape))

    def _in_squares(self, distance: float) -> NDArray[np.intp]:
        """Return how many squares apart two points at most this far apart, over the rate, can be along each axis."""
        steps = (distance / self.rate + self._diagonal) / self.squares.pitch
        return np.ceil(np.minimum(steps, self.squares.shape)).astype(np.intp)

    @property
    def _diagonal(self) -> float:
        """The diagonal of a square, which matters where squares are wider than 1/rate."""
        return float(np.linalg.norm(self.squares.pitch))

    @property
    def _tile_counts(self) -> list[int]:
        """How many tiles there are along each axis."""
        sides = np.maximum(_TILE_SIDE * self._in_squares(_FAR_FROM_TILE), _LEAST_SIDE)
        return [math.ceil(size / side) for size, side in zip(self.squares.shape, sides, strict=True)]

    def _cut(self) -> Iterator[_Tile]:
        """Cut the squares into tiles and find their candidates; tiles without records near them are left out."""
        far, near = self._in_squares(_FAR_FROM_TILE), self._in_squares(_NEAR)
        counts = self._tile_counts
        borders = [
            np.linspace(0, size, n + 1).astype(np.intp) for size, n in zip(self.squares.shape, counts, strict=True)
        ]
        for place in itertools.product(*map(range, counts)):
            start, stop = (np.array([line[i + k] for line, i in zip(borders, place, strict=True)]) for k in (0, 1))
            beside = self._records_in(start - near, stop + near)
            if len(beside):
                yield _Tile(start, stop, far, np.unique(self._cheapest[beside]))

    @cached_property
    def _points(self) -> FloatArray:
        return self.frame.enter(self.problem.records)

    @cached_property
    def _cell(self) -> NDArray[np.intp]:
        """The square of each record, (records, axes)."""
        return np.column_stack(np.unravel_index(self.squares.square_of(self._points), self.squares.shape))

    def _records_in(self, start: NDArray[np.intp], stop: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.flatnonzero(((self._cell >= start) & (self._cell < stop)).all(axis=1) & (self.problem.prior > 0))

    @cached_property
    def _least(self) -> FloatArray:
        return self.problem.loss.min(axis=1)

    @cached_property
    def _cheapest(self) -> NDArray[np.int32]:
        """The numbers of each record's cheapest outputs, (records, `_CHEAPEST`)."""
        found = np.empty((self.problem.n_records, _CHEAPEST), dtype=np.int32)
        for part in chunks(self.problem.n_records, self.problem.n_outputs, _COMPARED):
            found[part] = np.argpartition(self.problem.loss[part], _CHEAPEST, axis=1)[:, :_CHEAPEST]
        return found

    def _near_records(self) -> NDArray[np.bool_]:
        """Return which squares are near to some record."""
        empty = np.ones(self.squares.shape, dtype=bool)
        empty[tuple(self._cell[self.problem.prior > 0].T)] = False
        distance = distance_transform_edt(empty, sampling=self.squares.pitch)
        return np.asarray(distance <= _NEAR / self.rate + self._diagonal)

    def _costs(self, tile: _Tile) -> Iterator[tuple[NDArray[np.intp], FloatArray]]:
        """Yield some of the tile's candidates and their costs in its squares, until there are none left."""
        view = self._view(tile)
        prior, least = self.problem.prior[view.seen, None], self._least[view.seen, None]
        for part in chunks(len(tile.candidates), math.prod(view.padded), _TRANSFORMED):
            outputs = tile.candidates[part]
            # Each record's least loss is subtracted: the argmin does not change and cancellation is avoided.
            yield outputs, view.blurred(prior * (self.problem.loss[view.seen[:, None], outputs] - least))

    def _view(self, tile: _Tile) -> _View:
        low, high = tile.region(self.squares.shape)
        sides = zip(self.squares.centres_by_axis, low, high, strict=True)
        grid = Grid.from_breakpoints([centres[first:last] for centres, first, last in sides])
        seen = self._records_in(low, high)
        padded = tile.padded(self.squares.shape)
        if padded not in self._kernels:
            self._kernels[padded] = self._kernel(padded)
        return _View(
            seen,
            grid.weights(self._points[seen]).T.tocsr(),
            grid.anchor_shape,
            tuple(map(slice, tile.start - low, tile.stop - low)),
            padded,
            self._kernels[padded],
        )

    def _kernel(self, sizes: tuple[int, ...]) -> NDArray[np.complex128]:
        """Return the transform of the density of the noise, up to a constant, over a period of so many squares."""
        steps = [np.minimum(np.arange(size), size - np.arange(size)) for size in sizes]
        offsets = np.meshgrid(*(n * side for n, side in zip(steps, self.squares.pitch, strict=True)), indexing="ij")
        return np.asarray(fft.rfftn(np.exp(-self.rate * norm(np.stack(offsets, axis=-1), self.frame.order))))

    def _take_nearest(self, labels: NDArray[np.intp], tiles: list[_Tile]) -> None:
        """Label the squares of some tiles with the nearest outputs."""
        missing = np.zeros(labels.shape, dtype=bool)
        for tile in tiles:
            missing[tile.box] = True
        centres = self.frame.leave(self.squares.centres[missing.ravel()])
        _, labels[missing] = KDTree(self.problem.outputs).query(centres, p=self.problem.p)


@dataclass(frozen=True, eq=False)
class _View:
    """What a tile sees: records, spread over the squares around it, and the noise between them and its squares.

    seen : numbers of the records.
    spread : (squares, records), the shares of each record that its nearest squares get.
    shape : of the squares around the tile.
    inner : where the tile lies among them.
    padded : sizes of the periodic transform.
    kernel : transform of the density of the noise.
    """

    seen: NDArray[np.intp]
    spread: sparse.csr_array
    shape: tuple[int, ...]
    inner: tuple[slice, ...]
    padded: tuple[int, ...]
    kernel: NDArray[np.complex128]

    def blurred(self, weights: FloatArray) -> FloatArray:
        """Return Σ_x weight(x) f(s − x) in the tile's squares, one table for each column of weights."""
        values = np.ascontiguousarray((self.spread @ weights).T).reshape(-1, *self.shape)
        axes = tuple(range(1, values.ndim))
        spectrum = fft.rfftn(values, self.padded, axes=axes)
        spectrum *= self.kernel
        return np.asarray(fft.irfftn(spectrum, self.padded, axes=axes)[:, *self.inner])


def _improve(labels: NDArray[np.intp], best: FloatArray, outputs: NDArray[np.intp], costs: FloatArray) -> None:
    """Relabel the squares in which one of some outputs costs less than the best so far."""
    winner = costs.argmin(axis=0)
    cost = np.take_along_axis(costs, winner[None], axis=0)[0]
    better = cost < best
    best[better], labels[better] = cost[better], outputs[winner[better]]
