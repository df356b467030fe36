"""Exact draws: from integer weights by alias tables, from floating-point weights by rejection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from metricdp._validation import FloatArray
from metricdp.drawing.randomness import RandomSource, integers_below

__all__ = ["AliasTables", "SparseAliasTables", "draw_in_proportion"]

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

    def draw(self, row: Integers, source: RandomSource) -> NDArray[np.intp]:
        """Return one output for each row, in proportion to the row's weights, exactly if words are uniform."""
        column = integers_below(source, np.int64(self.n_outputs), len(row))
        height = source.words(len(row)) >> np.uint64(64 - self.height_bits)
        return self.owner(row, column, height.astype(np.int64))

    def owner(self, row: Integers, column: Integers, height: Integers) -> NDArray[np.intp]:
        """Return the output that owns a unit of each row: `column` below K, `height` below 2^b."""
        entry = self._columns.take(row * self.n_outputs + column)
        keep = entry >> self._alias_bits
        alias = entry & ((1 << self._alias_bits) - 1)
        return np.where(height < keep, column, alias)


class SparseAliasTables:
    """Alias tables of rows in which every output has `floor` units, and some have extras that sum to 2^b.

    A draw is a unit below K·floor + 2^b. The first K·floor units belong to the outputs in turn. The others belong to
    the alias table of the row's extras, padded with empty columns to a power of two of them, 2^c: the upper c bits of
    the unit are the column, the lower b − c bits the height.

    n_outputs : K.
    floor : units of every output.
    ends : where each row's entries begin, and, last, where all end; every row has at least one.
    columns : outputs with an extra.
    extras : their extras.
    sum_bits : b.
    """

    def __init__(
        self, n_outputs: int, floor: int, ends: Integers, columns: NDArray[np.uint16], extras: Integers, sum_bits: int
    ) -> None:
        self.n_outputs, self.floor, self.below = n_outputs, floor, n_outputs * floor
        self.total = self.below + (1 << sum_bits)
        counts = np.diff(ends)
        self._column_bits = np.ceil(np.log2(counts)).astype(np.int64)  # exact: counts are below 2^16
        self._height_bits = sum_bits - self._column_bits
        self._starts = np.concatenate([[0], np.cumsum(1 << self._column_bits)])
        self._keep = np.empty(self._starts[-1], dtype=np.int64)
        # The output of a column and its alias, 16 bits each, so that a draw looks up one place of memory for both.
        self._pair = np.empty(self._starts[-1], dtype=np.uint32)
        for bits in np.unique(self._column_bits):
            rows = np.flatnonzero(self._column_bits == bits)
            for part in np.array_split(rows, max(1, (len(rows) << bits) >> 20)):
                self._fill(part, 1 << int(bits), sum_bits - int(bits), ends, columns, extras)

    def _fill(
        self,
        rows: Integers,
        width: int,
        height_bits: int,
        ends: Integers,
        columns: NDArray[np.uint16],
        extras: Integers,
    ) -> None:
        """Make the tables of rows that are padded to the same width."""
        place = np.arange(width)
        entry = ends[rows][:, None] + place
        present = entry < ends[rows + 1][:, None]
        entry = np.where(present, entry, ends[rows][:, None])
        weights = np.where(present, extras[entry], 0)
        own = columns[entry].astype(np.uint32)
        keep, alias = _alias(weights, 1 << height_bits)
        at = self._starts[rows][:, None] + place
        self._keep[at] = keep
        self._pair[at] = own | np.take_along_axis(own, alias, axis=1) << np.uint32(16)

    def draw(self, row: Integers, source: RandomSource) -> NDArray[np.intp]:
        """Return one output for each row, in proportion to the row's weights, exactly if words are uniform."""
        return self.owner(row, integers_below(source, np.int64(self.total), len(row)))

    def owner(self, row: Integers, unit: Integers) -> NDArray[np.intp]:
        """Return the output that owns a unit of each row, `unit` below K·floor + 2^b."""
        extra = np.maximum(unit - self.below, 0)
        height_bits = self._height_bits.take(row)
        at = self._starts.take(row) + (extra >> height_bits)
        height = extra & ((1 << height_bits) - 1)
        pair = self._pair.take(at)
        likely = np.where(height < self._keep.take(at), pair & np.uint32(0xFFFF), pair >> np.uint32(16))
        return np.where(unit < self.below, unit // self.floor, likely.astype(np.int64))


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
