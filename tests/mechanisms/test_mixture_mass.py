"""Label probabilities as mixtures: against cubature, marginals and draws of the density, and the guarantee itself."""

import math

import numpy as np
import pytest
from scipy import integrate, special

from metricdp.errors import InvalidInputError, ProblemTooLargeError
from metricdp.geometry.norms import norm
from metricdp.mechanisms.laplace import mixture_mass
from metricdp.mechanisms.laplace.mixture_mass import MOST_SQUARES, MixtureMass
from metricdp.mechanisms.laplace.planar_mass import PlanarMass
from metricdp.mechanisms.laplace.squares import Squares
from oracles import by_cubature, by_layers, total_mass

CASES = [(1.5, 2), (3, 2), (math.inf, 2), (1.2, 3), (2, 3), (math.inf, 3), (2, 4), (math.inf, 4)]


def patchwork(p, n_axes, shape=None, rate=1.3, side=3.0, n_outputs=6, seed=0):
    """Labels strewn at random over a window one unit wider than the box [0, side]^N."""
    shape = shape or {2: (7, 9), 3: (5, 4, 6), 4: (4, 3, 4, 3)}[n_axes]
    window = np.array([np.full(n_axes, -1.0), np.full(n_axes, side + 1.0)])
    labels = np.random.default_rng(seed).integers(0, n_outputs, shape)
    return MixtureMass(Squares(window, shape), labels, rate, n_outputs, p)


@pytest.mark.parametrize(("p", "n_axes"), CASES)
def test_rows_are_the_integral_of_the_density(p, n_axes):
    mass = patchwork(p, n_axes)
    x = np.random.default_rng(1).uniform(0.3, 2.7, n_axes)
    if math.isinf(p):  # cubature is poor where the largest coordinate changes
        reference, own_error = by_layers(mass, x), 1e-10
    else:
        coarse, reference = (by_cubature(mass, x, k) for k in {2: (9, 16), 3: (4, 6), 4: (3, 4)}[n_axes])
        own_error = np.abs(reference - coarse).max()
        assert own_error < {2: 1e-8, 3: 1e-4, 4: 6e-3}[n_axes]
    assert reference.sum() == pytest.approx(1, abs=own_error)
    assert np.abs(mass.rows(x[None])[0] - reference).max() <= mass.error + own_error


def draws(p, n_axes, count, seed):
    """Noise of density ∝ e^{−‖v‖_p}: of p = 1 noise of a smaller rate, keep what the definition keeps."""
    rng = np.random.default_rng(seed)
    rate = n_axes ** (1 / p - 1)
    v = rng.laplace(scale=1 / rate, size=(count, n_axes))
    return v[rng.random(count) < np.exp(rate * np.abs(v).sum(axis=1) - norm(v, p))]


@pytest.mark.parametrize(("p", "n_axes"), CASES)
def test_draws_follow_the_rows(p, n_axes):
    mass = patchwork(p, n_axes, seed=3)
    for x in np.random.default_rng(4).uniform(0, 3, (2, n_axes)):
        noisy = x + draws(p, n_axes, 400_000, seed=5) / mass.rate
        counts = np.bincount(mass.labels.ravel()[mass.squares.square_of(noisy)], minlength=mass.n_outputs)
        row = mass.rows(x[None])[0]
        sigma = np.sqrt(len(noisy) * row * (1 - row))
        assert np.abs(counts - len(noisy) * row).max() <= 5 * sigma.max()
        assert (np.abs(counts - len(noisy) * row) <= 5 * sigma + 1).all()


# Densities of one coordinate of the noise at v > 0, integrated over all the others by hand.
MARGINALS = {
    (2, 2): lambda v: v * special.k1(v) / math.pi,
    (2, 3): lambda v: (1 + v) * math.exp(-v) / 4,
    (2, 4): lambda v: v**2 * special.kn(2, v) / (3 * math.pi),
    (math.inf, 2): lambda v: (1 + v) * math.exp(-v) / 4,
    (math.inf, 3): lambda v: (v**2 + 2 * v + 2) * math.exp(-v) / 12,
    (math.inf, 4): lambda v: (v**3 + 3 * v**2 + 6 * v + 6) * math.exp(-v) / 48,
}


@pytest.mark.parametrize(("p", "n_axes"), MARGINALS)
@pytest.mark.parametrize("across", [0, -1])
def test_slabs_hold_what_the_marginal_says(p, n_axes, across):
    """Labels that depend on one axis: relative accuracy from the slab of the point to one 600 / rate away."""
    rate = 2.0
    shape = [2] * n_axes
    shape[across] = 40
    window = np.array([np.full(n_axes, -1.0), np.full(n_axes, 1.0)])
    window[:, across] = -1, 319
    squares = Squares(window, tuple(shape))
    labels = np.broadcast_to(np.moveaxis(np.arange(40).reshape(-1, *[1] * (n_axes - 1)), 0, across), shape)
    mass = MixtureMass(squares, labels, rate, 40, p)
    x = np.full(n_axes, 0.2)
    row = mass.rows(x[None])[0]
    for k in [0, 1, 2, 10, 39]:
        low, high = rate * (squares.edges[across][[k, k + 1]] - 0.2)
        low, high = (-np.inf if k == 0 else low), (40 + low if k == 39 else high)
        pieces = [(0, -low), (0, high)] if k == 0 else [(low, high)]
        marginal = MARGINALS[p, n_axes]
        truth = sum(integrate.quad(marginal, a, b, epsrel=1e-12, epsabs=0, limit=200)[0] for a, b in pieces)
        assert row[k] == pytest.approx(truth, rel=mass.relative_error + 1e-10)


@pytest.mark.parametrize(("p", "n_axes"), [(1.01, 2), *CASES, (25, 2)])
@pytest.mark.parametrize("distance", [1.0, 8.0, 90.0, 660.0])
def test_one_square_far_along_an_axis_is_right_relatively(p, n_axes, distance):
    """The density is smooth over a square off the point's axes, so a few nodes integrate it exactly."""
    side, beyond = 0.25, math.ceil(distance / 0.25)
    shape = (beyond + 2, *[3] * (n_axes - 1))
    window = np.array([[0.0] + [-0.6] * (n_axes - 1), [shape[0] * side] + [0.9] * (n_axes - 1)])
    labels = np.zeros(shape, dtype=int)
    labels[(beyond, *[1] * (n_axes - 1))] = 1
    mass = MixtureMass(Squares(window, shape), labels, 1.0, 2, p)
    x = np.array([[0.0] + [-0.2] * (n_axes - 1)])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, high = np.array([beyond * side] + [0.1] * (n_axes - 1)), np.array([(beyond + 1) * side] + [0.6] * (n_axes - 1))
    at = np.meshgrid(*(a + (b - a) * (nodes + 1) / 2 for a, b in zip(low, high, strict=True)), indexing="ij")
    density = np.exp(-norm(np.stack(at, axis=-1), p)) / total_mass(p, n_axes)
    for width in (high - low)[::-1]:
        density = density @ weights * width / 2
    assert 0 < mass.relative_error < 3e-8
    assert mass.rows(x)[0, 1] == pytest.approx(float(density), rel=mass.relative_error)


def test_the_plane_agrees_with_its_closed_form():
    mass = patchwork(2, 2, shape=(20, 31), n_outputs=40, rate=5.0)
    box = np.array([[0.0, 0.0], [3.0, 3.0]])
    points = np.random.default_rng(6).uniform(0, 3, (50, 2))
    points[0], points[1, 0] = mass.squares.edges[0][5], mass.squares.edges[0][7]  # on a line, and on a corner
    truth = PlanarMass(mass.squares, mass.labels, mass.rate, 40, box).rows(points)
    assert np.abs(mass.rows(points) - truth).max() <= mass.error
    assert np.abs(mass.rows(points) / truth - 1).max() <= mass.relative_error
    assert mass.error < 1e-9


@pytest.mark.parametrize(("p", "n_axes"), [*CASES, (1.005, 2), (25, 2)])
def test_rows_are_distributions_and_hardly_scaled(p, n_axes):
    mass = patchwork(p, n_axes, seed=8)
    points = np.random.default_rng(9).uniform(-6, 9, (40, n_axes))  # some of them outside the window
    rows, sums = mass.rows(points), mass._masses(points).sum(axis=1)
    assert rows.shape == (40, 6)
    assert rows.min() > 0
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-14
    assert np.abs(sums - 1).max() <= mass.error
    assert mass.error <= 1e-9


@pytest.mark.parametrize(("p", "n_axes"), CASES)
def test_a_row_does_not_depend_on_its_neighbours(p, n_axes):
    mass = patchwork(p, n_axes, rate=9.0)
    points = np.random.default_rng(10).uniform(0, 3, (70, n_axes))
    alone = np.concatenate([mass.rows(x[None]) for x in points])
    assert np.abs(mass.rows(points) / alone - 1).max() < 1e-12
    assert mass.rows(points[:0]).shape == (0, 6)


@pytest.mark.parametrize(("p", "n_axes"), [(1.1, 2), *CASES, (12, 2)])
@pytest.mark.parametrize("rate", [0.2, 3.0, 150.0])
def test_no_pair_violates_the_guarantee(p, n_axes, rate):
    mass = patchwork(p, n_axes, rate=rate, seed=11)
    rng = np.random.default_rng(12)
    x = rng.uniform(0, 3, (200, n_axes))
    step = rng.normal(size=x.shape) * rng.choice([1e-3, 0.1, 1.0, 3.0], (200, 1)) / max(rate, 1)
    step[:60] *= np.eye(n_axes)[rng.integers(0, n_axes, 60)]  # along an axis, where the bound is nearly reached
    y = np.clip(x + step, 0, 3)
    before, after = mass.rows(x), mass.rows(y)
    seen = (before > math.exp(-700)) & (after > math.exp(-700))
    changed = np.abs(np.log(before[seen] / after[seen]))
    allowed = np.broadcast_to(rate * norm(x - y, p)[:, None], seen.shape)[seen]
    assert (changed <= allowed + 2 * mass.relative_error + 1e-12).all()
    moved = allowed > 1e-2
    # The bound is not idle: random pairs come near it, the fewer the more axes there are.
    assert (changed[moved] / allowed[moved]).max() > (0.5 if rate < 1 else 0.9) * {2: 1.0, 3: 0.8, 4: 0.5}[n_axes]


@pytest.mark.parametrize(("p", "n_axes"), CASES)
def test_tails_fall_at_the_rate_and_stay_positive(p, n_axes):
    """A point moves away from the only square of a label, along an axis, up to 690 / rate."""
    shape = (3, *[2] * (n_axes - 1))
    window = np.array([[0.0] * n_axes, [690.0] + [4.0] * (n_axes - 1)])
    labels = np.zeros(shape, dtype=int)
    labels[(0, *[0] * (n_axes - 1))] = 1
    mass = MixtureMass(Squares(window, shape), labels, 1.0, 2, p)
    along = np.linspace(230, 690, 200)
    points = np.column_stack([along, *[np.full(200, 1.0)] * (n_axes - 1)])
    tail = np.log(mass.rows(points)[:, 1])
    slope = np.diff(tail) / np.diff(along)
    assert tail[-1] < -400
    assert (slope < 0).all()
    assert (slope >= -1 - 4 * mass.relative_error).all()
    assert slope[-1] < -0.98


def test_far_points_put_everything_into_the_nearest_square():
    for p in (1.5, 2, math.inf):
        rows = patchwork(p, 2).rows(np.array([[1e9, 1e9], [-1e5, 1e9]]))
        assert np.isfinite(rows).all()
        assert (rows.max(axis=1) > 1 - 1e-12).all()


def coarsened(monkeypatch, step):
    """Make the quadrature coarser and the demands smaller."""
    monkeypatch.setattr(mixture_mass, "_STEP", step)
    monkeypatch.setattr(mixture_mass, "_STRETCH", 2.0)
    monkeypatch.setattr(mixture_mass, "_REFINEMENTS", (1.0,))


@pytest.mark.parametrize(("p", "n_axes"), [(1.5, 2), (2, 2), (3, 3)])
def test_errors_are_bounds_and_not_idle_ones(monkeypatch, p, n_axes):
    exact = patchwork(p, n_axes, rate=4.0)
    points = np.random.default_rng(13).uniform(0, 3, (60, n_axes))
    truth = exact.rows(points)
    coarsened(monkeypatch, 0.8)
    monkeypatch.setattr(mixture_mass, "_WORST", 1.0)
    coarse = patchwork(p, n_axes, rate=4.0)
    absolute, relative = np.abs(coarse.rows(points) - truth).max(), np.abs(coarse.rows(points) / truth - 1).max()
    assert 1e-8 < absolute <= coarse.error
    assert 1e-8 < relative <= coarse.relative_error
    assert coarse.error < 1000 * absolute
    assert coarse.relative_error < 1000 * relative


def test_a_coarse_quadrature_is_refined_or_refused(monkeypatch):
    plain = patchwork(2, 2)
    monkeypatch.setattr(mixture_mass, "_STRETCH", 3.0)
    refined = patchwork(2, 2)
    assert refined.error < 1e-9
    assert len(refined._noise.mixture.weights) != len(plain._noise.mixture.weights)
    coarsened(monkeypatch, 0.8)
    with pytest.raises(InvalidInputError, match="`p` must be inf or a number"):
        patchwork(2, 2)


@pytest.mark.parametrize("p", [1.005, 1.3, 2, 3, 25])
def test_interpolated_tails_are_incomplete_gamma_functions(p):
    table = mixture_mass._ScaledTails.of(p)
    t = np.concatenate([np.geomspace(1e-12, 1, 200), np.linspace(1, 650, 300)])
    value = table((np.log(t) - table.lowest) * mixture_mass._CELLS) * np.exp(-t)
    assert np.abs(value / special.gammaincc(1 / p, t) - 1).max() < 1e-12
    assert table.error < 1e-12


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_moments_are_incomplete_gamma_functions(degree):
    width = np.concatenate([np.geomspace(1e-9, 1, 50), np.linspace(0.9, 1.1, 21), np.geomspace(1, 800, 50)])
    for k, moment in enumerate(mixture_mass._moments(width, np.exp(-width), degree)):
        assert np.abs(moment / (math.factorial(k) * special.gammainc(k + 1, width)) - 1).max() < 1e-12


@pytest.mark.parametrize("p", [1.0001, 60, 1e300])
def test_orders_that_need_too_many_nodes_are_refused(p):
    with pytest.raises(InvalidInputError, match=r"`p` must be inf or a number .* got "):
        patchwork(p, 2)


def test_what_it_is_not_for_is_refused():
    line = Squares(np.array([[0.0], [1.0]]), (4,))
    with pytest.raises(InvalidInputError, match="`squares` must be of 2, 3 or 4 axes, got 1"):
        MixtureMass(line, np.zeros(4, dtype=int), 1.0, 1, 2)
    square = Squares(np.array([[0.0, 0.0], [1.0, 1.0]]), (4, 4))
    with pytest.raises(InvalidInputError, match="`labels` must be of the squares' shape"):
        MixtureMass(square, np.zeros((4, 5), dtype=int), 1.0, 1, 2)
    with pytest.raises(InvalidInputError, match="`p` must be above 1"):
        patchwork(1, 2)
    with pytest.raises(InvalidInputError, match="`rate` must be a positive finite number"):
        patchwork(2, 2, rate=0.0)
    shape = (4096, MOST_SQUARES // 4096 + 1)
    labels = np.broadcast_to(np.array(0), shape)
    with pytest.raises(ProblemTooLargeError, match="at most 16,777,216 squares"):
        MixtureMass(Squares(square.window, shape), labels, 1.0, 1, 1.5)
