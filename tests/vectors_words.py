"""Words for shared vectors: given ones first, then those of SplitMix64 (Steele, Lea and Flood 2014), the same in JavaScript."""

import numpy as np

_MASK = 2**64 - 1


class ListedWords:
    """A source of words for `sample`; `taken` counts them."""

    secure = False

    def __init__(self, seed, first=()):
        self.state, self.first, self.taken = seed, list(first), 0

    def words(self, count):
        return np.array([self._next() for _ in range(count)], dtype=np.uint64)

    def _next(self):
        self.taken += 1
        if self.first:
            return self.first.pop(0)
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)
