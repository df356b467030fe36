"""Laplace noise on the plane, line or space, snapped to a lattice whose squares carry the outputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, finite_array, positive, reject
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.lattice import Lattice
from metricdp.mechanisms.planar_mass import PlanarMass, count_panels
from metricdp.mechanisms.product_mass import ProductMass
from metricdp.mechanisms.remap import checked_labels
from metricdp.mechanisms.tails import raise_tails
from metricdp.randomness import RandomSource

__all__ = ["LatticeLaplace", "NoiseFrame"]

# With u = (x + y)/2 and w = (x − y)/2, max(|x|, |y|) = |u| + |w|.
_DIAGONAL = np.array([[0.5, 0.5], [0.5, -0.5]])

# How far beyond the box, over the rate, a window must reach: walls outside it are integrated as if seen from
# afar.
_LEAST_MARGIN = 1.0

# From this many units of 1/rate on, rounding errors of coordinates show in probabilities.
_WIDEST = 1e8

# Panels take about 400 bytes each while rows are computed; a file may not ask for more.
_MOST_PANELS = 2**20


@dataclass(frozen=True, eq=False)
class NoiseFrame:
    """The coordinates in which noise of density ∝ e^{−rate ‖·‖_p} takes its simplest form.

    order : 2 for the planar Laplace distribution, 1 where the noise is independent along each axis.
    matrix : maps a point of the problem to the frame.
    """

    order: int
    matrix: FloatArray

    @classmethod
    def of(cls, p: float, n_axes: int) -> NoiseFrame:
        """Return the frame for d_p, or say that there is none."""
        if n_axes == 1 or (p == 1 and n_axes <= 3):
            return cls(1, np.eye(n_axes))
        if n_axes == 2 and p == 2:
            return cls(2, np.eye(2))
        if n_axes == 2 and math.isinf(p):
            return cls(1, _DIAGONAL)
        msg = (
            "Laplace noise is supported for any `p` with 1 axis, for `p` = 1, 2 or inf with 2 axes and for "
            f"`p` = 1 with 3 axes, got p = {p:g} with {n_axes} axes."
        )
        raise InvalidInputError(msg)

    def enter(self, points: FloatArray) -> FloatArray:
        """Take points of the problem to the frame."""
        return points @ self.matrix.T

    def leave(self, points: FloatArray) -> FloatArray:
        """Take points of the frame to the problem."""
        return np.asarray(np.linalg.solve(self.matrix, points.T).T)

    def box(self, bounds: FloatArray) -> FloatArray:
        """Return the smallest box of the frame around a box of the problem."""
        corners = self.enter(np.array(list(itertools.product(*bounds.T))))
        return np.array([corners.min(axis=0), corners.max(axis=0)])

    def noise(self, count: int, source: RandomSource) -> FloatArray:
        """Draw (count, N) noise of rate 1, in the frame.

        Guarantee
        ---------
        Inverse transforms of 53-bit uniforms in floating point: each coordinate is off by a few units in the
        last place, and the distribution by about 2^-52 in total variation.
        """
        if self.order == 2:
            # The radius has density r e^{−r}: a sum of two exponentials.
            first, second, turn = (_unit(source.words(count)) for _ in range(3))
            radius, angle = -np.log(first) - np.log(second), 2 * math.pi * turn
            return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
        n_axes = len(self.matrix)
        words = source.words(count * n_axes).reshape(count, n_axes)
        # The lowest bit is no part of the uniform, so it is free to choose the sign.
        sign = np.where(words & np.uint64(1), 1.0, -1.0)
        return np.asarray(sign * np.log(_unit(words)))


def _unit(words: NDArray[np.uint64]) -> FloatArray:
    """Return uniforms in (0, 1]: multiples of 2^-53, never 0, so that a logarithm is finite."""
    return np.asarray(((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53, dtype=np.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LatticeLaplace(Mechanism):
    """Add noise of density ∝ e^{−rate ‖·‖_p}, snap to a lattice, report the label of the square.

    rate : of the noise, per unit of distance.
    window : (2, N), the corners of the lattice, in the noise's frame (`NoiseFrame`).
    labels : the index of the output that each square stands for; its shape is the lattice's.

    Guarantee
    ---------
    The noise covers the whole space and nothing is cut off or renormalised, so by the triangle inequality its
    density changes by a factor of at most e^{rate · d_p(x, x')} between secrets x and x': (rate, d_p)-mDP on
    the whole space. Snapping to a square (the nearest one, for points outside the window) and looking up its
    label see only the noisy point, so they are post-processing and cost nothing. `probabilities` evaluates
    the mass of each label's squares directly, with a relative error of about 1e-13; what is below e^-700 is
    given as e^-700, which keeps the guarantee. An output that labels no square is never reported. `sample`
    draws the noise itself and does not use `probabilities`.
    """

    rate: float
    window: FloatArray
    labels: NDArray[np.intp]

    kind: ClassVar[str] = "lattice-laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        box = self.frame.box(self.bounds)
        margin = min((box[0] - self.window[0]).min(), (self.window[1] - box[1]).min())
        # A rounding below the least margin is no reason to refuse.
        if not margin * self.rate >= _LEAST_MARGIN * (1 - 1e-9):
            rule = f"at least {_LEAST_MARGIN / self.rate:.6g} (1 / rate) wider than the box on every side"
            raise reject("window", rule, f"a margin of {margin:.6g}")

    @cached_property
    def frame(self) -> NoiseFrame:
        """The coordinates of the lattice."""
        return NoiseFrame.of(self.p, self.bounds.shape[1])

    @cached_property
    def lattice(self) -> Lattice:
        """The squares that noisy points are snapped to."""
        return Lattice(self.window, self.labels.shape)

    def _rows(self, points: FloatArray) -> FloatArray:
        return raise_tails(self._mass.rows(self.frame.enter(points)), self._possible)

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[np.intp]:
        noisy = self.frame.noise(len(points), source)
        noisy /= self.rate
        noisy += self.frame.enter(points)
        return np.asarray(self.labels.ravel()[self.lattice.snap(noisy)])

    @cached_property
    def _mass(self) -> PlanarMass | ProductMass:
        if self.frame.order == 2:
            box = self.frame.box(self.bounds)
            return PlanarMass(self.lattice, self.labels, self.rate, self.n_outputs, box)
        return ProductMass(self.lattice, self.labels, self.rate, self.n_outputs)

    @cached_property
    def _possible(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.n_outputs), self.labels)

    def settings(self) -> dict[str, Any]:
        """Return the rate, the lattice and its labels."""
        return {"rate": self.rate, "window": self.window, "labels": self.labels}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> LatticeLaplace:
        """Rebuild from a file's fields."""
        n_axes = common["bounds"].shape[1]
        window = finite_array("window", settings["window"])
        if window.shape != (2, n_axes):
            raise reject("window", f"of shape {(2, n_axes)}, lower corner first", f"shape {window.shape}")
        labels = checked_labels(settings["labels"], n_axes, len(common["outputs"]))
        rate = positive("rate", settings["rate"])
        extent = float(np.ptp(window, axis=0).max())
        if not rate * extent <= _WIDEST:
            raise reject("rate", f"at most {_WIDEST / extent:.6g} for a window this wide", rate)
        mechanism = cls(**common, rate=rate, window=window, labels=labels)
        if mechanism.frame.order == 2:
            panels = count_panels(labels, mechanism.lattice, rate, mechanism.frame.box(mechanism.bounds))
            if panels > _MOST_PANELS:
                raise reject("labels", f"of at most {_MOST_PANELS:,} panels between unequal squares", f"{panels:,}")
        return mechanism
