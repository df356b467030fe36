"""When each row was, for a ledger with a window or a schedule: a column of unix seconds, or of timestamps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metricdp._validation import reject
from metricdp.ledger.times import ticks
from metricdp.perturb.copying import plain_values
from metricdp.perturb.points import column_of

__all__ = ["moments_of"]

_RULE = "a column of unix seconds or of timestamps such as 2026-01-31T12:00:00Z (without a zone they are UTC)"

# Texts are tried as these in turn: numbers, then ISO 8601 with a zone and without, to microseconds or finer.
_KINDS = (
    pa.float64(),
    *(pa.timestamp(unit, zone) for zone in ("UTC", None) for unit in ("us", "ns")),
)


def moments_of(batch: pa.RecordBatch, name: str, rows: NDArray[np.intp], first_row: int = 0) -> NDArray[Any]:
    """Return the moments of some rows as datetime64 in microseconds.

    `first_row` is the number of rows before the batch, for messages.
    """
    column = plain_values(column_of(batch, name)).take(pa.array(rows))
    missing = ~np.asarray(column.is_valid())
    if missing.any():
        first = first_row + int(rows[missing.argmax()]) + 1
        raise reject(
            name, "a time in every row with a point", f"null in {missing.sum():,} rows, the first of them row {first:,}"
        )
    values = _values(name, column)
    row_of = lambda index: f"in row {first_row + int(rows[index]) + 1:,}"  # noqa: E731
    when = ticks(values, len(rows), name, row_of, quoted=False)
    return when.astype("datetime64[us]")


def _values(name: str, column: pa.Array) -> NDArray[Any]:
    """Return a column as numbers or datetime64."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed(name, column)
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)):
        raise reject(name, _RULE, f"type {kind}")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "iufM":  # times of day, durations
        raise reject(name, _RULE, f"type {kind}")
    return values


def _parsed(name: str, column: pa.Array) -> pa.Array:
    for kind in _KINDS:
        try:
            return column.cast(kind)
        except pa.ArrowException:  # its message quotes the text
            continue
    raise reject(name, _RULE, "other texts")
