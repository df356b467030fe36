"""Second-order cones in bulk: arrays (d + 1, …) hold one cone element per trailing index.

A cone of dimension 1 (d = 0) is the half-line, so linear inequalities need no code of their own. The arrays are large
and the dimension is small, so sums over the dimension are loops: every pass over memory counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricdp._validation import FloatArray

__all__ = ["Interior", "Scaling", "complementarity", "determinant", "inverse", "product"]


def determinant(u: FloatArray) -> FloatArray:
    """Return u_0² − ‖u_1‖², positive inside the cone."""
    return _minkowski(u, u)


def _minkowski(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return u_0 v_0 − ⟨u_1, v_1⟩."""
    result = u[0] * v[0]
    for left, right in zip(u[1:], v[1:], strict=True):
        result -= left * right
    return np.asarray(result)


def _dot(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return ⟨u, v⟩ of each cone; zero if there are no components."""
    result = np.zeros(v.shape[1:])
    for left, right in zip(u, v, strict=True):
        result += left * right
    return result


def product(u: FloatArray, v: FloatArray) -> FloatArray:
    """Return the Jordan product (⟨u, v⟩, u_0 v_1 + v_0 u_1)."""
    result = u[0] * v
    result[1:] += v[0] * u[1:]
    for left, right in zip(u[1:], v[1:], strict=True):
        result[0] += left * right
    return result


def complementarity(centre: FloatArray, first: FloatArray, second: FloatArray) -> float:
    """Return ⟨centre + first, centre + second⟩: of slack and dual after a step, which scaling leaves as it is."""
    return float(np.vdot(centre, centre + first + second) + np.vdot(first, second))


def inverse(u: FloatArray) -> FloatArray:
    """Return u^{-1}: product(u, u^{-1}) = (1, 0, …)."""
    result = -u / determinant(u)
    result[0] *= -1
    return np.asarray(result)


@dataclass(frozen=True)
class Interior:
    """A point u inside every cone, with what dividing by it and step lengths from it need.

    size : √det u.
    unit : u / size, of determinant 1.
    """

    point: FloatArray
    size: FloatArray
    unit: FloatArray

    @classmethod
    def of(cls, point: FloatArray) -> Interior:
        """Look at a point inside every cone."""
        size = np.sqrt(determinant(point))
        return cls(point, size, point / size)

    def divide(self, r: FloatArray) -> FloatArray:
        """Return v with product(u, v) = r."""
        first = _minkowski(self.unit, r) / self.size
        result = r - first * self.point
        result /= self.point[0]
        result[0] = first
        return result

    def longest_step(self, move: FloatArray) -> float:
        """Return the largest α for which u + α·move stays in every cone.

        It is −1 over the least eigenvalue of P(u^{-1/2}) move, the move as seen from u, if that is negative. The
        eigenvalues are (ρ ± √(ρ² − det move)) / size with ρ = unit_0 move_0 − ⟨unit_1, move_1⟩.
        """
        centre = _minkowski(self.unit, move)
        spread = centre * centre
        spread -= determinant(move)
        np.maximum(spread, 0.0, out=spread)
        np.sqrt(spread, out=spread)
        centre -= spread
        centre /= self.size
        least = float(centre.min())
        return -1 / least if least < 0 else np.inf


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
        w = s / size_s
        unit_y = y / size_y
        gamma = _dot(w, unit_y)
        gamma += 1
        gamma *= 2
        np.sqrt(gamma, out=gamma)
        w[0] += unit_y[0]
        w[1:] -= unit_y[1:]
        w /= gamma
        size_s /= size_y
        return cls(w, np.sqrt(size_s))

    def apply(self, v: FloatArray) -> FloatArray:
        """Return W v."""
        result = self._turn(v, 1.0)
        result *= self.eta
        return result

    def apply_inverse(self, v: FloatArray) -> FloatArray:
        """Return W^{-1} v."""
        result = self._turn(v, -1.0)
        result /= self.eta
        return result

    def _turn(self, v: FloatArray, sign: float) -> FloatArray:
        inner = _dot(self.w[1:], v[1:])
        along = inner / (1 + self.w[0])
        along += sign * v[0]
        result = along * self.w
        result[1:] += v[1:]
        np.multiply(self.w[0], v[0], out=result[0])
        inner *= sign
        result[0] += inner
        return result

    def inverse_squares(self) -> dict[tuple[int, int], FloatArray]:
        """Return the entries (i ≤ j) of W^{-2} = (2 ŵ ŵᵀ − J) / η², with ŵ = (w_0, −w_1) and J = diag(1, −1, …)."""
        scaled = self.w * (np.sqrt(2.0) / self.eta)
        scaled[1:] *= -1
        entries = {(i, j): scaled[i] * scaled[j] for i in range(len(scaled)) for j in range(i, len(scaled))}
        unit = 1 / (self.eta * self.eta)
        entries[0, 0] -= unit
        for i in range(1, len(scaled)):
            entries[i, i] += unit
        return entries
