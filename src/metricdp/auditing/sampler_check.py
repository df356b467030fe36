"""Whether a sampler follows the probabilities that it states."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from metricdp._validation import FloatArray, checked_box, finite_array, fraction, integer, reject, table
from metricdp.auditing.draws import Draws, Sampler, claim, spread
from metricdp.drawing.randomness import RandomSource

__all__ = ["SamplerCheck", "check_sampler"]

# Points where a sampler is compared with its probabilities, unless given.
_CHECKED_POINTS = 64


@dataclass(frozen=True, kw_only=True)
class SamplerCheck:
    """Whether draws follow the probabilities that they should.

    fits : whether `p_value` is at least 1 − `confidence`.
    p_value : bound on the probability that a faithful sampler strays as far as this one somewhere.
    worst : the point and output that stray most, with the expected and the seen share.
    hypotheses : (point, output) comparisons; the p-value allows for every one of them.
    samples : draws made.
    """

    fits: bool
    p_value: float
    confidence: float
    worst: dict[str, Any]
    hypotheses: int
    samples: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for files and `--json`."""
        return asdict(self)


def check_sampler(
    sampler: Sampler,
    expected: Callable[[FloatArray], ArrayLike] | None = None,
    *,
    points: ArrayLike | None = None,
    samples: int = 1_000_000,
    confidence: float = 0.999,
    rng: RandomSource | None = None,
    seed: int = 0,
) -> SamplerCheck:
    """Test whether draws follow the probabilities that a mechanism states.

    A biased sampler may still be private, and `audit_samples` rightly leaves it alone; this test does not.

    Parameters
    ----------
    sampler : Mechanism or callable
        As for `audit_samples`.
    expected : callable, optional
        Takes points (m, N) and returns their probabilities (m, K). A mechanism's `probabilities` by default.
    points : (m, N) array, optional
        Where to test; by default 64 random points of a mechanism's box, half of them on its lattice and half off it. A
        function needs them.
    samples, confidence, rng, seed
        As for `audit_samples`; `seed` decides the random points.

    Guarantee
    ---------
    A sampler that follows `expected` fails with probability at most 1 − `confidence`: each output's count at each
    point is binomial, its two tails are computed exactly, and the smallest is multiplied by the number of tails.

    Examples
    --------
    >>> import metricdp as mdp
    >>> problem = mdp.Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> mechanism = mdp.fit(problem, epsilon=1.0, method="em")
    >>> check_sampler(mechanism, samples=20_000, rng=mdp.InsecureSeed(0)).fits
    True
    """
    started = time.perf_counter()
    tolerated = 1 - fraction("confidence", confidence)
    if points is None:
        box = checked_box(claim(sampler, "bounds", None, "points"))
        where = spread(box, _CHECKED_POINTS, np.random.default_rng(integer("seed", seed, 0)))
    else:
        where = table("points", points)
    shares = _shares(claim(sampler, "probabilities", expected, "expected"), where)
    draws = Draws(sampler, shares.shape[1], rng)
    each = integer("samples", samples, len(where)) // len(where)
    seen = draws.counts(where, each)
    tail = np.minimum(binom.cdf(seen, each, shares), binom.sf(seen - 1, each, shares))
    point, output = (int(i) for i in np.unravel_index(tail.argmin(), tail.shape))
    p_value = min(1.0, 2 * tail.size * float(tail[point, output]))
    return SamplerCheck(
        fits=p_value >= tolerated,
        p_value=p_value,
        confidence=float(confidence),
        worst={
            "point": where[point].tolist(),
            "output": output,
            "expected": float(shares[point, output]),
            "seen": int(seen[point, output]) / each,
        },
        hypotheses=tail.size,
        samples=draws.made,
        seconds=time.perf_counter() - started,
    )


def _shares(expected: Callable[[FloatArray], ArrayLike], points: FloatArray) -> FloatArray:
    shares = finite_array("expected", expected(points))
    if shares.ndim != 2 or len(shares) != len(points) or not shares.size:
        raise reject("expected", f"of shape ({len(points)}, outputs)", f"shape {shares.shape}")
    if shares.min() < 0 or np.abs(shares.sum(axis=1) - 1).max() > 1e-9:
        worst = float(np.abs(shares.sum(axis=1) - 1).max())
        raise reject("expected", "non-negative rows that sum to 1", f"{shares.min()} at least, {worst} off 1 at most")
    return shares
