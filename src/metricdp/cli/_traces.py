"""Traces of people from files: who, when, and where."""

from __future__ import annotations

import numpy as np

from metricdp._validation import FloatArray, reject
from metricdp.cli._console import named_as
from metricdp.errors import InvalidInputError
from metricdp.perturb.points import read_places

__all__ = ["read_traces_file"]


def read_traces_file(option: str, path: str, id_column: str, time_column: str) -> dict[str, list[str] | FloatArray]:
    """Return the columns of a file of traces as `Movement.fit` takes them, from any format that `perturb` reads."""
    names = {"id_column": "--id-column", "name_column": "--time-column", "source": option}
    with named_as(names):
        found = read_places(path, coordinates="lonlat", id_column=id_column, name_column=time_column)
    if found.ids is None or found.names is None or found.points.shape[1] != 2:
        raise reject(option, "a file of ids, times, longitudes and latitudes", f"{found.points.shape[1]} coordinates")
    try:
        times = np.array([float(one) for one in found.names])
    except ValueError:
        msg = f"Column {time_column!r} of `{option}` holds something else than unix seconds; see `--time-column`."
        raise InvalidInputError(msg) from None
    who = [str(one) for one in found.ids]
    return {"id": who, "unix_s": times, "lon": found.points[:, 0], "lat": found.points[:, 1]}
