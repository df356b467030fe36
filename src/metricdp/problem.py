"""The problem that a mechanism is designed for: records with a prior, outputs, a loss, a metric and a box."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from metricdp._cards import Card
from metricdp._places import PlaceIds, checked_ids, checked_names
from metricdp._validation import FloatArray, finite_array, freeze_arrays, norm_order, reject, table, unit_sum
from metricdp.errors import InvalidInputError
from metricdp.geometry.cells import EXAMPLES, cells_over
from metricdp.geometry.lonlat import column_values, degrees_of, doubts, projection_about
from metricdp.geometry.norms import pairwise_distances

__all__ = ["Problem"]

_LONGEST_UNIT = 40

LossFunction = Callable[[FloatArray, FloatArray], ArrayLike]


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Problem:
    """A validated, immutable design problem. Problems are equal if all that they hold is equal.

    Parameters
    ----------
    records : (n, N) array
        Places where a secret may lie; they carry the prior and the loss. The guarantee
        covers the whole box, not only the records.
    outputs : (K, N) array
        What the mechanism may report. Repeated outputs are allowed; each is a report of its own.
    loss : (n, K) array, "euclidean", "squared" or callable(records, outputs)
        What it costs to report output k for record i.
    prior : (n,) array, optional
        How likely each record is; non-negative, scaled to sum to 1. Uniform by default.
    p : float
        Order of the norm that measures distance, in [1, inf].
    bounds : (2, N) array, optional
        The box that the guarantee covers, lower corner first. The records' bounding box by default.
    output_ids : (K,) sequence of text or of integers, optional
        What each output is called in reports, files and answers, instead of its index. All different; either all text,
        of 1 to 256 characters, or all integers of 64 bits.
    output_names : (K,) sequence of text, optional
        What people call each output; names may repeat or be empty. At most 256 characters each.
        Neither ids nor names may hold control characters, line breaks or overrides of the writing direction.
    projection : object, optional
        How coordinates map to longitude and latitude, for problems made from a city or with `from_lonlat`.
    loss_unit : str, optional
        What the loss is measured in, for tables and cards. Known for "euclidean" and "squared" with a projection: km
        and km². Empty where it is not known.

    Examples
    --------
    >>> problem = Problem([[0.0], [1.0], [2.0]], [[0.0], [2.0]], "euclidean")
    >>> problem
    Problem(records=3, outputs=2, axes=1, p=2)
    >>> problem.loss.tolist()
    [[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]]
    """

    records: FloatArray
    outputs: FloatArray
    loss: FloatArray
    prior: FloatArray
    p: float
    bounds: FloatArray
    output_ids: PlaceIds | None
    output_names: tuple[str, ...] | None
    projection: Any
    loss_unit: str

    def __init__(
        self,
        records: ArrayLike,
        outputs: ArrayLike,
        loss: ArrayLike | str | LossFunction,
        prior: ArrayLike | None = None,
        p: float = 2,
        bounds: ArrayLike | None = None,
        output_ids: ArrayLike | None = None,
        output_names: ArrayLike | None = None,
        *,
        projection: Any = None,
        loss_unit: str | None = None,
    ) -> None:
        order = norm_order(p)
        where = table("records", records)
        said = table("outputs", outputs, columns=where.shape[1])
        weight = np.full(len(where), 1 / len(where)) if prior is None else unit_sum("prior", prior, len(where))
        fields: dict[str, Any] = {
            "records": where,
            "outputs": said,
            "loss": _loss_table(loss, where, said),
            "prior": weight,
            "p": order,
            "bounds": _box(bounds, where),
            "output_ids": None if output_ids is None else checked_ids(output_ids, len(said)),
            "output_names": None if output_names is None else checked_names(output_names, len(said)),
            "projection": projection,
            "loss_unit": _loss_unit(loss_unit, loss, projection),
        }
        self.__setstate__(fields)

    @classmethod
    def from_lonlat(
        cls,
        records: ArrayLike,
        outputs: ArrayLike | str,
        loss: ArrayLike | str | LossFunction = "euclidean",
        prior: ArrayLike | None = None,
        p: float = 2,
        bounds: ArrayLike | None = None,
        output_ids: ArrayLike | None = None,
        output_names: ArrayLike | None = None,
        *,
        id_column: str | None = None,
        name_column: str | None = None,
        loss_unit: str | None = None,
    ) -> Self:
        """Return the problem of places in degrees; it keeps the projection, so that ε is per true kilometre.

        The problem's own coordinates are kilometres east and north of the middle of the box (`Equirectangular`).

        Parameters
        ----------
        records : (n, 2) array, table or GeoDataFrame
            Longitudes and latitudes (WGS 84). An array has longitude first; the columns of a table of pandas or polars
            are found by their names, such as `Longitude` or `pickup_lat`; a GeoDataFrame holds points and is
            reprojected from its reference system.
        outputs : the same, or str
            Places that may be reported. Or cells: "h3:8", "geohash:6" or "square:500m" are all cells of that size that
            hold a record, reported by their centres, with the cells' ids as `output_ids`.
        loss : "euclidean", "squared", callable(records, outputs) or (n, K) array
            Distances, or their squares, are in kilometres. A function is called with kilometres, too.
        prior, p, output_ids, output_names, loss_unit
            As for `Problem`.
        bounds : (2, 2) array, optional
            The box that the guarantee covers: west and south, then east and north, in degrees. The records' bounding
            box by default. Across the antimeridian the west is larger: [[179, -18], [-179, -16]].
        id_column, name_column : str, optional
            Columns of the table of outputs with their ids and names.

        Warns
        -----
        UserWarning
            If something looks wrong: a few records far from the rest that stretch the box, a box larger than a region,
            records around longitude 0 and latitude 0 or at a pole, outputs far from the records. The warning
            holds counts and sizes, never coordinates.

        Examples
        --------
        >>> homes = [[24.93, 60.16], [24.95, 60.17], [24.97, 60.18]]
        >>> shops = [[24.94, 60.17], [24.96, 60.17]]
        >>> problem = Problem.from_lonlat(homes, shops, output_ids=["kamppi", "hakaniemi"])
        >>> problem.loss.round(2).tolist()
        [[1.24, 2.0], [0.55, 0.55], [2.0, 1.24]]
        """
        where = degrees_of("records", records)
        projection, box = projection_about(where, bounds)
        plane = projection.to_xy_km(where[:, 0], where[:, 1])
        corner = plane.min(axis=0) if box is None else box[0]
        if isinstance(outputs, str):
            _refuse_with_cells({"output_ids": output_ids, "id_column": id_column, "name_column": name_column})
            cells = cells_over(where, projection, corner, outputs)
            said, output_ids = cells.lonlat, cells.ids
        else:
            said = degrees_of("outputs", outputs)
            output_ids = _one_of("output_ids", output_ids, "id_column", id_column, outputs)
            output_names = _one_of("output_names", output_names, "name_column", name_column, outputs)
        reported = projection.to_xy_km(said[:, 0], said[:, 1])
        problem = cls(
            plane, reported, loss, prior, p, box, output_ids, output_names, projection=projection, loss_unit=loss_unit
        )  # fmt: skip
        for words in doubts(projection, problem.bounds, problem.records, problem.outputs):
            warnings.warn(words, stacklevel=2)
        return problem

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        own, others = ((one.fingerprint, one.projection, one.loss_unit) for one in (self, other))
        return own == others

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Problem(records={self.n_records}, outputs={self.n_outputs}, axes={self.n_axes}, p={self.p:g})"

    def _repr_html_(self) -> str:
        """Return the card that notebooks show."""
        box = " x ".join(f"[{low:.6g}, {high:.6g}]" for low, high in self.bounds.T)
        rows = (
            ("records", f"{self.n_records:,}"),
            ("outputs", f"{self.n_outputs:,}"),
            (
                "distance",
                f"p = {self.p:g}, {'coordinates without a unit' if self.projection is None else 'kilometres'}",
            ),
            ("box", box),
            ("loss without privacy", f"{self.floor:.6g}"),
            ("loss of a uniform choice", f"{self.uniform_loss:.6g}"),
        )
        return Card("Problem", rows).html()

    @property
    def n_records(self) -> int:
        """n, the number of records."""
        return len(self.records)

    @property
    def n_outputs(self) -> int:
        """K, the number of outputs."""
        return len(self.outputs)

    @property
    def n_axes(self) -> int:
        """N, the dimension of the secret domain."""
        return self.records.shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything but the projection and the unit of the loss: equal problems have equal fingerprints."""
        digest = hashlib.sha256(repr((self.p, self.output_ids, self.output_names)).encode())
        for array in (self.records, self.outputs, self.loss, self.prior, self.bounds):
            digest.update(repr(array.shape).encode())
            # Adding 0 turns -0 into 0, which is equal to it but has other bytes.
            digest.update((np.ascontiguousarray(array) + 0.0).data)
        return digest.hexdigest()

    @property
    def floor(self) -> float:
        """Expected loss with no privacy at all: every record reports its best output."""
        return float(self.prior @ self.loss.min(axis=1))

    @property
    def uniform_loss(self) -> float:
        """Expected loss of an output drawn uniformly at random, which is perfectly private."""
        return float(self.prior @ self.loss.mean(axis=1))


def _one_of(parameter: str, values: ArrayLike | None, column: str, name: str | None, outputs: Any) -> ArrayLike | None:
    """Return values that are given one by one, or by the column of a table."""
    if name is None:
        return values
    if values is not None:
        raise InvalidInputError(f"`{parameter}` and `{column}` say the same thing; leave one of them out.")
    return column_values(column, outputs, name)


def _refuse_with_cells(given: dict[str, Any]) -> None:
    for parameter, value in given.items():
        if value is not None:
            msg = f"Cells bring their own ids; leave out `{parameter}`, or give places instead of {EXAMPLES}."
            raise InvalidInputError(msg)


def _loss_table(loss: ArrayLike | str | LossFunction, records: FloatArray, outputs: FloatArray) -> FloatArray:
    if isinstance(loss, str):
        distance = pairwise_distances(records, outputs, 2)
        if loss == "euclidean":
            return distance
        if loss == "squared":
            return np.square(distance)
        rule = "an (n, K) array, 'euclidean', 'squared' or a function of (records, outputs)"
        raise reject("loss", rule, repr(loss))
    values = finite_array("loss", loss(records, outputs) if callable(loss) else loss)
    shape = (len(records), len(outputs))
    if values.shape != shape:
        raise reject("loss", f"of shape (records, outputs) = {shape}", f"shape {values.shape}")
    return values


def _loss_unit(given: str | None, loss: object, projection: object) -> str:
    if given is None:
        known = {"euclidean": "km", "squared": "km²"}
        return known.get(loss, "") if isinstance(loss, str) and projection is not None else ""
    if not isinstance(given, str) or len(given) > _LONGEST_UNIT or not given.isprintable():
        raise reject("loss_unit", f"at most {_LONGEST_UNIT} printable characters", repr(given)[:100])
    return given


def _box(bounds: ArrayLike | None, records: FloatArray) -> FloatArray:
    lowest, highest = records.min(axis=0), records.max(axis=0)
    if bounds is None:
        box = np.array([lowest, highest])
        remedy = "; all records share that coordinate, so pass `bounds`"
    else:
        box = finite_array("bounds", bounds)
        remedy = ""
        shape = (2, records.shape[1])
        if box.shape != shape:
            raise reject("bounds", f"of shape {shape}, lower corner first", f"shape {box.shape}")
    for axis, (low, high) in enumerate(box.T):
        if not low < high:
            raise reject("bounds", "wider than zero on every axis", f"[{low}, {high}] on axis {axis}{remedy}")
        outside = int(((records[:, axis] < low) | (records[:, axis] > high)).sum())
        if outside:
            raise reject("bounds", "a box that holds every record", f"{outside} records outside on axis {axis}")
    return box
