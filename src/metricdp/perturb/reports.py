"""Turn what a mechanism draws into columns: numbers of outputs, or places if it has no list of outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.geometries import wkb_points

__all__ = ["GEOMETRY", "Places", "Reports", "reports_of"]

OUTPUT_ID, GEOMETRY = "output_id", "geometry"


@dataclass(frozen=True)
class Places:
    """How places are written.

    mechanism : its coordinates, and perhaps a projection.
    degrees : whether places are given in longitude and latitude rather than in the mechanism's coordinates.
    as_geometry : whether they are one column of well-known binary rather than one column per axis.
    system : reference system of geometries.
    """

    mechanism: Mechanism
    degrees: bool
    as_geometry: bool
    system: Any = None

    @cached_property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        if self.as_geometry:
            system = {} if self.system is None else {"crs": self.system}
            note = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": json.dumps(system)}
            return [pa.field(GEOMETRY, pa.binary(), metadata=note)]
        n_axes = self.mechanism.bounds.shape[1]
        letters = ("x", "y", "z") if n_axes <= 3 else tuple(f"x{axis}" for axis in range(n_axes))
        return [pa.field(name, pa.float64()) for name in (("lon", "lat") if self.degrees else letters[:n_axes])]

    def arrays(self, points: FloatArray) -> list[pa.Array]:
        """Return points of the mechanism's coordinates as these columns."""
        if self.degrees and len(points):
            points = self.mechanism.projection.to_lonlat(points)
        return [wkb_points(points)] if self.as_geometry else [pa.array(axis) for axis in points.T.copy()]


class Reports(Protocol):
    """How draws are kept in the parts of a job, and how they are shown in the output."""

    @property
    def drawn_fields(self) -> list[pa.Field]:
        """The columns that are kept."""

    @property
    def shown_fields(self) -> list[pa.Field]:
        """The columns that are shown."""

    def keep(self, sampled: NDArray[Any], rows: NDArray[np.intp], count: int) -> tuple[list[pa.Array], int]:
        """Return the kept columns of `count` rows, of which `rows` were sampled, and how many the sampler refused."""

    def show(self, kept: list[pa.Array]) -> list[pa.Array]:
        """Return the shown columns."""


@dataclass(frozen=True)
class _OutputReports:
    """A report is a row of `mechanism.outputs`: its number is kept, its place is looked up."""

    places: Places

    @property
    def drawn_fields(self) -> list[pa.Field]:
        return [pa.field(OUTPUT_ID, pa.int32())]

    @property
    def shown_fields(self) -> list[pa.Field]:
        return [*self.drawn_fields, *self.places.fields]

    def keep(self, sampled: NDArray[Any], rows: NDArray[np.intp], count: int) -> tuple[list[pa.Array], int]:
        ids = np.full(count, -1, dtype=np.int32)
        ids[rows] = sampled
        return [pa.array(ids, mask=ids < 0)], int((ids[rows] < 0).sum())

    def show(self, kept: list[pa.Array]) -> list[pa.Array]:
        return [kept[0], *(values.take(kept[0]) for values in self._outputs)]

    @cached_property
    def _outputs(self) -> list[pa.Array]:
        return self.places.arrays(self.places.mechanism.outputs)


@dataclass(frozen=True)
class _PlaceReports:
    """A report is a place, kept as it is shown."""

    places: Places

    @property
    def drawn_fields(self) -> list[pa.Field]:
        return self.places.fields

    @property
    def shown_fields(self) -> list[pa.Field]:
        return self.places.fields

    def keep(self, sampled: NDArray[Any], rows: NDArray[np.intp], count: int) -> tuple[list[pa.Array], int]:
        # Each row's place among the sampled ones; null where there is none.
        order = np.full(count, -1, dtype=np.int64)
        order[rows] = np.arange(len(rows))
        which = pa.array(order, mask=order < 0)
        points = np.asarray(sampled, dtype=np.float64).reshape(len(rows), self.places.mechanism.bounds.shape[1])
        return [values.take(which) for values in self.places.arrays(points)], 0

    def show(self, kept: list[pa.Array]) -> list[pa.Array]:
        return kept


def reports_of(places: Places) -> Reports:
    """Return how the reports of the places' mechanism are kept and shown."""
    return _OutputReports(places) if places.mechanism.has_outputs else _PlaceReports(places)
