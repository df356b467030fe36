import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chisquare

from metricdp import InsecureSeed, InvalidInputError
from metricdp.randomness import SecureRandom, integers_below


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


class Script:
    """A source that yields the given 32-bit words, then fails."""

    secure = False

    def __init__(self, halves):
        self.halves = np.asarray(halves, dtype=np.uint32)
        self.used = 0

    def words(self, count):
        taken = self.halves[self.used : self.used + 2 * count]
        assert len(taken), "asked for more than there is"
        self.used += 2 * count
        return np.concatenate([taken, np.zeros(2 * count - len(taken), np.uint32)]).view(np.uint64)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 20, 1000, 2**20 - 1, 3_333_333, 2**31 - 1, 2**31 + 1, 2**32 - 1, 2**32])
def test_every_integer_below_a_bound_has_equally_many_words(bound):
    """All words that fall to one value: those kept must be ⌊2^32 / bound⌋, for every value tried."""
    for value in {0, 1 % bound, bound // 2, bound - 1}:
        first, last = -(-value * 2**32 // bound), -(-(value + 1) * 2**32 // bound)
        if last - first > 2**20:  # both ends tell: the words in between are all kept
            words = np.concatenate([np.arange(first, first + 2**19), np.arange(last - 2**19, last)])
        else:
            words = np.arange(first, last)
        low = (
            words.astype(object) * bound % 2**32
            if bound == 2**32
            else (words.astype(np.uint64) * np.uint64(bound)) % 2**32
        )
        kept = int((np.asarray(low) >= 2**32 % bound).sum())
        assert last - first - (len(words) - kept) == 2**32 // bound
        # The words to leave out are followed by one that is kept.
        spare = np.full(2 * (len(words) - kept) + 4, words[np.asarray(low) >= 2**32 % bound][0])
        source = Script(np.concatenate([words, np.zeros(len(words) % 2), spare]))
        drawn = integers_below(source, np.full(len(words), bound, dtype=np.int64))
        assert (drawn == value).all()
        assert source.used == len(words) + len(words) % 2 + 2 * -(-(len(words) - kept) // 2)


def test_large_bounds_are_uniform_and_reject():
    bound = 3 * 2**61
    low = bound * 2 // 2 - 1

    class Words:
        secure = False

        def __init__(self):
            self.queue = [[2**64 - 1, low], [5]]  # 2^64 − 1 lies beyond the largest multiple of the bound

        def words(self, count):
            taken = self.queue.pop(0)
            assert len(taken) == count
            return np.array(taken, dtype=np.uint64)

    assert integers_below(Words(), np.full(2, bound)).tolist() == [5, low]
    drawn = integers_below(InsecureSeed(0), np.int64(3 * 2**40), 30_000)
    assert chisquare(np.bincount(drawn >> 40, minlength=3)).pvalue > 1e-6


def test_integers_below_mixed_bounds():
    bounds = np.array([1, 2, 6, 1000] * 20_000)
    drawn = integers_below(SecureRandom(), bounds)
    assert (drawn >= 0).all()
    assert (drawn < bounds).all()
    for bound in (2, 6, 1000):
        assert chisquare(np.bincount(drawn[bounds == bound], minlength=bound)).pvalue > 1e-6
    assert len(integers_below(SecureRandom(), np.empty(0, dtype=np.int64))) == 0


FORKS = """
import os, sys, threading
from metricdp.randomness import SecureRandom
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
