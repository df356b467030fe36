"""`metricdp density`: how people are spread, from a file of their reports."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from metricdp._lengths import length_km
from metricdp._validation import positive, reject
from metricdp.cli._console import named_as, out, print_json, progress_bar, warn
from metricdp.cli._problem import JsonFlag, MechanismFile
from metricdp.cli._writing import require_folder, write_text
from metricdp.errors import InvalidInputError
from metricdp.estimating.density import Density, estimate_density
from metricdp.experiments.canvas import picture_kind
from metricdp.experiments.density_figures import write_density_figure
from metricdp.files.reading import load
from metricdp.mechanisms.base import Mechanism
from metricdp.perturb.points import read_places

__all__ = ["density_command"]


def density_command(
    file: MechanismFile,
    reports: Annotated[str, typer.Argument(help="A file that `metricdp perturb` wrote with this mechanism.")],
    *,
    cell: Annotated[
        str | None,
        typer.Option(help="Least side of a cell: 500m or 0.5km on a map, a plain number otherwise. 1/ε by default."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the error bars.")] = 0.95,
    id_column: Annotated[str, typer.Option(help="Column of the reports with the ids of outputs.")] = "output_id",
    csv: Annotated[Path | None, typer.Option(help="Write a row for each cell into this CSV file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the shares and their errors into this file.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate how people are spread over cells from a file of their reports, with error bars."""
    require_folder("--csv", csv)
    require_folder("--plot", plot)
    if plot is not None:
        with named_as({"path": "--plot"}):
            picture_kind(plot)
    mechanism = load(file, certify=False)
    said = _read(mechanism, reports, id_column)
    with progress_bar("estimating") as progress, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimate_density(
            mechanism, said, cell=_side(cell, mechanism), confidence=confidence, progress=progress
        )  # fmt: skip
    for one in caught:
        warn(str(one.message))
    if csv is not None:
        write_text(csv, found.table.to_csv(index=False))
    if plot is not None:
        write_density_figure(found, plot)
    if as_json:
        print_json({**found.to_dict(), "csv": _name(csv), "plot": _name(plot)})
    else:
        _show(found, csv, plot)


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _side(text: str | None, mechanism: Mechanism) -> float | None:
    if text is None:
        return None
    return positive("--cell", text) if mechanism.projection is None else length_km("--cell", text)


def _read(mechanism: Mechanism, path: str, id_column: str) -> NDArray[Any]:
    """Return numbers of outputs, or points in the mechanism's coordinates."""
    ids = {"id_column": id_column} if mechanism.has_outputs else {}
    with named_as({"id_column": "--id-column", "source": "reports"}):
        found = read_places(path, **ids)
    if mechanism.has_outputs:
        return _numbers(mechanism, found.ids or [], id_column)
    if mechanism.projection is None:
        return found.points
    if found.points.shape[1] != 2 or not found.columns.degrees:
        raise reject("reports", "a file of longitudes and latitudes", f"columns {', '.join(found.columns.names)}")
    return np.asarray(mechanism.projection.to_xy_km(*found.points.T))


def _numbers(mechanism: Mechanism, ids: list[Any], id_column: str) -> NDArray[Any]:
    """Return the number of the output that each id names; ids that were read from text may be whole numbers."""
    own = range(mechanism.n_outputs) if mechanism.output_ids is None else mechanism.output_ids
    number = {str(one): index for index, one in enumerate(own)}
    unknown = sum(str(one) not in number for one in ids)
    if unknown:
        msg = f"{unknown:,} of {len(ids):,} rows have an id in {id_column!r} that is none of the mechanism's outputs."
        raise InvalidInputError(msg)
    return np.array([number[str(one)] for one in ids], dtype=np.int64)


def _show(found: Density, csv: Path | None, plot: Path | None) -> None:
    top = found.table.sort_values("share", ascending=False).head(10)
    sides = " x ".join(f"{one:.3g}" for one in found.upper[0] - found.lower[0])
    unit = " km" if found.projection is not None else ""
    out.print(
        f"{found.reports:,} reports, {len(found.share):,} cells of {sides}{unit}; error bars of "
        f"{100 * found.confidence:g} %", markup=False, soft_wrap=True,
    )  # fmt: skip
    out.print(top.to_string(index=False, float_format="{:.5g}".format), markup=False, soft_wrap=True)
    if len(found.share) > len(top):
        out.print(f"and {len(found.share) - len(top):,} cells with less; `--csv` writes all of them.", markup=False)
    for what, path in (("written", csv), ("drawn", plot)):
        if path is not None:
            out.print(f"{what} to {path}", markup=False, soft_wrap=True)
