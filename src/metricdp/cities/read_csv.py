"""Road networks as a folder of CSV files: nodes, edges and, without edges, distances to one task."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricdp.cities._checks import IntArray, Origin, check_lengths, check_nodes, index_of_ids
from metricdp.cities.network import RoadNetwork
from metricdp.cities.unpack import open_table
from metricdp.errors import InvalidInputError

__all__ = ["find_table", "read_folder"]

NODE_COLUMNS = {"id": "int64", "lon": "float64", "lat": "float64"}
EDGE_COLUMNS = {"u": "int64", "v": "int64", "length_m": "float64"}
TASK_COLUMNS = {"id": "int64", "road_dist_m": "float64"}
# A header of millions of commas would become millions of names.
LONGEST_HEADER = 65_536
ROWS_AT_ONCE = 100_000
# From 3.1 on pandas always reads floats exactly and warns when asked to.
EXACT: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
# What pandas and lzma raise for files that end early, are not xz, not text or not a table.
UNREADABLE = (
    lzma.LZMAError,
    EOFError,
    OSError,
    UnicodeDecodeError,
    pd.errors.ParserError,
    pd.errors.EmptyDataError,
)

# Before pandas 3, whole numbers of more than 64 bits wrap around without a word; texts are then read instead.
_WRAPS = int(pd.__version__.split(".")[0]) < 3


def read_folder(folder: Path, name: str | None = None) -> RoadNetwork:
    """Read `nodes.csv[.xz]` (id, lon, lat) and `edges.csv[.xz]` (u, v, length_m) from `folder`.

    A folder without edges may hold `distance_to_task.csv[.xz]` (id, road_dist_m) instead: the road distance
    of every node to one task, the node at distance zero.
    """
    paths = {key: find_table(folder, key) for key in ("nodes", "edges", "distance_to_task")}
    if paths["nodes"] is None:
        raise InvalidInputError(f"{folder} has neither nodes.csv nor nodes.csv.xz.")
    nodes, origin = _read(paths["nodes"], NODE_COLUMNS)
    ids = nodes["id"].to_numpy(np.int64)
    lon, lat = nodes["lon"].to_numpy(np.float64), nodes["lat"].to_numpy(np.float64)
    check_nodes(origin, ids, lon, lat)
    columns: dict[str, Any] = {}
    if paths["edges"] is not None:
        columns |= _edge_columns(paths["edges"], ids)
    if paths["distance_to_task"] is not None:
        columns |= _task_columns(paths["distance_to_task"], ids)
    if not columns:
        raise InvalidInputError(f"{folder} has neither edges.csv[.xz] nor distance_to_task.csv[.xz] next to the nodes.")
    with origin.named():
        return RoadNetwork(name or folder.resolve().name, ids, lon, lat, **columns)


def find_table(folder: Path, key: str) -> Path | None:
    """Return the one file that holds table `key`, or None."""
    found = [path for path in (folder / f"{key}.csv", folder / f"{key}.csv.xz") if path.is_file()]
    if len(found) > 1:
        raise InvalidInputError(f"{folder} has both {found[0].name} and {found[1].name}; keep one of them.")
    return found[0] if found else None


def _edge_columns(path: Path, ids: IntArray) -> dict[str, Any]:
    edges, origin = _read(path, EDGE_COLUMNS)
    if len(edges) == 0:
        raise origin.broken("u", "present for at least one edge (the network is empty)", "no edges")
    length = edges["length_m"].to_numpy(np.float64)
    check_lengths(origin, length)
    ends = {key: index_of_ids(origin, key, edges[key].to_numpy(np.int64), ids) for key in ("u", "v")}
    return {**ends, "length_m": length}


def _task_columns(path: Path, ids: IntArray) -> dict[str, Any]:
    rows, origin = _read(path, TASK_COLUMNS)
    metres = rows["road_dist_m"].to_numpy(np.float64)
    check_lengths(origin, metres, "road_dist_m")
    where = index_of_ids(origin, "id", rows["id"].to_numpy(np.int64), ids)
    if len(where) != len(ids) or len(np.unique(where)) != len(ids):
        got = f"{len(where)} rows for {len(np.unique(where))} of {len(ids)} nodes"
        raise origin.broken("id", "present exactly once for every node", got)
    distance = np.empty(len(ids))
    distance[where] = metres
    if distance.min() > 0:
        raise origin.broken("road_dist_m", "zero at one node, the task", f"{distance.min()} as the smallest")
    return {"task": int(distance.argmin()), "task_distance_m": distance}


def _read(path: Path, columns: dict[str, str]) -> tuple[pd.DataFrame, Origin]:
    """Return the named columns and an origin that knows each row's line."""
    options: dict[str, Any] = {
        "encoding": "utf-8-sig",
        "skipinitialspace": True,
        # Blank lines keep their place, so that row i is line i + 2 in errors.
        "skip_blank_lines": False,
        "index_col": False,
    }
    try:
        _check_header(path, columns, options)
        options["usecols"] = list(columns)
        frame = None if _WRAPS else _read_at_once(path, columns, options)
        if frame is None:
            frame = _read_as_text(path, columns, options)
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidInputError(f"{path} is not a readable CSV table: {reason}.") from error
    lines = frame.index.to_numpy() + 2
    return frame, Origin(str(path), lambda row: f"on line {lines[row]}")


def _read_at_once(path: Path, columns: dict[str, str], options: dict[str, Any]) -> pd.DataFrame | None:
    """Return the columns as numbers, None if a cell is not one."""
    try:
        with open_table(path) as stream:
            return pd.read_csv(stream, dtype=columns, **EXACT, **options)
    except (ValueError, OverflowError) as error:
        if isinstance(error, (InvalidInputError, *UNREADABLE)):
            raise
        return None


def _check_header(path: Path, columns: dict[str, str], options: dict[str, Any]) -> None:
    """Raise unless the first line names every one of `columns` once.

    Other names are not repeated in the error: the file may be a link to one that is nobody's business.
    """
    with open_table(path) as stream:
        first = stream.readline(LONGEST_HEADER + 1)
    if len(first) > LONGEST_HEADER:
        raise InvalidInputError(f"{path}: the line of column names has more than {LONGEST_HEADER:,} bytes.")
    names = pd.read_csv(io.BytesIO(first), header=None, nrows=1, dtype=str, **options).iloc[0].tolist()
    present = [column for column in columns if column in names]
    for column in columns:
        if column not in present:
            got = f"only {', '.join(present)}" if present else f"none of {', '.join(columns)}"
            raise Origin(str(path)).broken(column, "a column of the file", got)
        if names.count(column) > 1:
            raise Origin(str(path)).broken(column, "one column of the file", f"{names.count(column)} of that name")


def _read_as_text(path: Path, columns: dict[str, str], options: dict[str, Any]) -> pd.DataFrame:
    """Convert column by column: slower, but able to say which line cannot be a number."""
    with (
        open_table(path) as stream,
        pd.read_csv(stream, dtype=str, keep_default_na=False, chunksize=ROWS_AT_ONCE, **options) as chunks,
    ):
        return pd.concat([_numbers(path, columns, text) for text in chunks])


def _numbers(path: Path, columns: dict[str, str], text: pd.DataFrame) -> pd.DataFrame:
    text = text[(text != "").any(axis=1)]
    lines = text.index.to_numpy() + 2
    origin = Origin(str(path), lambda row: f"on line {lines[row]}")
    numbers: dict[str, Any] = {}
    for column, kind in columns.items():
        quoted = text[column].map(repr).to_numpy()
        if kind == "int64":
            # 18 digits always fit 64 bits, and no map has longer ids.
            good = text[column].str.fullmatch(r"\s*[+-]?\d{1,18}\s*").to_numpy(dtype=bool)
            origin.forbid(~good, column, "a whole number", quoted)
            numbers[column] = text[column].str.strip().astype("int64")
        else:
            unreadable = pd.to_numeric(text[column], errors="coerce").isna()
            origin.forbid(unreadable.to_numpy(), column, "a number", quoted)
            numbers[column] = text[column].astype("float64")  # to the last digit, unlike `to_numeric`
    return pd.DataFrame(numbers, index=text.index)
