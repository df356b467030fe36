"""The Bayes remap in tiles: as good as over all squares at once, and never a square without a label."""

import math

import numpy as np
import pytest
from scipy.spatial import KDTree

import metricdp as mdp
from metricdp import Problem
from metricdp._clock import Clock
from metricdp.mechanisms.laplace import bayes_labels
from metricdp.mechanisms.laplace.bayes_labels import BayesLabels
from metricdp.mechanisms.laplace.fit import LaplaceOptions, fit_laplace, fit_laplace_remap
from metricdp.mechanisms.laplace.mechanism import NoiseFrame


def towns(seed, p=2.0, n_axes=2, n_outputs=60):
    """Records in clusters of very different weight with wide gaps between them; outputs where records are."""
    rng = np.random.default_rng(seed)
    middles = rng.uniform(0, 40, (12, n_axes))
    records = (middles[:, None] + rng.normal(scale=rng.uniform(0.3, 3, (12, 1, 1)), size=(12, 100, n_axes))).reshape(
        -1, n_axes
    )
    prior = np.repeat(10.0 ** rng.uniform(-2, 0, 12), 100) * rng.uniform(0.1, 1, 1200)
    prior[::50] = 0.0
    return Problem(records, records[rng.choice(1200, n_outputs, replace=False)], "euclidean", prior=prior, p=p)


def tiles_of(mechanism, problem):
    frame = NoiseFrame.of(problem.p, problem.n_axes)
    return BayesLabels(problem, mechanism.squares, frame, mechanism.rate)._plan()[0]


def both_ways(monkeypatch, problem, epsilon, **options):
    """Fit in tiles, whether they save work or not, and over all squares at once."""
    monkeypatch.setattr(bayes_labels, "_WORTHWHILE", math.inf)
    monkeypatch.setattr(bayes_labels, "_FEW_TILES", 1)
    tiled = fit_laplace_remap(problem, epsilon, LaplaceOptions(**options))
    assert len(tiles_of(tiled, problem)) > 1
    monkeypatch.setattr(bayes_labels, "_FEW_OUTPUTS", problem.n_outputs)
    whole = fit_laplace_remap(problem, epsilon, LaplaceOptions(**options))
    assert len(tiles_of(whole, problem)) == 1
    return tiled, whole


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("p", "epsilon"), [(2.0, 6.0), (2.0, 60.0), (1.0, 8.0), (math.inf, 8.0)])
def test_tiles_lose_nothing(monkeypatch, seed, p, epsilon):
    problem = towns(seed, p)
    tiled, whole = both_ways(monkeypatch, problem, epsilon, squares=400)
    loss = whole.expected_loss(problem)
    assert tiled.expected_loss(problem) == pytest.approx(loss, rel=1e-4)
    # The remap does something here that tiles might spoil.
    assert fit_laplace(problem, epsilon, LaplaceOptions(squares=400)).expected_loss(problem) > loss * (1 + 2e-4)


def test_tiles_of_three_axes(monkeypatch):
    problem = towns(1, n_axes=3)
    monkeypatch.setattr(bayes_labels, "_LEAST_SIDE", 12)
    tiled, whole = both_ways(monkeypatch, problem, 8.0, squares=40)
    chosen = np.random.default_rng(0).choice(problem.n_records, 100, p=problem.prior)
    found, expected = (m.losses_at(problem.records[chosen], problem.loss[chosen]) for m in (tiled, whole))
    assert found.mean() == pytest.approx(expected.mean(), rel=1e-4)


def test_losses_that_have_nothing_to_do_with_distance(monkeypatch):
    rng = np.random.default_rng(3)
    places = towns(2)
    kinds = rng.integers(0, 60, 12).repeat(100)  # each cluster has its own favourite, anywhere
    loss = rng.uniform(1, 2, (12, 60)).repeat(100, axis=0)
    loss[np.arange(1200), kinds] = 0.0
    problem = Problem(places.records, places.outputs, loss, prior=places.prior)
    tiled, whole = both_ways(monkeypatch, problem, 8.0, squares=400)
    assert tiled.expected_loss(problem) == pytest.approx(whole.expected_loss(problem), rel=1e-4)


def test_tiles_out_of_time_take_the_nearest_outputs():
    problem = towns(0)
    squares = fit_laplace(problem, 8.0, LaplaceOptions(squares=400)).squares
    remap = BayesLabels(problem, squares, NoiseFrame.of(2.0, 2), 8.0)
    tiles, known = remap._plan()
    labels, facts = remap.find(Clock(1e-9), lambda share, words: None)
    assert 0 < facts["outputs_tried"] < problem.n_outputs
    later = np.zeros(squares.shape, dtype=bool)
    for tile in tiles[1:]:
        later[tile.box] = True
    centres = squares.centres[(later & known).ravel()]
    np.testing.assert_array_equal(labels[later & known], KDTree(problem.outputs).query(centres)[1])


def test_squares_far_from_all_records_take_the_label_of_the_nearest_known_one():
    records = np.concatenate([np.random.default_rng(0).normal(size=(300, 2)) + 60 * k for k in range(2)])
    outputs = records[::10]
    problem = Problem(records, outputs, "euclidean")
    mechanism = fit_laplace_remap(problem, 5.0, LaplaceOptions(squares=300))
    assert len(tiles_of(mechanism, problem)) > 1
    assert mechanism.report["squares_resolved"] < 0.2
    centres = mechanism.squares.centres
    far_apart = np.abs(centres.sum(axis=1) - 60) > 5
    town = (mechanism.labels.ravel() >= 30)[far_apart]
    np.testing.assert_array_equal(town, centres[far_apart].sum(axis=1) > 60)


def test_progress_ends_at_one_and_never_falls():
    shares = []
    fit_laplace_remap(towns(0), 8.0, LaplaceOptions(squares=400, progress=lambda share, words: shares.append(share)))
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("n_axes", "p", "epsilon", "longest"),
    [(2, 2.0, 0.1, 256), (2, 2.0, 8.0, 569), (2, 2.0, 1e3, 1024), (2, 1.0, 8.0, 256), (1, 2.0, 1.0, 4096)],
)
def test_squares_are_as_fine_as_the_noise_asks_for(n_axes, p, epsilon, longest):
    records = np.linspace(0, 40, 20)[:, None].repeat(n_axes, axis=1)
    mechanism = fit_laplace(Problem(records, records[:3], "euclidean", p=p), epsilon, LaplaceOptions())
    assert max(mechanism.labels.shape) == longest
    if longest == 569:
        assert 0.5 < mechanism.rate * mechanism.squares.pitch.max() < 0.6


def test_a_file_of_fine_squares_stays_small(tmp_path):
    problem = towns(0)
    mechanism = fit_laplace_remap(problem, 30.0, LaplaceOptions())
    assert max(mechanism.labels.shape) == 1024
    mechanism.save(tmp_path / "fine.mdp")
    assert (tmp_path / "fine.mdp").stat().st_size < 200_000
    np.testing.assert_array_equal(mdp.load(tmp_path / "fine.mdp").labels, mechanism.labels)


def test_tiles_lose_nothing_in_helsinki(monkeypatch):
    problem = mdp.cities.load("helsinki").problem(outputs=60, tasks=20, seed=0)
    tiled, whole = both_ways(monkeypatch, problem, 20.0)
    assert tiled.expected_loss(problem) == pytest.approx(whole.expected_loss(problem), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("outputs", "epsilon"), [(100, 8.0), (400, 4.0), (1000, 8.0)])
@pytest.mark.usefixtures("rome")
def test_tiles_lose_nothing_in_rome(monkeypatch, outputs, epsilon):
    problem = mdp.cities.load("rome").problem(outputs=outputs, tasks=50, seed=0)
    tiled, whole = both_ways(monkeypatch, problem, epsilon)
    assert tiled.expected_loss(problem) == pytest.approx(whole.expected_loss(problem), rel=1e-4)
