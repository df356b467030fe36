"""Design of Laplace noise with outputs: noisy points go to the nearest (`laplace`) or the best (`laplace-remap`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from metricdp.mechanisms.laplace.squares import Lattice
from metricdp.mechanisms.noise.exact import noise_step
from metricdp.mechanisms.options import ClosedFormOptions, common_fields, require_memory, spendable
from metricdp.problem import Problem

__all__ = ["LaplaceOptions", "fit_laplace", "fit_laplace_remap"]

# Squares along the longest axis, by number of axes. On Rome 256 x 256 squares lose 0.02 % against 768 x 768.
_DEFAULT_LATTICE = {1: 4096, 2: 256, 3: 64, 4: 20}

# How far the window reaches beyond the box, over the rate of the noise.
_MARGIN = 5.0

# Squares of distances must not overflow.
_WIDEST = 1e140

# A square whose prior predictive mass is below this share of the largest drowns in the rounding errors of the
# transform.
_RESOLVED = 1e-11

# Memory of one panel of a wall while rows are computed.
_PANEL_BYTES = 400


@dataclass(frozen=True, kw_only=True)
class LaplaceOptions(ClosedFormOptions):
    """Options of "laplace" and "laplace-remap" beside the common ones.

    lattice : squares along the longest axis of the lattice that noisy points are snapped to.
    time_limit : seconds; a remap that runs out of time chooses among the outputs it has looked at.
    """

    lattice: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lattice is not None:
            integer("lattice", self.lattice, 2)


def fit_laplace(problem: Problem, epsilon: float, options: LaplaceOptions) -> LatticeLaplace:
    """Build Laplace noise at full ε, each noisy point taken to the nearest output in d_p."""
    clock = Clock(options.time_limit)
    frame = NoiseFrame.of(problem.p, problem.n_axes)
    lattice = _lattice(problem, frame, spendable(epsilon), options)
    centres = frame.leave(lattice.centres)
    _, nearest = KDTree(problem.outputs).query(centres, p=problem.p)
    options.say(1.0, "lattice labelled with nearest outputs")
    return _lattice_laplace(problem, epsilon, "laplace", lattice, np.asarray(nearest), {"seconds": clock.spent})


def fit_laplace_remap(problem: Problem, epsilon: float, options: LaplaceOptions) -> LatticeLaplace:
    """Build Laplace noise at full ε, noisy points taken to the output of least posterior loss."""
    clock = Clock(options.time_limit)
    frame = NoiseFrame.of(problem.p, problem.n_axes)
    lattice = _lattice(problem, frame, spendable(epsilon), options)
    labels, facts = _bayes_lattice(problem, lattice, frame, spendable(epsilon), options, clock)
    return _lattice_laplace(problem, epsilon, "laplace-remap", lattice, labels, {**facts, "seconds": clock.spent})


def _lattice(problem: Problem, frame: NoiseFrame, rate: float, options: LaplaceOptions) -> Lattice:
    """Lay squares over the box and a margin around it."""
    box = frame.box(problem.bounds)
    # A margin below the resolution of the coordinates would be none.
    margin = max(_MARGIN / rate, 1e-6 * float((box[1] - box[0]).max()))
    window = np.array([box[0] - margin, box[1] + margin])
    extent = window[1] - window[0]
    if extent.max() > _WIDEST:
        raise reject("epsilon", f"large enough for noise within {_WIDEST:g} units of distance", f"{rate:g}")
    longest = options.lattice or _DEFAULT_LATTICE[problem.n_axes]
    shape = tuple(max(2, math.ceil(longest * share * (1 - 1e-12))) for share in extent / extent.max())
    require_memory(
        math.prod(shape) * (8 * (problem.n_axes + 2) + 24 * 2**problem.n_axes) / 1e9,
        f"`lattice` of {' x '.join(map(str, shape))} squares",
        "take a smaller `lattice`",
    )
    return _between_points(Lattice(window, shape), frame.spacing(noise_step(problem.bounds, rate)))


def _between_points(lattice: Lattice, step: float) -> Lattice:
    """Move the squares' edges midway between lattice points, where discrete and continuous noise agree."""
    sides = np.ceil(lattice.pitch / step) * step
    low = (np.floor(lattice.window[0] / step) - 0.5) * step
    return Lattice(np.array([low, low + sides * np.array(lattice.shape)]), lattice.shape)


def _lattice_laplace(
    problem: Problem,
    epsilon: float,
    method: str,
    lattice: Lattice,
    labels: NDArray[np.intp],
    facts: dict[str, Any],
) -> LatticeLaplace:
    rate = spendable(epsilon)
    labels = np.asarray(labels, dtype=np.intp).reshape(lattice.shape)
    if NoiseFrame.of(problem.p, problem.n_axes).order == 2 and problem.n_axes == 2:
        _require_panels(labels, rate * float(lattice.pitch.max()), epsilon)
    report = {
        **facts,
        "rate": rate,
        "lattice": list(lattice.shape),
        "pitch": lattice.pitch.tolist(),
        "outputs_used": len(np.unique(labels)),
    }
    return LatticeLaplace(
        **common_fields(problem, epsilon, method),
        rate=rate,
        window=lattice.window,
        labels=labels,
        report=report,
    )


def _require_panels(labels: NDArray[np.intp], pitch: float, epsilon: float) -> None:
    """Refuse a lattice whose probabilities would take too much memory: squares far wider than 1/ε."""
    walls = sum(int((np.diff(labels, axis=axis) != 0).sum()) for axis in range(labels.ndim))
    gigabytes = walls * panels_per_edge(pitch) * _PANEL_BYTES / 1e9
    require_memory(gigabytes, f"planar Laplace noise at `epsilon` = {epsilon:g}", "take a smaller `epsilon`")


def _bayes_lattice(
    problem: Problem, lattice: Lattice, frame: NoiseFrame, rate: float, options: LaplaceOptions, clock: Clock
) -> tuple[NDArray[np.intp], dict[str, Any]]:
    """Return for each square s the output of least Σ_x π(x) L(x, y_k) f(s − x), f the density of the noise.

    The records are spread over the nearest squares, so that the sum is a convolution.
    """
    spread = Grid.from_breakpoints(lattice.centres_by_axis).weights(frame.enter(problem.records)).T
    blur = _Blur(lattice, rate, frame.order)
    mass = blur(spread @ problem.prior)
    least = problem.loss.min(axis=1)
    best = np.full(lattice.shape, np.inf)
    labels = np.zeros(lattice.shape, dtype=np.intp)
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
    # Where rounding drowns the posterior hardly any report ever falls; the nearest label that is known will
    # do.
    known = distance_transform_edt(~resolved, return_distances=False, return_indices=True)
    facts = {"outputs_tried": looked, "squares_resolved": float(resolved.mean())}
    return labels[tuple(known)], facts


class _Blur:
    """Convolution over the lattice with the density of the noise, up to a constant."""

    def __init__(self, lattice: Lattice, rate: float, order: float) -> None:
        self.shape = lattice.shape
        # Twice the lattice, so that nothing comes round from the other side.
        self.padded: Sequence[int] = [fft.next_fast_len(2 * count - 1, real=True) for count in lattice.shape]
        steps = [np.minimum(np.arange(size), size - np.arange(size)) for size in self.padded]
        offsets = np.meshgrid(*(n * side for n, side in zip(steps, lattice.pitch, strict=True)), indexing="ij")
        kernel = np.exp(-rate * norm(np.stack(offsets, axis=-1), order))
        self.transform = fft.rfftn(kernel)

    def __call__(self, values: FloatArray) -> FloatArray:
        spectrum = fft.rfftn(values.reshape(self.shape), self.padded) * self.transform
        blurred = fft.irfftn(spectrum, self.padded)
        return np.asarray(blurred[tuple(slice(0, count) for count in self.shape)])
