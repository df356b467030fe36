"""Rasters and polygons from strangers, of which maps of ε are made: other files, other scales, shapes that vanish."""

import numpy as np
import pytest

import metricdp as mdp

rasterio = pytest.importorskip("rasterio")
shapely = pytest.importorskip("shapely")

WEST, NORTH, SIDE = 12.3, 42.1, 0.05


def rome(lon=12.5):
    """A problem around a longitude, on Rome's latitude."""
    shift = [[lon - 0.1, 41.8], [lon, 41.9], [lon + 0.1, 42.0]]
    records = [[(x + 180) % 360 - 180, y] for x, y in shift]
    return mdp.Problem.from_lonlat(records, records[:2])


def raster(path, value, dtype="float64", **more):
    profile = {
        "driver": "GTiff",
        "width": 8,
        "height": 8,
        "count": 1,
        "dtype": dtype,
        "crs": "EPSG:4326",
        "transform": rasterio.Affine(SIDE, 0, WEST, 0, -SIDE, NORTH),
    }
    with rasterio.open(path, "w", **profile) as target:
        target.write(np.full((8, 8), value, dtype=dtype), 1)
        for name, given in more.items():
            setattr(target, name, given)
    return path


def leading_to(source):
    """A virtual raster: GDAL opens whatever file or address it names."""
    return f"""<VRTDataset rasterXSize="8" rasterYSize="8"><SRS>EPSG:4326</SRS>
<GeoTransform>{WEST},{SIDE},0,{NORTH},0,-{SIDE}</GeoTransform><VRTRasterBand dataType="Float64" band="1"><SimpleSource>
<SourceFilename relativeToVRT="0">{source}</SourceFilename><SourceBand>1</SourceBand>
</SimpleSource></VRTRasterBand></VRTDataset>"""


def test_a_raster_leads_to_no_other_file(tmp_path):
    secret = raster(tmp_path / "secret.tif", 3.0)
    lure = tmp_path / "map.tif"
    lure.write_text(leading_to(secret))
    with rasterio.open(lure) as opened:  # the lure is a good one
        assert opened.read(1)[0, 0] == 3
    with pytest.raises(mdp.InvalidInputError, match="is not a TIFF"):
        mdp.EpsilonMap.from_geotiff(lure, rome())


@pytest.mark.parametrize(
    "name", ["GTIFF_DIR:1:{0}", "/vsisubfile/0,{0}", "file://{0}", "/vsicurl/http://127.0.0.1:9/map.tif", "{0}/.."]
)
def test_names_of_gdal_are_names_of_no_raster(tmp_path, name):
    path = raster(tmp_path / "map.tif", 3.0)
    with pytest.raises((FileNotFoundError, NotADirectoryError, mdp.InvalidInputError)):
        mdp.EpsilonMap.from_geotiff(name.format(path), rome())


def test_files_beside_a_raster_change_nothing(tmp_path):
    path = raster(tmp_path / "map.tif", 3.0)
    stretched = '<PAMDataset><PAMRasterBand band="1"><Scale>100</Scale></PAMRasterBand></PAMDataset>'
    path.with_name("map.tif.aux.xml").write_text(stretched)
    with rasterio.open(path) as opened:
        assert opened.scales == (100.0,)
    assert mdp.EpsilonMap.from_geotiff(path, rome()).max == 3


def test_whole_numbers_with_a_scale_are_what_they_stand_for(tmp_path):
    """Read as they are stored, 0.4 would become 400: a thousandth of the protection."""
    path = raster(tmp_path / "map.tif", 400, "int16", scales=(0.001,), offsets=(0.5,))
    assert mdp.EpsilonMap.from_geotiff(path, rome()).max == pytest.approx(0.9)


def test_a_small_file_with_one_huge_block_is_refused(tmp_path):
    """GDAL unpacks whole blocks: here 6 GB for the few pixels of the box."""
    profile = {"driver": "GTiff", "width": 28_000, "height": 28_000, "count": 1, "dtype": "float64", "crs": "EPSG:4326"}
    fine = rasterio.Affine(360 / 28_000, 0, -180, 0, -180 / 28_000, 90)
    path = tmp_path / "map.tif"
    rasterio.open(path, "w", **profile, transform=fine, blockysize=28_000, sparse_ok=True, compress="deflate").close()
    assert path.stat().st_size < 10_000
    with pytest.raises(mdp.InvalidInputError, match="blocks that are too large"):
        mdp.EpsilonMap.from_geotiff(path, rome())


def test_pixels_that_are_no_numbers_are_refused(tmp_path):
    path = raster(tmp_path / "map.tif", 0.4 + 3j, "complex128")
    with pytest.raises(mdp.InvalidInputError, match="complex128, not of numbers"):
        mdp.EpsilonMap.from_geotiff(path, rome())


@pytest.mark.parametrize("lon", [0.0, 12.5, -120.0, 180.0, 179.95])
@pytest.mark.parametrize("shape", [(-180, -90, 180, 90), (-180, 0, 180, 60), (0, 0, 360, 60), (-270, 40, 270, 43)])
def test_a_shape_around_the_earth_protects_every_place(lon, shape):
    """Corner by corner taken to within 180 degrees of the centre, it would become a sliver far away."""
    found = mdp.EpsilonMap.from_polygons([shapely.box(*shape)], [0.1], rome(lon), elsewhere=2.0, cells=4)
    assert found.max == 0.1


@pytest.mark.parametrize("turn", [0, 360])
def test_shapes_are_found_across_the_meridian_opposite_greenwich(turn):
    problem = rome(180.0)
    east = shapely.box(-180 + turn, 40, -179 + turn, 43)
    found = mdp.EpsilonMap.from_polygons([east], [0.1], problem, elsewhere=2.0, cells=2)
    assert found.at([[1.0, 0.0], [-1.0, 0.0]]).tolist() == [0.1, found.max]
    assert found.at(problem.bounds[1:]).tolist() == [0.1]


@pytest.mark.parametrize(
    "shape",
    [
        shapely.Polygon(),
        shapely.Polygon([(12.3, 41.7), (13, 42.1), (13, 41.7), (12.3, 42.1)]),
        shapely.Polygon([(12.3, 41.7), (np.inf, 41.7), (13, 42.1), (12.3, 42.1)]),
        shapely.Point(12.5, np.inf),
    ],
)
def test_a_shape_of_which_nobody_knows_what_it_covers_is_refused(shape):
    """To leave it out would leave those without protection who were to have it."""
    good = shapely.box(12, 41, 13, 43)
    with pytest.raises(mdp.InvalidInputError, match="at index 1"):
        mdp.EpsilonMap.from_polygons([good, shape], [1.0, 0.1], rome(), elsewhere=2.0)


def test_metres_without_a_reference_system_are_refused():
    with pytest.raises(mdp.InvalidInputError, match="latitudes up to 90"):
        mdp.EpsilonMap.from_polygons([shapely.box(0, 0, 5e6, 5e6)], [0.1], rome(), elsewhere=2.0)
