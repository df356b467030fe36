"""Design problems from the files that options name: one `.npz`, files of places, tables of numbers."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricdp._validation import FloatArray, reject
from metricdp.cli._console import in_options, named_as, note, warn
from metricdp.errors import InvalidInputError
from metricdp.geometry.cells import names_cells
from metricdp.geometry.lonlat import REMEDY, in_degrees, look_like_degrees, projection_about
from metricdp.perturb.columns import PointColumns
from metricdp.perturb.points import PlacesFile, read_places
from metricdp.problem import Problem

__all__ = ["Files", "corners", "own_places", "read_people", "read_problem"]

_NPZ_FIELDS = ("records", "outputs", "loss", "prior", "bounds")

# Parameters of the library that the options for places are called otherwise.
_NAMES = {
    "records": "--records", "outputs": "--outputs", "bounds": "--bounds", "coordinates": "--coordinates",
    "encoding": "--encoding",
    "output_ids": "--id-column", "output_names": "--name-column", "id_column": "--id-column",
    "name_column": "--name-column",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Files:
    """What the options say about files of places; see the help of each option."""

    records: str | None = None
    outputs: str | None = None
    loss: str | None = None
    prior: Path | None = None
    columns: str | None = None
    output_columns: str | None = None
    coordinates: str | None = None
    encoding: str | None = None
    id_column: str | None = None
    name_column: str | None = None
    bounds: str | None = None

    def read_records(self) -> PlacesFile | None:
        """Return the records, if they are in a file of their own."""
        if self.records is None:
            _refuse_without("`--records`", {"--columns": self.columns})
            return None
        return _read_places(
            "--records", "--columns", self.records, self.columns, self.coordinates, encoding=self.encoding
        )

    def read_outputs(self) -> PlacesFile | str | None:
        """Return the outputs, if they are in a file of their own, or the name of cells."""
        own = {
            "--output-columns": self.output_columns, "--id-column": self.id_column, "--name-column": self.name_column,
        }  # fmt: skip
        if self.outputs is None or names_cells(self.outputs):
            _refuse_without("a file of `--outputs`", own)
            if self.records is None:
                _refuse_without("a file of `--records` or `--outputs`", {"--encoding": self.encoding})
            return self.outputs
        return _read_places(
            "--outputs", "--output-columns", self.outputs, self.output_columns, self.coordinates,
            encoding=self.encoding, id_column=self.id_column, name_column=self.name_column,
        )  # fmt: skip


def own_places(files: Files) -> dict[str, Any]:
    """Return the outputs for a city, if there are any, as its `problem` takes them: degrees with ids, or cells."""
    outputs = files.read_outputs()
    if not isinstance(outputs, PlacesFile):
        _refuse_without("a file of `--outputs`", {"--coordinates": files.coordinates})
        return {} if outputs is None else {"outputs": outputs}
    if not _in_degrees({"--outputs": outputs}):
        msg = (
            "A city needs `--outputs` in longitude and latitude; name the columns lon and lat, or say `--coordinates`."
        )
        raise InvalidInputError(msg)
    return {"outputs": outputs.points, "output_ids": outputs.ids, "output_names": outputs.names}


def read_problem(source: Path | None, files: Files, p: float = 2) -> Problem:
    """Build a problem from one `.npz` (arrays records, outputs, loss, prior, bounds), from files of places, or both.

    The loss is "euclidean" by default. Places in degrees give a problem with a projection.
    """
    fields: dict[str, Any] = {} if source is None else _read_npz(source)
    records, outputs = files.read_records(), files.read_outputs()
    fields |= {name: one for name, one in (("records", records), ("outputs", outputs)) if one is not None}
    for name in ("records", "outputs"):
        if name not in fields:
            msg = f"There are no {name}: give a `--city`, an .npz file that holds them, or a file as `--{name}`."
            raise InvalidInputError(msg)
    fields.setdefault("loss", "euclidean")
    if files.loss is not None:
        fields["loss"] = files.loss if files.loss in ("euclidean", "squared") else _read_numbers(Path(files.loss))
    if files.prior is not None:
        fields["prior"] = np.ravel(_read_numbers(files.prior))
    degrees = _in_degrees(_known_places(source, fields, files.coordinates))
    if isinstance(outputs, str) and not degrees:
        msg = f"Cells such as {outputs} need `--records` in longitude and latitude; see `--coordinates`."
        raise InvalidInputError(msg)
    if files.bounds is not None:
        fields["bounds"] = corners(files.bounds)
    with named_as(_NAMES), _warnings_shown():
        return _built(fields, degrees=degrees, p=p)


def read_people(source: Path | None, files: Files) -> Problem | None:
    """Build a problem that says only where people may be, from an `.npz` or a file of records; None without either."""
    if source is None and files.records is None:
        given = {"--prior": files.prior, "--columns": files.columns, "--coordinates": files.coordinates}
        _refuse_without("`--records`", {name: None if one is None else str(one) for name, one in given.items()})
        return None
    fields: dict[str, Any] = {} if source is None else _read_npz(source)
    records = files.read_records()
    places = fields.get("records") if records is None else records.points
    if places is None:
        raise InvalidInputError(f"{source} holds no records.")
    prior = fields.get("prior") if files.prior is None else np.ravel(_read_numbers(files.prior))
    columns = PointColumns(("records",), degrees=files.coordinates == "lonlat")
    found = records or PlacesFile(places, columns, sure=True, kept=np.ones(0, dtype=np.bool_))
    if records is not None and prior is not None:
        prior = _of_rows(prior, records.kept)
    degrees = _in_degrees({"--records": found})
    with named_as(_NAMES), _warnings_shown():
        return (Problem.from_lonlat if degrees else Problem)(
            places, places[:1], np.zeros((len(places), 1)), prior=prior
        )


def _built(fields: dict[str, Any], *, degrees: bool, p: float) -> Problem:
    records, outputs = fields["records"], fields["outputs"]
    if isinstance(records, PlacesFile):
        fields |= _inside(records, fields, degrees=degrees)
    if isinstance(outputs, PlacesFile):
        fields |= {"outputs": outputs.points, "output_ids": outputs.ids, "output_names": outputs.names}
        fields["loss"] = _of_rows(fields["loss"], outputs.kept, axis=1)
    return (Problem.from_lonlat if degrees else Problem)(**fields, p=p)


def _inside(records: PlacesFile, fields: dict[str, Any], *, degrees: bool) -> dict[str, Any]:
    """Return records inside the bounds, with the rows of prior and loss that belong to them."""
    inside = np.ones(len(records.points), dtype=np.bool_)
    if fields.get("bounds") is not None:
        inside = _within(records.points, fields["bounds"], degrees=degrees)
        if not inside.all():
            left = len(inside) - np.count_nonzero(inside)
            note(f"{left:,} of {len(inside):,} records lie outside `--bounds` and were left out.")
        if not inside.any():
            raise InvalidInputError("No record lies inside `--bounds`.")
    kept = records.kept.copy()
    kept[kept] = inside
    changed: dict[str, Any] = {"records": records.points[inside], "loss": _of_rows(fields["loss"], kept)}
    if fields.get("prior") is not None:
        changed["prior"] = _of_rows(fields["prior"], kept)
    return changed


def _within(points: FloatArray, bounds: FloatArray, *, degrees: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if len(bounds[0]) != points.shape[1]:
        axes = points.shape[1]
        raise reject("bounds", f"{2 * axes} numbers, the lower corner first", f"{2 * len(bounds[0])}")
    if degrees:
        projection, box = projection_about(in_degrees("records", points), bounds)
        assert box is not None  # there are bounds
        points, bounds = projection.to_xy_km(*points.T), box
    return np.asarray(((points >= bounds[0]) & (points <= bounds[1])).all(axis=1))


def _of_rows(values: Any, kept: np.ndarray[Any, np.dtype[np.bool_]], axis: int = 0) -> Any:
    """Return values of the rows that were kept, where there is one for every row of the file."""
    if isinstance(values, np.ndarray) and values.ndim > axis and values.shape[axis] == len(kept):
        return np.compress(kept, values, axis=axis)
    return values


def _known_places(source: Path | None, fields: dict[str, Any], coordinates: str | None) -> dict[str, PlacesFile]:
    """Return places by where they come from; arrays of an `.npz` are plain coordinates unless an option says more."""
    found = {}
    for name in ("records", "outputs"):
        given = fields[name]
        if isinstance(given, PlacesFile):
            found[f"--{name}"] = given
        elif not isinstance(given, str):
            columns = PointColumns((name,), degrees=coordinates == "lonlat")
            found[f"{name} of {source}"] = PlacesFile(given, columns, sure=True, kept=np.ones(0, dtype=np.bool_))
    return found


def _in_degrees(files: dict[str, PlacesFile]) -> bool:
    """Whether files hold degrees: as names, types or options say; if they say nothing, as the values look."""
    known = {option: one.columns.degrees for option, one in files.items() if one.sure}
    if len(set(known.values())) > 1:
        lonlat, plain = sorted(known, key=lambda option: not known[option])
        msg = (
            f"`{lonlat}` holds longitude and latitude and `{plain}` does not, going by their columns; "
            "name the columns alike, or say what both are with `--coordinates`."
        )
        raise InvalidInputError(msg)
    if known:
        return next(iter(known.values()))
    degrees = bool(files) and all(look_like_degrees(one.points) for one in files.values())
    if degrees:
        which = " and ".join(f"`{option}`" for option in files)
        note(
            f"The columns of {which} do not say what they are. Going by their values, they were taken as longitude and "
            "latitude; otherwise pass `--coordinates` projected."
        )
    return degrees


def _read_places(
    option: str,
    columns_option: str,
    path: str,
    columns: str | None,
    coordinates: str | None,
    *,
    encoding: str | None,
    **labels: str | None,
) -> PlacesFile:
    """Read a file of places, and say what was left out or looks wrong."""
    if columns is None and not any(labels.values()) and _is_nameless(Path(path)):
        return _read_nameless(Path(path), coordinates)
    names = None if columns is None else columns.split(",")
    with named_as({**_NAMES, "columns": columns_option, "source": option}):
        found = read_places(path, names, coordinates, encoding=encoding, **labels)
    if found.skipped:
        note(f"{found.skipped:,} of {len(found.kept):,} rows of `{option}` have no point and were left out.")
    if found.sure and coordinates is None and not found.columns.degrees and look_like_degrees(found.points):
        words = ", ".join(found.columns.names)
        warn(
            f"The columns {words} of `{option}` were taken as plain coordinates, but their values look like degrees; "
            "if they are, pass `--coordinates` lonlat."
        )
    return found


def _is_nameless(path: Path) -> bool:
    """Whether a CSV file begins with a line of nothing but numbers, so that its columns have no names."""
    if path.suffix.casefold() != ".csv" or not path.is_file():
        return False
    with path.open("rb") as stream:
        line = stream.readline(2**16).decode(errors="replace").strip()
    return bool(line) and all(map(_is_number, re.split(r"[,;\t|]", line)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_nameless(path: Path, coordinates: str | None) -> PlacesFile:
    """Read a CSV of numbers without names: every column is an axis."""
    points = _read_numbers(path)
    names = tuple(f"column {axis + 1}" for axis in range(points.shape[1]))
    if coordinates == "lonlat" and len(names) != 2:
        raise reject("--coordinates", f"projected for points of {len(names)} columns", "lonlat")
    columns = PointColumns(names, degrees=coordinates == "lonlat")
    sure = coordinates is not None or len(names) != 2
    return PlacesFile(points, columns, sure, np.ones(len(points), dtype=np.bool_))


def _read_numbers(path: Path) -> FloatArray:
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


def corners(text: str) -> FloatArray:
    """Read "west,south,east,north", or the lower corner and the upper corner of any box."""
    try:
        values = np.array([float(part) for part in text.split(",")])
    except ValueError:
        values = np.empty(0)
    if len(values) < 2 or len(values) % 2 or not np.isfinite(values).all():
        raise reject("--bounds", "numbers: west,south,east,north, or all of the lower corner first", repr(text))
    return values.reshape(2, -1)


def _refuse_without(needed: str, options: dict[str, str | None]) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidInputError(f"`{option}` is about {needed}, which is not given.")


@contextmanager
def _warnings_shown() -> Iterator[None]:
    """Show the library's warnings on stderr, in the words of the command line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        words = str(one.message).replace(REMEDY, f"{REMEDY}, as `--bounds` west,south,east,north does")
        warn(in_options(words, _NAMES))


def _read_npz(path: Path) -> dict[str, Any]:
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
