"""What a report says about every cell: ln Pr[report | cell]."""

from __future__ import annotations

import operator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from metricdp._validation import FloatArray, reject, table
from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.norms import pairwise_distances
from metricdp.mechanisms.base import Mechanism
from metricdp.traces.raster import Raster

__all__ = ["cells_in_plane_of", "checked_report", "log_likelihood", "require_common_ground"]

# Numbers in a table of outputs × cells: 512 MB.
_MOST_NUMBERS = 2**26

# What all who track with the same mechanism and cells share, while these live: the logarithms of probabilities as
# (outputs, cells), or for noise the cells' points.
_known: WeakKeyDictionary[Mechanism, WeakKeyDictionary[Raster, FloatArray]] = WeakKeyDictionary()


def checked_report(mechanism: Mechanism, report: Any) -> Any:
    """Return a report as the index of an output, or as a (1, 2) point in the mechanism's own plane.

    An integer is an index, as `sample` returns it, and text is an id. Mechanisms without outputs report a point:
    degrees where they have a projection, as `sample_lonlat` returns it.
    """
    if not mechanism.has_outputs:
        return _checked_point(mechanism, report)
    if isinstance(report, str):
        if mechanism.output_ids is None or report not in mechanism.output_ids:
            raise reject("report", "the id of one of the mechanism's outputs", repr(report[:40]))
        return mechanism.output_ids.index(report)
    rule = f"an output's id or its index, from 0 to {mechanism.n_outputs - 1}"
    try:
        index = operator.index(report)
    except TypeError:
        raise reject("report", rule, type(report).__name__) from None
    if index == -1:
        msg = "-1 stands for a report that a ledger refused: there is nothing to learn from it, so leave it out."
        raise InvalidInputError(msg)
    if not 0 <= index < mechanism.n_outputs or isinstance(report, bool):
        raise reject("report", rule, repr(report))
    return index


def log_likelihood(mechanism: Mechanism, raster: Raster, report: Any) -> FloatArray:
    """Return ln Pr[report | centre of cell], (cells,), up to a constant; `report` as `checked_report` returns it."""
    known = _known.setdefault(mechanism, WeakKeyDictionary())
    if raster not in known:
        known[raster] = (_table if mechanism.has_outputs else cells_in_plane_of)(mechanism, raster)
    if mechanism.has_outputs:
        return np.asarray(known[raster][report])
    noise: Any = mechanism
    rate = float(noise.noise.rate) / noise.step
    return -rate * pairwise_distances(known[raster], report, mechanism.p)[:, 0]


def cells_in_plane_of(mechanism: Mechanism, raster: Raster) -> FloatArray:
    """Return the points that stand for the cells' centres when a mechanism draws: its box ends where it ends."""
    centres = raster.centres
    if mechanism.projection is not None and mechanism.projection != raster.projection:
        centres = mechanism.projection.to_xy_km(*raster.from_plane(centres).T)
    return mechanism.clamp(centres)


def require_common_ground(mechanism: Mechanism, raster: Raster) -> None:
    """Refuse a mechanism and cells that are not about the same places."""
    if mechanism.bounds.shape[1] != 2:
        raise reject("mechanism", "one of two axes", f"{mechanism.bounds.shape[1]} axes")
    if (mechanism.projection is None) != (raster.projection is None):
        words = ["degrees", "plain coordinates"]
        theirs, ours = (words[one.projection is None] for one in (mechanism, raster))
        raise InvalidInputError(f"The mechanism takes {theirs} and the movement model {ours}; both must take the same.")
    if not hasattr(mechanism, "noise") and not mechanism.has_outputs:
        raise reject("mechanism", "one with outputs, or noise", type(mechanism).__name__)
    centres = raster.centres
    if mechanism.projection is not None:
        centres = mechanism.projection.to_xy_km(*raster.from_plane(centres).T)
    if mechanism.outside_box(centres).all():
        msg = "The box of the mechanism holds no cell of the movement model; they are for different places."
        raise InvalidInputError(msg)


def _table(mechanism: Mechanism, raster: Raster) -> FloatArray:
    """Return ln Pr[output | cell] as (outputs, cells)."""
    size = mechanism.n_outputs * raster.n_cells
    if size > _MOST_NUMBERS:
        msg = (
            f"{mechanism.n_outputs:,} outputs and {raster.n_cells:,} cells make a table of {size:,} numbers, more "
            f"than {_MOST_NUMBERS:,}; use larger cells."
        )
        raise ProblemTooLargeError(msg)
    with np.errstate(divide="ignore"):  # an output that cannot be has probability 0 and logarithm -inf
        logs = np.log(mechanism.probabilities(cells_in_plane_of(mechanism, raster)))
    return np.ascontiguousarray(logs.T)


def _checked_point(mechanism: Mechanism, report: ArrayLike) -> FloatArray:
    given = np.asarray(report)
    point = table("report", given.reshape(1, -1) if given.ndim == 1 else given, columns=2)
    if len(point) != 1:
        raise reject("report", "one point", f"{len(point)} of them")
    return point if mechanism.projection is None else mechanism.projection.to_xy_km(point[:, 0], point[:, 1])
