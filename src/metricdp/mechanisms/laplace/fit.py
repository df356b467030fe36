"""Design of Laplace noise with outputs: noisy points go to the nearest (`laplace`) or the best (`laplace-remap`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.ndimage import distance_transform_edt
from scipy.spatial import KDTree

from metricdp._clock import Clock
from metricdp._validation import FloatArray, integer, reject
from metricdp.geometry.grid import Grid
from metricdp.geometry.norms import norm
from metricdp.mechanisms.laplace.mechanism import LatticeLaplace, NoiseFrame
from metricdp.mechanisms.laplace.planar_mass import panels_per_edge
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.noise.exact import noise_step
from metricdp.mechanisms.options import ClosedFormOptions, common_fields, require_memory, spendable
from metricdp.problem import Problem

__all__ = ["LaplaceOptions", "fit_laplace", "fit_laplace_remap"]

# Squares along the longest axis, by number of axes. On Rome 256 x 256 squares lose 0.02 % against 768 x 768.
_DEFAULT_SQUARES = {1: 4096, 2: 256, 3: 64, 4: 20}

# How far the window of the squares reaches beyond the box, in units of 1/rate.
_MARGIN = 5.0

# Squares of distances must not overflow.
_WIDEST = 1e140

# In squares whose prior predictive mass is below this share of the largest, rounding errors of the Fourier transform
# are as large as the posterior losses.
_RESOLVED = 1e-11

# Memory of one panel of a wall while rows are computed.
_PANEL_BYTES = 400


@dataclass(frozen=True, kw_only=True)
class LaplaceOptions(ClosedFormOptions):
    """Options of "laplace" and "laplace-remap" beside the common ones.

    squares : how many squares there are along the longest axis; a noisy point is reported as its square's output.
    time_limit : seconds; a remap that runs out of time chooses among the outputs it has looked at.
    """

    squares: int | None = None

    # Old names of options, which `metricdp.fit` still takes.
    renamed: ClassVar[Mapping[str, str]] = {"lattice": "squares"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.squares is not None:
            integer("squares", self.squares, 2)


def fit_laplace(problem: Problem, epsilon: float, options: LaplaceOptions) -> LatticeLaplace:
    """Build Laplace noise at full ε, each noisy point taken to the nearest output in d_p."""
    clock = Clock(options.time_limit)
    frame = NoiseFrame.of(problem.p, problem.n_axes)
    squares = _lay_squares(problem, frame, spendable(epsilon), options)
    centres = frame.leave(squares.centres)
    _, nearest = KDTree(problem.outputs).query(centres, p=problem.p)
    options.say(1.0, "squares labelled with nearest outputs")
    return _mechanism_of(problem, epsilon, "laplace", squares, np.asarray(nearest), {"seconds": clock.spent})


def fit_laplace_remap(problem: Problem, epsilon: float, options: LaplaceOptions) -> LatticeLaplace:
    """Build Laplace noise at full ε, noisy points taken to the output of least posterior loss."""
    clock = Clock(options.time_limit)
    frame = NoiseFrame.of(problem.p, problem.n_axes)
    squares = _lay_squares(problem, frame, spendable(epsilon), options)
    labels, facts = _bayes_labels(problem, squares, frame, spendable(epsilon), options, clock)
    return _mechanism_of(problem, epsilon, "laplace-remap", squares, labels, {**facts, "seconds": clock.spent})


def _lay_squares(problem: Problem, frame: NoiseFrame, rate: float, options: LaplaceOptions) -> Squares:
    """Lay squares over the box and a margin around it."""
    box = frame.box(problem.bounds)
    # A margin below the resolution of the coordinates would be none.
    margin = max(_MARGIN / rate, 1e-6 * float((box[1] - box[0]).max()))
    window = np.array([box[0] - margin, box[1] + margin])
    extent = window[1] - window[0]
    if extent.max() > _WIDEST:
        raise reject("epsilon", f"large enough for noise within {_WIDEST:g} units of distance", f"{rate:g}")
    longest = options.squares or _DEFAULT_SQUARES[problem.n_axes]
    shape = tuple(max(2, math.ceil(longest * share * (1 - 1e-12))) for share in extent / extent.max())
    require_memory(
        math.prod(shape) * (8 * (problem.n_axes + 2) + 24 * 2**problem.n_axes) / 1e9,
        f"`squares` of {' x '.join(map(str, shape))}",
        "take fewer `squares`",
    )
    return _between_points(Squares(window, shape), frame.spacing(noise_step(problem.bounds, rate)))


def _between_points(squares: Squares, step: float) -> Squares:
    """Move the edges midway between lattice points, so that no lattice point lies on an edge.

    The mass of a square under the continuous density is then, to second order in the step, that of its lattice points.
    """
    sides = np.ceil(squares.pitch / step) * step
    low = (np.floor(squares.window[0] / step) - 0.5) * step
    return Squares(np.array([low, low + sides * np.array(squares.shape)]), squares.shape)


def _mechanism_of(
    problem: Problem,
    epsilon: float,
    method: str,
    squares: Squares,
    labels: NDArray[np.intp],
    facts: dict[str, Any],
) -> LatticeLaplace:
    rate = spendable(epsilon)
    labels = np.asarray(labels, dtype=np.intp).reshape(squares.shape)
    if NoiseFrame.of(problem.p, problem.n_axes).order == 2 and problem.n_axes == 2:
        _require_panels(labels, rate * float(squares.pitch.max()), epsilon)
    report = {
        **facts,
        "rate": rate,
        "squares": list(squares.shape),
        "pitch": squares.pitch.tolist(),
        "outputs_used": len(np.unique(labels)),
    }
    return LatticeLaplace(
        **common_fields(problem, epsilon, method),
        rate=rate,
        window=squares.window,
        labels=labels,
        report=report,
    )


def _require_panels(labels: NDArray[np.intp], pitch: float, epsilon: float) -> None:
    """Refuse squares far wider than 1/ε, whose probabilities would take too much memory."""
    walls = sum(int((np.diff(labels, axis=axis) != 0).sum()) for axis in range(labels.ndim))
    gigabytes = walls * panels_per_edge(pitch) * _PANEL_BYTES / 1e9
    require_memory(gigabytes, f"planar Laplace noise at `epsilon` = {epsilon:g}", "take a smaller `epsilon`")


def _bayes_labels(
    problem: Problem, squares: Squares, frame: NoiseFrame, rate: float, options: LaplaceOptions, clock: Clock
) -> tuple[NDArray[np.intp], dict[str, Any]]:
    """Return for each square s the output of least Σ_x π(x) L(x, y_k) f(s − x), f the density of the noise.

    The records are spread over the nearest squares, so that the sum is a convolution.
    """
    spread = Grid.from_breakpoints(squares.centres_by_axis).weights(frame.enter(problem.records)).T
    blur = _Blur(squares, rate, frame.order)
    mass = blur(spread @ problem.prior)
    least = problem.loss.min(axis=1)
    best = np.full(squares.shape, np.inf)
    labels = np.zeros(squares.shape, dtype=np.intp)
    looked = 0
    for output in range(problem.n_outputs):
        if clock.over and looked:
            break
        # Subtract each record's minimum loss: the argmin does not change and cancellation is avoided.
        cost = blur(spread @ (problem.prior * (problem.loss[:, output] - least)))
        better = cost < best
        best[better], labels[better] = cost[better], output
        looked += 1
        options.say(looked / problem.n_outputs, f"output {looked} of {problem.n_outputs} remapped")
    resolved = mass > _RESOLVED * mass.max()
    # Noisy points hardly ever fall where rounding hides the posterior; such squares take the nearest known label.
    known = distance_transform_edt(~resolved, return_distances=False, return_indices=True)
    facts = {"outputs_tried": looked, "squares_resolved": float(resolved.mean())}
    return labels[tuple(known)], facts


class _Blur:
    """Convolution over the squares with the density of the noise, up to a constant."""

    def __init__(self, squares: Squares, rate: float, order: float) -> None:
        self.shape = squares.shape
        # Padded to twice the size, because the Fourier transform is periodic.
        self.padded: Sequence[int] = [fft.next_fast_len(2 * count - 1, real=True) for count in squares.shape]
        steps = [np.minimum(np.arange(size), size - np.arange(size)) for size in self.padded]
        offsets = np.meshgrid(*(n * side for n, side in zip(steps, squares.pitch, strict=True)), indexing="ij")
        kernel = np.exp(-rate * norm(np.stack(offsets, axis=-1), order))
        self.transform = fft.rfftn(kernel)

    def __call__(self, values: FloatArray) -> FloatArray:
        spectrum = fft.rfftn(values.reshape(self.shape), self.padded) * self.transform
        blurred = fft.irfftn(spectrum, self.padded)
        return np.asarray(blurred[tuple(slice(0, count) for count in self.shape)])
