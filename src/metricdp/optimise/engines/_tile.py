"""One tile of a `TensorProgram`: a block of coefficients is free, for a few outputs, and all else is held.

The tile's program is solved to one level of the barrier −μ Σ w ln det(slack) by predictor–corrector steps with
Nesterov–Todd scaling. The current table lies inside all cones, so every iterate does, too. A tile is small enough
for dense matrices: H_k of each output, and Σ_k H_k^{-1} for the multipliers of the row sums.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.optimise.engines import _cones as cones
from metricdp.optimise.engines._lapack import cholesky, invert_all, multiply_all, solve

__all__ = ["Tile", "improved_tile"]

# Multipliers start so many times deeper in their cones than the level that the table was taken to: what neighbours did
# since then has moved it off the centre. Starting at that level itself took two short steps in vain in most tiles.
_FIRST_DEPTH = 5.0

# Share of the way to the border of the cones that a step goes; a longer one leaves too little room for the next tile.
_TO_THE_BORDER = 0.95

# A tile is done once its complementarity is at most this multiple of the barrier's level, after a step of this length.
_CENTRED, _FULL_STEP = 1.3, 0.9

# After two steps in a row that are shorter than this the multipliers start afresh, this much deeper in their cones; if
# that does not help, the tile ends.
_SHORT_STEP, _DEEPER, _PATIENCE = 0.1, 30.0, 4

# Control values below this count as this in the weights of the barrier.
_LEAST_VALUE = 1e-9


@dataclass(frozen=True)
class Tile:
    """What the solve of a tile needs, and nothing else, so that it can travel to another machine.

    cost : (outputs, n_1, …, n_N) of the free coefficients.
    around : (outputs, r_1, …, r_N), all coefficients that the tile's sites use, as they are now.
    inside : where the free ones stand in `around`, one slice per axis.
    values, slopes : per axis the operator (sites, r) from `around` to the tile's sites.
    epsilon : the ε of each site, an array that broadcasts to them.
    faces : as in `TensorProgram`.
    reach : how far apart two coefficients are at most that one site uses, along any axis.
    before, barrier : the barrier's level until now and the level to reach.
    steps : Newton steps at most.
    monotone : whether the objective must not rise; otherwise it is enough if the objective with the barrier falls.
    deadline : of `time.perf_counter`, or None.
    """

    cost: FloatArray
    around: FloatArray
    inside: tuple[slice, ...]
    values: tuple[FloatArray, ...]
    slopes: tuple[FloatArray, ...]
    epsilon: FloatArray
    faces: FloatArray | None
    reach: int
    before: float
    barrier: float
    steps: int
    monotone: bool
    deadline: float | None = None


def improved_tile(tile: Tile) -> tuple[FloatArray | None, int]:
    """Return the change (outputs, n_1, …, n_N) of the free coefficients, None if there is no gain; and the steps."""
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        try:
            return _Descent(tile).run()
        except (FloatingPointError, np.linalg.LinAlgError):  # rounding allows no step; the tile stays as it is
            return None, 0


class _Descent:
    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.cone = _cone_of(tile)
        self.linear = _LocalOperators(tile)
        held = self.linear.slack_of(tile.around, within=False)
        self.base = self.cone.enter(held)
        # The square root balances the barrier between likely and unlikely outputs: 2 to 8 times fewer steps than with
        # equal weights or weights b.
        self.weight = np.sqrt(np.maximum(held[0] / tile.epsilon, _LEAST_VALUE))
        self.n_cones = float(np.broadcast_to(self.weight, self.base.shape[1:]).sum())
        self.cost = tile.cost.reshape(len(tile.cost), -1)
        self.change = np.zeros_like(self.cost)
        self.slack = self.base
        self.price = np.zeros(self.cost.shape[1])
        self.dual = _FIRST_DEPTH * tile.before * self.weight * cones.inverse(self.base)

    def run(self) -> tuple[FloatArray | None, int]:
        tile, first = self.tile, self._merit()
        steps, short, restarted, length = 0, 0, False, 0.0
        while steps < tile.steps and not self._late():
            level = float(np.vdot(self.slack, self.dual)) / self.n_cones
            if level <= _CENTRED * tile.barrier and length >= _FULL_STEP:
                break
            length = self._advance(level)
            steps += 1
            short = short + 1 if length < _SHORT_STEP else 0
            if short == 2 and not restarted:
                self.dual = _DEEPER * max(level, tile.barrier) * self.weight * cones.inverse(self.slack)
                self.price, short, restarted, length = np.zeros_like(self.price), 0, True, 0.0
            elif short == _PATIENCE:
                break
        gain = -float(np.vdot(self.cost, self.change))
        if steps == 0 or self._merit() >= first or (tile.monotone and gain <= 0):
            return None, steps
        return self.change.reshape(tile.cost.shape), steps

    def _late(self) -> bool:
        return self.tile.deadline is not None and time.perf_counter() >= self.tile.deadline

    def _merit(self) -> float:
        depth = 0.5 * float((self.weight * np.log(cones.determinant(self.slack))).sum())
        return float(np.vdot(self.cost, self.change)) - self.tile.barrier * depth

    def _advance(self, level: float) -> float:
        """Make one predictor–corrector step towards the barrier's level; return the shorter of its two lengths."""
        scaling = cones.Scaling.of(self.slack, self.dual)
        self._factor(scaling)
        centre = cones.Interior.of(scaling.apply(self.dual))
        affine = self._direction(scaling, centre, None)
        first = min(1.0, centre.longest_step(affine.scaled_slack))
        second = min(1.0, centre.longest_step(affine.scaled_dual))
        ahead = (
            cones.complementarity(centre.point, first * affine.scaled_slack, second * affine.scaled_dual) / self.n_cones
        )
        centring = min(1.0, max(1e-4, ahead / level)) ** 3
        target = cones.product(affine.scaled_slack, affine.scaled_dual)
        target *= -1
        target[0] += max(centring * level, self.tile.barrier) * self.weight
        step = self._direction(scaling, centre, centre.divide(target))
        first = min(1.0, _TO_THE_BORDER * centre.longest_step(step.scaled_slack))
        second = min(1.0, _TO_THE_BORDER * centre.longest_step(step.scaled_dual))
        self.change += first * step.change
        self.slack = self.base + self.cone.enter(self.linear.slack_of(self._on_grid(self.change)))
        self.dual += second * scaling.apply_inverse(step.scaled_dual)
        self.price += second * step.price
        return min(first, second)

    def _factor(self, scaling: cones.Scaling) -> None:
        """Invert H_k = Aᵀ W_k^{-2} A of every output, and factor the sum of the inverses."""
        self.inverses = self.linear.normal_matrices(self.cone.metric(scaling))
        if not invert_all(self.inverses):
            raise np.linalg.LinAlgError
        self.coupling = self.inverses.sum(axis=0)
        if not cholesky(self.coupling):
            raise np.linalg.LinAlgError

    def _direction(self, scaling: cones.Scaling, centre: cones.Interior, target: FloatArray | None) -> _Step:
        """Solve W^{-1} Δslack + W Δdual = target − centre with row sums kept and the dual feasible.

        No target means zero. W^{-1} of the centre is the dual, so what the dual gives to its own residual cancels.
        """
        missing = -self.change.sum(axis=0)
        right = self.price - self.cost
        if target is not None:
            right += self._back(scaling.apply_inverse(target))
        price = solve(self.coupling, missing - multiply_all(self.inverses, right).sum(axis=0))
        change = multiply_all(self.inverses, right + price)
        # What rounding left of the row sums is shared out evenly.
        change += (missing - change.sum(axis=0)) / len(change)
        scaled_slack = scaling.apply_inverse(self.cone.enter(self.linear.slack_of(self._on_grid(change))))
        scaled_dual = (-centre.point if target is None else target - centre.point) - scaled_slack
        return _Step(change, price, scaled_slack, scaled_dual)

    def _back(self, dual: FloatArray) -> FloatArray:
        return self.linear.transposed(self.cone.leave(dual)).reshape(self.cost.shape)

    def _on_grid(self, change: FloatArray) -> FloatArray:
        return change.reshape(self.tile.cost.shape)


@dataclass(frozen=True)
class _Step:
    """A direction: change of the coefficients, of the prices, and W^{-1} Δslack and W Δdual."""

    change: FloatArray
    price: FloatArray
    scaled_slack: FloatArray
    scaled_dual: FloatArray


class _SecondOrderCone:
    """‖g‖_2 ≤ ε b: slacks (ε b, g) are elements of one cone per site."""

    def enter(self, slack: FloatArray) -> FloatArray:
        return slack

    def leave(self, dual: FloatArray) -> FloatArray:
        return dual

    def metric(self, scaling: cones.Scaling) -> dict[tuple[int, int], FloatArray]:
        """Return the entries (i ≤ j) of W^{-2} between components of (ε b, g)."""
        return scaling.inverse_squares()


class _Polytope:
    """n·g ≤ ε b for every face n: slacks ε b − n·g are elements of half-lines, (1, faces, …)."""

    def __init__(self, faces: FloatArray) -> None:
        self.maps = np.column_stack([np.ones(len(faces)), -faces])

    def enter(self, slack: FloatArray) -> FloatArray:
        return np.asarray(np.tensordot(self.maps, slack, axes=1)[None])

    def leave(self, dual: FloatArray) -> FloatArray:
        return np.asarray(np.tensordot(self.maps.T, dual[0], axes=1))

    def metric(self, scaling: cones.Scaling) -> dict[tuple[int, int], FloatArray]:
        """Return the entries (i ≤ j) of Σ_faces (1, −n)ᵀ W^{-2} (1, −n)."""
        square, size = scaling.inverse_squares()[0, 0], self.maps.shape[1]
        return {
            (i, j): np.tensordot(self.maps[:, i] * self.maps[:, j], square, axes=1)
            for i in range(size)
            for j in range(i, size)
        }


def _cone_of(tile: Tile) -> _SecondOrderCone | _Polytope:
    return _SecondOrderCone() if tile.faces is None else _Polytope(tile.faces)


class _LocalOperators:
    """From a tile's coefficients to (ε b, g_1, …, g_N) at its sites, back, and the matrices Aᵀ M A."""

    def __init__(self, tile: Tile) -> None:
        self.epsilon = tile.epsilon
        self.wide = list(zip(tile.values, tile.slopes, strict=True))
        self.free = [
            (np.ascontiguousarray(value[:, part]), np.ascontiguousarray(slope[:, part]))
            for value, slope, part in zip(tile.values, tile.slopes, tile.inside, strict=True)
        ]
        self.sizes = tuple(value.shape[1] for value, _ in self.free)
        self.pairs = [_pairs(size, tile.reach, number == 0) for number, size in enumerate(self.sizes)]
        self.places = _places(self.sizes, tile.reach)
        # Products of two operators at the same site, for every pair of coefficients: index 0 is the value, 1 the slope.
        self.products = [
            {(i, j): both[i][:, left] * both[j][:, right] for i in (0, 1) for j in (0, 1)}
            for both, (left, right) in zip(self.free, self.pairs, strict=True)
        ]

    def slack_of(self, table: FloatArray, *, within: bool = True) -> FloatArray:
        """Return (ε b, g) of coefficients (outputs, …): of the free ones, or of all around them."""
        operators = self.free if within else self.wide
        parts = [
            _along_axes(table, [pair[number == steep] for number, pair in enumerate(operators)])
            for steep in (None, *range(len(operators)))
        ]
        slack = np.stack(parts)
        slack[0] *= self.epsilon
        return slack

    def transposed(self, slack: FloatArray) -> FloatArray:
        """Return Aᵀ of (ε b, g) at the sites, on the free coefficients."""
        total = _along_axes(slack[0] * self.epsilon, [value.T for value, _ in self.free])
        for steep in range(len(self.free)):
            total += _along_axes(slack[1 + steep], [pair[number == steep].T for number, pair in enumerate(self.free)])
        return total

    def normal_matrices(self, metric: dict[tuple[int, int], FloatArray]) -> FloatArray:
        """Return Aᵀ M A of every output, (outputs, J, J), its lower triangle by rows; sites are summed axis by axis."""
        n_axes = len(self.sizes)
        terms: dict[tuple[tuple[int, int], ...], FloatArray] = {}
        for (i, j), entry in metric.items():
            scaled = entry * self.epsilon ** ((i == 0) + (j == 0)) if i == 0 else entry
            for left, right in {(i, j), (j, i)}:
                terms[tuple((int(left == 1 + axis), int(right == 1 + axis)) for axis in range(n_axes))] = scaled
        for axis in reversed(range(n_axes)):
            terms = self._summed(terms, axis)
        (entries,) = terms.values()
        size = int(np.prod(self.sizes))
        matrices = np.zeros((len(entries), size * size))
        matrices[:, self.places] = entries.reshape(len(entries), -1)
        return matrices.reshape(-1, size, size)

    def _summed(
        self, terms: dict[tuple[tuple[int, int], ...], FloatArray], axis: int
    ) -> dict[tuple[tuple[int, int], ...], FloatArray]:
        """Replace the sites of one axis by its pairs of coefficients; terms that agree on the other axes are added."""
        groups: dict[tuple[tuple[int, int], ...], list[tuple[FloatArray, FloatArray]]] = {}
        for kinds, entry in terms.items():
            groups.setdefault(kinds[:axis], []).append((entry, self.products[axis][kinds[axis]]))
        return {
            rest: _along_axis(
                np.concatenate([entry for entry, _ in group], axis=1 + axis),
                np.concatenate([product for _, product in group]).T,
                1 + axis,
            )
            for rest, group in groups.items()
        }


def _along_axes(table: FloatArray, operators: list[FloatArray]) -> FloatArray:
    """Apply one operator (new, old) along each axis after the first."""
    for axis in reversed(range(len(operators))):
        table = _along_axis(table, operators[axis], 1 + axis)
    return table


def _along_axis(table: FloatArray, operator: FloatArray, axis: int) -> FloatArray:
    shape = table.shape
    if axis == len(shape) - 1:
        return np.asarray((table.reshape(-1, shape[-1]) @ operator.T).reshape(*shape[:-1], -1))
    rest = int(np.prod(shape[axis + 1 :]))
    moved = operator @ table.reshape(-1, shape[axis], rest)
    return np.asarray(moved.reshape(*shape[:axis], -1, *shape[axis + 1 :]))


@lru_cache(maxsize=256)
def _pairs(size: int, reach: int, lower: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:  # noqa: FBT001
    """Return the pairs of coefficients of an axis that one site may use, those with left ≥ right only if `lower`."""
    apart = np.arange(size)[:, None] - np.arange(size)
    left, right = np.nonzero((apart <= reach) & (apart >= (0 if lower else -reach)))
    return left, right


@lru_cache(maxsize=256)
def _places(sizes: tuple[int, ...], reach: int) -> NDArray[np.intp]:
    """Return where the products of pairs along the axes stand in a matrix (J, J), flattened."""
    total = int(np.prod(sizes))
    place = np.zeros(1, dtype=np.intp)
    for number, size in enumerate(sizes):
        left, right = _pairs(size, reach, number == 0)
        stride = int(np.prod(sizes[number + 1 :]))
        place = (place[:, None] + stride * (left * total + right)).ravel()
    return place
