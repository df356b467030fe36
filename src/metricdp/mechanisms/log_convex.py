"""Step 3 of the paper: distributions between anchors by log-convex interpolation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from metricdp._validation import FloatArray, reject
from metricdp.grid import Grid
from metricdp.mechanisms.base import Mechanism

__all__ = ["LogConvex", "interpolate"]


def interpolate(weights: sparse.csr_array, log_table: FloatArray) -> FloatArray:
    """Definitions 5 and 6: ln f_k(x) = Σ_γ w_γ(x) ln Z_γk, then normalised over k (in log space)."""
    logs = np.asarray(weights @ log_table)
    logs -= logs.max(axis=1, keepdims=True)
    rows = np.exp(logs, out=logs)
    rows /= rows.sum(axis=1, keepdims=True)
    return rows


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogConvex(Mechanism):
    """The paper's mechanism (AIPO): an anchor table and the normalised geometric mean in between.

    Guarantee
    ---------
    With s_ℓ the steepest |ln Z_ik − ln Z_jk| / Δ_ℓ over ℓ-neighbours, the unnormalised interpolant is
    ‖s‖_q-Lipschitz in d_p (Theorem 2), and the normalised one 2‖s‖_q (Proposition 3). So it is (ε, d_p)-mDP
    on the whole box wherever 2‖s‖_q ≤ ε; `metricdp.certify` checks that from the table alone.
    Variant "aipo-r" does not satisfy it, and does violate mDP between anchors.
    """

    grid: Grid
    log_table: FloatArray

    kind: ClassVar[str] = "log-convex"

    def _rows(self, points: FloatArray) -> FloatArray:
        return interpolate(self.grid.weights(points), self.log_table)

    def settings(self) -> dict[str, Any]:
        """Return the anchor table and the breakpoints."""
        return {"log_table": self.log_table, **self.grid.to_arrays()}

    @classmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> LogConvex:
        """Rebuild from a file's fields."""
        grid = Grid.from_arrays(settings, common["bounds"])
        log_table = settings["log_table"]
        shape = (grid.n_anchors, len(common["outputs"]))
        if log_table.shape != shape or not np.isfinite(log_table).all():
            raise reject("log_table", f"finite and of shape (anchors, outputs) = {shape}", log_table.shape)
        return cls(**common, grid=grid, log_table=log_table)
