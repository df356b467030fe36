"""A sampler as a black box: counts of its outputs, points at which to draw, and what its claim allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._chunks import NUMBERS_AT_ONCE, slices
from metricdp._validation import FloatArray, finite_array, reject
from metricdp.drawing.randomness import RandomSource
from metricdp.errors import InvalidInputError
from metricdp.geometry.lattice import coarsest_step, lattice_step, snap_inside
from metricdp.mechanisms.base import Mechanism

__all__ = [
    "Counts",
    "Draws",
    "Sampler",
    "claim",
    "inside",
    "lattice_rounding",
    "mechanism_rounding",
    "non_negative",
    "refuse_noise",
    "spread",
]

Counts = NDArray[np.int64]
Sampler = Mechanism | Callable[[FloatArray], ArrayLike]

# The first points come from a box larger by this share and are moved into the true one: its faces are often steepest.
_OVERHANG = 0.1


class Draws:
    """Counts the outputs of a sampler, in large batches, and the draws made."""

    def __init__(self, sampler: Sampler, n_outputs: int, rng: RandomSource | None) -> None:
        if isinstance(sampler, Mechanism):
            self._sample: Callable[[FloatArray], ArrayLike] = lambda points: sampler.sample(points, rng)
        elif rng is not None:
            raise InvalidInputError("`rng` has no effect on a sampler that is a function; leave it out.")
        else:
            self._sample = sampler
        self.n_outputs = n_outputs
        self.made = 0

    def counts(self, points: FloatArray, each: int) -> Counts:
        """Draw `each` times at every point and return how often each output came, as (points, outputs)."""
        total, n_outputs = len(points) * each, self.n_outputs
        counts = np.zeros(len(points) * n_outputs, dtype=np.int64)
        for part in slices(total, NUMBERS_AT_ONCE // 2):
            owner = np.arange(part.start, part.stop) // each
            counts += np.bincount(owner * n_outputs + self._ask(points[owner]), minlength=len(counts))
        self.made += total
        return counts.reshape(len(points), n_outputs)

    def halves(self, points: FloatArray, each: int) -> Counts:
        """Do the same, but count two halves of the draws apart, as (points, 2, outputs)."""
        return self.counts(np.repeat(points, 2, axis=0), each // 2).reshape(len(points), 2, self.n_outputs)

    def _ask(self, points: FloatArray) -> NDArray[np.intp]:
        said = np.asarray(self._sample(points))
        if said.shape != (len(points),) or said.dtype.kind not in "iu":
            raise InvalidInputError(
                f"`sampler` returned shape {said.shape} of type {said.dtype} for {len(points)} points; it must return "
                "one whole number per point."
            )
        if said.min() < 0 or said.max() >= self.n_outputs:
            raise InvalidInputError(
                f"`sampler` returned outputs from {said.min()} to {said.max()}; with `n_outputs` = {self.n_outputs} "
                f"they must be 0 to {self.n_outputs - 1}."
            )
        return said.astype(np.intp, copy=False)


def spread(box: FloatArray, count: int, generator: np.random.Generator) -> FloatArray:
    """Return random points of the box, a good part of them on its faces; every other one is on the lattice."""
    shares = generator.uniform(-_OVERHANG, 1 + _OVERHANG, (count, box.shape[1]))
    return inside(box[0] + (box[1] - box[0]) * shares, box, np.arange(count) % 2 == 0)


def inside(points: FloatArray, box: FloatArray, on_lattice: NDArray[np.bool_]) -> FloatArray:
    """Return the nearest points of the box, and of its own lattice where `on_lattice` says so.

    A guarantee is about points as they are given. A sampler that rounds them has one that is easiest to meet on its
    lattice, and one that misbehaves may do so on the lattice only, or off it only.
    """
    rounded = snap_inside(points, box, lattice_step(box))
    return np.where(on_lattice[:, None], rounded, np.clip(points, *box))


def lattice_rounding(box: FloatArray, p: float) -> float:
    """Return the most that an honest lattice adds to the distance of two points of the box.

    Rounding to a lattice of spacing δ makes two points at most δ farther apart along each axis, hence δ N^{1/p} in
    all. The box decides how coarse a lattice may be, so a mechanism cannot excuse jumps by a coarse one of its own.
    """
    return float(coarsest_step(box) * box.shape[1] ** (1 / p))


def mechanism_rounding(mechanism: Mechanism) -> float:
    """Return the r of the claim e^{ε (d + r)} by which a mechanism is judged.

    It is the mechanism's own, but not more than an honest lattice needs.
    """
    return min(mechanism.rounding, lattice_rounding(mechanism.bounds, mechanism.p))


def claim(sampler: Sampler, name: str, given: Any, parameter: str | None = None) -> Any:
    """Return what was given, or else what the mechanism says itself."""
    refuse_noise("sampler", sampler)
    if not (isinstance(sampler, Mechanism) or callable(sampler)):
        raise reject("sampler", "a metricdp.Mechanism or a function", type(sampler).__name__)
    if given is not None:
        return given
    if not isinstance(sampler, Mechanism):
        raise InvalidInputError(
            f"The sampler is a function, which states no claim of its own: give `{parameter or name}`."
        )
    return getattr(sampler, name)


def refuse_noise(name: str, sampler: object) -> None:
    """Refuse a mechanism that reports noisy points instead of one of finitely many outputs."""
    if getattr(sampler, "kind", None) == "noise":
        raise InvalidInputError(
            f"`{name}` reports noisy points, but an audit needs finitely many outputs. Give `audit_samples` a function "
            "that draws noisy points and returns which of finitely many events each one is, for instance the number of "
            "a square of a grid."
        )


def non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite number of at least 0."""
    number = finite_array(name, value)
    if number.ndim or number < 0:
        raise reject(name, "a non-negative number", repr(number.tolist()))
    return float(number)
