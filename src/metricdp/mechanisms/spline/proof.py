"""Proof for spline mechanisms: the gradient's control values lie in the cone at every site of every cell.

Everything is a comparison of integers: weights of control rows, cell sides in lattice steps, and ε as the fraction that
its decimal string says. Floating point, with its error bounded, decides only the clear cases; the close ones are
compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.certificates.claims import ROUNDOFF, Finding, is_uniform, proved, refused
from metricdp.certificates.search import steepest_pair
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.lattice import coarsest_step
from metricdp.mechanisms.spline.mechanism import Spline
from metricdp.mechanisms.spline.slopes import LARGEST_PART, Cells, Slopes, windows
from metricdp.mechanisms.spline.sparse_table import SparseTable

__all__ = ["prove"]

# A computed ratio is off by at most two dozen roundings: of the weights and sides as floats, of quotients, squares,
# sum, root and ε; for other norms than 1, 2 and ∞, powers add a few more. All of them count as close.
_CLOSE = 256 * ROUNDOFF

# Six times a weight (degree 3 multiplies by 3 a difference of two) must fit 64 bits, and so must a row's sum.
_DEGREES = (1, 2, 3)
_LARGEST_WEIGHT, _LARGEST_SUM = 2**58, 2**60


def prove(mechanism: Spline) -> Finding:
    """Check a fine lattice, weights ≥ 1 with one sum, and ‖g‖_q ≤ ε b at every site of every cell, for every output."""
    fault = _lattice_fault(mechanism) or _degree_fault(mechanism.degree) or _table_fault(mechanism)
    if fault:
        claim = refused(mechanism, f"{fault}.")
        return Finding(holds=False, claim=claim, worst_ratio=math.inf, worst_where={}, checked=mechanism.table.size)
    n_sites = math.prod(cells * (mechanism.degree + 1) for cells in mechanism.grid.cells)
    checked = n_sites * mechanism.n_outputs
    worst = _Worst(0.0, _site_place(mechanism.grid.breakpoints, mechanism.degree, 0), 0)
    for part in _parts(mechanism):
        found, broken = part.worst()
        if broken:
            return _refusal(mechanism, found, checked)
        worst = max(worst, found, key=lambda one: one.ratio)
    claim = _claim(mechanism, n_sites)
    return Finding(
        holds=True, claim=claim, worst_ratio=min(worst.ratio, 1.0), worst_where=worst.where(), checked=checked
    )


def _claim(mechanism: Spline, n_sites: int) -> str:
    exact = _is_exact(mechanism.p, mechanism.grid.n_axes)
    arithmetic = "in exact integer arithmetic" if exact else "with rounding counted against it"
    exponent = math.frexp(mechanism.step)[1] - 1
    own = "epsilon" if is_uniform(mechanism) else "the cell's own epsilon"
    reason = (
        f"Points are first rounded to multiples of 2^{exponent}. At each of {n_sites:,} control sites, for "
        f"every output, the gradient's control values are at most {own} times the control value, checked "
        f"{arithmetic} on the numbers that outputs are drawn from. Assumed: the random bits are uniform."
    )
    return proved(mechanism, reason)


@dataclass(frozen=True)
class _Worst:
    """The largest ratio that was found, with its place and output."""

    ratio: float
    place: FloatArray
    output: int

    def where(self) -> dict[str, Any]:
        """Return the place as certificates state it."""
        return {"points": [self.place.tolist()], "output": self.output}


@dataclass(frozen=True)
class _Part:
    """Some outputs on some cells, whose cones can be checked together.

    outputs : numbers of the outputs. breakpoints : borders of the cells. slopes : at their sites.
    levels : ε·step of the different ε of cells: ‖g‖_q ≤ ε b with g in units per length is ‖G/H‖_q ≤ ε·step·b.
    floats : the same, rounded.
    level : which of them counts at each site.
    """

    outputs: NDArray[np.intp]
    breakpoints: Sequence[FloatArray]
    degree: int
    slopes: Slopes
    levels: Sequence[Fraction]
    floats: FloatArray
    level: NDArray[np.intp]
    p: float

    def worst(self) -> tuple[_Worst, bool]:
        """Return the worst site and output, and whether it lies outside its cone."""
        ratio = self._ratios()
        broken = self._broken(ratio)
        site, column = np.unravel_index(int(ratio.argmax()), ratio.shape) if broken is None else broken
        place = _site_place(self.breakpoints, self.degree, int(site))
        return _Worst(float(ratio[site, column]), place, int(self.outputs[column])), broken is not None

    def _ratios(self) -> FloatArray:
        """Return ‖G/H‖_q / (ε·step·b) in floating point, infinite where b is not positive."""
        limits = self.floats[self.level, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.slopes.sizes(self.p) / (limits * self.slopes.values)
        return np.where(self.slopes.values > 0, ratio, np.inf)

    def _broken(self, ratio: FloatArray) -> tuple[int, int] | None:
        """Return the worst (site, column) outside its cone, None if there is none."""
        at = np.unravel_index(int(ratio.argmax()), ratio.shape)
        if ratio[at] > 1 + _CLOSE:
            return int(at[0]), int(at[1])
        close = np.argwhere(ratio >= 1 - _CLOSE)
        return next(((int(site), int(column)) for site, column in close if not self._inside(site, column)), None)

    def _inside(self, site: int, column: int) -> bool:
        """Compare as fractions; what no fraction can decide counts as outside."""
        rises, sides = self.slopes.rises, self.slopes.sides
        if not _is_exact(self.p, len(rises)):
            return False
        slopes = [
            Fraction(abs(int(rise[site, column])), int(side[site])) for rise, side in zip(rises, sides, strict=True)
        ]
        allowed = self.levels[self.level[site]] * int(self.slopes.values[site, column])
        if self.p == 1 or len(slopes) == 1:
            return max(slopes) <= allowed
        if math.isinf(self.p):
            return sum(slopes) <= allowed
        return sum(slope**2 for slope in slopes) <= allowed**2


def _is_exact(p: float, n_axes: int) -> bool:
    """Return whether close calls can be decided by fractions."""
    return p in (1, 2, math.inf) or n_axes == 1


def _parts(mechanism: Spline) -> Iterator[_Part]:
    """Yield parts that cover every site and output whose slope is not zero because all weights around it agree."""
    table, degree, steps = mechanism.table, mechanism.degree, mechanism.breakpoint_steps
    levels, level = _levels(mechanism)
    floats = np.array([float(limit) for limit in levels])
    if isinstance(table, SparseTable):
        for window in windows(table, steps, degree):
            points = [np.asarray(edges * mechanism.step, dtype=np.float64) for edges in window.breakpoints]
            slopes = Slopes.of(window.breakpoints, degree, window.extras + table.floor)
            here = window.cells.of_sites(level)
            yield _Part(np.array([window.output]), points, degree, slopes, levels, floats, here, mechanism.p)
    else:
        cells = Cells((0,) * len(steps), tuple(len(points) - 2 for points in steps), degree)
        rows = table.reshape(*cells.shape, -1)
        for part in cells.parts(LARGEST_PART // table.shape[1]):
            slopes = Slopes.of(part.edges(steps), degree, rows[part.rows()].reshape(part.n_rows, -1))
            points = part.edges(mechanism.grid.breakpoints)
            here = part.of_sites(level)
            yield _Part(np.arange(table.shape[1]), points, degree, slopes, levels, floats, here, mechanism.p)


def _levels(mechanism: Spline) -> tuple[list[Fraction], NDArray[np.intp]]:
    """Return the different ε·step of cells in the plane, as fractions, and which of them counts in each cell.

    A cell that meets several cells of the map has the least ε of them.
    """
    local = mechanism.epsilon_map or EpsilonMap.constant(mechanism.bounds, mechanism.epsilon)
    values, level = np.unique(local.least_over(mechanism.grid.breakpoints), return_inverse=True)
    scale = mechanism.plane_scale * Fraction(mechanism.step)
    return [Fraction(repr(value)) * scale for value in values.tolist()], level.reshape(mechanism.grid.cells)


def _lattice_fault(mechanism: Spline) -> str | None:
    """Say what is wrong with the lattice: a proof between its points says little of others unless it is fine."""
    step = mechanism.step
    if math.frexp(step)[0] != 0.5 or step > coarsest_step(mechanism.bounds):
        return f"points are rounded to multiples of {step:g}, which is too coarse for the box"
    on_lattice = all((np.rint(points / step) * step == points).all() for points in mechanism.grid.breakpoints)
    if not on_lattice or not np.array_equal(mechanism.grid.bounds, mechanism.bounds):
        return "its breakpoints are not multiples of the lattice's step that span the box"
    return None


def _degree_fault(degree: int) -> str | None:
    return None if degree in _DEGREES else "its degree is not 1, 2 or 3"


def _table_fault(mechanism: Spline) -> str | None:
    table = mechanism.table
    if table.shape != (mechanism.spline.n_rows, mechanism.n_outputs):
        return "the table has not one row per site and one column per output"
    return table.fault() if isinstance(table, SparseTable) else _dense_fault(table)


def _dense_fault(table: NDArray[np.int64]) -> str | None:
    if table.dtype != np.int64:
        return "weights must be 64-bit integers"
    if int(table.min()) < 1:
        return "a weight is below 1"
    if int(table.max()) > _LARGEST_WEIGHT:
        return "a weight is too large to compare exactly"
    # Integers would wrap around, and sums that differ could agree; sums of positive floats are off by far less than
    # there is between this limit and 2^63.
    if float(table.sum(axis=1, dtype=np.float64).max()) > _LARGEST_SUM:
        return "a row's sum is too large to compare exactly"
    sums = table.sum(axis=1)
    if (sums != sums[0]).any():
        return "the rows have different sums"
    return None


def _refusal(mechanism: Spline, worst: _Worst, checked: int) -> Finding:
    """Look for a pair that shows it, and say what was found."""
    low, high = mechanism.bounds
    side = min(float(np.diff(points).min()) for points in mechanism.grid.breakpoints)
    spread = np.random.default_rng(0).uniform(low, high, size=(2_000, len(low)))
    # A violating pair is most likely near the worst site.
    near = worst.place + side * np.random.default_rng(1).normal(size=(2_000, len(low)))
    points = mechanism.snap(np.clip(np.concatenate([spread, near]), low, high))
    reach = max(1e-4 * side, 64 * mechanism.step)
    found, pair, tried = steepest_pair(mechanism, points, reach)
    shown = "; the pair shown violates it." if found > 1 else " at the place shown; no violating pair was found."
    claim = refused(mechanism, f"the gradient's control values reach {worst.ratio:.15g} of epsilon{shown}")
    ratio, where = (found, pair) if found > 1 else (worst.ratio, worst.where())
    return Finding(holds=False, claim=claim, worst_ratio=ratio, worst_where=where, checked=checked + tried)


def _site_place(breakpoints: Sequence[FloatArray], degree: int, site: int) -> FloatArray:
    """Return where a site of a cell lies: control sites divide each side of a cell evenly."""
    shape = tuple((len(points) - 1) * (degree + 1) for points in breakpoints)
    place: list[float] = []
    for number, points in zip(np.unravel_index(site, shape), breakpoints, strict=True):
        cell, a = divmod(int(number), degree + 1)
        place.append(points[cell] + (points[cell + 1] - points[cell]) * a / degree)
    return np.array(place)
