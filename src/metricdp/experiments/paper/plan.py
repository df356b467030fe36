"""From experiments to jobs: what is computed for each table and figure of the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from metricdp._validation import choice, integer, positive, reject
from metricdp.experiments.paper import reported
from metricdp.experiments.paper.job import PaperJob
from metricdp.experiments.paper.places import Place

__all__ = ["COMPARED", "EQUAL_SHARE", "EXPERIMENTS", "FLOOR_METRES", "Settings", "plan", "quick"]

EXPERIMENTS = ("utility", "violation", "time", "budget", "granularity", "l1", "ppr")

# The methods of the paper's tables, and three that the paper has not.
COMPARED = ("em", "laplace", "tem", "em-remap", "copt", "lp", "aipo-r", "aipo", "laplace-remap", "spline", "auto")

# Methods whose published figures are those of outputs that do not belong to the columns of the loss.
_MISMATCHED = ("em", "laplace", "tem", "copt")

# The public code has no AIPO cost below this, in the unit of its loss; metres fit its sums.
FLOOR_METRES = 999_999.0

# The first axis's share of the equal split.
EQUAL_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the experiments are run.

    outputs, tasks : places that may be reported and places that people travel to, drawn anew for each repeat.
    splits : budget splits that AIPO may try; `curve`, points of the curves of loss against the first axis's budget.
    clusters : of the tight lower bound.
    grid_cells : along each axis, for LP, COPT and the paper's lower bound.
    anchor_cells : along each axis, for AIPO; by default cells no wider than those of the paper's Table 1.
    spline_cells : along each axis.
    granularity : cells from west to east of the study of granularity.
    sample : places of which all pairs are compared, as in the paper.
    pairs : pairs of each kind in the search for violations; 0 leaves it out. `slow_pairs` is the same for Laplace
        noise, whose probabilities take long to compute.
    auto_seconds, time_limit : seconds for "auto", and the most that any other job may take.
    """

    epsilons: tuple[float, ...]
    repeats: int = 1
    methods: tuple[str, ...] = COMPARED
    outputs: int = 20
    tasks: int = 50
    splits: int = 9
    curve: int = 9
    clusters: int = 1000
    grid_cells: int = reported.GRID_CELLS
    anchor_cells: int | None = None
    spline_cells: int = 32
    granularity: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    sample: int = 1000
    pairs: int = 1000
    slow_pairs: int = 1000
    auto_seconds: float = 60.0
    time_limit: float = 600.0

    def __post_init__(self) -> None:
        if not self.epsilons:
            raise reject("epsilons", "non-empty", "nothing")
        for epsilon in self.epsilons:
            positive("epsilons", epsilon)
        if len(set(self.epsilons)) < len(self.epsilons):
            raise reject("epsilons", "all different", list(self.epsilons))
        if not self.methods:
            raise reject("methods", "non-empty", "nothing")
        for method in self.methods:
            choice("methods", method, COMPARED)
        integer("repeats", self.repeats, 1)
        positive("auto_seconds", self.auto_seconds)

    @property
    def one_epsilon(self) -> float:
        """The ε of studies that take one: the one nearest to the public code's default."""
        return min(self.epsilons, key=lambda epsilon: abs(epsilon - reported.DEFAULT_EPSILON))

    @property
    def ppr_epsilon(self) -> float:
        """The ε of the histograms: the smallest, as in the paper."""
        return min(self.epsilons)


def plan(experiments: Sequence[str], places: Sequence[Place], settings: Settings) -> list[PaperJob]:
    """Return the jobs of the experiments; jobs of different purposes may have the same key."""
    for name in experiments:
        choice("experiments", name, EXPERIMENTS)
    if not experiments:
        raise reject("experiments", "non-empty", "nothing")
    jobs: dict[tuple[str, str], PaperJob] = {}
    for place in places:
        for seed in range(settings.repeats):
            sheet = _Sheet(place, seed, settings)
            for name in EXPERIMENTS:
                if name in experiments:
                    for job in _EXPERIMENT_JOBS[name](sheet):
                        jobs.setdefault((job.key, job.purpose), job)
    return list(jobs.values())


@dataclass(frozen=True)
class _Sheet:
    """Makes the jobs of one city and one repeat."""

    place: Place
    seed: int
    settings: Settings

    @property
    def anchor_cells(self) -> tuple[int, int]:
        """Cells of AIPO: those of the paper's Table 1, 15 from west to east where the paper has none."""
        if self.settings.anchor_cells is not None:
            return self.settings.anchor_cells, self.settings.anchor_cells
        side = reported.ANCHOR_SIDES_KM.get(self.place.name)
        return self.place.square_cells(15) if side is None else self.place.cells_of_side(side)

    def job(
        self, kind: str, method: str, epsilon: float, *, p: float = 2, purpose: str = "main", **rest: Any
    ) -> PaperJob:
        options = rest.pop("options", {})
        return PaperJob(
            kind=kind, purpose=purpose, place=self.place.name, city=self.place.source, network=self.place.network,
            outputs=self.settings.outputs,
            # A network without edges comes with the distances to a single task.
            tasks=self.settings.tasks if self.place.edges else 1,
            seed=self.seed, p=float(p), epsilon=float(epsilon), method=method,
            options=tuple(sorted(options.items())), **rest,
        )  # fmt: skip

    def fits(self, p: float, epsilons: Sequence[float]) -> Iterator[PaperJob]:
        """Every method, audited."""
        slow = ("laplace", "laplace-remap", "auto")  # auto may end with Laplace noise
        for epsilon in epsilons:
            for method in self.settings.methods:
                pairs = self.settings.slow_pairs if method in slow else self.settings.pairs
                yield self.job(
                    "fit", method, epsilon, p=p, options=self.options(method), sample=self.settings.sample, pairs=pairs
                )

    def bounds(self, p: float) -> Iterator[PaperJob]:
        """Both lower bounds, the tight one and the paper's, at every ε."""
        limit = {"time_limit": self.settings.time_limit}
        for epsilon in self.settings.epsilons:
            yield self.job("bound", "tight", epsilon, p=p, options={"clusters": self.settings.clusters, **limit})
            yield self.job("bound", "paper", epsilon, p=p, options={"cells": self.settings.grid_cells, **limit})

    def mismatches(self) -> Iterator[PaperJob]:
        """Baselines designed for outputs that do not belong to the columns of the loss."""
        for epsilon in self.settings.epsilons:
            for method in _MISMATCHED:
                if method in self.settings.methods:
                    options = self.options(method)
                    yield self.job("fit", method, epsilon, purpose="mismatched", options=options, mismatched=True)

    def variants(self) -> Iterator[PaperJob]:
        """AIPO in the variants of the paper's text and of its code, where these disagree."""
        if "aipo" not in self.settings.methods:
            return
        epsilon = self.settings.one_epsilon
        limit = {"time_limit": self.settings.time_limit}
        whole = {"cells": self.anchor_cells, "scale": 1.0, **limit}
        audited = {"sample": self.settings.sample, "pairs": self.settings.pairs}
        yield self.job("fit", "aipo-e", epsilon, purpose="whole budget", options=whole, **audited)
        half = {"cells": self.anchor_cells, **limit}
        yield self.job("fit", "aipo-e", epsilon, purpose="half budget", options=half, **audited)
        side = reported.CODE_SIDES_KM.get(self.place.name)
        if side is not None:
            cells = {"cells": self.place.cells_of_side(side), **limit}
            yield self.job("fit", "aipo-e", epsilon, purpose="cells of the code", options=cells)
        for floor in (0.0, FLOOR_METRES):
            yield self.split(epsilon, EQUAL_SHARE, purpose="cost floor", floor_m=floor)

    def arcs(self) -> Iterator[PaperJob]:
        """AIPO for ℓ1 with budgets on the arc of ℓ2, as in the public code, and with what Theorem 1 allows."""
        if "aipo" in self.settings.methods:
            for scale in (0.5, 0.5 / 2**0.5):
                options = {"cells": self.anchor_cells, "scale": scale, "time_limit": self.settings.time_limit}
                epsilon = self.settings.one_epsilon
                yield self.job("fit", "aipo-e", epsilon, p=1, purpose="arc", options=options)

    def curves(self) -> Iterator[PaperJob]:
        """AIPO at evenly spaced budgets of the first axis, and at the equal split."""
        steps = self.settings.curve + 1
        for epsilon in self.settings.epsilons:
            for step in range(1, steps):
                yield self.split(epsilon, (step / steps) ** 2, purpose="curve")
            yield self.split(epsilon, EQUAL_SHARE, purpose="curve")

    def split(self, epsilon: float, share: float, *, purpose: str, floor_m: float = 0.0) -> PaperJob:
        options = {
            "cells": self.anchor_cells, "share": share, "floor_m": floor_m, "time_limit": self.settings.time_limit,
        }  # fmt: skip
        return self.job("split", "aipo", epsilon, purpose=purpose, options=options)

    def grains(self) -> Iterator[PaperJob]:
        """AIPO and the spline on coarser and finer cells, at one ε."""
        for across in self.settings.granularity:
            for method in ("aipo", "spline"):
                if method in self.settings.methods:
                    options = {**self.options(method), "cells": self.place.square_cells(across)}
                    yield self.job(
                        "fit", method, self.settings.one_epsilon, purpose="granularity", options=options,
                    )  # fmt: skip

    def options(self, method: str) -> dict[str, Any]:
        """Return the options that a method is run with."""
        grid = {"cells": self.settings.grid_cells}
        anchors = {"cells": self.anchor_cells}
        own: dict[str, dict[str, Any]] = {
            "lp": grid,
            "copt": grid,
            "aipo": {**anchors, "splits": self.settings.splits},
            "aipo-r": anchors,
            "spline": {"cells": self.settings.spline_cells},
            "auto": {"time_limit": self.settings.auto_seconds},
        }
        return {"time_limit": self.settings.time_limit, **own.get(method, {})}


def _utility(sheet: _Sheet) -> Iterator[PaperJob]:
    yield from sheet.fits(2, sheet.settings.epsilons)
    yield from sheet.bounds(2)
    yield from sheet.mismatches()
    yield from sheet.variants()


def _audits(sheet: _Sheet) -> Iterator[PaperJob]:
    return sheet.fits(2, sheet.settings.epsilons)


def _histograms(sheet: _Sheet) -> Iterator[PaperJob]:
    return sheet.fits(2, [sheet.settings.ppr_epsilon])


def _l1(sheet: _Sheet) -> Iterator[PaperJob]:
    yield from sheet.fits(1, sheet.settings.epsilons)
    yield from sheet.bounds(1)
    yield from sheet.arcs()


_EXPERIMENT_JOBS = {
    "utility": _utility,
    "violation": _audits,
    "time": _audits,
    "ppr": _histograms,
    "budget": _Sheet.curves,
    "granularity": _Sheet.grains,
    "l1": _l1,
}


def quick(settings: Settings) -> Settings:
    """Return settings of the same shape that take about a minute."""
    return replace(
        settings,
        outputs=10,
        tasks=10,
        splits=3,
        curve=3,
        clusters=60,
        grid_cells=5,
        anchor_cells=6,
        spline_cells=6,
        granularity=(2, 4, 6),
        sample=200,
        pairs=200,
        slow_pairs=0,
        auto_seconds=1.0,
    )
