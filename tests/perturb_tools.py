"""What tests of `perturb`, and of what serves the same points, share: mechanisms with known answers, and points."""

import bz2
import dataclasses
import functools
import gzip
import lzma
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import metricdp as mdp
from metricdp.geometry.projection import Equirectangular
from problems import random_problem

SIDE = 4.0
CENTRE = Equirectangular(24.94, 60.17)

# Rows of the files that `write_points` writes.
ROWS = 500


@functools.cache
def plane():
    """A mechanism that reports the nearest output but for a chance of e^-50, so that answers can be told beforehand."""
    outputs = np.array([[0.5, 0.5], [3.5, 0.5], [0.5, 3.5], [3.5, 3.5], [2.0, 2.0]])
    problem = mdp.Problem(outputs, outputs, "euclidean", bounds=[[0.0, 0.0], [SIDE, SIDE]])
    return mdp.fit(problem, epsilon=400, method="em")


@functools.cache
def city():
    """The same, in longitude and latitude."""
    return dataclasses.replace(plane(), projection=CENTRE)


@functools.cache
def noisy_city():
    """A spline with noise worth the name."""
    return dataclasses.replace(mdp.fit(random_problem(0), epsilon=1, method="spline", cells=3), projection=CENTRE)


def nearest(xy):
    """What `plane` reports, -1 where there is no point."""
    gaps = np.linalg.norm(np.asarray(xy)[:, None] - plane().outputs, axis=2)
    return np.where(np.isnan(gaps[:, 0]), -1, gaps.argmin(axis=1))


def points(count, seed=0):
    """Points near outputs, so that no other is as near."""
    rng = np.random.default_rng(seed)
    return plane().outputs[rng.integers(0, 5, count)] + rng.uniform(-0.4, 0.4, (count, 2))


def wkb(x, y, *, order="<", code=1, extra=b"", system=b""):
    """A point in well-known binary."""
    return struct.pack(f"{order}BI", order == "<", code) + system + struct.pack(f"{order}2d", x, y) + extra


def write_points(place):
    """Write `points(ROWS)` under the names that the README and the pages use."""
    lonlat = CENTRE.to_lonlat(points(ROWS))
    table = pd.DataFrame({"id": np.arange(ROWS) % 10, "time": "noon", "lon": lonlat[:, 0], "lat": lonlat[:, 1]})
    table.to_csv(place / "points.csv", index=False)
    table.to_parquet(place / "points.parquet", index=False)
    return table


def lay_out(place):
    """Write a mechanism and points under the names that the README and the pages use."""
    geopandas = pytest.importorskip("geopandas")
    city().save(place / "helsinki.mdp")
    table = write_points(place)
    shapes = geopandas.points_from_xy(table["lon"], table["lat"])
    geopandas.GeoDataFrame({"person": table["id"]}, geometry=shapes, crs=4326).to_file(place / "points.geojson")


def packed(path, mode):
    """Open a file whose ending says how it is compressed, with other readers and writers than ours."""
    if path.suffix == ".zst":
        return pa.input_stream(path, compression="zstd") if mode == "rb" else pa.output_stream(path, compression="zstd")
    return {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)(path, mode)
