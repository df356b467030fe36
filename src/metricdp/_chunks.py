"""Work in parts, so that memory does not grow with the number of points."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["DRAWS_AT_ONCE", "NUMBERS_AT_ONCE", "chunks", "items_at_once", "slices"]

# Numbers in one array: 16 MB of float64. A few such arrays live at once.
NUMBERS_AT_ONCE = 2**21

# Points for which a sampler draws at once: what it needs for so many stays in the processor's cache.
DRAWS_AT_ONCE = 2**15


def slices(count: int, step: int) -> Iterator[slice]:
    """Yield slices of at most `step` items that cover `count` items.

    Examples
    --------
    >>> list(slices(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def items_at_once(numbers_per_item: int, numbers: int = NUMBERS_AT_ONCE) -> int:
    """Return how many items fit into an array of so many numbers, at least one."""
    return max(1, numbers // max(1, numbers_per_item))


def chunks(count: int, numbers_per_item: int, numbers: int = NUMBERS_AT_ONCE) -> Iterator[slice]:
    """Yield slices that cover `count` items, with as many items in each as fit into an array of so many numbers."""
    return slices(count, items_at_once(numbers_per_item, numbers))
