"""One row per person, as CSV, Parquet or JSON, for people who account for budgets elsewhere."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from metricdp._atomic import atomic_file
from metricdp._validation import reject
from metricdp.errors import InvalidInputError
from metricdp.ledger.reading import LedgerView, read_ledger
from metricdp.ledger.times import unix_seconds
from metricdp.mechanisms.base import Mechanism

__all__ = ["COLUMNS", "ENDINGS", "FREES_AT", "LAST_OUTPUT", "export_ledger", "harmless_in_spreadsheets"]

COLUMNS = ("user", "spent", "remaining", "reports")
FREES_AT, LAST_OUTPUT = "frees_at", "last_output"

# All columns that there may be, in the order of `LedgerView.people`.
_TYPES = dict(
    zip(
        (*COLUMNS, FREES_AT, LAST_OUTPUT),
        (pa.string(), pa.float64(), pa.float64(), pa.int64(), pa.float64(), pa.int64()),
        strict=True,
    )
)

_ROWS_AT_ONCE = 50_000

# Spreadsheets take a cell that begins like this for a formula; the last four are wide forms of East Asian keyboards.
_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

Rows = list[tuple[Any, ...]]


def export_ledger(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    last_output_of: Mechanism | None = None,
    overwrite: bool = False,
    time: float | None = None,
) -> int:
    """Write what each person has spent to a file that only its owner may read; return how many people there are.

    Of a ledger with a window, it is what counts at `time` (or at the person's last draw if that was later), and
    `frees_at` says when the first of these charges stops counting.

    Parameters
    ----------
    path : str or Path
        The ledger, which may be in use.
    target : str or Path
        A file that ends in .csv, .parquet or .json. It appears whole or not at all.
    last_output_of : Mechanism, optional
        Add the column `last_output`: the number of the last output that each person got from this mechanism. It says
        where somebody was reported to be, which nobody needs for accounting, so it is left out by default. The true
        points that a ledger with `sticky_km` holds are never exported.
    overwrite : bool
        Replace an existing file.
    time : float, optional
        Unix seconds; by default now.
    """
    now = unix_seconds("time", time)
    place = Path(target)
    write = ENDINGS.get(place.suffix.casefold())
    if write is None:
        raise reject("target", f"a file that ends in {', '.join(ENDINGS)}", repr(str(place)))
    if place.exists() and not overwrite:
        msg = f"{place} exists; replace it with `overwrite`, or choose another `target`."
        raise InvalidInputError(msg)
    if place.exists() and place.samefile(path):
        raise reject("target", "another file than the ledger", repr(str(place)))

    def work(view: LedgerView) -> int:
        count = 0
        chosen = (True,) * len(COLUMNS) + (view.terms.window is not None, last_output_of is not None)
        names = tuple(compress(_TYPES, chosen))

        def counted() -> Iterator[Rows]:
            nonlocal count
            for rows in view.people(_ROWS_AT_ONCE, last_output_of):
                count += len(rows)
                yield [tuple(compress(row, chosen)) for row in rows]

        with atomic_file(place, private=True) as stream:
            write(stream, names, counted())
            if not view.unchanged():
                raise OSError  # read again, see `read_ledger`
        return count

    return read_ledger(path, work, now=now)


def harmless_in_spreadsheets(user: str) -> str:
    """Return an id as CSV holds it: with an apostrophe in front if a spreadsheet might take it for a formula.

    Ids that begin with an apostrophe get another one, so taking one away from every id that begins with one gives the
    ids back. Whole numbers stay as they are.

    Examples
    --------
    >>> [harmless_in_spreadsheets(user) for user in ("ann", "=1+1", " @x", "'ann", "-7")]
    ['ann', "'=1+1", "' @x", "''ann", '-7']
    """
    number = user.removeprefix("-")
    if number.isascii() and number.isdigit():
        return user
    begin = user.lstrip()
    return f"'{user}" if user.startswith(("'", "\t", "\r", "\n")) or begin.startswith(_FORMULAS) else user


def _write_csv(stream: BinaryIO, names: tuple[str, ...], chunks: Iterator[Rows]) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    # Every id is quoted: where ";" separates cells, an id with one would otherwise become two cells.
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(names)
    for rows in chunks:
        writer.writerows((harmless_in_spreadsheets(user), *rest) for user, *rest in rows)
    text.detach()  # the stream stays open


def _write_parquet(stream: BinaryIO, names: tuple[str, ...], chunks: Iterator[Rows]) -> None:
    schema = pa.schema([(name, _TYPES[name]) for name in names])
    with pq.ParquetWriter(stream, schema) as writer:
        for rows in chunks:
            columns = zip(*rows, strict=True)
            writer.write_table(
                pa.table(
                    [pa.array(column, _TYPES[name]) for name, column in zip(names, columns, strict=True)], schema=schema
                )
            )


def _write_json(stream: BinaryIO, names: tuple[str, ...], chunks: Iterator[Rows]) -> None:
    # ASCII only: control characters of ids must not act on a terminal that shows the file.
    stream.write(b'{"people": [')
    separator = b"\n"
    for rows in chunks:
        for row in rows:
            stream.write(separator + json.dumps(dict(zip(names, row, strict=True))).encode())
            separator = b",\n"
    stream.write(b"\n]}\n")


ENDINGS: dict[str, Callable[[BinaryIO, tuple[str, ...], Iterator[Rows]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".json": _write_json,
}
