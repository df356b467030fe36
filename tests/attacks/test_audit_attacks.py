"""Samplers and mechanisms that tried to pass an audit: jumps behind a lattice, cheating off it, and certainty."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.stats import beta

import metricdp as mdp
from metricdp.mechanisms.spline.mechanism import Spline

STEP = 2.0**-20
OUTPUTS = np.array([[1.0, 1.0], [5.0, 1.0], [3.0, 3.5], [1.5, 3.0]])
CLAIM = {"epsilon": 0.5, "p": 2, "bounds": [[0.0, 0.0], [6.0, 4.0]], "n_outputs": len(OUTPUTS)}


def jump_mechanism(step, epsilon):
    """Return a spline that obeys the proof's inequalities between lattice points, which are `step` apart.

    Each cell is one step wide, and from one lattice point to the next the first output's probability changes by the
    factor 1 + ε step / 2 along both axes, as much as a slope may: so points a hair apart jump.
    """
    breakpoints = np.arange(9.0) * step
    grid = mdp.Grid.from_breakpoints([breakpoints, breakpoints])
    site = np.add.outer(np.arange(9), np.arange(9)).ravel()
    first = 0.5 * (1 + epsilon * step / 2) ** -site.astype(float)
    rows = np.stack([first, 1 - first], axis=1)
    common = {"outputs": np.array([[0.0, 0.0], [step, step]]), "epsilon": epsilon, "p": 2.0, "method": "spline"}
    return Spline.from_probabilities(common, step, grid, 1, rows)


def corner_mechanism(step, epsilon):
    """Return a spline on two by two cells, each one step wide, that reports the nearest corner nearly always."""
    breakpoints = np.arange(3.0) * step
    corners = np.array([[-3, -3], [-3, 3], [3, -3], [3, 3]])
    place = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij"), axis=-1).reshape(-1, 2) - 1
    rows = np.exp(place @ corners.T)
    rows /= rows.sum(axis=1, keepdims=True)
    common = {"outputs": (corners + 3) / 3 * step, "epsilon": epsilon, "p": 2.0, "method": "spline"}
    grid = mdp.Grid.from_breakpoints([breakpoints, breakpoints])
    return Spline.from_probabilities(common, step, grid, 1, rows)


def nearest(points):
    """Report the nearest output, always."""
    return np.linalg.norm(points[:, None] - OUTPUTS, axis=2).argmin(axis=1)


def exponential(seed):
    """Return the exponential mechanism for ε = 0.5 as a function, as private as CLAIM says everywhere."""
    generator = np.random.default_rng(seed)

    def draw(points):
        weight = np.exp(-0.25 * np.linalg.norm(points[:, None] - OUTPUTS, axis=2))
        share = (weight / weight.sum(axis=1, keepdims=True)).cumsum(axis=1)
        return (generator.random((len(points), 1)) > share[:, :-1]).sum(axis=1)

    return draw


def on_lattice(points):
    return (np.remainder(points, STEP) == 0).all(axis=1)


def bound(seen, draws, confidence=0.999, hypotheses=1):
    """Return ln(lower / upper) from the quantiles of the beta distribution, as Clopper and Pearson define them."""
    level = (1 - confidence) / (2 * hypotheses)
    lower = beta.ppf(level, seen[0], draws - seen[0] + 1)
    upper = beta.ppf(1 - level, seen[1] + 1, draws - seen[1])
    return math.log(lower / upper)


@pytest.mark.parametrize(("step", "epsilon"), [(2.0**14, 0.01), (1.0, 0.5), (2.0**-10, 5.0)])
def test_a_lattice_of_kilometres_is_a_jump(step, epsilon):
    """The mechanism rounds 1 km away, says so itself, and is honest between the points it rounds to."""
    forged = jump_mechanism(step, epsilon)
    lattice = step * np.argwhere(np.ones((9, 9)))
    logs = np.log(forged.probabilities(lattice))
    apart = np.linalg.norm(lattice[:, None] - lattice, axis=2)
    assert (np.abs(logs[:, None] - logs).max(axis=2) <= epsilon * apart * (1 + 1e-9)).all()
    for seed in range(5):
        found = mdp.audit(forged, pairs=10_000, seed=seed)
        assert found.rounding < 1.5e-6
        assert found.by_kind["near"]["violation_ratio"] > 0
        assert found.violation_ratio > 0
        assert found.max_ratio > 100
    assert mdp.audit(forged).violation_ratio > 0
    (left, right), output = found.worst_pair["points"], found.worst_pair["output"]
    here, there = np.log(forged.probabilities([left, right])[:, output])
    assert abs(here - there) / (epsilon * (math.dist(left, right) + found.rounding)) == pytest.approx(found.max_ratio)


def test_an_audit_finds_lattices_of_centimetres():
    """In a box of 6 km; from one lattice of a millimetre up to what rounding may be, everything is allowed."""
    generator = np.random.default_rng(0)
    problem = mdp.Problem(generator.random((60, 2)) * [6, 4], OUTPUTS, "euclidean", bounds=CLAIM["bounds"])
    honest = mdp.fit(problem, 2.0, "spline", cells=4)
    assert mdp.audit(honest, pairs=5000).violation_ratio == 0
    for step in (2.0**-17, 2.0**-14):
        found = mdp.audit(replace(honest, step=step), pairs=5000)
        assert found.by_kind["search"]["violation_ratio"] > 0
        assert found.max_ratio > 1.1


@pytest.mark.parametrize("seed", range(3))
def test_draws_alone_show_the_jump(seed):
    forged = corner_mechanism(2.0**14, 0.01)
    found = mdp.audit_samples(forged, samples=200_000, seed=seed, rng=mdp.InsecureSeed(seed))
    assert found.violates
    assert found.epsilon_lower > 1.5 * forged.epsilon


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("honest_on", [True, False])
def test_honest_on_the_lattice_only_or_off_it_only(honest_on, seed):
    """An auditor who knows only lattice points, or only others, would acquit one of the two."""
    draw = exponential(seed)

    def cheat(points):
        honest = on_lattice(points) == honest_on
        return np.where(honest, draw(points), nearest(points))

    found = mdp.audit_samples(cheat, **CLAIM, samples=100_000, seed=seed)
    assert found.violates
    assert (on_lattice(np.array(found.worst_pair["points"])) != honest_on).any()


@pytest.mark.parametrize("samples", [400, 1000, 5000, 100_000])
def test_certainty_between_given_pairs(samples):
    """Never seen from one point is the strongest evidence there is, and it counts exactly."""
    pairs = [[[1.0, 1.5], [4.0, 1.5]], [[1.2, 1.0], [1.2, 3.0]]]
    found = mdp.audit_samples(nearest, **CLAIM, pairs=pairs, samples=samples)
    draws = samples // 8
    for one, pair in zip(found.confirmed, pairs, strict=True):
        assert one["seen"] == [draws, 0]
        expected = bound((draws, 0), draws, hypotheses=2) / (math.dist(*pair) + math.sqrt(2) * STEP)
        assert one["epsilon_lower"] == pytest.approx(expected, rel=1e-9)
    assert found.epsilon_lower > 0
    assert found.violates


def test_ten_draws_of_certainty_prove_little():
    """The smallest sets of draws: the event is still the right one, only the bound is no better than nothing."""
    found = mdp.audit_samples(nearest, **CLAIM, pairs=[[[1.0, 1.5], [4.0, 1.5]]], samples=40)
    assert found.worst_pair["event"] == [0]
    assert found.worst_pair["seen"] == [10, 0]
    assert found.epsilon_lower == 0
    assert not found.violates


@pytest.mark.parametrize("seed", range(5))
def test_certainty_is_found_by_the_search(seed):
    found = mdp.audit_samples(nearest, **CLAIM, samples=10_000, seed=seed)
    assert found.violates
    assert found.epsilon_lower > 20
    seen, draws = found.worst_pair["seen"], found.worst_pair["draws"]
    assert seen == [draws, 0]
    expected = bound(seen, draws) / (found.worst_pair["distance"] + found.rounding)
    assert found.epsilon_lower == pytest.approx(expected, rel=1e-9)


def test_who_is_honest_everywhere_is_left_alone():
    """At 99.9 % confidence: points on the lattice and off it, a function and a mechanism that uses all of its ε."""
    problem = mdp.Problem(np.random.default_rng(0).random((60, 2)) * [6, 4], OUTPUTS, "euclidean")
    tight = mdp.fit(problem, 0.5, "spline", cells=5)
    assert mdp.audit(tight, pairs=2000).max_ratio > 0.99
    for seed in range(25):
        assert not mdp.audit_samples(exponential(seed), **CLAIM, samples=30_000, seed=seed).violates
        assert not mdp.audit_samples(tight, samples=100_000, seed=seed, rng=mdp.InsecureSeed(seed)).violates


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CheatsOffLattice(Spline):
    """States honest probabilities everywhere and keeps to them on the lattice."""

    def sample(self, x, rng=None, *, outside="clamp"):
        return np.where(on_lattice(x), super().sample(x, rng, outside=outside), nearest(x))


def test_a_sampler_that_leaves_its_probabilities_off_the_lattice():
    problem = mdp.Problem(np.random.default_rng(0).random((60, 2)) * [6, 4], OUTPUTS, "euclidean")
    honest = mdp.fit(problem, 0.5, "spline", cells=3)
    cheat = CheatsOffLattice(**vars(replace(honest)))
    assert mdp.check_sampler(honest, samples=64_000, rng=mdp.InsecureSeed(0)).fits
    found = mdp.check_sampler(cheat, samples=64_000, rng=mdp.InsecureSeed(0))
    assert not found.fits
    assert not on_lattice(np.array([found.worst["point"]])).any()


def test_noise_has_no_outputs_to_count():
    """Noisy points are refused in words; squares of a grid, counted from them, are audited."""
    noise = mdp.noise(1.0, bounds=[[0.0, 0.0], [6.0, 4.0]])
    for check in (mdp.audit, mdp.audit_samples, mdp.check_sampler):
        with pytest.raises(
            mdp.InvalidInputError, match="reports noisy points, but an audit needs finitely many outputs"
        ):
            check(noise)

    source = mdp.InsecureSeed(0)

    def squares(points):
        noisy = np.clip(np.floor(np.asarray(noise.sample(points, source))), 0, [5, 3]).astype(int)
        return noisy @ [4, 1]

    claim = {"p": 2, "bounds": noise.bounds, "n_outputs": 24, "samples": 100_000}
    assert not mdp.audit_samples(squares, epsilon=1.0, **claim).violates
    assert mdp.audit_samples(squares, epsilon=0.5, **claim).violates
