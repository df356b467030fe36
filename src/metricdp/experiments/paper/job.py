"""One job of the paper's experiments, as plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from metricdp.experiments.engine.job import Job

__all__ = ["PaperJob"]


@dataclass(frozen=True, kw_only=True)
class PaperJob(Job):
    """One thing to compute, named by everything that its result depends on.

    kind : "fit", "bound" or "split" (AIPO at one given budget split).
    purpose : which part of the report asked; two parts may share one result.
    city, network : where the city is loaded from, and a hash of what must be found there.
    seed : draws outputs, tasks, and the places that are compared.
    method : of the fit, or the kind of the bound.
    options : of the method, sorted by name.
    mismatched : design for other outputs than those of the loss.
    sample, pairs : places compared all with all, and pairs of the search for violations.
    """

    kind: str
    purpose: str
    place: str
    city: str
    network: str
    outputs: int
    tasks: int
    seed: int
    p: float
    epsilon: float
    method: str
    options: tuple[tuple[str, Any], ...] = ()
    mismatched: bool = False
    sample: int = 0
    pairs: int = 0

    def content(self) -> dict[str, Any]:
        """Return what the result depends on, as JSON has it: neither who asked nor what the city is called."""
        values = asdict(self)
        for name in ("purpose", "place", "city"):
            del values[name]
        return dict(json.loads(json.dumps(values)))

    def option(self, name: str, default: Any = None) -> Any:
        """Return one option of the method."""
        return dict(self.options).get(name, default)

    @property
    def words(self) -> str:
        """A few words for progress and errors."""
        what = {"fit": "", "bound": " bound", "split": " split"}[self.kind]
        norm = "" if self.p == 2 else f", p = {self.p:g}"
        return f"{self.place} {self.method}{what} ε = {self.epsilon:g}{norm}, repeat {self.seed + 1}"

    @property
    def batch(self) -> tuple[str, int]:
        """Jobs of one city and one repeat have the same problem, which workers keep."""
        return self.network, self.seed
