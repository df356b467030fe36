"""Noise without outputs: the noisy lattice point itself is the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._chunks import DRAWS_AT_ONCE
from metricdp._validation import FloatArray, positive, reject
from metricdp.drawing.randomness import NotPrivate, RandomSource
from metricdp.errors import InvalidInputError
from metricdp.geometry.lattice import snap, to_integers
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.noise.exact import LatticeNoise, noise_on, noise_step

__all__ = ["Noise", "NoisyMechanism"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoisyMechanism(Mechanism):
    """Round the point to a lattice and add noise of probability ∝ e^{−rate ‖·‖_p} on that lattice, drawn exactly.

    rate : of the noise, per unit of distance.
    """

    rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.noise  # refuses a rate that has no lattice before the first point comes

    @cached_property
    def step(self) -> float:
        """The spacing of the lattice to which points are rounded."""
        return noise_step(self.bounds, self.rate)

    @cached_property
    def noise(self) -> LatticeNoise:
        """The noise, in steps of the lattice."""
        return noise_on(self.step, self.rate, self.p, self.bounds.shape[1])

    def snap(self, points: FloatArray) -> FloatArray:
        """Return the lattice points that stand for points of the box."""
        return snap(points, self.step)

    def _noisy(self, points: FloatArray, source: RandomSource) -> FloatArray:
        """Return one noisy lattice point for every point of the box."""
        return np.asarray((to_integers(points, self.step) + self.noise.draw(len(points), source)) * self.step)

    @property
    def _moved_by(self) -> float:
        return self.step / 2

    @property
    def _drawn_at_once(self) -> int:
        return DRAWS_AT_ONCE


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Noise(NoisyMechanism):
    """Report the point plus noise of probability ∝ e^{−rate ‖·‖_p}: coordinates in, coordinates out.

    outputs : none, an empty (0, N) array.

    Guarantee
    ---------
    Points outside the box are taken to it, points are rounded to a lattice, and the noise is a point of that lattice,
    drawn exactly; see `LatticeLaplace`, which this is without its squares. Reports may lie outside the box.
    """

    kind: ClassVar[str] = "noise"
    has_outputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.outputs):
            raise reject("outputs", "empty, because noise reports coordinates", f"{len(self.outputs)} outputs")

    def __repr__(self) -> str:
        return f"Noise(epsilon={self.epsilon:g}, p={self.p:g}, axes={self.bounds.shape[1]})"

    @property
    def mean_distance(self) -> float:
        """How far reports lie from points on average, in d_p: N / rate."""
        return self.bounds.shape[1] / self.rate

    def sample(self, x: ArrayLike, rng: RandomSource | None = None, *, outside: str = "clamp") -> NDArray[Any]:
        """Draw one noisy point for every point and return its coordinates, (m, N).

        Guarantee
        ---------
        Draws are independent and follow the stated law exactly. With `rng=None` the bits come from the operating
        system's generator; an `InsecureSeed` makes the draw repeatable and therefore not private.
        """
        points = self._checked(x, outside)
        self._warn_if_elsewhere(points)
        return self._sampled(points, rng)

    def sample_lonlat(
        self, lonlat: ArrayLike, rng: RandomSource | None = None, *, outside: str = "clamp"
    ) -> NDArray[Any]:
        """Draw one noisy point for every point, degrees in (longitude first) and degrees out."""
        noisy = self._sampled(self._from_lonlat(lonlat, outside), rng)
        degrees = self.projection.to_lonlat(noisy) if len(noisy) else np.empty((0, 2))
        # Noise may carry a report beyond a pole; a latitude ends there.
        np.clip(degrees[:, 1], -90, 90, out=degrees[:, 1])
        return degrees.view(type(noisy))

    def _sampled(self, points: FloatArray, rng: RandomSource | None) -> NDArray[Any]:
        drawn = np.empty(points.shape)
        source = self._drawn_into(drawn, points, rng)
        return drawn if source.secure else drawn.view(NotPrivate)

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[Any]:
        return self._noisy(points, source)

    def _rows(self, points: FloatArray) -> FloatArray:  # noqa: ARG002 - there is nothing to compute
        msg = "Noise reports coordinates instead of choosing among outputs, so it has neither probabilities nor a loss."
        raise InvalidInputError(msg)

    def settings(self) -> dict[str, Any]:
        """Return the rate."""
        return {"rate": self.rate}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: Mapping[str, Any]) -> Noise:
        """Rebuild from a file's fields."""
        return cls(**common, rate=positive("rate", settings["rate"]))
