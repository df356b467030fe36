"""The exponential mechanism on a finite output set, its truncated variant, and either one remapped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._validation import FloatArray, positive, reject
from metricdp.geometry.norms import norm, pairwise_distances
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.remap import checked_labels, merge_columns
from metricdp.mechanisms.tails import raise_tails

__all__ = ["Exponential"]

# From this many units of 1/rate on, rounding errors of a distance show in probabilities.
_FARTHEST = 1e8


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Exponential(Mechanism):
    """Draw output k with probability ∝ e^{−s · min(d_p(x, y_k), γ)} and report output `labels[k]`.

    rate : s, per unit of distance.
    clip : γ, the distance beyond which all outputs are equally far (TEM); None for no clipping (EM).
    labels : what each of the K draws is reported as; the identity unless the mechanism is remapped.

    Guarantee
    ---------
    min(d_p(·, y_k), γ) is 1-Lipschitz in d_p, so the weight of an output changes by a factor of at most e^{s
    d} between points at distance d, and the normalising sum by another: the mechanism is (2s, d_p)-mDP on the
    whole space. Relabelling looks at the draw only, so it is post-processing. Probabilities below e^-700 are
    given as e^-700, which keeps the guarantee (see `raise_tails`). A computed probability is off by a factor of at most
    e^{±u} (`_row_error`), which adds 2u/ε to `rounding`.
    """

    rate: float
    clip: float | None = None
    labels: NDArray[np.intp]

    kind: ClassVar[str] = "exponential"

    @property
    def rounding(self) -> float:
        """R of the claim: what is computed in floating point counts as if points were farther apart."""
        if not self.plane_epsilon:
            return math.inf
        return super().rounding + 2 * self._row_error / float(self.plane_epsilon) * (1 + 1e-12)

    @cached_property
    def _row_error(self) -> float:
        """u: computed probabilities are off by a factor of at most e^{±u}.

        The distance and its product with the rate, exp (taken to be within four units in the last place), the sum over
        outputs, the quotient, the sum over labels.
        """
        extent = float(norm(self.bounds[1] - self.bounds[0], self.p))
        reach = float(norm(self.outputs - self.bounds.mean(axis=0), self.p).max()) + extent
        # Distances of a general p take two powers, which count as within four units in the last place like exp.
        roundings = self.bounds.shape[1] + (4 if self.p in (1, 2, math.inf) else 24)
        return 2.0**-53 * (self.rate * reach * roundings + 2 * self.n_outputs + 16)

    def _rows(self, points: FloatArray) -> FloatArray:
        distance = pairwise_distances(points, self.outputs, self.p)
        if self.clip is not None:
            np.minimum(distance, self.clip, out=distance)
        # The nearest output has weight 1, so the sum neither vanishes nor overflows.
        distance -= distance.min(axis=1, keepdims=True)
        rows = np.exp(-self.rate * distance)
        rows /= rows.sum(axis=1, keepdims=True)
        return np.asarray(raise_tails(rows) @ self._merge)

    @cached_property
    def _merge(self) -> sparse.csr_array:
        return merge_columns(self.labels, self.n_outputs)

    def settings(self) -> dict[str, Any]:
        """Return the rate, the clipping distance and the labels."""
        return {"rate": self.rate, "clip": self.clip, "labels": self.labels}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Exponential:
        """Rebuild from a file's fields."""
        clip = settings["clip"]
        if clip is not None:
            clip = float(clip)
            if not (math.isfinite(clip) and clip >= 0):
                raise reject("clip", "a finite distance of at least 0, or None", repr(clip))
        rate = positive("rate", settings["rate"])
        corners = np.concatenate([common["bounds"], common["outputs"]])
        extent = float(norm(np.ptp(corners, axis=0), common["p"]))
        if not rate * extent <= _FARTHEST:
            raise reject("rate", f"at most {_FARTHEST / extent:.6g} for outputs and a box this wide", rate)
        n_outputs = len(common["outputs"])
        labels = checked_labels(settings["labels"], 1, n_outputs)
        if len(labels) != n_outputs:
            raise reject("labels", f"one for each of the {n_outputs} outputs", f"{len(labels)} labels")
        return cls(**common, rate=rate, clip=clip, labels=labels)
