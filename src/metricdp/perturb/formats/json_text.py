"""Columns whose values are JSON texts, as GeoJSON's properties are: written as they are, or as plain text."""

from __future__ import annotations

import json

import pyarrow as pa

from metricdp.perturb.copying import is_json

__all__ = ["as_text", "text_schema"]


def text_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without the marks of JSON."""
    return pa.schema([field.remove_metadata() if is_json(field) else field for field in schema], schema.metadata)


def as_text(table: pa.Table) -> pa.Table:
    """Return the table with JSON strings as the text that they stand for; other JSON values stay as written."""
    for place, field in enumerate(table.schema):
        if is_json(field):
            texts = [_unquoted(text) for text in table.column(place).to_pylist()]
            table = table.set_column(place, field.remove_metadata(), pa.array(texts, pa.string()))
    return table


def _unquoted(text: str | None) -> str | None:
    return json.loads(text) if text is not None and text.startswith('"') else text
