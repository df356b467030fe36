"""Proof for spline mechanisms: the gradient's control values lie in the cone at every site of every cell.

Everything is a comparison of integers: weights of control rows, cell sides in lattice steps, and ε as the fraction that
its decimal string says. Floating point, with its error bounded, decides only the clear cases; the close ones are
compared exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.certificates.claims import ROUNDOFF, Finding, proved, refused
from metricdp.certificates.search import steepest_pair
from metricdp.geometry.lattice import coarsest_step
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.mechanisms.spline.mechanism import Spline

__all__ = ["prove"]

# A computed ratio is off by at most two dozen roundings: of the weights and sides as floats, of quotients, squares,
# sum, root and ε; for other norms than 1, 2 and ∞, powers add a few more. All of them count as close.
_CLOSE = 256 * ROUNDOFF

# Six times a weight (degree 3 multiplies by 3 a difference of two) must fit 64 bits, and so must a row's sum.
_DEGREES = (1, 2, 3)
_LARGEST_WEIGHT, _LARGEST_SUM = 2**58, 2**60


def prove(mechanism: Spline) -> Finding:
    """Check a fine lattice, weights ≥ 1 with one sum, and ‖g‖_q ≤ ε b at every site of every cell, for every output."""
    fault = _lattice_fault(mechanism) or _degree_fault(mechanism.degree) or _table_fault(mechanism.table)
    if fault:
        claim = refused(mechanism, f"{fault}.")
        return Finding(holds=False, claim=claim, worst_ratio=math.inf, worst_where={}, checked=mechanism.table.size)
    slopes = _Slopes.of(mechanism)
    ratio = slopes.ratios()
    broken = slopes.worst_broken(ratio)
    site, output = np.unravel_index(int(ratio.argmax()), ratio.shape) if broken is None else broken
    worst = float(ratio[site, output])
    where = {"points": [_site_place(mechanism, int(site)).tolist()], "output": int(output)}
    if broken is not None:
        return _refusal(mechanism, worst, where, ratio.size)
    claim = _claim(mechanism, slopes)
    return Finding(holds=True, claim=claim, worst_ratio=min(worst, 1.0), worst_where=where, checked=ratio.size)


def _claim(mechanism: Spline, slopes: _Slopes) -> str:
    arithmetic = "in exact integer arithmetic" if slopes.exact else "with rounding counted against it"
    exponent = math.frexp(mechanism.step)[1] - 1
    reason = (
        f"Points are first rounded to multiples of 2^{exponent}. At each of {len(slopes.values):,} control sites, for "
        "every output, the gradient's control values are at most epsilon times the control value, checked "
        f"{arithmetic} on the numbers that outputs are drawn from. Assumed: the random bits are uniform."
    )
    return proved(mechanism, reason)


@dataclass(frozen=True)
class _Slopes:
    """Control values at the sites of cells: value b, and along each axis the slope G/H with integers G and H.

    values : (sites, outputs). rises : G per axis (sites, outputs). sides : H per axis (sites,), in lattice steps.
    """

    values: NDArray[np.int64]
    rises: list[NDArray[np.int64]]
    sides: list[NDArray[np.int64]]
    limit: Fraction
    p: float

    @classmethod
    def of(cls, mechanism: Spline) -> _Slopes:
        m, table = mechanism.degree, mechanism.table
        breakpoints = mechanism.breakpoint_steps
        rows_shape = tuple(m * (len(points) - 1) + 1 for points in breakpoints)
        # The row of site a of cell i is m·i + a; neighbours beyond the cell are multiplied by zero.
        rows = [(m * np.arange(len(points) - 1)[:, None] + np.arange(m + 1)).ravel() for points in breakpoints]
        places = [np.tile(np.arange(m + 1), len(points) - 1) for points in breakpoints]
        site_axes = np.meshgrid(*rows, indexing="ij")
        place_axes = np.meshgrid(*places, indexing="ij")
        here = np.ravel_multi_index(site_axes, rows_shape).ravel()
        values = table[here]
        rises, sides = [], []
        for axis, points in enumerate(breakpoints):
            stride = math.prod(rows_shape[axis + 1 :])
            a = place_axes[axis].ravel()
            ahead = table[np.where(a < m, here + stride, here)] - values
            behind = values - table[np.where(a > 0, here - stride, here)]
            rises.append((m - a)[:, None] * ahead + a[:, None] * behind)
            cell = site_axes[axis].ravel() // m - (a == m)
            sides.append(np.diff(points)[cell])
        # ‖g‖_q ≤ ε b with g in units per length: ‖G/H‖_q ≤ ε·step·b.
        limit = mechanism.plane_epsilon * Fraction(mechanism.step)
        return cls(values, rises, sides, limit, mechanism.p)

    @property
    def exact(self) -> bool:
        """Whether close calls can be decided by integers."""
        return self.p in (1, 2, math.inf) or len(self.rises) == 1

    def ratios(self) -> FloatArray:
        """Return ‖G/H‖_q / (ε·step·b) in floating point, infinite where b is not positive."""
        slopes = np.stack([rise / side[:, None] for rise, side in zip(self.rises, self.sides, strict=True)], axis=-1)
        size = norm(slopes, dual_exponent(self.p))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.values > 0, size / (float(self.limit) * self.values), np.inf)

    def worst_broken(self, ratio: FloatArray) -> tuple[int, int] | None:
        """Return the worst (site, output) outside its cone, None if there is none."""
        at = np.unravel_index(int(ratio.argmax()), ratio.shape)
        if ratio[at] > 1 + _CLOSE:
            return int(at[0]), int(at[1])
        close = np.argwhere(ratio >= 1 - _CLOSE)
        return next(((int(site), int(output)) for site, output in close if not self._inside(site, output)), None)

    def _inside(self, site: int, output: int) -> bool:
        """Compare as fractions; what no fraction can decide counts as outside."""
        if not self.exact:
            return False
        slopes = [
            Fraction(abs(int(rise[site, output])), int(side[site]))
            for rise, side in zip(self.rises, self.sides, strict=True)
        ]
        allowed = self.limit * int(self.values[site, output])
        if self.p == 1 or len(slopes) == 1:
            return max(slopes) <= allowed
        if math.isinf(self.p):
            return sum(slopes) <= allowed
        return sum(slope**2 for slope in slopes) <= allowed**2


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


def _table_fault(table: NDArray[np.int64]) -> str | None:
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


def _refusal(mechanism: Spline, worst: float, where: dict[str, Any], checked: int) -> Finding:
    """Look for a pair that shows it, and say what was found."""
    low, high = mechanism.bounds
    side = min(float(np.diff(points).min()) for points in mechanism.grid.breakpoints)
    spread = np.random.default_rng(0).uniform(low, high, size=(2_000, len(low)))
    # A violating pair is most likely near the worst site.
    near = np.array(where["points"]) + side * np.random.default_rng(1).normal(size=(2_000, len(low)))
    points = mechanism.snap(np.clip(np.concatenate([spread, near]), low, high))
    reach = max(1e-4 * side, 64 * mechanism.step)
    found, pair, tried = steepest_pair(mechanism, points, reach)
    shown = "; the pair shown violates it." if found > 1 else " at the place shown; no violating pair was found."
    claim = refused(mechanism, f"the gradient's control values reach {worst:.15g} of epsilon{shown}")
    if found > 1:
        worst, where = found, pair
    return Finding(holds=False, claim=claim, worst_ratio=worst, worst_where=where, checked=checked + tried)


def _site_place(mechanism: Spline, site: int) -> FloatArray:
    """Return where a site of a cell lies: control sites divide each side of a cell evenly."""
    m = mechanism.degree
    shape = tuple(cells * (m + 1) for cells in mechanism.grid.cells)
    place: list[float] = []
    for number, points in zip(np.unravel_index(site, shape), mechanism.grid.breakpoints, strict=True):
        cell, a = divmod(int(number), m + 1)
        place.append(points[cell] + (points[cell + 1] - points[cell]) * a / m)
    return np.array(place)
