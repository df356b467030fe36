"""Maps of ε from densities, functions, rasters and polygons: lower bounds of what they are made from."""

import itertools
import math

import numpy as np
import pytest

import metricdp as mdp
from metricdp.geometry.density import radii_holding
from problems import weighted_problem

gpd = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")


def naive_radius(x, problem, share):
    """The smallest radius that holds the share, from sorted distances."""
    gap = np.abs(problem.records - x)
    distance = gap.max(axis=1) if math.isinf(problem.p) else (gap**problem.p).sum(axis=1) ** (1 / problem.p)
    held = 0.0
    for i in np.argsort(distance):
        held += problem.prior[i]
        if held >= share * (1 - 1e-12):
            return distance[i]
    return distance.max()


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_radii_hold_the_share(p, share):
    problem = weighted_problem(1, p=p, n_records=150)
    points = np.random.default_rng(0).uniform(-1, 5, (40, 2))
    found = radii_holding(points, problem.records, problem.prior, share, p)
    assert found == pytest.approx([naive_radius(x, problem, share) for x in points], rel=1e-12)


def test_a_map_by_density_is_nowhere_above_what_density_says():
    problem = weighted_problem(2, n_records=300)
    here = mdp.EpsilonMap.by_density(problem, people=20, least=0.5, most=3.0, cells=10)
    assert here.covers(problem.bounds)
    points = np.random.default_rng(0).uniform(0, 4, (2000, 2))
    natural = np.array([1 / naive_radius(x, problem, 20 / 300) for x in points])
    values = here.most_within(points, 0.0)
    assert (values <= np.clip(natural, 0.5, 3.0) * (1 + 1e-12)).all()
    assert (values > 0.5).mean() > 0.3
    # Twice the population is half the share; twice the exponent is twice the ε.
    fewer = mdp.EpsilonMap.by_density(problem, people=40, least=0.5, most=3.0, cells=10, population=600)
    assert fewer == here
    twice = mdp.EpsilonMap.by_density(problem, people=20, least=1.0, most=6.0, cells=10, ratio=math.e**2)
    assert np.allclose(twice.values, 2 * here.values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"people": 0}, "`people` must be a positive"),
        ({"people": 301}, "at most the population, 300"),
        ({"least": 4.0}, "`most` must be at least `least`"),
        ({"ratio": 1.0}, "`ratio` must be above 1"),
        ({"population": -1}, "`population` must be"),
    ],
)
def test_wrong_densities_are_refused(change, words):
    problem = weighted_problem(2, n_records=300)
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.EpsilonMap.by_density(problem, **{"people": 20, "least": 0.5, "most": 3.0} | change)


def test_a_map_from_a_function_lies_nowhere_above_it():
    def wavy(x):
        return 1 + 0.4 * np.sin(2 * x[:, 0]) * np.cos(x[:, 1])

    here = mdp.EpsilonMap.from_function(wavy, [[0, 0], [4, 3]], lipschitz=0.9, cells=(12, 9))
    points = np.random.default_rng(0).uniform([0, 0], [4, 3], (20_000, 2))
    assert (here.most_within(points, 0.0) <= wavy(points)).all()
    finer = mdp.EpsilonMap.from_function(wavy, [[0, 0], [4, 3]], lipschitz=0.9, cells=(12, 9), parts=16)
    assert (finer.values >= here.values).all()
    assert np.abs(finer.at(points) - wavy(points)).mean() < 0.15


def test_a_function_without_a_positive_bound_or_shape_is_refused():
    with pytest.raises(mdp.InvalidInputError, match="not positive in some cell"):
        mdp.EpsilonMap.from_function(lambda x: x[:, 0], [[0.0], [1.0]], lipschitz=1.0, cells=4)
    with pytest.raises(mdp.InvalidInputError, match="a number for each of 16 points"):
        mdp.EpsilonMap.from_function(lambda x: x, [[0.0], [1.0]], lipschitz=1.0, cells=4)
    with pytest.raises(mdp.InvalidInputError, match="`lipschitz` must be"):
        mdp.EpsilonMap.from_function(lambda x: x[:, 0], [[0.0], [1.0]], lipschitz=-1.0)


def city():
    return mdp.cities.load("helsinki").problem(outputs=5, tasks=5, seed=0)


def lonlat_box(problem):
    low, high = problem.bounds / problem.projection.km_per_degree
    centre = [problem.projection.lon_deg, problem.projection.lat_deg]
    return low + centre, high + centre


def written(path, values, west, north, across, down, crs="EPSG:4326", **more):
    rasterio = pytest.importorskip("rasterio")
    profile = {
        "driver": "GTiff",
        "width": values.shape[1],
        "height": values.shape[0],
        "count": 1,
        "dtype": "float64",
        "crs": crs,
        "transform": rasterio.Affine(across, 0, west, 0, -down, north),
    }
    with rasterio.open(path, "w", **profile | more) as target:
        target.write(values, 1)
    return path


def test_a_geotiff_becomes_a_map_pixel_by_pixel(tmp_path):
    problem = city()
    (west, south), (east, north) = lonlat_box(problem)
    across, down = (east - west) / 4, (north - south) / 3
    # One pixel more around the box; rows go from north to south.
    values = np.random.default_rng(0).uniform(1, 5, (5, 6))
    path = written(tmp_path / "map.tif", values, west - across, north + down, across, down)
    here = mdp.EpsilonMap.from_geotiff(path, problem)
    assert here.covers(problem.bounds)
    for row, column in itertools.product(range(3), range(4)):
        lon, lat = west + (column + 0.5) * across, north - (row + 0.5) * down
        point = problem.projection.to_xy_km([lon], [lat])
        assert here.at(point)[0] == values[row + 1, column + 1]
    coarse = mdp.EpsilonMap.from_geotiff(path, problem, cells=2)
    points = np.random.default_rng(1).uniform(*problem.bounds, (3000, 2))
    assert (coarse.at(points) <= here.at(points)).all()
    assert mdp.certify(mdp.fit(problem, coarse, "spline", cells=4)).holds


def test_geotiffs_that_cannot_be_used_say_why(tmp_path):
    problem = city()
    (west, south), (east, north) = lonlat_box(problem)
    values = np.ones((2, 2))
    across, down = (east - west) / 1.9, (north - south) / 1.9
    values[0, 0] = -9
    path = written(tmp_path / "holes.tif", values, west, north, across, down, nodata=-9)
    with pytest.raises(mdp.InvalidInputError, match="without data in the box"):
        mdp.EpsilonMap.from_geotiff(path, problem)
    assert mdp.EpsilonMap.from_geotiff(path, problem, missing=0.5).min == 0.5
    path = written(tmp_path / "small.tif", np.ones((2, 2)), west, north, across / 2, down)
    with pytest.raises(mdp.InvalidInputError, match="does not cover the box"):
        mdp.EpsilonMap.from_geotiff(path, problem)
    path = written(tmp_path / "far.tif", np.ones((2, 2)), west + 5, north, across, down)
    with pytest.raises(mdp.InvalidInputError, match="no pixel in the box"):
        mdp.EpsilonMap.from_geotiff(path, problem)
    path = written(tmp_path / "metres.tif", np.ones((2, 2)), 0, 0, 100, 100, crs="EPSG:3067")
    with pytest.raises(mdp.InvalidInputError, match="gdalwarp -t_srs EPSG:4326"):
        mdp.EpsilonMap.from_geotiff(path, problem)
    with pytest.raises(mdp.InvalidInputError, match="has no projection"):
        mdp.EpsilonMap.from_geotiff(path, weighted_problem(0))


def test_polygons_give_a_cell_the_least_of_all_that_it_meets():
    problem = weighted_problem(0)
    round_park = shapely.Point(1.3, 1.1).buffer(0.8)
    quarter = shapely.box(2, 2, 4, 4)
    here = mdp.EpsilonMap.from_polygons([round_park, quarter], [0.3, 2.5], problem, elsewhere=1.0, cells=8)
    edges = np.linspace(0, 4, 9)
    for i, j in itertools.product(range(8), range(8)):
        cell = shapely.box(edges[i], edges[j], edges[i + 1], edges[j + 1])
        met = [value for shape, value in ((round_park, 0.3), (quarter, 2.5)) if shape.intersects(cell)]
        outside = cell.difference(shapely.union_all([round_park, quarter])).area > 1e-12
        middle = [[(edges[i] + edges[i + 1]) / 2, (edges[j] + edges[j + 1]) / 2]]
        assert here.at(middle)[0] == min(met + [1.0] * outside)


def test_polygons_in_degrees_and_other_reference_systems():
    problem = city()
    (west, south), (east, north) = lonlat_box(problem)
    half = shapely.box(west - 1, south - 1, (west + east) / 2, north + 1)
    table = gpd.GeoDataFrame({"epsilon": [0.5]}, geometry=[half], crs=4326)
    expected = mdp.EpsilonMap.from_polygons([half], [0.5], problem, elsewhere=2.0, cells=5)
    assert expected.values[:, 0].tolist() == [0.5, 2.0]
    assert expected.breakpoints[0][1] == pytest.approx(problem.bounds[:, 0] @ [0.4, 0.6])
    assert mdp.EpsilonMap.from_polygons(table, "epsilon", problem, 2.0, cells=5) == expected
    assert mdp.EpsilonMap.from_polygons(table.to_crs(3857), "epsilon", problem, 2.0, cells=5) == expected
    with pytest.raises(mdp.InvalidInputError, match="one for each of the 1 polygons"):
        mdp.EpsilonMap.from_polygons([half], [0.5, 1], problem, 2.0)
    with pytest.raises(mdp.InvalidInputError, match="a list of shapely geometries"):
        mdp.EpsilonMap.from_polygons([1], [0.5], problem, 2.0)
    with pytest.raises(mdp.InvalidInputError, match="no projection"):
        mdp.EpsilonMap.from_polygons(table, "epsilon", weighted_problem(0), 2.0)
