import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from chance_tools import follow
from metricdp import InsecureSeed, InvalidInputError
from metricdp.drawing import randomness
from metricdp.drawing.randomness import SecureRandom, coins_of_ratios, integers_below


def test_secure_words_never_repeat_and_every_byte_is_uniform():
    words = SecureRandom().words(200_000)
    assert len(np.unique(words)) == len(words)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert follow(counts, np.full(256, 1 / 256))
    assert not np.array_equal(SecureRandom().words(4), SecureRandom().words(4))


def test_whatever_the_operating_system_draws_is_a_key(monkeypatch):
    """A nonce of random bytes held a counter that overflowed once in a million calls, which ended the draw."""
    monkeypatch.setattr(randomness.os, "urandom", lambda count: b"\xff" * count)
    words = SecureRandom().words(100_000)
    assert len(np.unique(words)) == len(words)


def test_seeded_words_repeat_and_advance():
    first, second = InsecureSeed(3), InsecureSeed(3)
    assert np.array_equal(first.words(5), second.words(5))
    assert not np.array_equal(first.words(5), InsecureSeed(3).words(5))
    assert InsecureSeed(3).secure is False
    assert SecureRandom.secure is True


@pytest.mark.parametrize("seed", [-1, 0.5, "x", None])
def test_bad_seeds(seed):
    with pytest.raises(InvalidInputError, match="`seed` must be a whole number of at least 0"):
        InsecureSeed(seed)


class Script:
    """A source that yields the given words and fails when asked for more."""

    secure = False

    def __init__(self, words):
        self.left = [int(word) for word in words]

    def words(self, count):
        assert len(self.left) >= count, "asked for more than there is"
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


BOUNDS = [1, 2, 3, 7, 20, 1000, 2**20 - 1, 3_333_333, 2**31 - 1, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**40]
BOUNDS += [2**52 - 1, 2**52 + 1, 3 * 2**61, 2**63 - 1]


@pytest.mark.parametrize("bound", BOUNDS)
def test_every_integer_below_a_bound_has_equally_many_words(bound):
    """All words that fall to one value: those kept must be ⌊2^64 / bound⌋, for every value tried."""
    for value in {0, 1 % bound, bound // 2, bound - 1}:
        first, last = -(-value * 2**64 // bound), -(-(value + 1) * 2**64 // bound)
        # Both ends tell: low products grow from word to word, so the words in between are all kept.
        words = sorted({*range(first, min(last, first + 200)), *range(max(first, last - 200), last)})
        kept = [word for word in words if word * bound % 2**64 >= 2**64 % bound]
        left_out = len(words) - len(kept)
        assert last - first - left_out == 2**64 // bound
        # The words to leave out are followed by as many that are kept.
        source = Script([*words, *kept[:1] * left_out])
        drawn = integers_below(source, np.full(len(words), bound, dtype=np.int64))
        assert (drawn == value).all()
        assert not source.left


def test_large_bounds_are_uniform_and_reject():
    bound = 3 * 2**61
    # 2^64 mod bound is 2^62, and the low product of 0 is less.
    source = Script([0, 2**63 + 1, 2**62 + 1])
    assert integers_below(source, np.full(2, bound)).tolist() == [bound // 4, bound // 2]
    drawn = integers_below(InsecureSeed(0), np.int64(3 * 2**40), 30_000)
    assert chisquare(np.bincount(drawn >> 40, minlength=3)).pvalue > 1e-6


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1))
def test_products_of_words(pairs):
    words, factors = np.array(pairs, dtype=np.uint64).T
    high, low = randomness._product(words, factors)
    exact = [divmod(word * factor, 2**64) for word, factor in pairs]
    assert list(zip(high.tolist(), low.tolist(), strict=True)) == exact


@pytest.mark.parametrize("denominator", [*BOUNDS, 2**22 + 1, 2**22 - 1])
def test_coins_are_the_digits_of_their_ratio(denominator):
    """Words below the ratio's digits are heads, those above are tails; at the digits themselves the next word decides."""
    for numerator in {0, 1, denominator // 3, denominator // 2, denominator - 1, denominator}:
        seen, rest = [], numerator
        for _ in range(3):
            digits, rest = divmod(rest * 2**64, denominator)
            for word, heads in ((digits - 1, True), (digits, False), (digits + 1, False)):
                if 0 <= word < 2**64 and (word != digits or rest == 0):
                    source = Script([*seen, word])
                    drawn = coins_of_ratios(source, np.array([numerator]), np.array([denominator]))
                    assert drawn.tolist() == [heads]
                    assert not source.left
            if rest == 0:
                break
            seen.append(digits)
            with pytest.raises(AssertionError, match="asked for more"):
                coins_of_ratios(Script(seen), np.array([numerator]), np.array([denominator]))


def test_coins_in_a_batch_keep_their_places():
    rng = np.random.default_rng(0)
    denominators = rng.integers(1, 2 ** rng.integers(1, 62, 4000))
    numerators = rng.integers(0, denominators + 1)
    words = rng.integers(0, 2**64, 4000, dtype=np.uint64).tolist()
    pairs = list(zip(numerators.tolist(), denominators.tolist(), strict=True))
    expected = [word * d < n * 2**64 for word, (n, d) in zip(words, pairs, strict=True)]
    # Some words are made ties; the words that follow decide those, in order.
    tied = [i for i, (n, d) in enumerate(pairs) if n * 2**64 % d and i % 5 == 0]
    for place, i in enumerate(tied):
        words[i] = pairs[i][0] * 2**64 // pairs[i][1]
        expected[i] = place % 2 == 0
    following = [0 if expected[i] else 2**64 - 1 for i in tied]
    source = Script(words + following)
    assert coins_of_ratios(source, numerators, denominators).tolist() == expected
    assert not source.left


def test_integers_below_mixed_bounds():
    bounds = np.array([1, 2, 6, 1000] * 20_000)
    drawn = integers_below(SecureRandom(), bounds)
    assert (drawn >= 0).all()
    assert (drawn < bounds).all()
    for bound in (2, 6, 1000):
        assert follow(np.bincount(drawn[bounds == bound], minlength=bound), np.full(bound, 1 / bound))
    assert len(integers_below(SecureRandom(), np.empty(0, dtype=np.int64))) == 0


FORKS = """
import os, sys, threading
from metricdp.drawing.randomness import SecureRandom
source = SecureRandom()
source.words(3)
gate_read, gate_write = os.pipe()
pipes = []
for _ in range(100):
    read, write = os.pipe()
    if os.fork() == 0:
        os.read(gate_read, 1)
        os.write(write, source.words(512).tobytes())
        os._exit(0)
    os.close(write)
    pipes.append(read)
os.write(gate_write, b"x" * 100)
for read in pipes:
    with os.fdopen(read, "rb") as stream:
        sys.stdout.buffer.write(stream.read())
for _ in range(100):
    os.wait()
drawn = []
threads = [threading.Thread(target=lambda: drawn.append(source.words(512).tobytes())) for _ in range(50)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.stdout.buffer.write(b"".join(drawn))
"""


def test_no_two_streams_of_forks_threads_and_processes_share_output():
    runs = [subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE) for _ in range(2)]
    words = np.concatenate([np.frombuffer(run.communicate()[0], dtype="<u8") for run in runs])
    assert [run.returncode for run in runs] == [0, 0]
    assert len(words) == 2 * 150 * 512
    assert len(np.unique(words)) == len(words)
