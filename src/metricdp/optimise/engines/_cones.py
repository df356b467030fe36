"""Second-order cones in bulk: arrays (d + 1, …) hold one cone element per trailing index.

A cone of dimension 1 (d = 0) is the half-line, so linear inequalities need no code of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._validation import FloatArray

__all__ = ["Scaling", "determinant", "divide", "inverse", "longest_step", "product"]


def determinant(u: FloatArray) -> FloatArray:
    """Return u_0² − ‖u_1‖², positive inside the cone."""
    return np.asarray(u[0] ** 2 - np.square(u[1:]).sum(axis=0))


def _minkowski(u: FloatArray, v: FloatArray) -> FloatArray:
    return np.asarray(u[0] * v[0] - (u[1:] * v[1:]).sum(axis=0))


def product(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return the Jordan product (⟨u, v⟩, u_0 v_1 + v_0 u_1)."""
    result = u[0] * v
    result[1:] += v[0] * u[1:]
    result[0] = (u * v).sum(axis=0)
    return result


def divide(u: FloatArray, r: FloatArray) -> FloatArray:
    """Return v with product(u, v) = r."""
    first = _minkowski(u, r) / determinant(u)
    result = (r - first * u) / u[0]
    result[0] = first
    return np.asarray(result)


def inverse(u: FloatArray) -> FloatArray:
    """Return u^{-1}: product(u, u^{-1}) = (1, 0, …)."""
    result = -u / determinant(u)
    result[0] *= -1
    return np.asarray(result)


def longest_step(u: FloatArray, move: FloatArray) -> float:
    """Return the largest α for which u + α·move stays in every cone (u inside)."""
    a, b, c = determinant(move), _minkowski(u, move), determinant(u)
    discriminant = b * b - a * c
    with np.errstate(divide="ignore", invalid="ignore"):
        # The stable pair of roots of a α² + 2 b α + c; the first positive one is where the cone is left.
        pivot = -(b + np.copysign(np.sqrt(np.maximum(discriminant, 0.0)), b))
        roots = np.stack([pivot / a, c / pivot, -u[0] / move[0]])
        usable = np.stack([discriminant >= 0, discriminant >= 0, move[0] < 0])
        return float(np.where(usable & (roots > 0), roots, np.inf).min())


@dataclass(frozen=True)
class Scaling:
    """The Nesterov–Todd scaling W of two interior points: W y = W^{-1} s.

    W = η (w_0, w_1ᵀ; w_1, I + w_1 w_1ᵀ/(1 + w_0)) per cone, with w of determinant 1.
    """

    w: FloatArray
    eta: FloatArray

    @classmethod
    def of(cls, s: FloatArray, y: FloatArray) -> Scaling:
        """Return the scaling of primal slack s and dual y."""
        size_s, size_y = np.sqrt(determinant(s)), np.sqrt(determinant(y))
        unit_s, unit_y = s / size_s, y / size_y
        gamma = 2 * np.sqrt((1 + (unit_s * unit_y).sum(axis=0)) / 2)
        w = (unit_s - unit_y) / gamma
        w[0] = (unit_s[0] + unit_y[0]) / gamma
        return cls(w, np.sqrt(size_s / size_y))

    def apply(self, v: FloatArray) -> FloatArray:
        """Return W v."""
        return self._turn(v, 1.0) * self.eta

    def apply_inverse(self, v: FloatArray) -> FloatArray:
        """Return W^{-1} v."""
        return self._turn(v, -1.0) / self.eta

    def _turn(self, v: FloatArray, sign: float) -> FloatArray:
        inner = (self.w[1:] * v[1:]).sum(axis=0)
        result = v + (sign * v[0] + inner / (1 + self.w[0])) * self.w
        result[0] = self.w[0] * v[0] + sign * inner
        return np.asarray(result)

    def inverse_square(self, i: int, j: int) -> FloatArray:
        """Return entry (i, j) of W^{-2} = (2 ŵ ŵᵀ − J) / η², with ŵ = (w_0, −w_1) and J = diag(1, −1, …)."""
        sign = 1.0 if (i == 0) == (j == 0) else -1.0
        entry = 2 * sign * self.w[i] * self.w[j]
        if i == j:
            entry = entry - (1.0 if i == 0 else -1.0)
        return np.asarray(entry / self.eta**2)
