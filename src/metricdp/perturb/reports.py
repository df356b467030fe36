"""Turn what a mechanism draws into columns: outputs with their places, or points if it has no list of outputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._places import axis_names
from metricdp._validation import FloatArray
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.geometries import wkb_points

__all__ = ["GEOMETRY", "CoordinateColumns", "Reports", "reports_of"]

OUTPUT_ID, OUTPUT_NAME, GEOMETRY = "output_id", "output_name", "geometry"


@dataclass(frozen=True)
class CoordinateColumns:
    """How coordinates of reports are written.

    mechanism : its coordinates, and perhaps a projection.
    degrees : whether they are given in longitude and latitude rather than in the mechanism's coordinates.
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
        names = ("lon", "lat") if self.degrees else axis_names(self.mechanism.bounds.shape[1])
        return [pa.field(name, pa.float64()) for name in names]

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
    """A report is one of the mechanism's outputs: its index is kept, and its id, name and coordinates are looked up."""

    coordinates: CoordinateColumns

    @property
    def drawn_fields(self) -> list[pa.Field]:
        return [pa.field(OUTPUT_ID, pa.int32())]

    @cached_property
    def shown_fields(self) -> list[pa.Field]:
        return [*(pa.field(name, values.type) for name, values in self._labels.items()), *self.coordinates.fields]

    def keep(self, sampled: NDArray[Any], rows: NDArray[np.intp], count: int) -> tuple[list[pa.Array], int]:
        indices = np.full(count, -1, dtype=np.int32)
        indices[rows] = sampled
        return [pa.array(indices, mask=indices < 0)], int((indices[rows] < 0).sum())

    def show(self, kept: list[pa.Array]) -> list[pa.Array]:
        (indices,) = kept
        return [values.take(indices) for values in (*self._labels.values(), *self._points)]

    @cached_property
    def _labels(self) -> dict[str, pa.Array]:
        """Ids of all outputs, which are their indices where they have no others, and their names, if they have any."""
        mechanism = self.coordinates.mechanism
        ids = mechanism.output_ids
        labels = {OUTPUT_ID: pa.array(np.arange(mechanism.n_outputs, dtype=np.int32) if ids is None else ids)}
        return labels if mechanism.output_names is None else labels | {OUTPUT_NAME: pa.array(mechanism.output_names)}

    @cached_property
    def _points(self) -> list[pa.Array]:
        return self.coordinates.arrays(self.coordinates.mechanism.outputs)


@dataclass(frozen=True)
class _PointReports:
    """A report is a point, kept as it is shown."""

    coordinates: CoordinateColumns

    @property
    def drawn_fields(self) -> list[pa.Field]:
        return self.coordinates.fields

    @property
    def shown_fields(self) -> list[pa.Field]:
        return self.coordinates.fields

    def keep(self, sampled: NDArray[Any], rows: NDArray[np.intp], count: int) -> tuple[list[pa.Array], int]:
        # Each row's position among the sampled ones; null where there is none.
        order = np.full(count, -1, dtype=np.int64)
        order[rows] = np.arange(len(rows))
        which = pa.array(order, mask=order < 0)
        points = np.asarray(sampled, dtype=np.float64).reshape(len(rows), self.coordinates.mechanism.bounds.shape[1])
        return [values.take(which) for values in self.coordinates.arrays(points)], 0

    def show(self, kept: list[pa.Array]) -> list[pa.Array]:
        return kept


def reports_of(coordinates: CoordinateColumns) -> Reports:
    """Return how the reports of the coordinates' mechanism are kept and shown."""
    return _OutputReports(coordinates) if coordinates.mechanism.has_outputs else _PointReports(coordinates)
