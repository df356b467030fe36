"""Mechanism files: a zip of `header.json` and plain `.npy` arrays; no pickle, so loading runs no code."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from metricdp._atomic import atomic_file
from metricdp._validation import norm_order, positive, reject, table
from metricdp.cities.projection import Equirectangular
from metricdp.errors import InvalidInputError
from metricdp.mechanisms.base import Mechanism
from metricdp.mechanisms.cellwise import Cellwise
from metricdp.mechanisms.exponential import Exponential
from metricdp.mechanisms.laplace import LatticeLaplace
from metricdp.mechanisms.log_convex import LogConvex
from metricdp.mechanisms.spline import Spline

__all__ = ["load", "save"]

_FORMAT = 1
_KINDS: dict[str, type[Mechanism]] = {
    kind.kind: kind for kind in (Cellwise, Exponential, LatticeLaplace, LogConvex, Spline)
}
_ARRAYS = ("outputs", "bounds")


def save(mechanism: Mechanism, path: str | Path) -> None:
    """Write `mechanism` to `path`; the file appears whole or not at all."""
    settings = mechanism.settings()
    arrays = {name: value for name, value in settings.items() if isinstance(value, np.ndarray)}
    header = {
        "format": _FORMAT,
        "kind": mechanism.kind,
        "epsilon": repr(mechanism.epsilon),
        "p": "inf" if math.isinf(mechanism.p) else repr(mechanism.p),
        "method": mechanism.method,
        "report": mechanism.report,
        "projection": None if mechanism.projection is None else mechanism.projection.to_dict(),
        "settings": {name: value for name, value in settings.items() if name not in arrays},
    }
    arrays |= {name: getattr(mechanism, name) for name in _ARRAYS}
    with atomic_file(path) as stream:
        _write(stream, header, arrays)


def _write(stream: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(header, indent=1))
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            archive.writestr(f"{name}.npy", buffer.getvalue())


def load(path: str | Path) -> Mechanism:
    """Read a mechanism file."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))
            arrays = {
                name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        return _build(header, arrays)
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, OSError, KeyError, TypeError, ValueError, EOFError) as error:
        msg = f"`path` must be a metricdp mechanism file, got {os.fspath(path)!r}: {error}"
        raise InvalidInputError(msg) from error


def _build(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Mechanism:
    if header["format"] != _FORMAT:
        msg = f"format {header['format']} is not known to this version (it reads {_FORMAT})"
        raise InvalidInputError(msg)
    projection = header.get("projection")
    bounds = table("bounds", arrays.pop("bounds"))
    if len(bounds) != 2 or not (bounds[0] < bounds[1]).all():
        raise reject("bounds", "a lower and an upper corner", bounds.tolist())
    common = {
        "outputs": table("outputs", arrays.pop("outputs"), columns=bounds.shape[1]),
        "bounds": bounds,
        "epsilon": positive("epsilon", header["epsilon"]),
        "p": norm_order(header["p"]),
        "method": str(header["method"]),
        "report": dict(header["report"]),
        "projection": None if projection is None else Equirectangular.from_dict(projection),
    }
    return _KINDS[header["kind"]].from_settings(common, {**header["settings"], **arrays})
