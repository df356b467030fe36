"""Noise without outputs: coordinates in, coordinates out."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pyproj import Geod
from scipy import stats

import metricdp as mdp
from metricdp.files import content_hash

ROME = [[12.2, 41.6], [12.8, 42.1]]


@pytest.mark.parametrize(("p", "n_axes"), [(1, 1), (1, 2), (2, 2), (math.inf, 2), (2, 3), (1.5, 2), (2, 4)])
def test_reports_scatter_as_the_rate_says(p, n_axes):
    """‖noise‖_p has a Gamma(N) law of the rate: the volume of a ball grows like its N-th power."""
    noise = mdp.noise(0.7, p=p, bounds=[[0.0] * n_axes, [4.0] * n_axes])
    x = np.full((40_000, n_axes), 1.3)
    reports = np.asarray(noise.sample(x, mdp.InsecureSeed(1)))
    reach = np.linalg.norm(reports - x, ord=p, axis=1)
    assert stats.kstest(reach, stats.gamma(n_axes, scale=1 / 0.7).cdf).pvalue > 1e-4
    assert reach.mean() == pytest.approx(noise.mean_distance, rel=0.02)


def test_reports_are_lattice_points_and_may_leave_the_box():
    noise = mdp.noise(1.0, bounds=[[0.0, 0.0], [4.0, 4.0]])
    reports = noise.sample(np.full((1000, 2), 3.9))
    assert np.array_equal(np.rint(reports * 2**20), reports * 2**20)
    assert (reports > 4).any()


def test_points_outside_the_box_are_taken_to_it():
    noise = mdp.noise(50.0, bounds=[[0.0, 0.0], [4.0, 4.0]])
    reports = noise.sample(np.full((1000, 2), 1e9))
    assert np.abs(reports - 4).max() < 1
    with pytest.raises(mdp.InvalidInputError, match="3 points outside"):
        noise.sample(np.full((3, 2), 5.0), outside="error")


def test_degrees_in_and_out():
    noise = mdp.noise(2.0, lonlat_bounds=ROME)
    here = np.array([12.4924, 41.8902])
    reports = np.asarray(noise.sample_lonlat(np.tile(here, (20_000, 1)), mdp.InsecureSeed(0)))
    distance = Geod(ellps="WGS84").inv(*np.tile(here, (20_000, 1)).T, *reports.T)[2] / 1000
    # Two axes of rate ε/κ: the mean distance is 2κ/ε on the map, and about that on the ground.
    assert distance.mean() == pytest.approx(1.0, rel=0.02)
    metres = mdp.certify(noise).metres
    assert metres.epsilon_per_km == 2.0
    assert 1.0005 < metres.kappa < 1.002
    assert noise.rate * metres.kappa <= 2.0


def test_latitudes_end_at_the_poles():
    noise = mdp.noise(0.001, lonlat_bounds=[[15.0, 79.0], [16.0, 80.0]])
    reports = noise.sample_lonlat(np.tile([15.5, 79.9], (1000, 1)))
    assert (np.abs(reports[:, 1]) <= 90).all()
    assert (np.abs(reports[:, 0]) <= 180).all()


def test_files_keep_it(tmp_path):
    noise = mdp.noise(2.0, lonlat_bounds=ROME)
    noise.save(tmp_path / "n.mdp")
    again = mdp.load(tmp_path / "n.mdp")
    assert (again.kind, again.method, again.epsilon, again.rate) == ("noise", "noise", 2.0, noise.rate)
    assert content_hash(again) == content_hash(noise) == content_hash(tmp_path / "n.mdp")
    one, other = (np.asarray(n.sample_lonlat([[12.5, 41.9]], mdp.InsecureSeed(3))) for n in (noise, again))
    assert np.array_equal(one, other)


def test_a_rate_that_is_too_large_is_not_proved(tmp_path):
    noise = mdp.noise(2.0, bounds=[[0.0], [4.0]])
    steep = replace(noise, rate=2.0001)
    assert not mdp.certify(steep).holds
    steep.save(tmp_path / "n.mdp")
    with pytest.raises(mdp.NotCertified) as caught:
        mdp.load(tmp_path / "n.mdp")
    assert not caught.value.certificate.holds


def test_it_has_no_outputs_and_says_so():
    noise = mdp.noise(2.0, bounds=[[0.0], [4.0]])
    assert noise.outputs.shape == (0, 1)
    problem = mdp.Problem([[0.0], [4.0]], [[1.0], [3.0]], "euclidean")
    for ask in (lambda: noise.probabilities([[1.0]]), lambda: noise.expected_loss(problem)):
        with pytest.raises(mdp.InvalidInputError):
            ask()
    assert noise.sample(np.empty((0, 1))).shape == (0, 1)
    assert isinstance(noise.sample([[1.0]], mdp.InsecureSeed(1)), mdp.NotPrivate)
    assert not isinstance(noise.sample([[1.0]]), mdp.NotPrivate)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either as `bounds` or"),
        ({"bounds": [[0.0], [1.0]], "lonlat_bounds": ROME}, "either as `bounds` or"),
        ({"lonlat_bounds": ROME, "projection": object()}, "brings its own projection"),
        ({"bounds": [[0.0], [0.0]]}, "wider than zero"),
        ({"bounds": [[0.0] * 5, [1.0] * 5]}, "`n_axes` must be at most 4"),
        ({"bounds": [[0.0], [1.0]], "epsilon": 0}, "`epsilon` must be a positive"),
        ({"bounds": [[0.0], [1.0]], "p": 0.5}, "`p` must be"),
        ({"lonlat_bounds": [[0.0, 80.0], [10.0, 90.0]]}, "pole"),
    ],
)
def test_bad_arguments_are_refused(arguments, words):
    with pytest.raises(mdp.InvalidInputError, match=words):
        mdp.noise(**{"epsilon": 1.0, **arguments})
