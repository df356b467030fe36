"""What a caller chooses, whatever the points come in: declared here once for batches, streams, files and folders."""

from __future__ import annotations

import codecs
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metricdp._validation import choice, outside_rule, reject

__all__ = ["Options", "text_encoding"]


@dataclass(frozen=True)
class Options:
    """How points are to be perturbed.

    columns : sequence of str, optional
        The columns of the point (longitude first), or one column of geometries. Guessed from names by default.
    coordinates : "lonlat" or "projected", optional
        What the numbers are: degrees, or the mechanism's own coordinates (kilometres). Guessed from names by default.
    copy : sequence of str or "all"
        Other columns to copy. "all" copies every column of plain values, whatever is in it, and leaves out the point's,
        geometries, structs, lists and bytes; see `copied_columns`. A geometry cannot be named.
    outside : "clamp", "drop" or "error"
        What becomes of points outside the box: taken to its nearest point, left out, or an error.
    keep_input : bool
        Copy the true coordinates, under names that begin with `true_`. The output is then not private.
    user_column : str, optional
        Who each row belongs to, for a ledger. Only files and folders can be perturbed with a ledger.
    time_column : str, optional
        When each row was, for a ledger with a window or a schedule: unix seconds, or timestamps, which are UTC if they
        have no zone. The rows of one person must be in the order of their times.
    encoding : str, optional
        Encoding of text files, such as "utf-16-le", "latin-1" or "cp1252"; by default UTF-8. A byte order mark counts
        for more. Only for files and folders; what is written is always UTF-8.

    A name with dots leads into structs and into the objects of JSON lines: `location.lon`.
    """

    columns: Sequence[str] | None = None
    coordinates: str | None = None
    copy: Sequence[str] | str = ()
    outside: str = "clamp"
    keep_input: bool = False
    user_column: str | None = None
    time_column: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.coordinates is not None:
            choice("coordinates", self.coordinates, ("lonlat", "projected"))
        if isinstance(self.copy, str):
            choice("copy", self.copy, ("all",))
        text_encoding(self.encoding)
        # Lists become tuples, so that equal options are equal.
        checked = {
            "columns": None if self.columns is None else tuple(self.columns),
            "copy": self.copy if isinstance(self.copy, str) else tuple(self.copy),
            "outside": outside_rule(self.outside, "drop"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def others(self) -> bool:
        """Whether other columns than the point's are needed."""
        return bool(self.copy) or bool(self.charged)

    @property
    def charged(self) -> tuple[str, ...]:
        """The columns that a ledger needs."""
        return tuple(name for name in (self.user_column, self.time_column) if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are named."""
        return (*(self.columns or ()), *(() if isinstance(self.copy, str) else self.copy), *self.charged)

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON would give them back."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


def text_encoding(name: str | None) -> None:
    """Refuse a name that no text encoding has."""
    if name is not None and not _is_encoding(name):
        rule = "a text encoding that Python knows, such as utf-16, latin-1 or cp1252"
        raise reject("encoding", rule, repr(name))


def _is_encoding(name: str) -> bool:
    try:
        # Codecs that turn bytes into bytes, such as rot13 and zip, are refused here.
        return "lon".encode(name) != b"" and codecs.getincrementaldecoder(name)().decode(b"") == ""
    except (LookupError, ValueError):
        return False
