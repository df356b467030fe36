"""A privacy budget that varies over the box: one ε for each cell of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._validation import (
    FloatArray,
    checked_box,
    finite_array,
    freeze_arrays,
    integer,
    positive,
    reject,
    table,
)
from metricdp.errors import InvalidInputError
from metricdp.geometry.density import largest_radii
from metricdp.geometry.grid import Grid
from metricdp.geometry.map_sources import least_of_shapes, read_geotiff, shapes_in_plane
from metricdp.geometry.norms import norm

__all__ = ["MAP_ARRAYS", "EpsilonMap"]

# Cells per axis by number of axes; those of the spline method, so that its default grid has the map's borders.
_DEFAULT_CELLS = {1: 128, 2: 24, 3: 6}

_VALUES, _BORDERS = "epsilon_values", "epsilon_breakpoints_"

# Names of a map's arrays in files; a box has few axes.
MAP_ARRAYS = (_VALUES, *(f"{_BORDERS}{axis}" for axis in range(8)))


class Region(Protocol):
    """What a map needs to know of a problem."""

    @property
    def bounds(self) -> FloatArray:
        """The (2, N) box."""

    @property
    def records(self) -> FloatArray:
        """Where people are."""

    @property
    def prior(self) -> FloatArray:
        """How many of them, as shares."""

    @property
    def p(self) -> float:
        """Order of the norm."""

    @property
    def projection(self) -> Any:
        """How coordinates map to longitude and latitude, or None."""


@dataclass(frozen=True, init=False, eq=False)
class EpsilonMap:
    """ε(x), constant on each cell of a grid: how much privacy a place gets. It is public.

    A mechanism with a map keeps a promise along paths: no report is more than e^{∫ε ds} times likelier from one place
    than from another, for every path inside the box that joins them. The map is part of the mechanism and visible to
    all. So it may follow public facts such as density, and never the place of one person.

    Parameters
    ----------
    breakpoints : one increasing array per axis
        Borders of the cells in the coordinates of the problem: n + 1 for n cells.
    values : array with one axis per axis of the box
        ε of each cell per unit of distance (per true km for problems with a projection), positive.

    Neighbouring rows and columns of equal values are joined, so that maps are equal if they say the same; a map of one
    value has the borders of its box only.

    Examples
    --------
    >>> centre = EpsilonMap([[0, 10, 20, 30], [0, 10, 20, 30]], [[0.4, 0.4, 0.4], [0.4, 1.6, 0.4], [0.4, 0.4, 0.4]])
    >>> centre
    EpsilonMap(3 x 3 cells, epsilon from 0.4 to 1.6)
    >>> centre.at([[15, 15], [20, 15], [25, 15]]).tolist()
    [1.6, 0.4, 0.4]
    """

    breakpoints: tuple[FloatArray, ...]
    values: FloatArray

    def __init__(self, breakpoints: Sequence[ArrayLike], values: ArrayLike) -> None:
        axes = tuple(_checked_axis(axis, given) for axis, given in enumerate(breakpoints))
        cells = finite_array("values", values)
        shape = tuple(len(points) - 1 for points in axes)
        if not axes or cells.shape != shape:
            raise reject("values", f"of shape {shape}, one for each cell between breakpoints", f"shape {cells.shape}")
        if not (cells > 0).all():
            where = tuple(int(i) for i in np.argwhere(~(cells > 0))[0])
            raise reject("values", "positive everywhere", f"{cells[where]} at index {where}")
        for axis in range(len(axes)):
            axes, cells = _joined(axes, cells, axis)
        self.__setstate__({"breakpoints": axes, "values": cells})

    @classmethod
    def constant(cls, bounds: FloatArray, epsilon: float) -> EpsilonMap:
        """Return the map with one ε everywhere on a (2, N) box."""
        return cls(list(bounds.T), np.full((1,) * bounds.shape[1], epsilon))

    @classmethod
    def by_density(
        cls,
        problem: Region,
        people: float,
        least: float,
        most: float,
        *,
        population: float | None = None,
        ratio: float = math.e,
        cells: int | Sequence[int] | None = None,
    ) -> EpsilonMap:
        """Return the map that protects everybody among equally many people: ε(x) = ln(ratio) / r(x).

        r(x) is the radius around x, in d_p of the problem's coordinates, that holds `people` people by the problem's
        prior: small in the centre of a city and large outside. Within it no report is more than about `ratio` times
        likelier from one place than from another.

        r changes by at most the distance (it is 1-Lipschitz), so ε does not jump but between cells. A cell gets an ε
        that is not above ln(ratio) / r(x) at any of its points, unless `least` is.

        Parameters
        ----------
        problem : Problem
            Its records and prior say where people are, its box what the map covers.
        people : float
            How many people the radius holds; with the default `population`, how many records of average mass.
        least, most : float
            The range of ε: smaller values are raised to `least`, larger ones lowered to `most`.
        population : float, optional
            How many people there are in all, shared out by the prior. The number of records by default.
        ratio : float
            Above 1.
        cells : int or sequence, optional
            Cells along each axis, finer where records are dense; 24 in the plane by default.

        Examples
        --------
        >>> import metricdp as mdp
        >>> problem = mdp.cities.load("helsinki").problem(outputs=10, tasks=5, seed=0)
        >>> mdp.EpsilonMap.by_density(problem, people=100, least=2, most=8).max <= 8
        True
        """
        total = positive("population", len(problem.records) if population is None else population)
        share = positive("people", people) / total
        if share > 1:
            raise reject("people", f"at most the population, {total:g}", people)
        low, high = positive("least", least), positive("most", most)
        if low > high:
            raise reject("most", f"at least `least`, {low:g}", most)
        if not positive("ratio", ratio) > 1:
            raise reject("ratio", "above 1", ratio)
        grid = Grid.adaptive(problem.bounds, _cells(cells, problem.bounds), problem.records, problem.prior)
        radii = largest_radii(grid, problem.records, problem.prior, share, problem.p)
        return cls(grid.breakpoints, np.clip(math.log(ratio) / radii, low, high))

    @classmethod
    def from_function(
        cls,
        function: Callable[[FloatArray], ArrayLike],
        bounds: ArrayLike,
        *,
        lipschitz: float,
        cells: int | Sequence[int] | None = None,
        parts: int = 4,
    ) -> EpsilonMap:
        """Return a map that lies nowhere above a function: in every cell, a lower bound of the function over the cell.

        The function is looked at in the middles of parts of each cell. Over a part it is at least its value there less
        `lipschitz` times the distance to the part's corners; a cell has the least of its parts. (The least of some
        values alone would be no bound.)

        Parameters
        ----------
        function : callable
            From points (n, N) to n values of ε.
        bounds : (2, N) array
            The box, lower corner first.
        lipschitz : float
            A number L, at least 0, with |ε(x) − ε(x')| ≤ L ‖x − x'‖_2 for all points of the box. A smaller number than
            that is an error of the caller, who gets a map that may lie above the function.
        cells : int or sequence, optional
            Cells along each axis, of equal sides; 24 in the plane by default.
        parts : int
            Parts of a cell along each axis.

        Examples
        --------
        >>> slope = EpsilonMap.from_function(lambda x: 1 + 0.1 * x[:, 0], [[0.0], [8.0]], lipschitz=0.1, cells=2)
        >>> slope.values.round(6).tolist()
        [1.0, 1.4]
        """
        box = checked_box(bounds)
        if not lipschitz >= 0:
            raise reject("lipschitz", "a number of at least 0", lipschitz)
        grid = Grid.uniform(box, _cells(cells, box))
        fine = Grid.uniform(box, [count * integer("parts", parts, 1) for count in grid.cells])
        found = finite_array("function", function(fine.cell_centres))
        if found.shape != (len(fine.cell_centres),):
            rule = f"one that returns a number for each of {len(fine.cell_centres)} points"
            raise reject("function", rule, f"shape {found.shape}")
        reach = norm(np.array([np.diff(x)[0] / 2 for x in fine.breakpoints]), 2)
        lowest = (found - float(lipschitz) * reach * (1 + 1e-12)).reshape(
            list(itertools.chain.from_iterable((count, parts) for count in grid.cells))
        )
        values = lowest.min(axis=tuple(range(1, lowest.ndim, 2)))
        if not (values > 0).all():
            msg = (
                "The function's lower bound is not positive in some cell: take more `cells` or `parts`, or a smaller "
                "`lipschitz` if that is true of the function."
            )
            raise InvalidInputError(msg)
        return cls(grid.breakpoints, values)

    @classmethod
    def from_geotiff(
        cls,
        path: str | Path,
        problem: Region,
        *,
        missing: float | None = None,
        cells: int | Sequence[int] | None = None,
    ) -> EpsilonMap:
        """Return the map of a GeoTIFF whose first band holds ε, per true km, in longitude and latitude (EPSG:4326).

        Needs the extra `maps`.

        Parameters
        ----------
        path : str or Path
            The raster, north up; it must cover the box of the problem.
        problem : Problem
            One with a projection. Pixels become cells of its plane.
        missing : float, optional
            ε of pixels without data; without it such a pixel in the box is an error.
        cells : int or sequence, optional
            Cells along each axis, of equal sides; each has the least ε of all pixels that it meets. By default every
            pixel is a cell of its own, which takes long to optimise for where they are more than 50 along an axis.
        """
        if problem.projection is None:
            raise InvalidInputError("The problem has no projection, so a GeoTIFF cannot be laid over it.")
        centre = np.array([problem.projection.lon_deg, problem.projection.lat_deg])
        per_degree = problem.projection.km_per_degree
        low, high = problem.bounds / per_degree + centre
        raster = read_geotiff(path, low, high)
        values = raster.values
        if missing is not None:
            values = np.where(np.isnan(values), positive("missing", missing), values)
        if np.isnan(values).any():
            raise InvalidInputError(
                f"{str(path)!r} has pixels without data in the box; say what ε they have: `missing`."
            )
        borders = [(x - zero) * km for x, zero, km in zip((raster.x, raster.y), centre, per_degree, strict=True)]
        pixels = cls(borders, values)
        if not pixels.covers(problem.bounds):
            raise InvalidInputError(f"{str(path)!r} does not cover the box of the problem.")
        return _coarsened(pixels.cropped(problem.bounds), cells)

    @classmethod
    def from_polygons(
        cls,
        polygons: Any,
        values: ArrayLike | str,
        problem: Region,
        elsewhere: float,
        *,
        cells: int | Sequence[int] | None = None,
    ) -> EpsilonMap:
        """Return a map from polygons with values, the least of all that a cell meets. Needs the extra `maps`.

        Parameters
        ----------
        polygons : GeoDataFrame, GeoSeries or sequence of shapely geometries
            In degrees, or in the reference system that they bring; for a problem without a projection in its own
            coordinates.
        values : sequence, or str
            ε of each polygon, or the name of the table's column that holds it.
        problem : Problem
            Its box is what the map covers.
        elsewhere : float
            ε outside all polygons; a cell that they do not cover has at most this.
        cells : int or sequence, optional
            Cells along each axis, of equal sides; 24 in the plane by default.
        """
        if problem.bounds.shape[1] != 2:
            raise reject("problem", "one with two axes", problem.bounds.shape[1])
        given = polygons[values] if isinstance(values, str) else values
        shapes = shapes_in_plane(polygons, problem.projection)
        grid = Grid.uniform(problem.bounds, _cells(cells, problem.bounds))
        least = least_of_shapes(shapes, given, positive("elsewhere", elsewhere), list(grid.breakpoints))
        return cls(grid.breakpoints, least)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)
        for points in self.breakpoints:
            points.flags.writeable = False  # copies and unpickled arrays start as writable ones

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpsilonMap):
            return NotImplemented
        return self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __repr__(self) -> str:
        cells = " x ".join(map(str, self.values.shape))
        return f"EpsilonMap({cells} cells, epsilon from {self.min:g} to {self.max:g})"

    @property
    def _content(self) -> tuple[Any, ...]:
        return tuple(tuple(points.tolist()) for points in self.breakpoints), tuple(self.values.ravel().tolist())

    @property
    def n_axes(self) -> int:
        """N, the number of axes."""
        return len(self.breakpoints)

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return self.values.shape

    @property
    def min(self) -> float:
        """The least ε: the strongest protection."""
        return float(self.values.min())

    @property
    def max(self) -> float:
        """The largest ε: the weakest protection, which the whole box has at least."""
        return float(self.values.max())

    @property
    def bounds(self) -> FloatArray:
        """The (2, N) box that the map covers."""
        return np.array([[points[0], points[-1]] for points in self.breakpoints]).T

    @property
    def is_constant(self) -> bool:
        """Whether ε is the same everywhere."""
        return self.values.size == 1

    def covers(self, bounds: ArrayLike) -> bool:
        """Return whether every point of a (2, N) box, borders included, has an ε."""
        box = finite_array("bounds", bounds)
        own = self.bounds
        return box.shape == own.shape and bool((own[0] <= box[0]).all() and (box[1] <= own[1]).all())

    def at(self, points: ArrayLike) -> FloatArray:
        """Return the ε of points (n, N): between cells the least of those that meet there.

        Points outside the map have the ε of its nearest point, as mechanisms take points to their box.
        """
        return self._extreme(table("points", points, columns=self.n_axes), 0.0, np.minimum)

    def most_within(self, points: FloatArray, distance: float | FloatArray) -> FloatArray:
        """Return the largest ε of the cells that lie within `distance` of points (n, N), along each axis."""
        return self._extreme(points, distance, np.maximum)

    def _extreme(self, points: FloatArray, distance: float | FloatArray, choose: np.ufunc) -> FloatArray:
        """Return the extreme ε of the cells that meet the boxes around points. Boxes wider than cells skip none."""
        low, high = (np.clip(points + sign * distance, *self.bounds) for sign in (-1, 1))
        spans = [
            _meeting(edges, low[:, axis], high[:, axis], touching=True) for axis, edges in enumerate(self.breakpoints)
        ]
        # Boxes reach over few cells: those between the first and the last are visited one shift at a time.
        widest = [range(int((last - first).max(initial=0)) + 1) for first, last in spans]
        found: FloatArray | None = None
        for shift in itertools.product(*widest):
            place = tuple(np.minimum(first + step, last) for (first, last), step in zip(spans, shift, strict=True))
            here = self.values[place]
            found = here if found is None else choose(found, here)
        assert found is not None
        return np.asarray(found)

    def least_over(self, breakpoints: Sequence[FloatArray]) -> FloatArray:
        """Return, for each cell of another grid over the same box, the least ε of all cells of the map that it meets.

        Examples
        --------
        >>> EpsilonMap([[0.0, 1.0, 4.0]], [0.5, 2.0]).least_over([np.array([0.0, 0.5, 1.5, 4.0])]).tolist()
        [0.5, 0.5, 2.0]
        """
        found = self.values
        for axis, (own, other) in enumerate(zip(self.breakpoints, breakpoints, strict=True)):
            first, last = _meeting(own, other[:-1], other[1:], touching=False)
            parts = [
                found.take(range(start, stop + 1), axis=axis).min(axis=axis)
                for start, stop in zip(first.tolist(), last.tolist(), strict=True)
            ]
            found = np.stack(parts, axis=axis)
        return found

    def over(self, bounds: FloatArray, step: float) -> EpsilonMap:
        """Return the map of a box on a lattice: borders are moved to multiples of `step`, a power of two, and cropped.

        bounds : the box, whose corners are lattice points. The map reaches to its edges, from wherever it ends.

        A border moves by at most half a step; a cell that is narrower than that may vanish.
        """
        return self._moved([np.rint(points / step) * step for points in self.breakpoints], bounds)

    def cropped(self, bounds: FloatArray) -> EpsilonMap:
        """Return the map of a box; it reaches to its edges, from wherever it ends."""
        return self._moved([points.copy() for points in self.breakpoints], bounds)

    def _moved(self, breakpoints: Sequence[FloatArray], bounds: FloatArray) -> EpsilonMap:
        """Return the map with other borders, increasing but perhaps not strictly, and cut to a box."""
        axes, values = [], self.values
        for axis, (points, low, high) in enumerate(zip(breakpoints, *bounds, strict=True)):
            moved = np.clip(points, low, high)
            moved[0], moved[-1] = low, high
            kept = np.flatnonzero(np.diff(moved) > 0)
            axes.append(np.append(moved[kept], high))
            values = values.take(kept, axis=axis)
        return EpsilonMap(axes, values)

    def times(self, factor: float) -> EpsilonMap:
        """Return the map with every ε multiplied by a positive number."""
        return EpsilonMap(self.breakpoints, self.values * factor)

    def to_arrays(self) -> dict[str, FloatArray]:
        """Return the map by the names of `MAP_ARRAYS`, for files."""
        return {_VALUES: self.values, **{f"{_BORDERS}{axis}": points for axis, points in enumerate(self.breakpoints)}}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_axes: int) -> EpsilonMap | None:
        """Rebuild from `to_arrays`, None if there is no map; whoever made the arrays is not trusted."""
        given = {name for name in arrays if name in MAP_ARRAYS}
        if not given:
            return None
        wanted = [f"{_BORDERS}{axis}" for axis in range(n_axes)]
        if given != {_VALUES, *wanted}:
            words = ", ".join(sorted(given))
            raise InvalidInputError(f"a map of epsilon on {n_axes} axes is not made of {words}")
        for name in sorted(given):
            if arrays[name].dtype != np.float64:
                raise reject(name, "an array of float64 numbers", arrays[name].dtype)
        found = cls([arrays[name] for name in wanted], arrays[_VALUES])
        if found.values.shape != arrays[_VALUES].shape:
            raise InvalidInputError("the map of epsilon has neighbouring rows or columns that are equal; join them")
        return found


def _coarsened(local: EpsilonMap, cells: int | Sequence[int] | None) -> EpsilonMap:
    """Return a map on cells of equal sides, each with the least ε that it meets; None leaves the map as it is."""
    if cells is None:
        return local
    grid = Grid.uniform(local.bounds, cells)
    return EpsilonMap(grid.breakpoints, local.least_over(grid.breakpoints))


def _cells(given: int | Sequence[int] | None, bounds: FloatArray) -> int | Sequence[int]:
    return _DEFAULT_CELLS.get(bounds.shape[1], 3) if given is None else given


def _checked_axis(axis: int, given: ArrayLike) -> FloatArray:
    points = finite_array(f"breakpoints[{axis}]", given)
    if points.ndim != 1 or len(points) < 2 or (np.diff(points) <= 0).any():
        raise reject(f"breakpoints[{axis}]", "at least two strictly increasing numbers", points)
    return points


def _joined(axes: tuple[FloatArray, ...], values: FloatArray, axis: int) -> tuple[tuple[FloatArray, ...], FloatArray]:
    """Join neighbouring slices along an axis that are equal."""
    others = tuple(other for other in range(values.ndim) if other != axis)
    new = np.concatenate([[True], (np.diff(values, axis=axis) != 0).any(axis=others)])
    points = np.append(axes[axis][:-1][new], axes[axis][-1])
    return (*axes[:axis], points, *axes[axis + 1 :]), np.ascontiguousarray(values.compress(new, axis=axis))


def _meeting(
    edges: FloatArray, low: FloatArray, high: FloatArray, *, touching: bool
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the last cell that each interval meets; `touching`: a common border counts."""
    sides = ("left", "right") if touching else ("right", "left")
    first = np.searchsorted(edges, low, side=sides[0]) - 1  # type: ignore[call-overload]
    last = np.searchsorted(edges, high, side=sides[1]) - 1  # type: ignore[call-overload]
    most = len(edges) - 2
    return np.clip(first, 0, most), np.clip(last, 0, most)
