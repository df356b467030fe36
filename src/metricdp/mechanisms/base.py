"""What every mechanism can do."""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._chunks import items_at_once, slices
from metricdp._places import PlaceIds, axis_names, checked_ids, checked_names
from metricdp._validation import FloatArray, choice, freeze_arrays, outside_rule, reject, table
from metricdp.drawing.exact_draws import draw_in_proportion
from metricdp.drawing.randomness import NotPrivate, RandomSource, SecureRandom
from metricdp.errors import InvalidInputError
from metricdp.files.writing import save
from metricdp.geometry.earth import Distortion, distortion
from metricdp.geometry.epsilon_map import EpsilonMap
from metricdp.geometry.norms import largest_ratio
from metricdp.geometry.path_metric import PathMetric
from metricdp.mechanisms.card import card_facts, mechanism_card
from metricdp.mechanisms.outside import suspicion_of
from metricdp.mechanisms.promise import Promise

if TYPE_CHECKING:
    import pandas as pd

    from metricdp.problem import Problem

__all__ = ["Mechanism"]

# By how much, in km, rounding may change a coordinate that is converted from degrees: a few roundings of at most
# 540 degrees at 111.3 km each.
_PROJECTION_ERROR_KM = 5e-11


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mechanism(ABC):
    """A randomised map from a box to finitely many outputs, z_k(x) = Pr[y_k | x].

    Immutable: arrays are read-only, and `report` tells how the mechanism was made.

    epsilon : the privacy budget per unit of distance; with an `epsilon_map` the largest of its values.
    epsilon_map : None, or the ε of every place of the box, where it varies: the promise then is e^{∫ε ds} along every
        path inside the box, which implies the one with the largest ε.
    distance : what `epsilon` is per. "ground": true kilometres on the Earth (WGS 84), for mechanisms with a projection;
        "plane": units of the mechanism's own coordinates.
    output_ids, output_names : what each output is called, see `Problem`; None where the problem has none. They say how
        a report is shown and change neither draws nor the guarantee.
    """

    outputs: FloatArray
    bounds: FloatArray
    epsilon: float
    p: float
    method: str
    report: Mapping[str, Any] = field(default_factory=dict)
    projection: Any = None
    distance: str = "plane"
    output_ids: PlaceIds | None = None
    output_names: tuple[str, ...] | None = None
    epsilon_map: EpsilonMap | None = None

    kind: ClassVar[str]
    # Whether its proof is for each cell's own ε, so that it may have an `epsilon_map`.
    takes_maps: ClassVar[bool] = False
    # Whether a report is one of `outputs`; otherwise it is a point.
    has_outputs: ClassVar[bool] = True
    # Whether a row of probabilities takes about a millisecond, far longer than a draw.
    slow_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        choice("distance", self.distance, ("plane", "ground"))
        if self.distance == "ground" and self.projection is None:
            raise reject("distance", "'plane' for a mechanism without a projection", "'ground'")
        self._check_places()
        self._check_map()
        freeze_arrays(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)

    def __repr__(self) -> str:
        name = type(self).__name__
        epsilon = f"{self.epsilon:g}"
        if self.epsilon_map is not None and not self.epsilon_map.is_constant:
            epsilon = f"{self.epsilon_map.min:g}..{self.epsilon_map.max:g}"
        return f"{name}({self.method!r}, epsilon={epsilon}, p={self.p:g}, outputs={self.n_outputs})"

    def _repr_html_(self) -> str:
        return mechanism_card(card_facts(self)).html()

    def with_report(self, **facts: Any) -> Self:
        """Return the same mechanism with more facts in its report; tables that were computed are kept."""
        other = copy.copy(self)
        object.__setattr__(other, "report", {**self.report, **facts})
        return other

    def grid_summary(self) -> dict[str, Any] | None:
        """Return the cells along each axis, for the header of a file; None for a mechanism without a grid."""
        return None

    @property
    def n_outputs(self) -> int:
        """K, the number of outputs."""
        return len(self.outputs)

    @property
    def places(self) -> pd.DataFrame:
        """The outputs as a new table: `id`, `name` where there are names, then `lon` and `lat`, or `x`, `y` and `z`.

        `id` is the index where the outputs have no ids. Coordinates are in degrees where there is a projection.
        """
        import pandas as pd  # noqa: PLC0415 - takes long to import, and draws do not need it

        columns: dict[str, Any] = {"id": range(self.n_outputs) if self.output_ids is None else list(self.output_ids)}
        if self.output_names is not None:
            columns["name"] = list(self.output_names)
        points, axes = self.outputs, axis_names(self.bounds.shape[1])
        if self.projection is not None:
            axes = ("lon", "lat")
            points = self.projection.to_lonlat(points) if len(points) else points
        return pd.DataFrame(columns | dict(zip(axes, points.T, strict=True)))

    @cached_property
    def distortion(self) -> Distortion | None:
        """How the plane's distances compare with those on the ground; None without a projection."""
        return None if self.projection is None else distortion(self.projection, self.bounds)

    @cached_property
    def plane_epsilon(self) -> Fraction:
        """ε per unit of the plane's coordinates, which is what a proof must establish.

        With `distance="ground"` it is ε/κ, because plane distances are at most κ times true ones; 0 if there is no κ.
        """
        epsilon = Fraction(repr(float(self.epsilon)))
        if self.distance == "plane" or self.distortion is None:
            return epsilon
        kappa = self.distortion.kappa
        return epsilon / Fraction(kappa) if math.isfinite(kappa) else Fraction(0)

    @cached_property
    def plane_scale(self) -> Fraction:
        """What turns an ε into one per unit of the plane's coordinates: `plane_epsilon` over `epsilon`."""
        return self.plane_epsilon / Fraction(repr(float(self.epsilon)))

    def own_map(self, given: EpsilonMap) -> EpsilonMap:
        """Return the part of a map that lies over the box."""
        return given.cropped(self.bounds)

    @cached_property
    def plane_map(self) -> EpsilonMap | None:
        """`epsilon_map` per unit of the plane's coordinates, in floats that are rounded up; None for one ε."""
        if self.epsilon_map is None:
            return None
        levels, place = np.unique(self.epsilon_map.values, return_inverse=True)
        exact = (Fraction(repr(level)) * self.plane_scale for level in levels.tolist())
        above = np.array([math.nextafter(float(level), math.inf) for level in exact])
        return EpsilonMap(self.epsilon_map.breakpoints, above[place].reshape(self.epsilon_map.shape))

    @cached_property
    def promise(self) -> Promise:
        """What is promised of pairs of points, in the plane."""
        kappa = 1.0 if self.distortion is None else self.distortion.kappa
        factor = 1.0 if self.projection is None else largest_ratio(self.p, 2, self.bounds.shape[1])
        return Promise(
            epsilon=float(self.plane_epsilon),
            p=self.p,
            rounding=self.rounding,
            bounds=self.bounds,
            paths=None if self.plane_map is None else PathMetric(self.plane_map, self.p),
            projection=self.projection,
            straight=kappa * factor,
        )

    @cached_property
    def claimed_epsilon(self) -> float:
        """ε per true km where there is a projection, per unit of the coordinates otherwise; what a ledger charges."""
        if self.distance == "ground" or self.distortion is None:
            return self.epsilon
        return math.nextafter(self.epsilon * self.distortion.kappa, math.inf)

    @property
    def rounding(self) -> float:
        """R of the claim e^{ε (d + r)}, in the plane: what rounding adds to the distance of two points as given.

        Moving each of two points by at most `_moved_by` along each axis changes their distance by 2 N^{1/p} of that.
        """
        n_axes = self.bounds.shape[1]
        moved = self._moved_by + (0.0 if self.projection is None else _PROJECTION_ERROR_KM)
        return 2 * moved * n_axes ** (1 / self.p) * (1 + 1e-12)

    @property
    def claimed_rounding(self) -> float:
        """R beside `claimed_epsilon`: in true km where there is a projection."""
        if self.distortion is None:
            return self.rounding
        return self.rounding / self.distortion.kappa * (1 + 1e-12)

    @property
    def straight_epsilon(self) -> float:
        """ε per true km of straight distance where there is a projection, per unit of d_p otherwise.

        It is `claimed_epsilon` times the largest ratio of d_p to the straight distance, which is 1 for p ≥ 2.
        """
        if self.projection is None:
            return self.epsilon
        factor = largest_ratio(self.p, 2, self.bounds.shape[1])
        return self.claimed_epsilon if factor == 1 else self.claimed_epsilon * factor * (1 + 1e-15)

    @property
    def straight_rounding(self) -> float:
        """R beside `straight_epsilon`."""
        return self.claimed_rounding * (self.claimed_epsilon / self.straight_epsilon) * (1 + 1e-15)

    @property
    def _moved_by(self) -> float:
        """How far a point of the box is moved along each axis before anything else, at most."""
        return 0.0

    def probabilities(self, x: ArrayLike, *, outside: str = "clamp") -> FloatArray:
        """Return Pr[y_k | x] as (points, outputs); rows sum to 1.

        Parameters
        ----------
        x : (m, N) array
            Points, in the coordinates of the problem.
        outside : "clamp" or "error"
            What to do with points outside the box. "clamp" takes them to the nearest point of the box, which keeps the
            guarantee because that map is 1-Lipschitz in every ℓ_p norm. "error" refuses them.

        Warns
        -----
        UserWarning
            If the mechanism has a projection and most of at least 20 points lie outside its box, as they do when
            degrees are given instead of kilometres. The warning holds counts only. Of fewer points, which may be one
            person's, nothing is said.
        """
        points = self._checked(x, outside)
        self._warn_if_elsewhere(points)
        return self._all_rows(points)

    def _all_rows(self, points: FloatArray) -> FloatArray:
        rows = np.empty((len(points), self.n_outputs))
        for part in slices(len(points), self._rows_at_once):
            rows[part] = self._rows(self.clamp(points[part]))
        return rows

    def sample(self, x: ArrayLike, rng: RandomSource | None = None, *, outside: str = "clamp") -> NDArray[Any]:
        """Draw one output for every point and return its index.

        Guarantee
        ---------
        Draws are independent and follow the mechanism's own numbers exactly: the integer rows of a `Spline`, the
        lattice noise of Laplace mechanisms, the rows in floating point of the others. With `rng=None` the bits come
        from the operating system's generator through ChaCha20; an `InsecureSeed` makes the
        draw repeatable and therefore not private.

        Warns
        -----
        UserWarning
            As `probabilities` does, if most of at least 20 points lie outside the box.
        """
        points = self._checked(x, outside)
        self._warn_if_elsewhere(points)
        return self._sampled(points, rng)

    def sample_lonlat(
        self, lonlat: ArrayLike, rng: RandomSource | None = None, *, outside: str = "clamp"
    ) -> NDArray[Any]:
        """Draw one output for every point given in degrees, (m, 2) with longitude first, and return its index.

        Warns as `sample` does if most points lie outside the box.
        """
        return self._sampled(self._from_lonlat(lonlat, outside), rng)

    def probabilities_lonlat(self, lonlat: ArrayLike, *, outside: str = "clamp") -> FloatArray:
        """Return Pr[y_k | x] of points given in degrees, (m, 2) with longitude first; warns as `probabilities` does."""
        return self._all_rows(self._from_lonlat(lonlat, outside))

    def _sampled(self, points: FloatArray, rng: RandomSource | None) -> NDArray[Any]:
        """Draw for points that have been checked."""
        drawn = np.empty(len(points), dtype=np.intp)
        source = self._drawn_into(drawn, points, rng)
        return drawn if source.secure else drawn.view(NotPrivate)

    def _from_lonlat(self, lonlat: ArrayLike, outside: str) -> FloatArray:
        if self.projection is None:
            msg = "This mechanism has no projection, so it cannot take longitude and latitude; use `sample`."
            raise InvalidInputError(msg)
        degrees = table("lonlat", lonlat, columns=2) if np.size(lonlat) else np.empty((0, 2))
        points = self._checked(self.projection.to_xy_km(degrees[:, 0], degrees[:, 1]), outside)
        self._warn_if_elsewhere(points, degrees)
        return points

    def _warn_if_elsewhere(self, points: FloatArray, degrees: FloatArray | None = None) -> None:
        """Warn if most points lie outside the box, on the line that called the public method."""
        if (words := suspicion_of(self, points, degrees)) is not None:
            warnings.warn(words, stacklevel=3 if degrees is None else 4)

    def _drawn_into(self, drawn: NDArray[Any], points: FloatArray, rng: RandomSource | None) -> RandomSource:
        """Fill `drawn` chunk by chunk and return the source of the random bits."""
        source = SecureRandom() if rng is None else rng

        def draw(part: slice) -> None:
            drawn[part] = self._draw(self.clamp(points[part]), source)

        parts = list(slices(len(points), self._drawn_at_once))
        # A secure source has no state, so threads may share it; a seed must be used in one order.
        workers = (os.cpu_count() or 1) if isinstance(source, SecureRandom) else 1
        if len(parts) > 1:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(draw, parts))
        elif parts:
            draw(parts[0])  # starting threads would take longer than a few draws
        return source

    def outside_box(self, points: FloatArray, margin: float = 0.0) -> NDArray[np.bool_]:
        """Return which points lie outside the box by more than `margin`, a share of its sides."""
        low, high = self.bounds
        reach = margin * (high - low)
        # Axis by axis takes an eighth of the time that comparing whole rows takes.
        axes = zip(points.T, low - reach, high + reach, strict=True)
        return np.logical_or.reduce([(axis < lowest) | (axis > highest) for axis, lowest, highest in axes])

    def clamp(self, points: FloatArray) -> FloatArray:
        """Return the points of the box nearest to `points`; no draw depends on anything else of them."""
        return np.clip(points, *self.bounds)

    def snap(self, points: FloatArray) -> FloatArray:
        """Return the points that stand for `points` of the box: mechanisms with a lattice round to it."""
        return points

    def expected_loss(self, problem: Problem) -> float:
        """Return Σ_records π(x) Σ_k z_k(x) L(x, y_k)."""
        if problem.n_outputs != self.n_outputs or problem.n_axes != self.bounds.shape[1]:
            raise reject(
                "problem",
                f"over {self.n_outputs} outputs and {self.bounds.shape[1]} axes",
                f"{problem.n_outputs} outputs and {problem.n_axes} axes",
            )
        return float(problem.prior @ self.losses_at(problem.records, problem.loss))

    def losses_at(self, records: FloatArray, loss: FloatArray) -> FloatArray:
        """Return Σ_k z_k(x) L(x, y_k) for records of the box, given their rows of losses."""
        found = np.empty(len(records))
        for part in slices(len(records), self._rows_at_once):
            found[part] = np.einsum("ik,ik->i", self._rows(records[part]), loss[part])
        return found

    def save(self, path: str | Path) -> None:
        """Write the mechanism to a `.mdp` file."""
        save(self, path)

    def _check_places(self) -> None:
        """Check ids and names of outputs; they become tuples of plain text or integers."""
        for name, check in (("output_ids", checked_ids), ("output_names", checked_names)):
            given = getattr(self, name)
            if given is None:
                continue
            if not self.has_outputs:
                raise reject(name, "left out for a mechanism that reports coordinates", f"{len(given)} of them")
            object.__setattr__(self, name, check(given, len(self.outputs)))

    def _check_map(self) -> None:
        """Check that the map of ε is one for this box, and that `epsilon` is its largest value."""
        if self.epsilon_map is None:
            return
        if not self.takes_maps:
            raise reject("epsilon_map", f"left out for a {type(self).__name__}, which has one epsilon", "a map")
        if not np.array_equal(self.epsilon_map.bounds, self.bounds):
            raise reject("epsilon_map", "a map of exactly the box of the mechanism", self.epsilon_map.bounds.tolist())
        if self.epsilon_map.max != self.epsilon:
            raise reject("epsilon", f"the largest value of its map, {self.epsilon_map.max}", self.epsilon)

    @abstractmethod
    def _rows(self, points: FloatArray) -> FloatArray:
        """Return the rows of a few points that lie in the box."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what a file must hold beside the common fields: numbers, text and arrays."""

    @classmethod
    @abstractmethod
    def from_settings(cls, common: dict[str, Any], settings: dict[str, Any]) -> Mechanism:
        """Rebuild the mechanism from the common fields and its `settings`, checking both."""

    def _draw(self, points: FloatArray, source: RandomSource) -> NDArray[np.intp]:
        return draw_in_proportion(self._rows(points), source)

    def _checked(self, x: ArrayLike, outside: str) -> FloatArray:
        rule = outside_rule(outside)
        n_axes = self.bounds.shape[1]
        points = table("x", x, columns=n_axes) if np.size(x) else np.empty((0, n_axes))
        if rule == "error":
            count = int(self.outside_box(points).sum())
            if count:
                # Only how many: the points themselves are secret.
                raise reject("x", "inside the box of the mechanism", f"{count} points outside")
        return points

    @property
    def _rows_at_once(self) -> int:
        return items_at_once(self.n_outputs * 2 ** self.bounds.shape[1])

    @property
    def _drawn_at_once(self) -> int:
        return self._rows_at_once
