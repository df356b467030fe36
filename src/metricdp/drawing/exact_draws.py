"""Exact draws: from integer weights by alias tables, from floating-point weights by rejection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.drawing.randomness import RandomSource, integers_below

__all__ = ["AliasTables", "draw_in_proportion"]

# Binary digits of the proposals for floating-point weights; a second draw accounts for the digits below them.
_DIGITS = 40

Integers = NDArray[np.int64]


class AliasTables:
    """Integer alias tables (Walker 1977, Vose 1991), one per row of weights that sum to K·2^b.

    Column j of a row holds 2^b units: the first `keep` belong to output j, the others to its alias. A draw is a
    column below K and a height below 2^b, and every unit is drawn by exactly one such pair.
    """

    def __init__(self, weights: Integers) -> None:
        self.n_rows, self.n_outputs = weights.shape
        height = int(weights[0].sum()) // self.n_outputs
        self.height_bits = height.bit_length() - 1
        sums = weights.sum(axis=1)
        if height != 1 << self.height_bits or (sums != self.n_outputs * height).any() or (weights < 0).any():
            msg = "rows of weights must be non-negative and sum to (outputs · a power of two)"
            raise ValueError(msg)
        keep, alias = _alias(weights, height)
        # One number per column, so that a draw looks up one place of memory: alias in the low bits, keep above.
        self._alias_bits = max(1, (self.n_outputs - 1).bit_length())
        if self.height_bits + 1 + self._alias_bits > 63:
            msg = "the weights are too fine for so many outputs"
            raise ValueError(msg)
        self._columns = ((keep << self._alias_bits) | alias).ravel()

    def draw(self, row: Integers, column: Integers, height: Integers) -> NDArray[np.intp]:
        """Return the output that owns a unit of each row: `column` below K, `height` below 2^b."""
        entry = self._columns.take(row * self.n_outputs + column)
        keep = entry >> self._alias_bits
        alias = entry & ((1 << self._alias_bits) - 1)
        return np.where(height < keep, column, alias)


def _alias(weights: Integers, height: int) -> tuple[Integers, Integers]:
    """Fill the columns of all rows at once: in each round every row with a column to fill fills one.

    Rows keep their columns in two piles, those short of units and those with units to spare; the last of each pile
    meet, and what is left of the larger goes back to the pile where it then belongs.
    """
    n_outputs = weights.shape[1]
    left = weights.copy()
    keep = np.full(weights.shape, height, dtype=np.int64)
    alias = np.broadcast_to(np.arange(n_outputs), weights.shape).copy()
    # Short columns first, then the others; `short` and `spare` count the piles.
    pile = np.argsort(left >= height, axis=1, kind="stable")
    short = (left < height).sum(axis=1)
    spare_pile = np.take_along_axis(pile, (short[:, None] + np.arange(n_outputs)) % n_outputs, axis=1)
    spare = n_outputs - short
    active = np.flatnonzero((short > 0) & (spare > 0))
    while len(active):
        low = pile[active, short[active] - 1]
        high = spare_pile[active, spare[active] - 1]
        keep[active, low] = left[active, low]
        alias[active, low] = high
        left[active, high] -= height - left[active, low]
        fell = left[active, high] < height
        # The filled column leaves its pile; a giver that fell short takes its place.
        pile[active[fell], short[active[fell]] - 1] = high[fell]
        spare[active[fell]] -= 1
        short[active[~fell]] -= 1
        active = active[(short[active] > 0) & (spare[active] > 0)]
    return keep, alias


def draw_in_proportion(weights: FloatArray, source: RandomSource) -> NDArray[np.intp]:
    """Draw one column per row, in proportion to weights in [0, 1].

    Guarantee
    ---------
    Exactly in proportion, however small a weight: with t = weight · 2^40, an integer below Σ ⌈t⌉ is drawn; it falls
    into one column at an offset below ⌈t⌉, and is kept if the offset is below ⌊t⌋, and with probability t − ⌊t⌋ if it
    equals ⌊t⌋. So a column is kept with a probability in proportion to its t. The source's words are taken to be
    uniform and independent. Weights need not sum to 1, but a row of tiny ones would be drawn again and again.
    """
    # The sum of all rungs must fit 64 bits, however many columns there are.
    digits = min(_DIGITS, 62 - weights.shape[1].bit_length())
    scaled = weights * 2.0**digits
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
