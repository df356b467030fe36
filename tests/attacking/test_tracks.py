"""An adversary who follows traces, against sums over all paths and reports, and on traces of its own model."""

import itertools

import numpy as np
import pytest

import metricdp as mdp
import oracles
from metricdp.attacking import tracks
from metricdp.attacking.guesses import best_guesses
from metricdp.attacking.tracks import KNOWN, _beliefs
from metricdp.traces import Movement, Raster


def walk_model(shape=(3, 2), seed=0, restart=0.05):
    rng = np.random.default_rng(seed)
    raster = Raster([0.0, 0.0], 1.0, shape)
    return Movement(raster, rng.uniform(0.2, 1, raster.n_cells), [rng.uniform(0.2, 1, (3, 3))], [60], restart=restart)


def transition_of(movement):
    return movement.predict(np.eye(movement.raster.n_cells), 60)


def mechanism_for(movement, epsilon=1.5, n_outputs=2):
    places = movement.raster.centres
    problem = mdp.Problem(
        places, places[:: max(1, len(places) // n_outputs)][:n_outputs], "euclidean", bounds=movement.raster.bounds
    )
    return mdp.fit(problem, epsilon, "em")


def test_equals_the_sum_over_all_paths_and_reports():
    movement, length = walk_model(), 3
    mechanism, places = mechanism_for(movement), movement.raster.centres
    rows = mechanism.probabilities(places)
    transition = transition_of(movement)
    sequences = np.array(list(itertools.product(range(2), repeat=length)))
    logs = np.log(rows)[:, sequences].transpose(1, 2, 0)
    beliefs = _beliefs(movement, logs, 60.0 * np.arange(length))
    paths = np.einsum(
        "i,ij,jk,si,sj,sk->s", movement.prior, transition, transition, *(np.exp(logs[:, t]) for t in range(3))
    )
    assert paths.sum() == pytest.approx(1)
    for when in range(length):
        for name, known in ((KNOWN[1], when), (KNOWN[2], length - 1)):
            guess = best_guesses(places, beliefs[name][:, when])
            exact = oracles.naive_trace_error(rows, movement.prior, transition, places, length, when, known)
            assert paths @ guess.least <= exact * (1 + 1e-6)
            assert exact <= paths @ guess.cost * (1 + 1e-6) <= exact * 1.0003
    first = _beliefs(movement, logs[:, :1], np.zeros(1))
    assert all(np.allclose(first[known][:, 0], beliefs[KNOWN[0]][:, 0]) for known in KNOWN)


def simulated(movement, traces, length, seed=0):
    """Return a table of traces of the model, on the cells' centres."""
    rng = np.random.default_rng(seed)
    transition = transition_of(movement)
    cell = rng.choice(movement.raster.n_cells, traces, p=movement.prior)
    cells = [cell]
    for _ in range(length - 1):
        cell = np.array(
            [rng.choice(movement.raster.n_cells, p=transition[one] / transition[one].sum()) for one in cell]
        )
        cells.append(cell)
    return movement.raster.centres[np.stack(cells, axis=1)]


def test_on_traces_of_its_own_model_the_adversary_is_as_far_off_as_it_believes():
    movement = walk_model((6, 6), seed=1)
    mechanism = mdp.noise(1.0, bounds=movement.raster.bounds)
    scene = tracks._Scene(mechanism, movement, simulated(movement, 250, 8), 60.0)
    said = scene.drawn(mdp.InsecureSeed(0))
    errors, believed = tracks._followed(scene, said, lambda *_: None)
    bounds = tracks._bounds(scene, said)
    means = []
    for known in KNOWN:
        spread = errors[known].mean(axis=1).std(ddof=1) / np.sqrt(250)
        assert abs(errors[known].mean() - believed[known].mean()) < 4 * spread
        assert errors[known].mean() > bounds[known]
        means.append(errors[known].mean())
    assert means[0] > means[1] > means[2]


@pytest.fixture(scope="module")
def town():
    """Return public and other traces around a square of four streets, in degrees."""
    rng = np.random.default_rng(0)
    tables = []
    for who in range(12):
        start, n = rng.uniform(0, 4), 80
        along = (start + 0.03 * np.arange(n)) % 4
        side, share = along.astype(int), along % 1
        x = np.select([side == 0, side == 1, side == 2], [share, 1.0, 1 - share], 0.0)
        y = np.select([side == 0, side == 1, side == 2], [0.0, share, 1.0], 1 - share)
        tables.append((np.full(n, who), 1.2e9 + 60.0 * np.arange(n), 24.9 + 0.05 * x, 60.1 + 0.025 * y))
    columns = np.concatenate([np.column_stack(one) for one in tables])
    public = columns[:, 0] < 8
    return [dict(zip(("id", "unix_s", "lon", "lat"), columns[rows].T, strict=True)) for rows in (public, ~public)]


def test_following_people_tells_more_than_single_reports(town):
    public, others = town
    movement = Movement.fit(public, seconds=60, cell_km=0.25)
    mechanism = mdp.noise(1.5, bounds=movement.raster.bounds, projection=movement.raster.projection)
    found = mdp.attack_traces(mechanism, movement, others, reports=10, traces=32)
    alone, past, whole = found.table
    assert alone.error > 1.15 * past.error > 1.15 * whole.error
    for row in found.table:
        assert row.bound < row.error
        assert 0 < row.standard_error < row.error
        assert dict(row.within)[0.1] <= dict(row.within)[0.5] <= 1
    assert found.distance_unit == "km"
    assert found.traces == 28
    assert "looking back on the whole trace of 10 reports" in found.words
    assert len(found.shown[1]) == 3
    assert found.to_dict()["table"][0]["known"] == "report"
    assert found.error == whole.error


def test_outputs_of_another_map_can_be_followed_too(town):
    public, others = town
    movement = Movement.fit(public, seconds=60, cell_km=0.25)
    lonlat = np.column_stack([public["lon"], public["lat"]])
    problem = mdp.Problem.from_lonlat(lonlat[::7], lonlat[::40], bounds=[[24.85, 60.08], [25.0, 60.15]])
    found = mdp.attack_traces(mdp.fit(problem, 2.0, "em"), movement, others, reports=6, traces=6, within=[1.0])
    assert found.table[2].error < found.table[0].error
    assert found.table[2].bound < found.table[2].error


def test_bad_input_is_named(town):
    public, others = town
    movement = Movement.fit(public, seconds=60, cell_km=0.25)
    mechanism = mdp.noise(1.5, bounds=movement.raster.bounds, projection=movement.raster.projection)
    with pytest.raises(mdp.InvalidInputError, match=r"`movement` must be a metricdp\.traces\.Movement, got str"):
        mdp.attack_traces(mechanism, "taxis", others)
    with pytest.raises(mdp.InvalidInputError, match=r"`mechanism` must be a metricdp\.Mechanism"):
        mdp.attack_traces(lambda points: points, movement, others)
    with pytest.raises(mdp.InvalidInputError, match="for 1000 reports in a row; take fewer `reports`"):
        mdp.attack_traces(mechanism, movement, others, reports=1000)
    with pytest.raises(mdp.InvalidInputError, match="must both be in longitude and latitude, or neither"):
        mdp.attack_traces(mdp.noise(1.0, bounds=[[0.0, 0.0], [1.0, 1.0]]), movement, others)
    with pytest.raises(mdp.InvalidInputError, match="`every_s` must be a positive finite number"):
        mdp.attack_traces(mechanism, movement, others, every_s=0)
