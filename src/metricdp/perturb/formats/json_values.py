"""JSON values as texts in columns: what GeoJSON and JSON lines share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from metricdp.perturb import limits
from metricdp.perturb.copying import JSON_TEXT, is_json
from metricdp.perturb.nested import NESTED

__all__ = ["Names", "batched", "is_number", "json_text", "json_texts"]

# A batch ends after so many rows, or after so many values, those that a row lacks included, or after
# `limits.BATCH_BYTES` of the file.
ROWS, VALUES = 2**14, 2**20


class Names:
    """The names that objects have, and whether values of each are objects and arrays, or others, or both."""

    def __init__(self) -> None:
        self._nested: dict[str, set[bool]] = {}

    def __len__(self) -> int:
        return len(self._nested)

    def add(self, members: dict[str, Any]) -> None:
        """Look at one more object."""
        for name, value in members.items():
            kinds = self._nested.setdefault(name, set())
            if value is not None:
                kinds.add(isinstance(value, (dict, list)))

    def fields(self) -> Iterator[pa.Field]:
        """Yield a column of JSON texts for each name."""
        for name, nested in self._nested.items():
            mark = {NESTED: b"some" if False in nested else b"all"} if True in nested else {}
            yield pa.field(name, pa.string(), metadata={**JSON_TEXT, **mark})


def batched(rows: Iterator[tuple[tuple[Any, ...], int]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of bounded memory. Each row comes with the bytes of the file that were read until then."""
    taken: list[tuple[Any, ...]] = []
    begun, most = 0, max(1, min(ROWS, VALUES // max(1, len(schema))))
    for row, place in rows:
        taken.append(row)
        if len(taken) == most or place - begun > limits.BATCH_BYTES:
            yield _batch(taken, schema)
            taken, begun = [], place
    if taken:
        yield _batch(taken, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, field.type) for values, field in columns], schema=schema)


def is_number(value: Any) -> bool:
    """Whether a value is a number of JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def json_text(value: Any) -> str:
    """Return a value as JSON; NaN and infinity, which JSON does not have, as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return json.dumps(value, ensure_ascii=False, default=str)


def json_texts(table: pa.Table, field: pa.Field) -> Iterable[str | None]:
    """Return the values of a column as JSON; None for what was left out in JSON that came in."""
    values: list[Any] = table.column(field.name).to_pylist()
    if is_json(field):
        return values
    if pa.types.is_integer(field.type):
        return ["null" if value is None else str(value) for value in values]
    return map(json_text, values)
