"""Design problems from the files that options name: one `.npz`, or CSV tables of numbers."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricdp._validation import FloatArray
from metricdp.errors import InvalidInputError
from metricdp.problem import Problem

__all__ = ["read_problem"]

_NPZ_FIELDS = ("records", "outputs", "loss", "prior", "bounds")


def _read_table(path: str | Path) -> FloatArray:
    """Read a CSV of numbers, with or without a line of names at the top."""
    name = os.fspath(path)
    try:
        frame = pd.read_csv(path, header=None, dtype=str, skip_blank_lines=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        msg = f"{name} is not a CSV table of numbers: {error}"
        raise InvalidInputError(msg) from error
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    first = 1 if len(frame) > 1 and numbers.iloc[0].isna().any() else 0
    values = numbers.iloc[first:].to_numpy(dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        msg = f"{name} is not a CSV table of finite numbers: see line {row + first + 1}, column {column + 1}."
        raise InvalidInputError(msg)
    return values


def read_problem(
    source: str | Path | None = None,
    *,
    records: str | Path | None = None,
    outputs: str | Path | None = None,
    loss: str | None = None,
    prior: str | Path | None = None,
    p: float = 2,
) -> Problem:
    """Build a problem from one `.npz` (arrays records, outputs, loss, prior, bounds) or from CSV files.

    `loss` is "euclidean" (the default), "squared", or the path of a CSV; it overrides the one in the `.npz`.
    """
    fields: dict[str, Any] = {} if source is None else _read_npz(source)
    tables = {"records": records, "outputs": outputs, "prior": prior}
    fields |= {name: _read_table(path) for name, path in tables.items() if path is not None}
    for name in ("records", "outputs"):
        if name not in fields:
            msg = f"There are no {name}: give a `--city`, an .npz file that holds them, or a CSV file as `--{name}`."
            raise InvalidInputError(msg)
    if loss is not None:
        fields["loss"] = loss if loss in ("euclidean", "squared") else _read_table(loss)
    if fields.get("prior") is not None:
        fields["prior"] = np.ravel(fields["prior"])
    fields.setdefault("loss", "euclidean")
    return Problem(**fields, p=p)


def _read_npz(path: str | Path) -> dict[str, Any]:
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            unknown = sorted(set(archive.files) - set(_NPZ_FIELDS))
            if unknown:
                msg = f"{name} has an array {unknown[0]!r}; known are {', '.join(_NPZ_FIELDS)}."
                raise InvalidInputError(msg)
            return {field: archive[field] for field in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        if isinstance(error, InvalidInputError):
            raise
        msg = f"{name} is not an .npz file of numeric arrays: {error}"
        raise InvalidInputError(msg) from error
