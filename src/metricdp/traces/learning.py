"""A movement model from public traces: counts of places and of displacements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from metricdp._point_names import LATITUDE, LONGITUDE, listed, one_of
from metricdp._validation import FloatArray, finite_array, positive, reject
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.lonlat import in_degrees, projection_about
from metricdp.traces.raster import Raster
from metricdp.traces.times import require_seconds

__all__ = [
    "RegularTraces",
    "TraceTable",
    "kernels_of",
    "occupancy",
    "raster_about",
    "read_traces",
    "resampled",
]

# Share of the prior that is spread evenly: cells that no trace visited are unlikely, not impossible.
_EVEN = 0.02

# Share of a kernel that stays, so that every cell has somewhere to go.
_STAY = 1e-4

# Positions that are learned from: a few GB. Numbers of steps and of traces that together make a 64-bit key.
_MOST_POSITIONS, _MOST_KEYS = 2**27, 2.0**62


@dataclass(frozen=True, eq=False)
class TraceTable:
    """Fixes ordered by trace and time.

    trace : (n,) integers, which trace each fix belongs to.
    unix_s : (n,) times.
    lonlat : (n, 2) degrees.
    """

    trace: NDArray[np.int64]
    unix_s: FloatArray
    lonlat: FloatArray


def read_traces(given: Any, id_column: str = "id", time_column: str = "unix_s") -> TraceTable:
    """Return the fixes of a table of pandas, polars, Arrow or DuckDB, or of a dictionary of columns.

    Examples
    --------
    >>> read_traces({"id": ["b", "b", "a"], "unix_s": [60, 0, 5], "lon": [1, 2, 3], "lat": [0, 0, 0]}).unix_s.tolist()
    [0.0, 60.0, 5.0]
    """
    if not (isinstance(given, dict) or hasattr(given, "__arrow_c_stream__")):
        raise reject("table", "a table of pandas, polars or Arrow", type(given).__name__)
    try:
        columns = pa.table(given).unify_dictionaries()
    except (pa.ArrowException, TypeError, ValueError):  # whose messages quote values, which may be places
        raise reject("table", "made of plain columns of one length", "something else") from None
    names = [str(name) for name in columns.column_names]
    axes = [one_of(names, aliases, "table") for aliases in (LONGITUDE, LATITUDE)]
    for name in (id_column, time_column):
        if names.count(name) != 1:
            raise reject("table", f"a table with one column {name!r}", f"a table of {listed(names)}")
    if None in axes:
        raise reject("table", "a table with columns of longitude and latitude", f"a table of {listed(names)}")
    trace = _codes(columns, id_column)
    times = require_seconds(time_column, _seconds(columns[time_column]))
    lonlat = np.column_stack([finite_array(str(name), columns[name].to_numpy()) for name in axes])
    if not len(times):
        raise reject("table", "non-empty", "no rows")
    order = np.lexsort((times, trace))
    return TraceTable(trace[order], times[order], in_degrees("table", lonlat)[order])


def raster_about(fixes: TraceTable, bounds: ArrayLike | None, cell_km: float) -> Raster:
    """Return cells over a box in degrees, or over all fixes."""
    projection, box = projection_about(fixes.lonlat, bounds)
    if box is None:
        plane = projection.to_xy_km(*fixes.lonlat.T)
        # A cell more than the fixes need, so that no side is zero.
        box = np.array([plane.min(axis=0), plane.max(axis=0)]) + np.array([[-0.5], [0.5]]) * positive(
            "cell_km", cell_km
        )
    return Raster.over(box, cell_km, projection)


@dataclass(frozen=True, eq=False)
class RegularTraces:
    """Positions at regular times, traces one after the other.

    trace, tick : (n,) integers; `tick` counts steps and is comparable within a trace.
    xy_km : (n, 2) positions in the plane.
    """

    trace: NDArray[np.int64]
    tick: NDArray[np.int64]
    xy_km: FloatArray


def resampled(fixes: TraceTable, raster: Raster, seconds: float, longest_gap_s: float) -> RegularTraces:
    """Return positions every `seconds`, on straight lines between fixes that are at most `longest_gap_s` apart."""
    step, gap = positive("seconds", seconds), positive("longest_gap_s", longest_gap_s)
    plane = raster.to_plane(fixes.lonlat)
    start, end = fixes.unix_s[:-1], fixes.unix_s[1:]
    joined = (fixes.trace[1:] == fixes.trace[:-1]) & (end > start) & (end - start <= gap)
    # Multiples of the step in (start, end]: each lies between one pair of fixes, so no position is made twice.
    largest = max(float(np.abs(fixes.unix_s).max()), float(np.ptp(fixes.unix_s)) * (float(fixes.trace[-1]) + 2))
    if largest >= step * _MOST_KEYS:
        raise ProblemTooLargeError(f"Steps of {step:g} s are too many to be counted; raise `seconds`.")
    before, until = np.floor(start / step), np.floor(end / step)
    total = np.where(joined, until - before, 0).sum()
    if total > _MOST_POSITIONS:
        msg = (
            f"Steps of {step:g} s make {total:,.0f} positions of these traces, too many to learn from; raise `seconds`."
        )
        raise ProblemTooLargeError(msg)
    first = before.astype(np.int64) + 1
    counts = np.where(joined, until - before, 0).astype(np.int64)
    pair = np.repeat(np.arange(len(counts)), counts)
    tick = first[pair] + np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = (tick * step - start[pair]) / (end - start)[pair]
    return RegularTraces(fixes.trace[pair], tick, plane[pair] + share[:, None] * (plane[pair + 1] - plane[pair]))


def occupancy(positions: RegularTraces, raster: Raster) -> FloatArray:
    """Return the share of time in each cell, a little of it spread over all cells."""
    cells = raster.cells_of(positions.xy_km)
    counts = np.bincount(cells[cells >= 0], minlength=raster.n_cells).astype(np.float64)
    if not counts.any():
        msg = "No trace passes through the box; check `bounds`, and that longitude and latitude are not swapped."
        raise InvalidInputError(msg)
    return (1 - _EVEN) * counts / counts.sum() + _EVEN / raster.n_cells


def kernels_of(positions: RegularTraces, raster: Raster, ticks: list[int]) -> list[FloatArray]:
    """Return how often traces in the box were displaced by so many cells, for each lag in `ticks`.

    The list ends before the first lag that no trace lasts.
    """
    found = []
    for lag in ticks:
        first, second = _pairs(positions, raster, lag)
        if not len(first):
            break
        found.append(_splatted((positions.xy_km[second] - positions.xy_km[first]) / raster.cell_km, raster))
    if not found:
        msg = "No trace has two positions in the box that are `seconds` apart; raise `longest_gap_s`, or check times."
        raise InvalidInputError(msg)
    return found


def _pairs(positions: RegularTraces, raster: Raster, lag: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return indices of positions in the box of one trace, `lag` ticks apart."""
    inside = raster.cells_of(positions.xy_km) >= 0
    # Keys increase, because traces follow each other and ticks of one trace increase.
    tick = positions.tick - positions.tick.min(initial=0) if len(positions.tick) else positions.tick
    key = positions.trace * (int(tick.max(initial=0)) + lag + 1) + tick
    second = np.searchsorted(key, key + lag)
    first = np.flatnonzero(second < len(key))
    first = first[key[second[first]] == key[first] + lag]
    first = first[inside[first] & inside[second[first]]]
    return first, second[first]


def _splatted(moved: FloatArray, raster: Raster) -> FloatArray:
    """Return counts of displacements, given in cells.

    Somebody anywhere in a cell who moves by 1.3 cells ends up one cell further with chance 0.7 and two with 0.3: each
    displacement is shared between its four neighbours in this way.
    """
    reach = np.array(raster.shape) - 1
    low = np.floor(moved).astype(np.int64)
    part = moved - low
    counts = np.zeros(2 * reach + 1)
    for dx in (0, 1):
        for dy in (0, 1):
            weight = np.abs(1 - dx - part[:, 0]) * np.abs(1 - dy - part[:, 1])
            where = np.clip(low + np.array([dx, dy]), -reach, reach) + reach
            np.add.at(counts, (where[:, 0], where[:, 1]), weight)
    counts[reach[0], reach[1]] += _STAY * len(moved)
    return _trimmed(counts)


def _trimmed(kernel: FloatArray) -> FloatArray:
    """Return the kernel without empty margins."""
    middle = np.array(kernel.shape) // 2
    reach = np.abs(np.argwhere(kernel > 0) - middle).max(axis=0)
    (left, bottom), (right, top) = middle - reach, middle + reach + 1
    return kernel[left:right, bottom:top]


def _codes(columns: pa.Table, name: str) -> NDArray[np.int64]:
    column = columns[name].combine_chunks()
    if column.null_count:
        raise reject("table", f"without missing values in column {name!r}", f"{column.null_count:,} of them")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _seconds(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return unix seconds; timestamps without a zone are taken as UTC."""
    if column.null_count:
        raise reject("table", "without missing times", f"{column.null_count:,} of them")
    if pa.types.is_timestamp(column.type):
        return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64()).to_numpy() / 1e6
    return column.to_numpy()
