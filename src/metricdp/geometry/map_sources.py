"""What maps of ε are made from: rasters and polygons, as numbers on axis-aligned cells in degrees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metricdp._optional import optional
from metricdp._validation import FloatArray, finite_array, reject
from metricdp.errors import InvalidInputError

__all__ = ["Raster", "least_of_shapes", "read_geotiff", "shapes_in_plane"]

# Pixels that are read at once: 128 MB.
_MOST_PIXELS = 2**24

# How TIFFs and BigTIFFs begin, in either order of bytes.
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


@dataclass(frozen=True)
class Raster:
    """Values of pixels: borders of columns and of rows, both increasing, and values (columns, rows)."""

    x: FloatArray
    y: FloatArray
    values: FloatArray


def read_geotiff(path: str | Path, low: FloatArray, high: FloatArray) -> Raster:
    """Return the pixels of the first band that meet a box, west and south first, of a raster in longitude and latitude.

    Pixels without data are NaN. GDAL would also take names of other things for files, in archives or in the network,
    and files that lead to others (VRT) for rasters. So the file must be one of that name, and begin as TIFFs do, and no
    other driver and no file beside it is asked.
    """
    rasterio = optional("rasterio", "maps", "Reading a GeoTIFF")
    # As an absolute path, in which no scheme or prefix of GDAL can be left, except for those that are paths themselves.
    file = Path(path).resolve(strict=True)
    if not file.is_file() or str(file).startswith("/vsi"):
        raise InvalidInputError(f"{str(path)!r} is no file, or has a name that GDAL reads as that of another.")
    with file.open("rb") as stream:
        if stream.read(4) not in _TIFF:
            raise InvalidInputError(f"{str(path)!r} is not a TIFF.")
    alone = rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR", GDAL_PAM_ENABLED="NO")
    with alone, rasterio.open(file, driver="GTiff") as source:
        if np.dtype(source.dtypes[0]).kind not in "iuf":
            raise InvalidInputError(f"{str(path)!r} has pixels of {source.dtypes[0]}, not of numbers.")
        if source.crs is None or source.crs.to_epsg() != 4326:
            msg = (
                f"{str(path)!r} is in {source.crs}, but its pixels must lie along longitude and latitude: warp it to "
                "EPSG:4326 first, for instance with gdalwarp -t_srs EPSG:4326."
            )
            raise InvalidInputError(msg)
        across, turned, west, tilted, down, north = tuple(source.transform)[:6]
        if turned != 0 or tilted != 0 or across <= 0 or down >= 0:
            raise InvalidInputError(f"{str(path)!r} is not a raster with north up; warp it with gdalwarp first.")
        columns = _meeting(low[0], high[0], west, across, source.width)
        rows = _meeting(-high[1], -low[1], -north, -down, source.height)
        if len(columns) == 0 or len(rows) == 0:
            raise InvalidInputError(f"{str(path)!r} has no pixel in the box.")
        if len(columns) * len(rows) > _MOST_PIXELS:
            msg = f"{str(path)!r} has {len(columns) * len(rows):,} pixels in the box; take a coarser raster."
            raise InvalidInputError(msg)
        if math.prod(source.block_shapes[0]) > _MOST_PIXELS:  # which are unpacked as a whole, however few are asked for
            raise InvalidInputError(f"{str(path)!r} has blocks that are too large; write it anew in tiles.")
        window = ((rows.start, rows.stop), (columns.start, columns.stop))
        # Rasters of small integers say by which factor they are to be multiplied.
        stored = source.read(1, window=window, masked=True).astype(np.float64) * source.scales[0] + source.offsets[0]
        band = np.ma.filled(stored, np.nan)
    x = west + across * np.arange(columns.start, columns.stop + 1)
    y = north + down * np.arange(rows.start, rows.stop + 1)
    return Raster(x, y[::-1].copy(), band.T[:, ::-1].copy())


def _meeting(low: float, high: float, start: float, side: float, count: int) -> range:
    """Return the pixels along an axis that an interval meets."""
    first, last = int(np.floor((low - start) / side)), int(np.ceil((high - start) / side))
    return range(max(first, 0), min(last, count))


def shapes_in_plane(shapes: Any, projection: Any) -> NDArray[Any]:
    """Return shapely geometries in the coordinates of a problem, from a GeoDataFrame, a GeoSeries or plain geometries.

    With a projection they are in degrees, or in the reference system that they bring. A projection here is linear along
    both axes, so moving corners moves whole shapes. Corners are not taken to within 180 degrees of the centre one by
    one, which would tear shapes that reach farther: each becomes all its places a whole turn apart.
    """
    shapely = optional("shapely", "maps", "A map from polygons")
    if hasattr(shapes, "to_crs") and shapes.crs is not None:
        if projection is None:
            raise InvalidInputError("The polygons have a reference system, but the problem has no projection.")
        shapes = shapes.to_crs(4326)
    found = np.asarray(getattr(shapes, "geometry", shapes), dtype=object)
    if found.ndim != 1 or not len(found) or not all(map(shapely.is_geometry, found)):
        raise reject("polygons", "a list of shapely geometries or a GeoDataFrame, not empty", type(shapes).__name__)
    wrong = np.flatnonzero(
        ~(shapely.is_valid(found) & ~shapely.is_empty(found) & np.isfinite(shapely.bounds(found)).all(axis=1))
    )
    if len(wrong):
        # What such a shape covers cannot be told, and a cell that it was to protect would go without.
        got = f"one that is empty, infinite or crosses itself at index {wrong[0]} (see shapely.make_valid)"
        raise reject("polygons", "valid shapes", got)
    if projection is None:
        return found
    if (np.abs(shapely.bounds(found)).max(axis=0) > [360, 90, 360, 90]).any():
        rule = "in degrees, longitudes up to 360 and latitudes up to 90, unless they bring a reference system"
        raise reject("polygons", rule, "others")
    centre, per_degree = np.array([projection.lon_deg, projection.lat_deg]), projection.km_per_degree
    turned = [
        shapely.transform(found, lambda degrees, turn=turn: (degrees + turn - centre) * per_degree)
        for turn in np.array([[-360.0, 0.0], [0.0, 0.0], [360.0, 0.0]])
    ]
    return np.array([shapely.union_all(places) for places in zip(*turned, strict=True)], dtype=object)


def least_of_shapes(
    shapes: NDArray[Any], values: ArrayLike, elsewhere: float, breakpoints: list[FloatArray]
) -> FloatArray:
    """Return for each cell of a grid the least value of all shapes that meet it, and `elsewhere` unless they cover it.

    A cell that only touches a shape meets it.
    """
    shapely = optional("shapely", "maps", "A map from polygons")
    given = finite_array("values", values)
    if given.shape != shapes.shape:
        raise reject("values", f"one for each of the {len(shapes)} polygons", f"shape {given.shape}")
    x, y = breakpoints
    left, low = np.meshgrid(x[:-1], y[:-1], indexing="ij")
    right, high = np.meshgrid(x[1:], y[1:], indexing="ij")
    cells = shapely.box(left, low, right, high).ravel()
    covered = shapely.covers(shapely.union_all(shapes), cells)
    found = np.where(covered, np.inf, elsewhere)
    cell, shape = shapely.STRtree(shapes).query(cells, predicate="intersects")
    np.minimum.at(found, cell, given[shape])
    return found.reshape(left.shape)
