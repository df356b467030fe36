"""Movement on cells: filter and smoother against sums over all paths, and what the model promises."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metricdp as mdp
from metricdp.traces import Movement, Raster
from traces_tools import all_paths, small_movement, transition

REGULAR = np.arange(4) * 60.0
IRREGULAR = np.array([1000.0, 1017.0, 1107.0, 1400.0])


@pytest.mark.parametrize("unix_s", [REGULAR, IRREGULAR], ids=["regular", "irregular"])
@pytest.mark.parametrize("lags_s", [(60,), (60, 120)], ids=["one lag", "two lags"])
def test_filter_and_smoother_are_the_sums_over_all_paths(unix_s, lags_s):
    movement = small_movement(1, lags_s=lags_s)
    logs = np.random.default_rng(2).normal(0, 2, (4, 9))
    filtered, smoothed = all_paths(movement, logs, unix_s)
    assert np.allclose(movement.filter(logs, unix_s), filtered, rtol=1e-12, atol=1e-15)
    assert np.allclose(movement.smooth(logs, unix_s), smoothed, rtol=1e-12, atol=1e-15)
    assert not np.allclose(filtered[:-1], smoothed[:-1], atol=0.01)


def test_impossible_cells_stay_impossible():
    movement = small_movement(3)
    logs = np.random.default_rng(4).normal(0, 1, (3, 9))
    logs[1, 2:7] = -np.inf
    filtered, smoothed = all_paths(movement, logs, REGULAR[:3])
    assert np.allclose(movement.filter(logs), filtered, atol=1e-15)
    assert np.allclose(movement.smooth(logs), smoothed, atol=1e-15)
    assert not movement.smooth(logs)[1, 2:7].any()


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.lists(st.floats(1, 500), min_size=1, max_size=3, unique=True).map(sorted),
    st.floats(0, 2000),
    st.floats(0, 0.95),
)
def test_predicting_is_the_transition_and_looking_back_is_its_transpose(shape, lags_s, seconds, exponent):
    movement = small_movement(5, shape, lags_s, exponent=exponent)
    rows = transition(movement, seconds)
    everybody = np.eye(movement.raster.n_cells)
    assert np.allclose(rows.sum(axis=1), 1)
    assert np.allclose(movement.predict(everybody, seconds), rows, atol=1e-13)
    assert np.allclose(movement.look_back(everybody, seconds), rows.T, atol=1e-13)


def test_kernels_of_every_reach_do_not_wrap_around():
    rng = np.random.default_rng(6)
    raster = Raster([0, 0], 1.0, (7, 4))
    for reach in [(0, 0), (1, 0), (2, 3), (6, 1), (6, 3)]:
        kernel = rng.uniform(0.1, 1, 2 * np.array(reach) + 1)
        movement = Movement(raster, rng.uniform(0.1, 1, 28), [kernel], [10])
        assert np.allclose(movement.predict(np.eye(28), 10), transition(movement, 10), atol=1e-14)


def test_nothing_moves_in_no_time_and_all_is_forgotten_in_the_end():
    movement = small_movement(7, (4, 5), (60, 120))
    belief = np.random.default_rng(8).dirichlet(np.ones(20))
    assert np.allclose(movement.predict(belief, 0), belief, atol=1e-15)
    assert movement.forgets_after_s == 240
    for gap in (240, 1e9):
        assert np.array_equal(movement.predict(belief, gap), belief.sum() * movement.prior)
    assert not np.allclose(movement.predict(belief, 239), movement.prior, atol=1e-4)
    logs = np.random.default_rng(9).normal(0, 1, (2, 20))
    apart = movement.filter(logs, [0, 500])
    assert np.allclose(apart[1], movement.filter(logs[1:])[0])
    assert np.allclose(movement.smooth(logs, [0, 500])[0], apart[0])


def test_with_half_an_exponent_and_a_symmetric_kernel_movement_is_reversible():
    """Detailed balance, the reason for the default: π(x) k √(π(y)/π(x)) is symmetric before rows are normalised."""
    rng = np.random.default_rng(10)
    kernel = rng.uniform(0.1, 1, (3, 3))
    prior = rng.uniform(0.1, 1, 12)
    movement = Movement(Raster([0, 0], 1.0, (3, 4)), prior, [kernel + kernel[::-1, ::-1]], [60])
    assert movement.exponent == 0.5
    total = np.array([weights.sum() for weights in flows(movement)])
    assert np.allclose(flows(movement), flows(movement).T)
    assert np.allclose(total, np.sqrt(movement.prior) * normaliser(movement))


def flows(movement):
    """√π(x) k(y − x) √π(y), from the rows of the transition."""
    rows = (transition(movement, 60) - movement.restart * movement.prior) / (1 - movement.restart)
    return np.sqrt(movement.prior)[:, None] * rows * normaliser(movement)[:, None]


def normaliser(movement):
    nx, ny = movement.raster.shape
    cells = [(i, j) for i in range(nx) for j in range(ny)]
    kernel = np.pad(movement.kernels[0], ny)
    middle = np.array(kernel.shape) // 2
    reach = [[kernel[tuple(middle + np.subtract(to, at))] for to in cells] for at in cells]
    return np.array(reach) @ np.sqrt(movement.prior)


def test_traces_at_once_are_the_traces_one_by_one():
    movement = small_movement(11, (5, 4), (60, 300))
    logs = np.random.default_rng(12).normal(0, 3, (2, 3, 6, 20))
    unix_s = np.cumsum([0, 60, 30, 200, 700, 60])
    for run in (movement.filter, movement.smooth):
        together = run(logs, unix_s)
        assert together.shape == logs.shape
        assert np.allclose(together.sum(axis=-1), 1)
        for where in np.ndindex(2, 3):
            assert np.allclose(together[where], run(logs[where], unix_s), rtol=1e-11, atol=1e-15)


def test_what_cannot_matter_does_not():
    movement = small_movement(13, (5, 4))
    logs = np.random.default_rng(14).normal(0, 3, (5, 20))
    constants = np.array([0, 700, -700, 3, 1e5])[:, None]
    for run in (movement.filter, movement.smooth):
        assert np.allclose(run(logs + constants), run(logs), atol=1e-10)
        assert np.array_equal(run(logs, REGULAR[0] + 60.0 * np.arange(5)), run(logs))
        assert np.allclose(run(logs, 1.7e9 + 60.0 * np.arange(5)), run(logs), atol=1e-15)
    assert np.array_equal(movement.filter(logs)[:3], movement.filter(logs[:3]))
    assert np.allclose(movement.smooth(logs)[-1], movement.filter(logs)[-1])


def test_reports_that_contradict_the_movement_still_count():
    """The restart keeps every place possible: a sure report wins over all that came before."""
    movement = Movement(Raster([0, 0], 1.0, (100, 1)), np.ones(100), [np.ones((3, 1))], [60])
    logs = np.full((10, 100), -700.0)
    logs[:9, 3], logs[9, 90] = 0, 0
    assert movement.filter(logs)[-1, 90] > 0.999


def test_a_copy_is_the_same_and_nothing_can_be_written():
    movement = small_movement(15)
    copy = pickle.loads(pickle.dumps(movement))
    logs = np.random.default_rng(16).normal(0, 1, (3, 9))
    assert np.array_equal(copy.filter(logs), movement.filter(logs))
    for one in (movement, copy):
        for array in (one.prior, one.kernels[0], one.raster.corner):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prior": [1, 0, 1]}, "`prior` must be positive everywhere, got 0 at index 1"),
        ({"prior": [1, 1]}, "`prior` must be of shape"),
        ({"lags_s": [60, 60], "kernels": [[[1]], [[1]]]}, "`lags_s` must be increasing"),
        ({"lags_s": []}, "`lags_s` must be increasing and at least one"),
        ({"lags_s": [60, 120]}, "`kernels` must be one for each of the 2 lags, got 1"),
        ({"kernels": [[[1, 1]]]}, "odd sides"),
        ({"kernels": [np.ones((7, 1))]}, r"no larger than \(5, 1\)"),
        ({"kernels": [[[1], [0], [1]]]}, "in the middle, got 0"),
        ({"kernels": [[[-1]]]}, "non-negative"),
        ({"exponent": 1}, "`exponent` must be at least 0 and below 1, got 1"),
        ({"exponent": "much"}, "`exponent` must be"),
        ({"restart": 0}, "`restart` must be above 0 and below 1, got 0"),
        ({"restart": np.nan}, "`restart` must be"),
    ],
)
def test_bad_models_are_refused(options, words):
    usual = {"prior": [1, 1, 1], "kernels": [np.ones((3, 1))], "lags_s": [60]}
    with pytest.raises(mdp.InvalidInputError, match=words):
        Movement(Raster([0, 0], 1.0, (3, 1)), **(usual | options))


@pytest.mark.parametrize(
    ("logs", "unix_s", "words"),
    [
        (np.zeros((2, 8)), None, r"`log_likelihoods` must be of shape \(…, 9\)"),
        (np.zeros(9), None, r"of shape \(…, T, cells\)"),
        (np.zeros((0, 9)), None, "T at least 1"),
        (np.full((2, 9), np.nan), None, "NaN"),
        (np.full((2, 9), -np.inf), None, "only -inf"),
        (np.full((2, 9), np.inf), None, r"\+inf"),
        (np.zeros((2, 9)), [0], "`unix_s` must be of shape"),
        (np.zeros((2, 9)), [60, 60], "`unix_s` must be increasing, got a time .* at index 1"),
        (np.zeros((2, 9)), [0, np.nan], "`unix_s` must be finite"),
    ],
)
def test_bad_traces_are_refused(logs, unix_s, words):
    for run in (small_movement().filter, small_movement().smooth):
        with pytest.raises(mdp.InvalidInputError, match=words):
            run(logs, unix_s)


@pytest.mark.parametrize("seconds", [-1, np.nan, np.inf])
def test_bad_gaps_are_refused(seconds):
    with pytest.raises(mdp.InvalidInputError, match="`seconds` must be a finite number of at least 0"):
        small_movement().predict(np.ones(9) / 9, seconds)
