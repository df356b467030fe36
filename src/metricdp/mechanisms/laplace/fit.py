"""Design of Laplace noise with outputs: noisy points go to the nearest (`laplace`) or the best (`laplace-remap`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from metricdp._clock import Clock
from metricdp._validation import integer, reject
from metricdp.mechanisms.laplace.bayes_labels import BayesLabels
from metricdp.mechanisms.laplace.mechanism import LatticeLaplace, NoiseFrame
from metricdp.mechanisms.laplace.planar_mass import panels_per_edge
from metricdp.mechanisms.laplace.squares import Squares
from metricdp.mechanisms.noise.exact import noise_step
from metricdp.mechanisms.options import ClosedFormOptions, common_fields, require_memory, spendable
from metricdp.problem import Problem

__all__ = ["LaplaceOptions", "fit_laplace", "fit_laplace_remap"]

# Squares along the longest axis, by number of axes. On Rome 256 x 256 squares lose 0.02 % against 768 x 768.
_DEFAULT_SQUARES = {1: 4096, 2: 256, 3: 64, 4: 20}

# Where probabilities cost little more with finer squares, there are so many that a side is at most this over the rate,
# short enough to be one panel of a wall, but no more than `_MOST_SQUARES` along an axis. Rome, 100 outputs, ε = 8: 256,
# 512 and 1024 squares lose 1.0163, 1.0149 and 1.0146.
_LONGEST_SIDE, _MOST_SQUARES = 0.58, {1: 2**16, 2: 2**10}

# How far the window of the squares reaches beyond the box, in units of 1/rate.
_MARGIN = 5.0

# Squares of distances must not overflow.
_WIDEST = 1e140

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
    labels, facts = BayesLabels(problem, squares, frame, spendable(epsilon)).find(clock, options.say)
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
    longest = options.squares or _default_squares(frame, rate * float(extent.max()))
    shape = tuple(max(2, math.ceil(longest * share * (1 - 1e-12))) for share in extent / extent.max())
    require_memory(
        math.prod(shape) * (8 * (problem.n_axes + 2) + 24 * 2**problem.n_axes) / 1e9,
        f"`squares` of {' x '.join(map(str, shape))}",
        "take fewer `squares`",
    )
    return _between_points(Squares(window, shape), frame.spacing(noise_step(problem.bounds, rate)))


def _default_squares(frame: NoiseFrame, extent: float) -> int:
    """Return how many squares there are along the longest axis, whose length over the rate is given."""
    n_axes = len(frame.matrix)
    default = _DEFAULT_SQUARES[n_axes]
    if n_axes == 1 or (n_axes == 2 and frame.order == 2):
        return max(default, min(math.ceil(extent / _LONGEST_SIDE), _MOST_SQUARES[n_axes]))
    return default


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
