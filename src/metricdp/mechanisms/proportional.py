"""Exact draws from weights that are given as floating-point numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.randomness import RandomSource, integers_below

__all__ = ["draw_in_proportion"]

# Proposals have weights of so many binary digits; a second draw makes up for the rest.
_DIGITS = 40


def draw_in_proportion(weights: FloatArray, source: RandomSource) -> NDArray[np.intp]:
    """Draw one column per row, in proportion to weights in [0, 1].

    Guarantee
    ---------
    Exactly in proportion, however small a weight: with t = weight · 2^40, an integer below Σ ⌈t⌉ is drawn; it falls
    into one column at an offset below ⌈t⌉, and is kept if the offset is below ⌊t⌋, and with probability t − ⌊t⌋ if it
    equals ⌊t⌋. So a column is kept with a probability in proportion to its t. The source's words are taken to be
    uniform and independent. Weights need not sum to 1, but a row of tiny ones would be drawn again and again.
    """
    scaled = weights * 2.0**_DIGITS
    whole = np.floor(scaled)
    ladder = np.cumsum(np.ceil(scaled).astype(np.int64), axis=1)
    drawn = np.empty(len(weights), dtype=np.intp)
    open_ = np.arange(len(weights))
    while len(open_):
        rungs = ladder[open_]
        height = integers_below(source, rungs[:, -1])
        column = (rungs <= height[:, None]).sum(axis=1)
        # Counted from the top of the column, so that no rung below the first is needed.
        above = (rungs[np.arange(len(open_)), column] - height).astype(np.float64)
        part = scaled[open_, column] - whole[open_, column]
        last = (above == 1.0) & (part > 0)
        kept = ~last
        kept[last] = _coins(part[last], source)
        drawn[open_[kept]] = column[kept]
        open_ = open_[~kept]
    return drawn


def _coins(chances: FloatArray, source: RandomSource) -> NDArray[np.bool_]:
    """Return True with exactly the given chances in [0, 1): binary digits are compared 64 at a time."""
    heads = np.zeros(len(chances), dtype=bool)
    digits = chances.copy()
    open_ = np.arange(len(chances))
    while len(open_):
        digits = digits * 2.0**64
        whole = np.floor(digits)
        words, limit = source.words(len(open_)), whole.astype(np.uint64)
        heads[open_] = words < limit
        tied = words == limit
        digits, open_ = (digits - whole)[tied], open_[tied]
    return heads
