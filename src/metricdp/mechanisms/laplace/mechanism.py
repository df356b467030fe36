"""Laplace noise on a lattice of millimetres, whose noisy points fall into squares that are labelled with outputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray, finite_array, positive, reject
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.laplace.mixture_mass import MixtureMass
from metricdp.mechanisms.laplace.planar_mass import PlanarMass, count_panels
from metricdp.mechanisms.laplace.product_mass import ProductMass
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.noise.exact import MOST_AXES
from metricdp.mechanisms.noise.mechanism import NoisyMechanism
from metricdp.mechanisms.remap import checked_labels
from metricdp.mechanisms.tails import raise_tails

__all__ = ["LatticeLaplace", "NoiseFrame"]

# With u = (x + y)/2 and w = (x − y)/2, max(|x|, |y|) = |u| + |w|.
_DIAGONAL = np.array([[0.5, 0.5], [0.5, -0.5]])

# Minimum margin of the window, in units of 1/rate; the quadrature assumes that edges outside it are far away.
_LEAST_MARGIN = 1.0

# From this many units of 1/rate on, rounding errors of coordinates show in probabilities.
_WIDEST = 1e8

# Panels take about 400 bytes each while rows are computed; a file may not ask for more.
_MOST_PANELS = 2**20


@dataclass(frozen=True, eq=False)
class NoiseFrame:
    """The coordinates in which noise of density ∝ e^{−rate ‖·‖_p} takes its simplest form.

    order : its norm there; 1 where the noise is independent along each axis.
    matrix : maps a point of the problem to the frame.
    """

    order: float
    matrix: FloatArray

    @classmethod
    def of(cls, p: float, n_axes: int) -> NoiseFrame:
        """Return the frame for d_p."""
        if not 1 <= n_axes <= MOST_AXES:
            msg = f"Laplace noise is supported for 1 to {MOST_AXES} axes, got {n_axes}."
            raise InvalidInputError(msg)
        if n_axes == 2 and math.isinf(p):
            return cls(1.0, _DIAGONAL)
        return cls(1.0 if n_axes == 1 else p, np.eye(n_axes))

    def spacing(self, step: float) -> float:
        """Return how far apart the coordinates of lattice points are in the frame."""
        return step * float(np.abs(self.matrix).max())

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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LatticeLaplace(NoisyMechanism):
    """Add noise of probability ∝ e^{−rate ‖·‖_p}, find the square of the noisy point, report the square's label.

    rate : of the noise, per unit of distance.
    window : (2, N), the corners of the squares, in the noise's frame (`NoiseFrame`).
    labels : the index of the output that each square stands for; its shape is that of the squares.

    Guarantee
    ---------
    Points are rounded to a lattice (`step`), which adds at most `rounding` to the distance of two points. The noise is
    a point of the same lattice, drawn exactly with probabilities proportional to e^{−a ‖v‖_p}, where a is a fraction of
    at most rate · step (`LatticeNoise`). The lattice has no border and nothing is cut off, so the sum of the weights is
    the same from every point, and by the triangle inequality the probability of a noisy point changes by a factor of at
    most e^{rate · d_p(x, x')} between lattice points x and x'. Finding the square (the nearest one, for noisy points
    outside the window) and its label see only the noisy point, so they are post-processing and cost nothing.
    `probabilities` evaluates the mass of each label's squares under the continuous density and does not matter for the
    guarantee: its relative error is about 1e-12 where there is a closed form (one axis, p = 1, two axes with p = 2
    or ∞), and `MixtureMass.error` in absolute terms elsewhere; what is below e^-700 is given as e^-700. An output that
    labels no square is never reported. `sample` draws the noise itself and does not use `probabilities`.
    """

    window: FloatArray
    labels: NDArray[np.intp]

    # Fixed by the file format. The methods that design this kind are "laplace" and "laplace-remap".
    kind: ClassVar[str] = "lattice-laplace"
    slow_rows: ClassVar[bool] = True

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
        """The coordinates in which the squares lie."""
        return NoiseFrame.of(self.p, self.bounds.shape[1])

    @property
    def has_closed_form(self) -> bool:
        """Whether `probabilities` are exact but for rounding: products of intervals, and the plane with p = 2."""
        return self.frame.order == 1 or (self.frame.order == 2 and len(self.frame.matrix) == 2)

    @cached_property
    def squares(self) -> Squares:
        """The squares into which noisy points fall."""
        return Squares(self.window, self.labels.shape)

    def _rows(self, points: FloatArray) -> FloatArray:
        return raise_tails(self._mass.rows(self.frame.enter(self.snap(points))), self._possible)

    def losses_at(self, records: FloatArray, loss: FloatArray) -> FloatArray:
        """Return Σ_k z_k(x) L(x, y_k) for records of the box, given their rows of losses."""
        mass = self._mass
        if isinstance(mass, PlanarMass):
            return mass.expected(self.frame.enter(self.snap(records)), loss)
        return super().losses_at(records, loss)

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[np.intp]:
        noisy = self._noisy(points, source)
        return np.asarray(self.labels.ravel()[self.squares.square_of(self.frame.enter(noisy))])

    @cached_property
    def _mass(self) -> PlanarMass | ProductMass | MixtureMass:
        order = self.frame.order
        if order == 1:
            return ProductMass(self.squares, self.labels, self.rate, self.n_outputs)
        if self.has_closed_form:
            box = self.frame.box(self.bounds)
            return PlanarMass(self.squares, self.labels, self.rate, self.n_outputs, box)
        return MixtureMass(self.squares, self.labels, self.rate, self.n_outputs, order)

    @cached_property
    def _possible(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.n_outputs), self.labels)

    def grid_summary(self) -> dict[str, Any]:
        """Return the cells along each axis."""
        return {"cells": list(self.labels.shape)}

    def settings(self) -> dict[str, Any]:
        """Return the rate, the window of the squares and their labels."""
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
        if mechanism.has_closed_form and mechanism.frame.order == 2:
            panels = count_panels(labels, mechanism.squares, rate, mechanism.frame.box(mechanism.bounds))
            if panels > _MOST_PANELS:
                raise reject("labels", f"of at most {_MOST_PANELS:,} panels between unequal squares", f"{panels:,}")
        return mechanism
