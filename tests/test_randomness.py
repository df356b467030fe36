import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from metricdp import InsecureSeed, InvalidInputError
from metricdp.randomness import SecureRandom, uniform_floats


def test_secure_words_never_repeat_and_every_byte_is_uniform():
    words = SecureRandom().words(200_000)
    assert len(np.unique(words)) == len(words)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-6
    assert not np.array_equal(SecureRandom().words(4), SecureRandom().words(4))


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


def test_uniform_floats_are_uniform_in_the_half_open_interval():
    class Extremes:
        secure = False

        def words(self, count):
            return np.array([0, 2**64 - 1], dtype=np.uint64)

    assert uniform_floats(Extremes(), 2).tolist() == [0.0, 1 - 2.0**-53]
    assert kstest(uniform_floats(InsecureSeed(1), 50_000), "uniform").pvalue > 1e-4
