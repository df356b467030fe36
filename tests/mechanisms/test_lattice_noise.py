"""Noise on the lattice: its law from the definition, the reference word by word, the slow path and all error bounds."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from metricdp import InsecureSeed, InvalidInputError
from metricdp.drawing.randomness import SecureRandom
from metricdp.geometry.norms import norm
from metricdp.mechanisms.noise import exact as lattice_noise
from metricdp.mechanisms.noise.exact import LatticeNoise, dyadic_below
from oracles import decimal_norm, noise_batch, noise_gap, noise_proposal_rate

INF = math.inf
ORDERS = [1.0, 2.0, INF, 1.5]
WORD = 2**64


class Discarded(Exception):
    """The attempt was not kept: a second one is asked for."""


class OneAttempt:
    """Yields the words of one attempt, then single words with further digits (zeros when there are no more)."""

    secure = False

    def __init__(self, attempt, further=()):
        self.attempt, self.further, self.used = attempt, list(further), False

    def words(self, count):
        if not self.used:
            assert count == len(self.attempt)
            self.used = True
            return np.array(self.attempt, dtype=np.uint64)
        if count > 1:
            raise Discarded
        return np.array([self.further.pop(0) if self.further else 0], dtype=np.uint64)


class Words:
    """Yields words from a list and counts them."""

    secure = False

    def __init__(self, words):
        self.left = list(words)

    def words(self, count):
        assert len(self.left) >= count, "asked for more words than the reference needed"
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def outcome(noise, attempt, further=()):
    """Return the vector of one attempt, or None if it is not kept."""
    try:
        return noise.draw(1, OneAttempt(attempt, further))[0].tolist()
    except Discarded:
        return None


def boundary(holds):
    """Return the u in [0, 1] at which `holds` changes from True to False, which it does once, to 96 binary digits."""
    low, high = 0, 2**96
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(Fraction(middle, 2**96)) else (low, middle)
    return Fraction(high, 2**96)


def digits(u, first):
    """Return the first binary digits of u, and the 64 that follow."""
    return divmod(int(u * 2 ** (first + 64)), WORD)


def axis_word(u, negative=False):
    return 2 * digits(u, 63)[0] + negative


ZERO = axis_word(Fraction(999, 1000))  # the word of a coordinate 0, unless the rate is below 1/1000


# 1. The law, from the definition


class Decisions:
    """Where the sampler's decisions change, found by asking it.

    tails : per axis and n, the share of numbers u that give a magnitude of at least n.
    """

    def __init__(self, noise, largest):
        self.noise = noise
        self.tails = [[Fraction(1)] for _ in range(noise.n_axes)]
        for axis, n in itertools.product(range(noise.n_axes), range(1, largest + 2)):
            self.tails[axis].append(boundary(lambda u, n=n, axis=axis: self._magnitude(u, axis) >= n))

    def attempt(self, vector, coin):
        """Return words that give the vector, from the middle of those that do, and a given coin."""
        ends = [(tails[abs(x)], tails[abs(x) + 1]) for tails, x in zip(self.tails, vector, strict=True)]
        words = [axis_word(sum(pair) / 2, x < 0) for pair, x in zip(ends, vector, strict=True)]
        return words + [coin] * (self.noise.words_per_attempt - self.noise.n_axes)

    def chance(self, vector):
        """Return the probability that an attempt gives the vector and is kept."""
        proposed = [(tails[abs(x)] - tails[abs(x) + 1]) / 2 for tails, x in zip(self.tails, vector, strict=True)]
        if self.noise.words_per_attempt == self.noise.n_axes:
            return math.prod(proposed)
        return math.prod(proposed) * boundary(lambda u: self._is_kept(u, vector))

    def _is_kept(self, u, vector):
        coin, further = digits(u, 64)
        return outcome(self.noise, self.attempt(vector, coin), [further]) is not None

    def _magnitude(self, u, axis):
        """Return the magnitude of one axis; the others are 0, and the coin is as small as can be."""
        words = [ZERO] * self.noise.n_axes + [1]
        words[axis] = axis_word(u)
        return outcome(self.noise, words[: self.noise.words_per_attempt], [digits(u, 63)[1]])[axis]


@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize("p", ORDERS)
def test_measured_probabilities_are_the_definition_s(p, n_axes):
    """Decisions are intervals of real numbers; their ends are found to 96 digits, so probabilities are exact sums."""
    rate = Fraction(45, 64)
    noise = LatticeNoise(rate, p, n_axes)
    largest = 4 - n_axes
    decisions = Decisions(noise, largest)
    origin = decisions.chance([0] * n_axes)
    for vector in itertools.product(range(largest + 1), repeat=n_axes):
        with localcontext(prec=50):
            expected = (-decimal_norm(vector, p) * rate.numerator / rate.denominator).exp()
            ratio = decisions.chance(vector) / origin
            assert abs(Decimal(ratio.numerator) / ratio.denominator / expected - 1) < Decimal(10) ** -27


@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize("p", ORDERS)
def test_signs_are_even_and_negative_zero_is_drawn_again(p, n_axes):
    """Every vector has one pattern of sign bits, and those of a zero with its sign set belong to none."""
    noise = LatticeNoise(0.5, p, n_axes)
    decisions = Decisions(noise, 1)
    for vector in itertools.product((-1, 0, 1), repeat=n_axes):
        assert outcome(noise, decisions.attempt(vector, 1)) == list(vector)
        words = decisions.attempt(vector, 1)
        for axis in np.flatnonzero(np.array(vector) == 0):
            again = noise.words_per_attempt * [ZERO]
            source = Words([word | int(i == axis) for i, word in enumerate(words)] + again)
            assert noise.draw(1, source).tolist() == [[0] * n_axes]
            assert not source.left


# 2. Counts


@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize("p", ORDERS)
def test_counts_on_a_coarse_lattice(p, n_axes):
    rate, reach = 0.5, 60 if n_axes < 3 else 40
    drawn = LatticeNoise(rate, p, n_axes).draw(100_000, InsecureSeed(1))
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * n_axes, indexing="ij")
    norms = np.linalg.norm(np.stack(axes), ord=p, axis=0) if n_axes > 1 else np.abs(axes[0])
    expected = np.exp(-rate * norms)
    expected *= len(drawn) / expected.sum()
    index = np.ravel_multi_index((drawn + reach).T, expected.shape, mode="clip")
    counts, expected = np.bincount(index, minlength=expected.size), expected.ravel()
    # Chi-square wants no small expectations: rare vectors count as one.
    rare = expected < 10
    counts, expected = (np.append(part[~rare], part[rare].sum()) for part in (counts, expected))
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-6


@pytest.mark.parametrize("n_axes", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [*ORDERS, 4.5])
def test_counts_on_a_fine_lattice(p, n_axes):
    """On a fine lattice rate·‖v‖_p has the density r^{N−1} e^{−r}, and directions are those of a uniform p-ball's points."""
    rate = float(dyadic_below(0.7 * 2.0**-20))
    drawn = LatticeNoise(rate, p, n_axes).draw(60_000, InsecureSeed(2)).astype(float)
    norm = np.linalg.norm(drawn, ord=p, axis=1) if n_axes > 1 else np.abs(drawn[:, 0])
    assert stats.kstest(rate * norm, stats.gamma(n_axes).cdf).pvalue > 1e-6
    orthant = (drawn < 0) @ 2 ** np.arange(n_axes)
    assert stats.chisquare(np.bincount(orthant, minlength=2**n_axes)).pvalue > 1e-6
    if n_axes == 1:
        return
    share = np.abs(drawn) / norm[:, None]
    if math.isinf(p):
        assert stats.chisquare(np.bincount(share.argmax(axis=1))).pvalue > 1e-6
        assert stats.kstest(share[share < 1], "uniform").pvalue > 1e-6
    else:
        for axis in range(n_axes):
            assert stats.kstest(share[:, axis] ** p, stats.beta(1 / p, (n_axes - 1) / p).cdf).pvalue > 1e-6


# 3. The reference


class Hostile:
    """Random words among which many leave decisions open: thresholds and their neighbours, zeros and ones."""

    secure = False

    def __init__(self, noise, seed):
        self.rng, self.log = np.random.default_rng(seed), []
        b = noise.proposal_rate
        sizes = range(4) if b > 2**-6 else [1, 2, *(int(x / b) for x in (0.1, 0.7, 1.9, 12.3))]
        with localcontext(prec=60):
            thresholds = [(-Decimal(n * b.numerator) / b.denominator).exp() for n in sizes]
            if noise.words_per_attempt > noise.n_axes:
                vectors = itertools.combinations_with_replacement(sizes, noise.n_axes)
                gaps = [noise_gap(vector, noise.rate, b, noise.p) for vector in itertools.islice(vectors, 20)]
                thresholds += [(-Decimal(gap.numerator) / gap.denominator).exp() for gap in gaps]
            words = [min(WORD - 1, int(threshold * WORD)) for threshold in thresholds]
        near = [word + step for word in words for step in (-5, -2, -1, 0, 1, 2, 5)]
        self.special = np.array([0, 1, 2, 3, WORD - 1, WORD - 2, *(x % WORD for x in near)], dtype=np.uint64)

    def words(self, count):
        words = self.rng.integers(0, WORD, size=count, dtype=np.uint64)
        chosen = self.rng.random(count) < 0.3
        words[chosen] = self.rng.choice(self.special, chosen.sum())
        self.log += words.tolist()
        return words


RATES = [Fraction(1, 2**44), dyadic_below(0.3 * 2.0**-20), Fraction(3, 2**8), Fraction(1, 2), Fraction(16)]


@pytest.mark.parametrize("n_axes", [1, 2, 3, 4])
@pytest.mark.parametrize("p", [*ORDERS, 1.0000001, 7.25])
def test_the_reference_gives_the_same_vectors_from_the_same_words(p, n_axes):
    for seed, rate in enumerate(RATES):
        noise = LatticeNoise(rate, p, n_axes)
        assert noise.proposal_rate == noise_proposal_rate(rate, p, n_axes)
        source = Hostile(noise, seed)
        count = 20 if n_axes < 3 else 10
        drawn = noise.draw(count, source)
        words = iter(source.log)
        expected = noise_batch(rate, p, n_axes, count, words.__next__)
        assert drawn.tolist() == expected
        assert next(words, None) is None


@pytest.mark.parametrize("p", ORDERS)
def test_the_reference_on_ordinary_words(p):
    rate = dyadic_below(1.3 * 2.0**-20)
    words = InsecureSeed(3).words(20_000).tolist()
    expected = noise_batch(rate, p, 2, 400, iter(words).__next__)
    assert LatticeNoise(rate, p, 2).draw(400, Words(words)).tolist() == expected


def test_vectors_do_not_depend_on_the_size_of_blocks(monkeypatch):
    noise = LatticeNoise(0.25, 1.5, 2)
    expected = None
    for block in (2**12, 1, 3, 64):
        monkeypatch.setattr(lattice_noise, "_BLOCK", block)
        drawn = noise.draw(200, Hostile(noise, 5))
        expected = drawn if expected is None else expected
        assert np.array_equal(drawn, expected)


# 4. The slow path


@pytest.mark.parametrize("p", [*ORDERS, 3.25])
@pytest.mark.parametrize("rate", [2.0**-20, 0.5])
def test_fast_and_slow_path_agree(p, rate):
    fast, slow = (LatticeNoise(rate, p, 2) for _ in range(2))
    slow._allowance = 1e9
    settled = []
    settle = slow._settle
    slow._settle = lambda *arguments: settled.append(1) or settle(*arguments)
    drawn = fast.draw(150, Hostile(fast, 1)), slow.draw(150, Hostile(slow, 1))
    assert np.array_equal(*drawn)
    assert len(settled) >= 150


@pytest.mark.parametrize("p", [*ORDERS, 4.75])
def test_the_slow_path_is_rare(p):
    noise = LatticeNoise(2.0**-20, p, 2)
    settled = []
    settle = noise._settle
    noise._settle = lambda *arguments: settled.append(1) or settle(*arguments)
    noise.draw(300_000, InsecureSeed(4))
    assert len(settled) <= 2  # less than 0.02 are expected


@pytest.mark.parametrize(
    ("sign", "further", "exponent"),
    [(0, [], None), (0, [0], None), (0, [0, 1], None), (0, [2**63], 64), (1, [2**63], -64), (0, [0, 2**63], 128)],
)
def test_words_without_digits(sign, further, exponent):
    """A word without a digit is one of a number below 2^-63; the next words say how far below."""
    source = Words([sign, ZERO, *further])
    noise = LatticeNoise(2.0**-8, 1.0, 2)
    if exponent is None:
        with pytest.raises(AssertionError, match="asked for more words"):
            noise.draw(1, source)
        return
    assert noise.draw(1, source).tolist() == [[int(exponent * 2**8 * math.log(2)), 0]]
    assert not source.left


def test_a_word_at_a_threshold_takes_as_many_words_as_its_digits_leave_open():
    rate = Fraction(1, 2)
    noise = LatticeNoise(rate, 1.0, 1)
    with localcontext(prec=150):
        digits = int((-Decimal(3) / 2).exp() * 2**255)
    parts = [digits >> 192 << 1, digits >> 128 & WORD - 1, digits >> 64 & WORD - 1, digits & WORD - 1]
    for known in (0, 1, 2, 3):
        for step, magnitude in ((-1, 3), (1, 2)):
            words = parts[: known + 1]
            words[-1] += step * (2 if known == 0 else 1)
            source = Words(words)
            assert noise.draw(1, source).tolist() == [[magnitude]]
            assert not source.left


def test_a_source_of_nothing_but_zeros_is_refused():
    class Zeros:
        secure = False

        def words(self, count):
            return np.zeros(count, dtype=np.uint64)

    for p in (1.0, 2.0):
        with pytest.raises(RuntimeError, match="nothing but zeros"):
            LatticeNoise(2.0**-44, p, 2).draw(3, Zeros())


def test_the_largest_magnitude_fits():
    """The smallest number that is not refused, at the smallest rate."""
    noise = LatticeNoise(2.0**-44, INF, 4)
    drawn = noise.draw(1, Words([0] * 5 + 4 * [*[0] * 255, 1, 0]))[0]
    assert len(set(drawn.tolist())) == 1
    assert 2**59 < drawn[0] < 2**60


@pytest.mark.parametrize("p", [1e6, 1e300, 1.7e308])
def test_huge_orders_are_the_maximum_norm(p):
    for allowance in (2.0**-49, 1e9):
        noise, limit = LatticeNoise(0.25, p, 2), LatticeNoise(0.25, INF, 2)
        noise._allowance = allowance
        assert np.array_equal(noise.draw(50, InsecureSeed(7)), limit.draw(50, InsecureSeed(7)))


def test_threads_do_not_disturb_each_other():
    noise = LatticeNoise(2.0**-10, 1.5, 3)
    noise._allowance = 2.0**-20  # about every tenth point takes the slow path
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda seed: noise.draw(500, InsecureSeed(seed)), range(8)))
    for seed, vectors in enumerate(drawn):
        assert np.array_equal(vectors, noise.draw(500, InsecureSeed(seed)))


# 5. Error bounds


def test_logarithms_are_as_good_as_stated():
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [
            rng.random(20_000),
            np.exp(-45 * rng.random(12_000)),
            1 - np.exp(-36 * rng.random(4_000)),
            1 + 3 * rng.random(4_000),
            np.nextafter(0.5 ** np.arange(63), 0),
            0.5 ** np.arange(63),
            np.nextafter(0.5 ** np.arange(63), 2),
            [lattice_noise._CENTRE, np.nextafter(lattice_noise._CENTRE, 0), np.nextafter(lattice_noise._CENTRE, 1)],
        ]
    )
    x = x[x > 0]
    logarithms = lattice_noise._minus_log(x).tolist()
    with localcontext(prec=22):
        # x e^{−ln x} = 1, and an error of the logarithm is one of the product.
        error = [
            float(Decimal(number) * Decimal(value).exp() - 1)
            for value, number in zip(logarithms, x.tolist(), strict=True)
        ]
    bound = 2.0**-50 * (np.abs(np.log(x)) + 2)
    assert (np.abs(error) <= bound).all()
    assert np.abs(error / bound).max() > 0.05  # the bound is generous, not meaningless


def test_exponentials_are_as_good_as_stated():
    y = np.concatenate([-700 * np.random.default_rng(1).random(20_000) ** 3, np.linspace(-2, 2, 5_001), [-700.0, 0.0]])
    with localcontext(prec=24):
        error = [
            float(Decimal(value) / Decimal(number).exp() - 1)
            for value, number in zip(lattice_noise._exp(y).tolist(), y.tolist(), strict=True)
        ]
    assert (np.abs(error) <= 2.0**-50 * (np.abs(y) + 2)).all()


@pytest.mark.parametrize("p", [1.0000001, 1.5, 3.0, 40.0, 1e5, 1e18])
def test_norms_are_as_good_as_stated(p):
    rng = np.random.default_rng(2)
    sizes = np.floor(np.exp(34 * rng.random((4, 1000))) - 1)
    sizes[:, :300] = sizes[:1, :300]  # alike, or nearly so: where a‖v‖_p − b‖v‖_1 is least
    sizes[1:, 100:300] += rng.integers(0, 3, (3, 200))
    sizes[1:, 300:350] = 0
    norms = lattice_noise._p_norm(sizes, p)
    with localcontext(prec=50):
        for column in np.flatnonzero(sizes.any(axis=0)):
            top = Decimal(sizes[:, column].max())
            exact = top * decimal_norm([Decimal(x) / top for x in sizes[:, column].tolist()], p)
            assert abs(Decimal(float(norms[column])) / exact - 1) < Decimal(2) ** -44


@pytest.mark.parametrize("p", [2.0, INF, 1.5, 4.75])
def test_exponents_of_the_coin_are_as_good_as_stated(p):
    noise = LatticeNoise(dyadic_below(0.3 * 2.0**-20), p, 3)
    rng = np.random.default_rng(3)
    sizes = np.floor(rng.exponential(2.0**23, (3, 1000)))
    sizes[:, :500] = sizes[:1, :500] + rng.integers(0, 100, (3, 500))  # nearly alike: most digits cancel
    gaps, errors = noise._gap(sizes)
    for vector, gap, error in zip(sizes.T.astype(int).tolist(), gaps.tolist(), errors.tolist(), strict=True):
        exact = noise_gap(vector, noise.rate, noise.proposal_rate, p)
        assert abs(Fraction(gap) - exact) <= Fraction(error) * Fraction(3, 4)  # the rest is for the comparison


@pytest.mark.parametrize("p", [2.0, INF, 1.5])
def test_enclosures_hold_the_logarithm_of_every_number_with_those_digits(p):
    noise = LatticeNoise(2.0**-20, p, 2)
    special = [*(2**k for k in range(64)), WORD - 1, WORD - 2, 0, 1, 3]
    words = np.append(InsecureSeed(5).words(3000), np.array(special, dtype=np.uint64)).reshape(-1, 3)
    lows, highs = noise._enclosures(words)
    with localcontext(prec=30):
        for word, low, high in zip(words.T.ravel().tolist(), lows.ravel(), highs.ravel(), strict=True):
            ends = [-(Decimal(n) / 2**63).ln() if n else Decimal("inf") for n in (word // 2 + 1, word // 2)]
            assert low <= ends[0]
            assert ends[1] <= high


# 6. Rates


def unit_of(value):
    """Return the spacing of fractions of 30 binary digits above `value`."""
    unit = Fraction(1)
    while value / unit < 2**29:
        unit /= 2
    while value / unit >= 2**30:
        unit *= 2
    return unit


@pytest.mark.parametrize("n_axes", [2, 3, 4])
@pytest.mark.parametrize("p", [Fraction(2), Fraction(3, 2), Fraction(5, 4), Fraction(29, 4), Fraction(1025, 1024)])
@pytest.mark.parametrize("rate", RATES)
def test_proposals_are_below_the_target_and_barely(rate, p, n_axes):
    """b N^{1 − 1/p} < a, to the power of p's numerator, as fractions; the next larger b is not below."""
    b = LatticeNoise(rate, float(p), n_axes).proposal_rate
    unit = unit_of(b)
    power, axes = p.numerator, n_axes ** (p.numerator - p.denominator)
    assert b**power * axes < rate**power <= (b + unit) ** power * axes
    assert b.denominator.bit_count() == 1
    assert b.numerator < 2**30


@pytest.mark.parametrize("n_axes", [2, 3, 4])
@pytest.mark.parametrize("rate", RATES)
def test_proposals_for_the_maximum_norm(rate, n_axes):
    b = LatticeNoise(rate, INF, n_axes).proposal_rate
    assert b * n_axes < rate <= (b + unit_of(b)) * n_axes


@given(vector=st.lists(st.integers(-(2**60), 2**60), min_size=2, max_size=4), rate=st.sampled_from(RATES))
def test_the_chance_of_being_kept_is_never_above_one(vector, rate):
    l1 = sum(map(abs, vector))
    b = LatticeNoise(rate, 2.0, len(vector)).proposal_rate
    assert (b * l1) ** 2 <= rate**2 * sum(x * x for x in vector)
    b = LatticeNoise(rate, INF, len(vector)).proposal_rate
    assert b * l1 <= rate * max(map(abs, vector))
    b = LatticeNoise(rate, 1.5, len(vector)).proposal_rate
    roots = [math.isqrt(abs(x) ** 3) for x in vector]  # rounded down
    assert (b * l1) ** 3 <= rate**3 * (sum(roots) + len(roots)) ** 2


@given(value=st.floats(1e-300, 1e300) | st.fractions(Fraction(1, 10**30), 10**30))
def test_dyadic_below(value):
    below, value = dyadic_below(value), Fraction(value)
    assert (below / unit_of(below)).denominator == 1
    assert below <= value < below + unit_of(below)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, INF, "x", None, [1]])
def test_bad_values_of_dyadic_below(value):
    with pytest.raises(InvalidInputError, match="`value` must be a positive finite number"):
        dyadic_below(value)


@pytest.mark.parametrize("rate", [0, -1, 2.0**-45, 16.5, Fraction(1, 2**44) - Fraction(1, 2**90)])
def test_rates_out_of_range(rate):
    with pytest.raises(InvalidInputError, match=r"`rate` must be from 2\^-44 to 2\^4"):
        LatticeNoise(rate, 2.0, 2)


def test_other_bad_arguments():
    with pytest.raises(InvalidInputError, match="`rate` must be a fraction that a floating-point number can hold"):
        LatticeNoise(Fraction(1, 3), 2.0, 2)
    with pytest.raises(InvalidInputError, match="`rate` must be a positive finite number"):
        LatticeNoise(math.nan, 2.0, 2)
    with pytest.raises(InvalidInputError, match="`p` must be"):
        LatticeNoise(0.5, 0.9, 2)
    with pytest.raises(InvalidInputError, match="`n_axes` must be a whole number of at least 1"):
        LatticeNoise(0.5, 2.0, 0)
    with pytest.raises(InvalidInputError, match="`n_axes` must be at most 4, got 5"):
        LatticeNoise(0.5, 2.0, 5)


def test_shapes_and_words_per_attempt():
    for p, n_axes, words in ((1.0, 3, 3), (2.0, 1, 1), (2.0, 2, 3), (INF, 4, 5)):
        noise = LatticeNoise(0.5, p, n_axes)
        assert noise.words_per_attempt == words
        drawn = noise.draw(7, SecureRandom())
        assert drawn.shape == (7, n_axes)
        assert drawn.dtype == np.int64
        assert noise.draw(0, SecureRandom()).shape == (0, n_axes)


@pytest.mark.parametrize("p", [1.5, 100.0, 1000.0, 1e308])
def test_the_origin_has_its_probability_for_every_order(p):
    """Rounding up small terms once gave the vector 0 a norm, so that it was drawn too rarely."""
    noise, draws = LatticeNoise(Fraction(1), p, 2), 100_000
    along = np.arange(-60.0, 61.0)
    sizes = norm(np.stack(np.meshgrid(along, along), axis=-1), p)
    chance = 1 / np.exp(-sizes).sum()
    seen = int((noise.draw(draws, InsecureSeed(0)) == 0).all(axis=1).sum())
    assert abs(seen - draws * chance) < 5 * math.sqrt(draws * chance * (1 - chance))
