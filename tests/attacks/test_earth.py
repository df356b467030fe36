"""The claim in metres, confirmed by an independent geodesic library, and what an outsider may do with longitudes."""

import itertools

import numpy as np
import pytest
from pyproj import Geod

import metricdp as mdp
from metricdp.geometry.earth import distortion
from metricdp.geometry.projection import Equirectangular

GEOD = Geod(ellps="WGS84")
BOXES = {
    "rome": (12.235, 41.657, 12.808, 42.098),
    "london": (-0.510, 51.292, 0.315, 51.686),
    "helsinki": (24.90, 60.14, 25.00, 60.20),
    "longyearbyen": (15.0, 78.0, 16.5, 78.4),
    "taveuni, across the antimeridian": (179.7, -17.1, -179.7, -16.6),
    "quito, across the equator": (-78.7, -0.4, -78.3, 0.1),
    "five degrees": (5.0, 44.0, 10.0, 49.0),
    "a quarter of the world": (-60.0, -20.0, 60.0, 50.0),
}


def points_in(box, count, rng):
    """Return random points of a box, its corners first."""
    west, south, east, north = box
    width = (east - west) % 360
    lon = (west + width * rng.random(count) + 180) % 360 - 180
    lat = south + (north - south) * rng.random(count)
    corners = list(itertools.product((west, east), (south, north)))
    lon[:4], lat[:4] = np.array(corners).T
    return lon, lat


@pytest.mark.parametrize("name", BOXES)
def test_plane_and_ground_differ_by_no_more_than_is_counted(name):
    rng = np.random.default_rng(0)
    box = BOXES[name]
    projection = Equirectangular.for_box([box[0], box[2]], [box[1], box[3]])
    bounds = projection.to_xy_km([box[0], box[2]], [box[1], box[3]])
    assert (bounds[0] < bounds[1]).all()
    found = distortion(projection, bounds)
    here, there = points_in(box, 100_000, rng), points_in(box, 100_000, rng)
    # Some pairs close together, and all pairs of corners.
    for one, other in zip(here, there, strict=True):
        other[20_000:50_000] = one[20_000:50_000] + 1e-5 * rng.normal(size=30_000)
        one[:16], other[:16] = np.repeat(one[:4], 4), np.tile(one[:4], 4)
    there = ((there[0] + 180) % 360 - 180, np.clip(there[1], box[1], box[3]))
    true = GEOD.inv(here[0], here[1], there[0], there[1])[2] / 1000
    plane = np.linalg.norm(projection.to_xy_km(*here) - projection.to_xy_km(*there), axis=1)
    apart = true > 1e-4  # a tenth of a metre; closer pairs measure the library's own nanometres
    assert apart.sum() > 90_000
    assert (plane[apart] <= found.kappa * true[apart] * (1 + 1e-9)).all()
    assert (true[apart] <= found.stretch * plane[apart] * (1 + 1e-9)).all()
    # And the factors are no larger than they need be (a geodesic may reach beyond the box, and there is a margin).
    if "world" not in name:
        assert (plane[apart] / true[apart]).max() > found.kappa * (1 - 2e-3)


@pytest.mark.parametrize("name", ["rome", "london"])
def test_a_fitted_city_keeps_its_claim_on_the_ground(name, request):
    if name not in mdp.cities.available():
        pytest.skip(f"needs the folder `{name}` where METRICDP_DATA points")
    problem = mdp.cities.load(name).problem(outputs=8, tasks=10, seed=0)
    mechanism = mdp.fit(problem, 1.0, "spline", cells=6)
    metres = mdp.certify(mechanism).metres
    assert metres.epsilon_per_km == mechanism.epsilon == 1.0
    assert 1.0005 < metres.kappa < 1.002
    assert 1.3 < metres.rounding_mm < 1.36
    rng = np.random.default_rng(1)
    low, high = mechanism.bounds
    here = mechanism.projection.to_lonlat(low + (high - low) * rng.random((100_000, 2)))
    there = mechanism.projection.to_lonlat(low + (high - low) * rng.random((100_000, 2)))
    there[:60_000] = here[:60_000] + 10.0 ** rng.uniform(-9, -1, (60_000, 1)) * rng.normal(size=(60_000, 2))
    logs = [np.log(mechanism.probabilities_lonlat(points)) for points in (here, there)]
    true = GEOD.inv(*here.T, *there.T)[2] / 1000
    inside = ~mechanism.outside_box(mechanism.projection.to_xy_km(*there.T))
    allowed = metres.epsilon_per_km * (true + metres.rounding_mm / 1e6)
    ratio = np.abs(logs[0] - logs[1]).max(axis=1) / allowed
    assert ratio[inside].max() <= 1 + 1e-9
    assert ratio[inside].max() > 0.9  # the claim is not idle


def test_neighbours_across_the_antimeridian_stay_neighbours():
    """Two people 21 m apart on both sides of 180° used to be clamped to opposite edges of the box."""
    projection = Equirectangular(180.0, -16.85)
    west, east = 179.9999, -179.9999
    pair = projection.to_xy_km([west, east], [-16.85, -16.85])
    true = GEOD.inv(west, -16.85, east, -16.85)[2]
    assert np.linalg.norm(pair[0] - pair[1]) * 1000 == pytest.approx(true, rel=1e-2)
    assert true == pytest.approx(21.3, abs=0.2)
    outputs = projection.to_xy_km([179.8, -179.8], [-16.9, -16.8])
    records = projection.to_xy_km([179.7, -179.7], [-17.1, -16.6])
    problem = mdp.Problem(records, outputs, "euclidean", projection=projection)
    mechanism = mdp.fit(problem, 2.0, "em")
    rows = mechanism.probabilities_lonlat([[west, -16.85], [east, -16.85]])
    metres = mdp.certify(mechanism).metres
    allowed = metres.epsilon_per_km * (true / 1000 + metres.rounding_mm / 1e6)
    assert np.abs(np.log(rows[0] / rows[1])).max() <= allowed


def test_degrees_go_to_the_plane_and_back_across_the_antimeridian():
    projection = Equirectangular.for_box([179.5, -179.5], [-17.0, -16.0])
    assert abs(projection.lon_deg) == 180.0
    lon, lat = np.array([179.5, -179.5, 180.0, -180.0]), np.array([-17.0, -16.0, -16.5, -16.5])
    back = projection.to_lonlat(projection.to_xy_km(lon, lat))
    assert np.allclose((back[:, 0] - lon + 180) % 360 - 180, 0, atol=1e-12)
    assert np.allclose(back[:, 1], lat, atol=1e-12)
    assert (np.abs(back[:, 0]) <= 180).all()


@pytest.mark.parametrize("p", [1.0, 2.0, np.inf, 1.5])
def test_the_claim_in_metres_covers_every_norm(p):
    projection = Equirectangular(12.5, 41.9)
    problem = mdp.Problem(
        [[-20.0, -20.0], [20.0, 20.0]], [[-5.0, -5.0], [5.0, 5.0], [5.0, -5.0]], "euclidean", p=p, projection=projection
    )
    mechanism = mdp.fit(problem, 1.0, "em")
    metres = mdp.certify(mechanism).metres
    rng = np.random.default_rng(0)
    here, there = (projection.to_lonlat(rng.uniform(-20, 20, (20_000, 2))) for _ in range(2))
    logs = [np.log(mechanism.probabilities_lonlat(points)) for points in (here, there)]
    true = GEOD.inv(*here.T, *there.T)[2] / 1000
    assert (np.abs(logs[0] - logs[1]).max(axis=1) <= metres.epsilon_per_km * (true + metres.rounding_mm / 1e6)).all()
    assert metres.epsilon_per_km == pytest.approx(max(1.0, 2 ** (1 / p - 0.5)))


def test_a_box_of_many_degrees_is_fitted_for_the_ground():
    """Five degrees of latitude stretch the map by several per cent; the rate of the noise makes up for it."""
    projection = Equirectangular.for_box([5.0, 10.0], [44.0, 49.0])
    bounds = projection.to_xy_km([5.0, 10.0], [44.0, 49.0])
    problem = mdp.Problem(bounds, bounds / 2, "euclidean", projection=projection)
    mechanism = mdp.fit(problem, 0.01, "em")
    metres = mdp.certify(mechanism).metres
    assert metres.epsilon_per_km == 0.01
    assert metres.kappa > 1.03
    assert 2 * mechanism.rate * metres.kappa <= 0.01


def test_lower_bounds_are_for_mechanisms_that_are_private_on_the_ground():
    """True distances may be longer than the map's, so a bound must allow more than the map's ε."""
    rng = np.random.default_rng(0)
    records, outputs = rng.uniform(-10, 10, (50, 2)), rng.uniform(-10, 10, (4, 2))
    projection = Equirectangular(12.5, 41.9)
    on_map = mdp.Problem(records, outputs, "euclidean")
    on_ground = mdp.Problem(records, outputs, "euclidean", projection=projection)
    stretch = distortion(projection, on_ground.bounds).stretch
    assert 1.004 < stretch < 1.01
    assert mdp.lower_bound(on_ground, 0.3, clusters=20) == pytest.approx(
        mdp.lower_bound(on_map, 0.3 * stretch, clusters=20), rel=1e-6
    )


@pytest.mark.parametrize(("lat0", "north"), [(0.0, 30.0), (30.0, 30.0), (0.0, -30.0), (60.0, 60.0)])
def test_a_kilometre_around_the_box_is_one_on_the_ground(lat0, north):
    """Below 49° a kilometre on the ground is more than one on the map, and points there must be counted too."""
    projection = Equirectangular(0.0, lat0)
    pole = 1 if north >= 0 else -1
    corners = projection.to_xy_km([-0.05, 0.05], sorted([north, north - pole * 0.01]))
    kappa = distortion(projection, corners).kappa
    lon, lat, _ = GEOD.fwd([-0.05, 0.05], [north, north], [90 - pole * 90] * 2, [999.99] * 2)
    assert GEOD.inv(lon[0], lat[0], -0.05, north)[2] < 1000
    plane = projection.to_xy_km(lon, lat)
    true = GEOD.inv(lon[0], lat[0], lon[1], lat[1])[2] / 1000
    assert np.linalg.norm(plane[0] - plane[1]) <= kappa * true * (1 + 1e-12)
