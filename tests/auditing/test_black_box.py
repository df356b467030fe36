"""The black box: draws alone convict what is not private, never what is, and its limits are the exact ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

import metricdp as mdp
from metricdp.auditing.draws import inside, spread
from metricdp.auditing.sampler_check import check_sampler
from metricdp.auditing.samples import _CAUTION, _log_limits, _sharpest, audit_samples, lower_limit, upper_limit
from metricdp.cli.audit import _in_words
from metricdp.geometry.projection import Equirectangular
from metricdp.mechanisms.exponential.mechanism import Exponential
from oracles import clopper_pearson

SECRET = 60.16952


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(1)
    return mdp.Problem(generator.random((80, 2)) * [6.0, 4.0], generator.random((5, 2)) * [6.0, 4.0], "euclidean")


@pytest.fixture(scope="module")
def spline(problem):
    return mdp.fit(problem, 0.4, "spline", cells=6)


def seeded(mechanism, samples, seed, **claim):
    return audit_samples(mechanism, samples=samples, seed=seed, rng=mdp.InsecureSeed(100 + seed), **claim)


def claim_of(mechanism):
    return {name: getattr(mechanism, name) for name in ("epsilon", "p", "bounds", "n_outputs")}


def tampered(mechanism, change, seed=0):
    """Return a sampler whose outputs `change(points, outputs, generator)` has meddled with."""
    source, generator = mdp.InsecureSeed(100 + seed), np.random.default_rng(seed)
    return lambda points: change(points, np.asarray(mechanism.sample(points, source)).copy(), generator)


def at_the_limit(seed):
    """Return a sampler on [0, 1] that is exactly 1-private: z_0 = e^{-x} / 2, z_1 = 1 − z_0."""
    generator = np.random.default_rng(seed)
    return lambda points: (generator.random(len(points)) >= np.exp(-points[:, 0]) / 2).astype(int)


LIMIT_CLAIM = {"epsilon": 1.0, "p": 2.0, "bounds": [[0.0], [1.0]], "n_outputs": 2}


# What it catches.


@pytest.mark.parametrize("seed", range(3))
def test_catches_aipo_r(problem, seed):
    mechanism = mdp.fit(problem, 0.4, "aipo-r", cells=6, certify=False)
    truth = mdp.audit(mechanism, pairs=3000).max_ratio
    assert truth > 1.3
    found = seeded(mechanism, 300_000, seed)
    assert found.violates
    assert 0.4 < found.epsilon_lower < 0.4 * truth


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_catches_twice_the_claimed_epsilon(problem, p):
    problem = mdp.Problem(problem.records, problem.outputs, problem.loss, p=p)
    mechanism = replace(mdp.fit(problem, 0.8, "laplace-remap"), epsilon=0.4)
    for seed in range(3):
        found = seeded(mechanism, 100_000, seed)
        assert found.violates
        assert 0.4 < found.epsilon_lower < 0.8


def test_catches_it_on_one_axis_and_on_three():
    generator = np.random.default_rng(2)
    for n_axes in (1, 3):
        problem = mdp.Problem(generator.random((40, n_axes)) * 5, generator.random((4, n_axes)) * 5, "euclidean")
        honest = mdp.fit(problem, 1.0, "aipo", cells=4)
        assert not seeded(honest, 100_000, 0).violates
        assert seeded(honest, 100_000, 0, epsilon=0.25).violates


@pytest.mark.parametrize("seed", range(3))
def test_catches_a_biased_sampler(spline, seed):
    def favour_one_output_in_the_east(points, outputs, generator):
        outputs[(points[:, 0] > 3.1) & (generator.random(len(points)) < 0.1)] = 0
        return outputs

    biased = tampered(spline, favour_one_output_in_the_east, seed)
    found = audit_samples(biased, **claim_of(spline), samples=1_000_000, seed=seed)
    assert found.violates
    (west, _), (east, _) = sorted(found.worst_pair["points"])
    assert west <= 3.1 < east
    assert found.worst_pair["distance"] < 0.5


@pytest.mark.parametrize("method", ["lp", "copt"])
def test_catches_a_hard_border(problem, method):
    mechanism = mdp.fit(problem, 0.4, method, cells=3, certify=False)
    assert seeded(mechanism, 300_000, 0).epsilon_lower > 2 * 0.4


# What it leaves alone.


@pytest.mark.parametrize("method", ["spline", "em", "laplace-remap", "aipo-e"])
def test_never_accuses_what_is_certified(problem, spline, method):
    mechanism = spline if method == "spline" else mdp.fit(problem, 0.4, method)
    for seed in range(5):
        found = seeded(mechanism, 100_000, seed)
        assert not found.violates
        assert 0.2 * 0.4 < found.epsilon_lower <= 0.4


def test_comes_close_to_a_tight_mechanism_without_accusing_it(spline):
    assert mdp.audit(spline, pairs=2000).max_ratio > 0.99
    found = seeded(spline, 2_000_000, 0)
    assert 0.9 * 0.4 < found.epsilon_lower <= 0.4


def test_many_outputs_do_not_drown_the_search():
    generator = np.random.default_rng(6)
    problem = mdp.Problem(generator.random((50, 2)) * 20, generator.random((200, 2)) * 20, "euclidean")
    mechanism = mdp.fit(problem, 0.4, "laplace")
    found = seeded(mechanism, 100_000, 0)
    assert 0.6 * 0.4 < found.epsilon_lower <= 0.4
    assert seeded(mechanism, 100_000, 0, epsilon=0.2).violates


def test_secure_draws_are_the_default(spline):
    # By chance, three are the same or one is an accusation once in about a thousand million runs.
    found = [audit_samples(spline, samples=100_000, confidence=1 - 1e-10) for _ in range(3)]
    assert len({tuple(one.worst_pair["seen"]) for one in found}) > 1
    assert not any(one.violates for one in found)


def test_false_accusations_are_as_rare_as_promised():
    # At the limit every pair has the claimed ratio, so a bound is too high exactly when the mechanism is accused.
    runs, level = 150, 0.2
    allowed = binom.ppf(1 - 1e-4, runs, level)
    for pairs in (None, [[[0.1], [0.6]]]):
        accused = sum(
            audit_samples(
                at_the_limit(seed), **LIMIT_CLAIM, pairs=pairs, samples=12_000, seed=seed, confidence=1 - level
            ).violates
            for seed in range(runs)
        )
        # None at all would mean that the intervals are wider than they need to be.
        assert 0 < accused <= allowed


@pytest.mark.parametrize("share", [0.05, 0.4, 0.9])
def test_probability_of_a_false_accusation_summed_over_all_outcomes(share):
    n, level = 200, 0.05
    seen = np.arange(n + 1)
    lower, upper = lower_limit(seen, n, level / 2), upper_limit(seen, n, level / 2)
    here, there = binom.pmf(seen, n, share), binom.pmf(seen, n, share / math.e)
    accused = np.log(np.maximum(lower[:, None], 1e-300) / upper) > 1
    assert (here[:, None] * there)[accused].sum() <= level


# Its limits.


@pytest.mark.parametrize("draws", [1, 7, 50, 20_000])
@pytest.mark.parametrize("level", [0.3, 0.01, 1e-6])
def test_limits_solve_the_binomial_equations(draws, level):
    for seen in sorted({0, 1, draws // 3, draws // 2, draws - 1, draws}):
        low, high = clopper_pearson(seen, draws, level)
        assert lower_limit(np.array(seen), draws, level) == pytest.approx(low, rel=1e-9, abs=1e-14)
        assert upper_limit(np.array(seen), draws, level) == pytest.approx(high, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("draws", [1, 5, 40])
def test_limits_cover_with_at_least_their_confidence(draws):
    seen, level = np.arange(draws + 1), 0.05
    for share in np.linspace(0, 1, 41):
        chance = binom.pmf(seen, draws, share)
        assert chance[lower_limit(seen, draws, level) > share].sum() <= level + 1e-12
        assert chance[upper_limit(seen, draws, level) < share].sum() <= level + 1e-12


def test_bounds_of_given_pairs_can_be_recomputed_by_hand(spline):
    generator = np.random.default_rng(3)
    pairs = generator.random((4, 2, 2)) * [6.0, 4.0]
    found = seeded(spline, 200_000, 0, pairs=pairs)
    assert found.hypotheses == len(found.confirmed) == 4
    assert found.samples == 200_000
    for given, one in zip(pairs, found.confirmed, strict=True):
        assert sorted(one["points"]) == sorted(given.tolist())
        assert one["distance"] == pytest.approx(math.dist(*given))
        assert one["draws"] == 12_500
        (low, _), (_, high) = (clopper_pearson(seen, 12_500, 0.001 / 8) for seen in one["seen"])
        apart = one["distance"] + math.sqrt(2) * 2.0**-20
        assert one["epsilon_lower"] == pytest.approx(max(0.0, math.log(low / high)) / apart, rel=1e-9)
        likelier, other = spline.probabilities(one["points"])[:, one["event"]].sum(axis=1)
        assert one["epsilon_lower"] <= max(0.0, math.log(likelier / other)) / one["distance"]
    assert found.worst_pair == max(found.confirmed, key=lambda one: one["epsilon_lower"])


def test_more_pairs_cost_confidence():
    pair = [[0.0], [1.0]]
    one, many = (
        audit_samples(at_the_limit(0), **LIMIT_CLAIM, pairs=[pair] * count, samples=1000 * count).confirmed[0]
        for count in (1, 50)
    )
    assert one["draws"] == many["draws"] == 250
    again = np.array(many["seen"])
    alone = np.log(lower_limit(again[0], 250, 0.0005) / upper_limit(again[1], 250, 0.0005))
    assert many["epsilon_lower"] < alone


# How it works.


def test_events_are_those_of_a_plain_loop():
    generator = np.random.default_rng(4)
    here, there = generator.integers(0, 60, (12, 2, 6)), generator.integers(0, 60, (12, 2, 6))
    here[0, 0], there[0, 0] = [9, 0, 0, 5, 1, 0], [0, 0, 8, 5, 2, 0]
    here[1], there[1] = [9, 0, 0, 0, 0, 0], [0, 0, 9, 0, 0, 0]
    gaps = generator.random(12) + 0.1
    scores, events = _sharpest(here, there, gaps)
    for row in range(12):
        ratio = [(a + 0.5) / (b + 0.5) for a, b in zip(here[row, 0], there[row, 0], strict=True)]
        best, event = -math.inf, None
        for least in sorted(set(ratio), reverse=True):
            chosen = [value >= least for value in ratio]
            (low, _), (_, high) = (
                clopper_pearson(counts[chosen].sum(), counts.sum(), _CAUTION)
                for counts in (here[row, 1], there[row, 1])
            )
            if low and math.log(low / high) / gaps[row] > best:
                best, event = math.log(low / high) / gaps[row], chosen
        assert scores[row] == pytest.approx(best)
        assert events[row].tolist() == event
    assert np.flatnonzero(events[1]).tolist() == [0]


def test_limits_that_are_looked_up_are_those_that_are_computed():
    # Few outputs are computed one by one, many looked up; both from points that were asked unequally often.
    generator = np.random.default_rng(5)
    for pairs in (3, 2000):
        counts = np.where(np.arange(pairs)[:, None] % 2, 2, 1) * generator.multinomial(40, [0.5, 0.3, 0.2, 0], pairs)
        seen = counts.cumsum(axis=1)
        for limit in (lower_limit, upper_limit):
            with np.errstate(divide="ignore"):
                expected = np.log([limit(row, row[-1], _CAUTION) for row in seen])
            assert np.array_equal(_log_limits(limit, counts), expected)


def test_points_are_on_the_lattice_and_off_it():
    box = np.array([[0.3, -2.0], [5.7, 7.0]])
    points = spread(box, 200, np.random.default_rng(0))
    on_lattice = (np.remainder(points, 2.0**-20) == 0).all(axis=1)
    assert on_lattice.sum() == 100
    assert ((points >= box[0]) & (points <= box[1])).all()
    assert ((points == box[0]) | (points == box[1])).any()
    moved = inside(points + 1e-9, box, np.zeros(200, dtype=bool))
    assert np.array_equal(moved, np.clip(points + 1e-9, *box))


def test_search_visits_pairs_of_every_kind():
    asked = []

    def logged(points):
        asked.append(points)
        return np.zeros(len(points), dtype=int)

    audit_samples(logged, **LIMIT_CLAIM, samples=5000)
    first = asked[0].reshape(128, -1)[:, 0]
    kinds = {(bool(a), bool(b)) for a, b in zip(*(np.remainder(first, 2.0**-20) == 0).reshape(2, 64), strict=True)}
    assert len(kinds) == 4
    for points in asked[1:-1]:
        share = (np.remainder(np.unique(points), 2.0**-20) == 0).mean()
        assert 0.2 < share < 0.8


# What rounding and maps change.


def test_rounding_counts_as_distance():
    # Points are rounded to multiples of 0.01: honest with that rounding, a jump with any less.
    generator = np.random.default_rng(7)

    def sampler(points):
        return (generator.random(len(points)) >= np.exp(-50 * np.rint(points[:, 0] / 0.01) * 0.01) / 2).astype(int)

    claim = {"epsilon": 50.0, "p": 1.0, "bounds": [[0.0], [0.05]], "n_outputs": 2, "samples": 200_000}
    honest = audit_samples(sampler, **claim, rounding=0.01)
    assert honest.rounding == 0.01
    assert not honest.violates
    assert audit_samples(sampler, **claim).violates
    pair = [[[0.00499], [0.00501]]]
    for rounding in (0.0, 1e-3, None):
        found = audit_samples(sampler, **claim, pairs=pair, rounding=rounding)
        r = 0.05 * 2.0**-20 if rounding is None else rounding
        assert found.rounding == pytest.approx(r, rel=1e-4)
        (low, _), (_, high) = (clopper_pearson(seen, 50_000, 0.0005) for seen in found.worst_pair["seen"])
        assert found.epsilon_lower == pytest.approx(math.log(low / high) / (2e-5 + r), rel=1e-6)
        assert found.violates
    # Without a box the unit is all there is to go by.
    assert audit_samples(sampler, **{**claim, "bounds": None}, pairs=pair).rounding == pytest.approx(2.0**-20)


def test_a_mechanism_cannot_excuse_itself_by_its_own_rounding(spline):
    assert seeded(spline, 5000, 0).rounding == pytest.approx(math.sqrt(2) * 2.0**-20)
    assert seeded(replace(spline, step=1.0), 5000, 0).rounding == pytest.approx(math.sqrt(2) * 2.0**-20)
    assert seeded(replace(spline, step=2.0**-24), 5000, 0).rounding == pytest.approx(math.sqrt(2) * 2.0**-24)
    assert seeded(spline, 5000, 0, rounding=0.5).rounding == 0.5


def test_bounds_are_in_the_unit_of_the_claim(problem):
    plane = mdp.fit(problem, 0.4, "em")
    ground = replace(plane, projection=Equirectangular(12.0, 60.0), distance="ground")
    kappa = ground.distortion.kappa
    assert kappa != pytest.approx(1, abs=1e-4)
    pairs = [[[1.0, 1.0], [4.0, 3.0]]]
    flat, round_ = seeded(plane, 50_000, 0, pairs=pairs), seeded(ground, 50_000, 0, pairs=pairs)
    assert round_.worst_pair["seen"] == flat.worst_pair["seen"]
    assert round_.worst_pair["distance"] == flat.worst_pair["distance"] == pytest.approx(math.sqrt(13))
    assert round_.epsilon_lower == pytest.approx(kappa * flat.epsilon_lower, rel=1e-7)
    assert round_.epsilon == 0.4


def test_where_there_is_no_kappa_any_difference_convicts(problem):
    ground = replace(mdp.fit(problem, 0.4, "em"), projection=Equirectangular(12.0, 89.99), distance="ground")
    assert ground.distortion.kappa == math.inf
    found = seeded(ground, 20_000, 0, rounding=0.0)
    assert found.violates
    assert math.isfinite(found.epsilon_lower)


def test_mechanisms_without_outputs_are_refused_in_words():
    for check in (audit_samples, check_sampler):
        with pytest.raises(
            mdp.InvalidInputError, match="`sampler` reports noisy points, but an audit needs finitely many"
        ):
            check(SimpleNamespace(kind="noise"))


def test_confirmation_uses_fresh_draws_in_large_batches():
    log = []
    sample = at_the_limit(5)

    def logged(points):
        log.append((points, sample(points)))
        return log[-1][1]

    found = audit_samples(logged, **LIMIT_CLAIM, samples=3_000_000)
    sizes = [len(points) for points, _ in log]
    assert max(sizes) <= 2**20
    assert len(log) < 20
    assert found.samples == sum(sizes) <= 3_000_000
    points, outputs = (np.concatenate(parts) for parts in zip(*log, strict=True))
    draws = found.worst_pair["draws"]
    fresh = slice(len(points) - 2 * draws, None)
    assert draws == 750_000
    for point, seen, part in zip(
        found.worst_pair["points"], found.worst_pair["seen"], (fresh.start, fresh.start + draws), strict=True
    ):
        block = slice(part, part + draws)
        assert (points[block] == point).all()
        assert np.isin(outputs[block], found.worst_pair["event"]).sum() == seen


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Sealed(Exponential):
    """A mechanism that tells nothing but its claim."""

    def probabilities(self, x, *, outside="clamp"):
        raise AssertionError("looked inside")

    def sample(self, x, rng=None, *, outside="clamp"):
        return np.random.default_rng(0).integers(0, self.n_outputs, len(x))


def test_a_mechanism_is_only_sampled(problem):
    fitted = mdp.fit(problem, 0.4, "em")
    sealed = Sealed(**vars(replace(fitted, report={})))
    assert not audit_samples(sealed, samples=50_000).violates


def test_seeds_repeat(spline):
    first, again = (seeded(spline, 50_000, 7).to_dict() for _ in range(2))
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert seeded(spline, 50_000, 8).worst_pair["points"] != first["worst_pair"]["points"]


def test_extreme_samplers():
    claim = {**LIMIT_CLAIM, "n_outputs": 3}
    constant = audit_samples(lambda points: np.zeros(len(points), dtype=int), **claim, samples=5000)
    assert constant.epsilon_lower == 0
    naked = audit_samples(lambda points: (points[:, 0] > 0.5).astype(int), **claim, samples=20_000)
    assert naked.violates
    assert math.isfinite(naked.epsilon_lower)
    alone = audit_samples(lambda points: np.zeros(len(points), dtype=int), **{**claim, "n_outputs": 1}, samples=5000)
    assert not alone.violates


def test_the_command_line_says_it_in_words(spline):
    found = replace(seeded(spline, 100_000, 0), epsilon_lower=0.3123)
    words = _in_words(found, " km")
    assert words.startswith("samples alone show ε ≥ 0.312 per km (claimed 0.4): consistent\nconfidence 99.9% from ")
    assert " km apart, outputs {" in words
    assert "per unit of distance (claimed 0.4): violated" in _in_words(replace(found, violates=True), "")


def test_progress_is_told(spline):
    told = []
    audit_samples(spline, samples=20_000, progress=lambda share, words: told.append((share, words)))
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert {words for _, words in told} == {"searching", "confirming"}


# The sampler itself.


@pytest.mark.parametrize("method", ["spline", "em", "laplace-remap", "aipo-e"])
def test_samplers_follow_their_probabilities(problem, spline, method):
    mechanism = spline if method == "spline" else mdp.fit(problem, 0.4, method)
    checked = check_sampler(mechanism, samples=640_000, rng=mdp.InsecureSeed(1))
    assert checked.fits
    assert checked.p_value > 0.01
    assert checked.hypotheses == 64 * 5
    assert checked.samples == 640_000


def test_a_biased_sampler_that_is_still_private_does_not_fit(spline):
    def now_and_then_anything(points, outputs, generator):
        lazy = generator.random(len(points)) < 0.05
        outputs[lazy] = generator.integers(0, 5, lazy.sum())
        return outputs

    biased = tampered(spline, now_and_then_anything)
    assert not audit_samples(biased, **claim_of(spline), samples=300_000).violates
    points = np.random.default_rng(0).random((20, 2)) * [6.0, 4.0]
    checked = check_sampler(biased, spline.probabilities, points=points, samples=400_000)
    assert not checked.fits
    assert checked.p_value < 1e-6
    assert checked.to_dict()["worst"]["seen"] != pytest.approx(checked.worst["expected"], rel=0.01)


def test_p_value_equals_a_plain_loop(spline):
    source = mdp.InsecureSeed(3)
    points = np.array([[1.0, 1.0], [5.0, 3.0]])
    checked = check_sampler(spline, points=points, samples=2000, rng=mdp.InsecureSeed(3))
    rows = spline.probabilities(points)
    drawn = np.asarray(spline.sample(np.repeat(points, 1000, axis=0), source)).reshape(2, 1000)
    tails = []
    for row, outputs in zip(rows, drawn, strict=True):
        for k, share in enumerate(row):
            chances = binom.pmf(np.arange(1001), 1000, share)
            seen = int((outputs == k).sum())
            tails += [chances[: seen + 1].sum(), chances[seen:].sum()]
    assert checked.p_value == pytest.approx(min(1.0, min(tails) * len(tails)))


def test_an_impossible_output_is_enough():
    checked = check_sampler(
        lambda points: np.arange(len(points)) % 2, lambda points: np.tile([1.0, 0.0], (len(points), 1)), points=[[0.0]]
    )
    assert checked.p_value == 0
    assert not checked.fits


# Bad input.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": None}, "states no claim of its own: give `epsilon`"),
        ({"epsilon": -1}, "`epsilon` must be a positive finite number, got -1"),
        ({"p": 0.5}, "`p` must be a number in"),
        ({"bounds": None}, "states no claim of its own: give `bounds`"),
        ({"bounds": [0.0, 1.0]}, r"`bounds` must be of shape \(2, axes\), lower corner first, got shape \(2,\)"),
        ({"bounds": [[1.0], [1.0]]}, r"`bounds` must be wider than zero on every axis, got \[1.0, 1.0\] on axis 0"),
        ({"n_outputs": 0}, "`n_outputs` must be a whole number of at least 1, got 0"),
        ({"n_outputs": 1}, "`sampler` returned outputs from 0 to 1; with `n_outputs` = 1 they must be 0 to 0"),
        ({"samples": 100}, "`samples` must be a whole number of at least 3072, got 100"),
        ({"samples": 3, "pairs": [[[0.0], [1.0]]]}, "`samples` must be a whole number of at least 8, got 3"),
        ({"confidence": 1.0}, "`confidence` must be strictly between 0 and 1, got 1.0"),
        ({"rounding": -1}, r"`rounding` must be a non-negative number, got -1\.0"),
        ({"rounding": math.nan}, "`rounding` must be finite everywhere, got nan"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
        ({"rng": mdp.InsecureSeed(0)}, "`rng` has no effect on a sampler that is a function"),
        ({"pairs": [[[SECRET], [SECRET]]]}, "`pairs` must be made of two different points each, got equal points at"),
        ({"pairs": [[SECRET, 1.0]]}, r"`pairs` must be of shape \(pairs, 2, axes\) and not empty, got shape \(1, 2\)"),
        ({"pairs": [[[SECRET], [math.nan]]]}, r"`pairs` must be finite everywhere, got nan at index \(0, 1, 0\)"),
    ],
)
def test_bad_input_is_named(change, words):
    with pytest.raises(mdp.InvalidInputError, match=words) as error:
        audit_samples(at_the_limit(0), **{**LIMIT_CLAIM, "samples": 5000, **change})
    assert str(SECRET) not in str(error.value)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (3, "`sampler` must be a metricdp.Mechanism or a function, got int"),
        (
            lambda points: points,
            r"returned shape \(2500, 1\) of type float64 for 2500 points; it must return one whole number per point",
        ),
        (lambda points: points[:, 0], r"returned shape \(2500,\) of type float64 for 2500 points"),
        (
            lambda points: np.full(len(points), -1),
            "returned outputs from -1 to -1; with `n_outputs` = 2 they must be 0 to 1",
        ),
    ],
)
def test_bad_samplers_are_named(sampler, words):
    with pytest.raises(mdp.InvalidInputError, match=words) as error:
        audit_samples(sampler, **LIMIT_CLAIM, pairs=[[[SECRET], [0.0]]], samples=5000)
    assert str(SECRET) not in str(error.value)


def test_bad_expectations_are_named(spline):
    with pytest.raises(mdp.InvalidInputError, match="give `points`"):
        check_sampler(at_the_limit(0))
    with pytest.raises(mdp.InvalidInputError, match="give `expected`"):
        check_sampler(at_the_limit(0), points=[[SECRET]])
    with pytest.raises(mdp.InvalidInputError, match=r"`expected` must be of shape \(1, outputs\), got shape \(1,\)"):
        check_sampler(spline, lambda points: points[:, 0], points=[[SECRET, 0.0]])
    with pytest.raises(mdp.InvalidInputError, match="`expected` must be non-negative rows that sum to 1, got") as error:
        check_sampler(spline, lambda points: np.array([[0.5, 0.6]]), points=[[SECRET, 0.0]])
    assert str(SECRET) not in str(error.value)


# Samplers that report coordinates


def test_coordinates_are_judged_by_squares():
    box = [[0.0, 0.0], [4.0, 4.0]]
    claim = {"epsilon": 1.0, "p": 2, "bounds": box, "samples": 200_000}
    snapped = audit_samples(np.round, **claim)
    assert snapped.violates
    assert snapped.epsilon_lower > 10
    noise, source = mdp.noise(1.0, bounds=box), mdp.InsecureSeed(0)
    honest = audit_samples(lambda points: np.asarray(noise.sample(points, source)), **claim)
    assert not honest.violates
    assert 0.3 < honest.epsilon_lower <= 1
    louder = mdp.noise(4.0, bounds=box)
    assert audit_samples(lambda points: np.asarray(louder.sample(points, source)), **claim).violates


def test_a_function_of_whole_numbers_still_needs_its_number_of_outputs():
    with pytest.raises(mdp.InvalidInputError, match="give `n_outputs`"):
        audit_samples(lambda points: np.zeros(len(points), dtype=int), epsilon=1.0, p=2, bounds=[[0.0], [1.0]])
