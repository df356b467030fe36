"""The spline mechanism as one convex program: privacy on the continuum is a cone at every control site."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, sparse
from scipy.spatial import ConvexHull

from metricdp._validation import FloatArray, reject
from metricdp.geometry.bsplines import TensorSpline
from metricdp.geometry.norms import dual_exponent, norm
from metricdp.optimise.programs import AxisOperators, SharedProgram, TensorProgram
from metricdp.problem import Problem

__all__ = [
    "coefficient_cost",
    "has_cones",
    "inscribed_polytope",
    "near_coarser",
    "slope_cones",
    "spline_program",
    "tensor_program",
    "worthwhile_coefficients",
]

# Vertices of the polytope that stands in for an ℓ_q ball other than those of p = 1, 2 and ∞, by dimension.
_POLYTOPE_STEPS = {2: 32, 3: 8}

# Where an output is less likely than this, finer cells change next to nothing.
_LEAST_LIKELY = 1e-4

# With so many axes most coefficients may weigh hardly any records. Those that weigh less than this share of the mean
# then keep the coarser spline, which leaves time for finer cells where records are. Where they are at most this share
# of all coefficients, there is more to lose than to gain.
_PRUNED_AXES, _LEAST_WEIGHT, _FEWEST_PRUNED = 4, 0.1, 0.5

# Share of uniform that is mixed into a coarser spline, so that it lies inside the cones and not on their border.
_TRACE = 1e-6


def spline_program(problem: Problem, spline: TensorSpline, epsilon: ArrayLike) -> SharedProgram:
    """Minimise the expected loss over B-spline coefficients; the loss is exactly linear in them.

    epsilon : a number, or one for each site (S_1, …, S_N).
    """
    # Up to degree 2 every coefficient is a control row itself, so it cannot be negative.
    largest = None if spline.degree <= 2 else math.prod(axis.largest_coefficient for axis in spline.axes)
    return SharedProgram(coefficient_cost(problem, spline), slope_cones(spline, epsilon, problem.p), largest)


def tensor_program(problem: Problem, spline: TensorSpline, epsilon: ArrayLike) -> TensorProgram:
    """Return the same program in tensor form; ε is a number, or an array that broadcasts to the sites."""
    axes = tuple(AxisOperators(*axis.cone_operators(), float(np.ptp(axis.breakpoints))) for axis in spline.axes)
    cost = coefficient_cost(problem, spline).reshape(*(axis.n_coefficients for axis in spline.axes), -1)
    round_ball = problem.p == 2 and problem.n_axes > 1
    faces = None if round_ball else _dual_ball_faces(problem.n_axes, problem.p)
    given = np.asarray(epsilon, dtype=np.float64)
    return TensorProgram(cost, axes, given.reshape((1,) * (problem.n_axes - given.ndim) + given.shape), faces)


def near_coarser(
    program: SharedProgram,
    spline: TensorSpline,
    coarser: TensorSpline,
    coefficients: FloatArray,
    worthwhile: NDArray[np.bool_] | None = None,
) -> SharedProgram:
    """Return the program in which outputs change only near where a coarser spline makes them likely.

    worthwhile : the coefficients at which more than two outputs may change; all if None.

    Elsewhere the coarser spline stays as it is, mixed with a trace of uniform so that it lies inside the cones. It is
    exactly representable on the finer grid, so the program has a solution whatever the support, no worse than it.
    """
    background = spline.from_coarser(coarser) @ coefficients
    n_rows, n_outputs = background.shape
    likely = background > _LEAST_LIKELY
    # A row with fewer than two outputs to choose from could not change at all.
    two = np.arange(n_rows)[:, None], np.argpartition(-background, min(1, n_outputs - 1), axis=1)[:, :2]
    likely[two] = True
    on_grid = likely.reshape(*(axis.n_coefficients for axis in spline.axes), n_outputs)
    around = np.ones((*[3] * len(spline.axes), 1), dtype=bool)
    support = ndimage.binary_dilation(on_grid, around).reshape(likely.shape)
    if worthwhile is not None:
        support &= worthwhile[:, None]
        support[two] = True
    inside = (1 - _TRACE) * background + _TRACE / n_outputs
    return replace(program, background=inside, support=support)


def coefficient_cost(problem: Problem, spline: TensorSpline) -> FloatArray:
    """Return c with ⟨c, coefficients⟩ = Σ_records π(x) Σ_k z_k(x) L(x, y_k)."""
    # Sparse times sparse first: there are far more control rows than coefficients.
    of_coefficients = spline.weights(problem.records) @ spline.extraction
    return np.asarray(of_coefficients.T @ (problem.prior[:, None] * problem.loss))


def worthwhile_coefficients(problem: Problem, spline: TensorSpline) -> NDArray[np.bool_] | None:
    """Return at which coefficients there are enough records for finer cells to gain much; None stands for all.

    The paper's discussion of many dimensions calls this anchor pruning.
    """
    if problem.n_axes < _PRUNED_AXES:
        return None
    weight = problem.prior @ (spline.weights(problem.records) @ spline.extraction)
    enough = np.asarray(weight >= _LEAST_WEIGHT * weight.mean())
    return enough if enough.mean() < 1 - _FEWEST_PRUNED else None


def slope_cones(spline: TensorSpline, epsilon: ArrayLike, p: float) -> tuple[sparse.csr_array, ...]:
    """Return operators of the condition ‖g‖_q ≤ ε b at every control site, with the site's own ε and q dual to p.

    A second-order cone for p = 2; for p = 1 and ∞, where the ℓ_q ball is a cube or a cross-polytope, linear
    inequalities (stacked in one operator); for other p the linear inequalities of a polytope inside the ball.
    """
    value, *slopes = spline.cone_operators()
    at_sites = np.broadcast_to(np.ravel(epsilon), value.shape[:1])
    value.data *= np.repeat(at_sites, np.diff(value.indptr))  # row by row
    if p == 2 and len(slopes) > 1:
        return (value, *slopes)
    faces = _dual_ball_faces(len(slopes), p)
    # Stacked as (face, site): n·g ≤ ε b.
    rows = sparse.kron(np.ones((len(faces), 1)), value)
    for axis, slope in enumerate(slopes):
        rows = rows - sparse.kron(faces[:, [axis]], slope)
    return (sparse.csr_array(rows),)


def _dual_ball_faces(n_axes: int, p: float) -> FloatArray:
    """Return vectors n with {‖g‖_q ≤ t} = {n·g ≤ t for all n} (inside it, for p other than 1 and ∞)."""
    if n_axes == 1 or p == 1:
        return np.concatenate([np.eye(n_axes), -np.eye(n_axes)])
    if math.isinf(p):
        return np.array(list(itertools.product((-1.0, 1.0), repeat=n_axes)))
    return inscribed_polytope(n_axes, p)[0]


def has_cones(n_axes: int, p: float) -> bool:
    """Return whether there are cones for a norm: with many axes a polytope close to its ball has too many faces."""
    return p in (1, 2, math.inf) or n_axes == 1 or n_axes in _POLYTOPE_STEPS


def inscribed_polytope(n_axes: int, p: float) -> tuple[FloatArray, float]:
    """Return faces n (n·g ≤ t) of a polytope inside the ℓ_q ball, and the share of the ball that it keeps.

    The share ρ is the largest with ρ·ball inside the polytope: the program is at least as good as the exact one at ρε.
    """
    if not has_cones(n_axes, p):
        raise reject("p", f"1, 2 or inf for a spline with {n_axes} axes", f"{p:g}")
    q = dual_exponent(p)
    steps = _POLYTOPE_STEPS[n_axes]
    if n_axes == 2:
        angle = 2 * np.pi * np.arange(steps) / steps
        spread = np.column_stack([np.cos(angle), np.sin(angle)])
    else:
        ticks = np.linspace(-1, 1, steps + 1)
        cube = np.array(list(itertools.product(ticks, repeat=n_axes)))
        spread = cube[np.abs(cube).max(axis=1) == 1]
    hull = ConvexHull(spread / norm(spread, q)[:, None])
    normals, offsets = hull.equations[:, :-1], -hull.equations[:, -1]
    faces = np.unique((normals / offsets[:, None]).round(12), axis=0)
    # Rounding must not let a face move outwards.
    faces *= 1 + 1e-9
    return faces, float(1 / norm(faces, p).max())
