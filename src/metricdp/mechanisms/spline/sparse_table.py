"""Control rows of splines with many outputs: one weight for all that is unlikely, and more for the few that are likely.

At any place only a handful of outputs matter. A dense table of 360,000 sites and 400 outputs takes 1.2 GB; what this
one stores is a tenth of that, and the proof skips what cannot break.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from metricdp._validation import freeze_arrays
from metricdp.drawing.exact_draws import SparseAliasTables

__all__ = ["MOST_SPARSE_OUTPUTS", "SUM_BITS", "SparseTable"]

# The extras of every row sum to 2^SUM_BITS. With K floors beside them the sum of a row stays below 2^53, which programs
# whose numbers are floats can hold exactly too.
SUM_BITS = 50

# Outputs are numbered by 16 bits.
MOST_SPARSE_OUTPUTS = 2**16

_LARGEST_SUM = 2**53
_TYPES = [np.dtype(kind).str for kind in (np.uint16, np.uint16, np.int64)]


@dataclass(frozen=True, eq=False)
class SparseTable:
    """Integer weights (sites, outputs): `floor` everywhere, plus an extra for some outputs of each site.

    n_outputs : K.
    floor : f ≥ 1, the weight of an output without an extra.
    counts : how many outputs have an extra, for every site.
    columns : these outputs, site after site, increasing within a site.
    extras : their extras e ≥ 1, which sum to 2^50 at every site. An output's weight is f + e.

    All rows have the sum K·f + 2^50.
    """

    n_outputs: int
    floor: int
    counts: NDArray[np.uint16]
    columns: NDArray[np.uint16]
    extras: NDArray[np.int64]

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        freeze_arrays(self)

    @property
    def shape(self) -> tuple[int, int]:
        """Sites and outputs, as a dense table would have them."""
        return len(self.counts), self.n_outputs

    @property
    def size(self) -> int:
        """Weights in all, as a dense table would have them."""
        return len(self.counts) * self.n_outputs

    @property
    def total(self) -> int:
        """The sum of every row."""
        return self.n_outputs * self.floor + (1 << SUM_BITS)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where each site's entries begin, and, last, where all end."""
        return np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])

    def fault(self) -> str | None:
        """Say which rule of the table is broken, if any; whoever draws from the table relies on all of them."""
        arrays = (self.counts, self.columns, self.extras)
        if [array.dtype.str for array in arrays] != _TYPES or any(array.ndim != 1 for array in arrays):
            return "counts and columns must be lists of 16-bit numbers, and extras 64-bit integers"
        if not 1 <= self.n_outputs <= MOST_SPARSE_OUTPUTS:
            return f"a sparse table has at most {MOST_SPARSE_OUTPUTS} outputs"
        if type(self.floor) is not int or not (self.floor >= 1 and self.total <= _LARGEST_SUM):
            return "the floor must be a whole number, at least 1, with which rows sum to at most 2^53"
        if not len(self.counts) or int(self.counts.min()) < 1:
            return "every site needs an output with an extra"
        if not self.ends[-1] == len(self.columns) == len(self.extras):
            return "the counts do not add up to the number of columns and extras"
        return self._entries_fault()

    def _entries_fault(self) -> str | None:
        if int(self.columns.max()) >= self.n_outputs:
            return "a column is not the number of an output"
        falls = np.diff(self.columns.astype(np.int32)) <= 0
        falls[self.ends[1:-1] - 1] = False  # from one site to the next
        if falls.any():
            return "the columns of a site do not increase"
        if int(self.extras.min()) < 1 or int(self.extras.max()) > 1 << SUM_BITS:
            return f"an extra is not between 1 and 2^{SUM_BITS}"
        starts = self.ends[:-1]
        # Integers could wrap around to the right sum; floats of this size are off by far less than a wrap.
        rough = np.add.reduceat(self.extras.astype(np.float64), starts)
        if rough.max() > 2.0 ** (SUM_BITS + 1) or (np.add.reduceat(self.extras, starts) != 1 << SUM_BITS).any():
            return f"the extras of a site do not sum to 2^{SUM_BITS}"
        return None

    def columns_of_sites(self) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield every output that has an extra somewhere, the sites where it has one, and the extras."""
        order = np.argsort(self.columns, kind="stable")
        sites = np.repeat(np.arange(len(self.counts)), self.counts)[order]
        borders = np.searchsorted(self.columns[order], np.arange(self.n_outputs + 1))
        extras = self.extras[order]
        for output, (first, last) in enumerate(itertools.pairwise(borders)):
            if last > first:
                yield output, sites[first:last], extras[first:last]

    def probabilities(self, weights: sparse.csr_array) -> NDArray[np.float64]:
        """Return mixtures of rows, in floating point: `weights` is (mixtures, sites), with rows that sum to 1."""
        mixed = (weights @ self._scaled_extras).toarray()
        mixed += self.floor / self.total
        return np.asarray(mixed)

    @cached_property
    def _scaled_extras(self) -> sparse.csr_array:
        scaled = self.extras / float(self.total)
        return sparse.csr_array((scaled, self.columns.astype(np.int32), self.ends), shape=self.shape)

    def alias_tables(self) -> SparseAliasTables:
        """Return what draws outputs from the rows, exactly."""
        return SparseAliasTables(self.n_outputs, self.floor, self.ends, self.columns, self.extras, SUM_BITS)

    def to_settings(self) -> dict[str, Any]:
        """Return what a file holds."""
        return {"floor": self.floor, "counts": self.counts, "columns": self.columns, "extras": self.extras}
