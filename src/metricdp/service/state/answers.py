"""Answers as JSON. The text of every output is made once, and answers to requests are joined from these texts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.certificates.proving import Certificate
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.card import map_facts
from metricdp.mechanisms.families import METHODS, family_of
from metricdp.mechanisms.outside import ROUNDING_MARGIN

__all__ = ["LARGEST_DEGREES", "SWAPPED", "Answers", "Outside"]

# Largest longitude and latitude.
LARGEST_DEGREES = np.array([180.0, 90.0])

SWAPPED = "All points lie outside the box, and inside it with their coordinates exchanged: are they swapped?"


@dataclass(frozen=True)
class Answers:
    """What the service says of one mechanism and its outputs.

    tail : end of the answer to every draw, which names the mechanism.
    degrees, plane : text of every output in either kind of coordinates. The last one is that of a refusal, which the
        ledger marks by the index -1.
    summary, detail : as in GET /v1/mechanisms and /v1/mechanisms/{id}.
    """

    tail: bytes
    degrees: list[bytes] | None
    plane: list[bytes]
    summary: dict[str, Any]
    detail: bytes

    @classmethod
    def of(cls, name: str, mechanism: Mechanism, sha256: str, certificate: Certificate, loaded_at: str) -> Answers:
        """Render the answers of a mechanism."""
        outputs, labels = mechanism.outputs, _labels(mechanism)
        named = mechanism.output_ids is not None or mechanism.output_names is not None
        degrees = None if mechanism.projection is None else mechanism.projection.to_lonlat(outputs)
        summary = _summary(name, mechanism, sha256, certificate, loaded_at)
        detail = {
            **summary,
            "outputs": None if degrees is None else _geojson(labels, degrees),
            "outputs_projected": outputs.tolist(),
            "places": labels if named else None,
            "on_device": list(family_of(mechanism.kind).on_device),
            "certificate": {
                key: _number(value) if isinstance(value, float) else value
                for key, value in certificate.to_dict().items()
                if key in ("holds", "claim", "worst_ratio", "checked", "seconds")
            },
        }
        return cls(
            tail=b',"mechanism":' + _json(name) + b',"sha256":' + _json(sha256),
            degrees=None if degrees is None else _pieces(labels, degrees, ("lon", "lat")),
            plane=_pieces(labels, outputs, ("x", "y")),
            summary=summary,
            detail=_json(detail),
        )

    def drawn(
        self, indices: NDArray[np.integer[Any]], *, degrees: bool, outside: Outside | None = None
    ) -> tuple[bytes, int]:
        """Return the answer to a request whose outputs have these indices, and how many were refused."""
        pieces = self.degrees if degrees and self.degrees is not None else self.plane
        refused = int(np.count_nonzero(indices < 0))
        listed = b",".join(map(pieces.__getitem__, indices.tolist()))
        counted = b"" if outside is None else outside.text()
        return b'{"outputs":[%b]%b,"refused":%d%b}' % (listed, self.tail, refused, counted), refused

    def detailed(self, reports_per_person: int | None) -> bytes:
        """Return the answer to a request for the detail."""
        return b'{"reports_per_person":%b,%b' % (_json(reports_per_person), self.detail[1:])

    def probabilities(self, rows: FloatArray) -> bytes:
        """Return the answer to a request for probabilities."""
        return b'{"probabilities":%b%b}' % (_json(rows.tolist()), self.tail)


@dataclass(frozen=True)
class Outside:
    """How many points of a request lie outside the box.

    count, total : points outside, and all of them.
    swapped : whether all lie outside and would be inside if their two coordinates were exchanged.
    """

    count: int
    total: int
    swapped: bool

    @classmethod
    def of(cls, mechanism: Mechanism, points: FloatArray, *, degrees: bool) -> Outside:
        """Count points, given as longitudes and latitudes or in the mechanism's own coordinates.

        The work is the same wherever they lie, since the time that an answer takes can be seen on the way.
        """
        count, total = _n_outside(mechanism, points, degrees=degrees), len(points)
        exchanged = total if points.shape[1] != 2 else _n_outside(mechanism, points[:, ::-1], degrees=degrees)
        return cls(count, total, count == total and exchanged == 0)

    @property
    def hint(self) -> str | None:
        """A sentence for the caller if the coordinates seem to be exchanged."""
        return SWAPPED if self.swapped else None

    def text(self) -> bytes:
        """Return the end of an answer, as long as any other for so many points: sizes can be seen on the way."""
        count, hint = _json(self.count), _json(self.hint)
        return b',"outside":%b,"hint":%b' % (count.ljust(len(str(self.total))), hint.ljust(len(_json(SWAPPED))))


def _n_outside(mechanism: Mechanism, points: FloatArray, *, degrees: bool) -> int:
    if not degrees:
        return int(mechanism.outside_box(points, ROUNDING_MARGIN).sum())
    impossible = (np.abs(points) > LARGEST_DEGREES).any(axis=1)
    plane = np.asarray(mechanism.projection.to_xy_km(*np.clip(points, -LARGEST_DEGREES, LARGEST_DEGREES).T))
    return int((impossible | mechanism.outside_box(plane, ROUNDING_MARGIN)).sum())


def _labels(mechanism: Mechanism) -> list[dict[str, Any]]:
    """Return what every output is called: its own id, or else its index, and its name, if it has one."""
    ids = range(mechanism.n_outputs) if mechanism.output_ids is None else mechanism.output_ids
    if mechanism.output_names is None:
        return [{"id": one} for one in ids]
    return [{"id": one, "name": name} for one, name in zip(ids, mechanism.output_names, strict=True)]


def _pieces(labels: list[dict[str, Any]], outputs: FloatArray, letters: tuple[str, str]) -> list[bytes]:
    pairs = outputs.shape[1] == 2
    pieces = [
        {**label, **(dict(zip(letters, place, strict=True)) if pairs else {"point": place})}
        for label, place in zip(labels, outputs.tolist(), strict=True)
    ]
    return [*map(_json, pieces), b"null"]


def _summary(name: str, mechanism: Mechanism, sha256: str, certificate: Certificate, loaded_at: str) -> dict[str, Any]:
    projection = mechanism.projection
    return {
        "id": name,
        "method": mechanism.method,
        "label": _label(mechanism.method),
        "epsilon": mechanism.epsilon,
        "epsilon_map": map_facts(mechanism),
        "plane_epsilon": float(mechanism.plane_epsilon),
        "rounding": mechanism.rounding,
        "p": _number(mechanism.p) if math.isfinite(mechanism.p) else "inf",
        "sha256": sha256,
        "n_outputs": mechanism.n_outputs,
        "n_axes": mechanism.bounds.shape[1],
        "bounds": mechanism.bounds.tolist(),
        "projection": None if projection is None else {"lon_deg": projection.lon_deg, "lat_deg": projection.lat_deg},
        "unit": None if projection is None else "km",
        "loss": _number(mechanism.report.get("loss")),
        "lower_bound": _number(mechanism.report.get("lower_bound")),
        "loaded_at": loaded_at,
        "certified": certificate.holds,
        "claim": certificate.claim,
    }


def _label(method: str) -> str:
    """Return what people call a method; a file may name one that the registry does not know."""
    known = METHODS.get(method)
    return method if known is None else known.label


def _number(value: Any) -> float | None:
    """Return a finite number or None; the report in a file may hold anything."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _geojson(labels: list[dict[str, Any]], degrees: FloatArray) -> dict[str, Any]:
    features = [
        {
            "type": "Feature",
            "id": label["id"],
            "geometry": {"type": "Point", "coordinates": place},
            "properties": label,
        }
        for label, place in zip(labels, degrees.tolist(), strict=True)
    ]
    return {"type": "FeatureCollection", "features": features}


def _json(value: Any) -> bytes:
    # Escaped, a name would take up to three times as many bytes, in answers of up to 100,000 points.
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
