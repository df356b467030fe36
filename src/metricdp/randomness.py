"""Where random bits come from: the operating system through ChaCha20, or an explicit insecure seed."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from metricdp._validation import integer

__all__ = ["InsecureSeed", "NotPrivate", "RandomSource", "SecureRandom", "integers_below"]

_KEY_BYTES, _NONCE_BYTES = 32, 16


class RandomSource(Protocol):
    """Anything that yields uniform 64-bit words."""

    secure: bool

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` independent uniform 64-bit words."""


class SecureRandom:
    """Words of a ChaCha20 stream under a key that the operating system draws anew for every call.

    Guarantee
    ---------
    No state outlives a call, so forked processes and threads cannot share a stream.
    """

    secure = True

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` words, indistinguishable from uniform for whoever lacks the key."""
        cipher = Cipher(algorithms.ChaCha20(os.urandom(_KEY_BYTES), os.urandom(_NONCE_BYTES)), mode=None)
        stream = cipher.encryptor().update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


class InsecureSeed:
    """Reproducible words for tests; whatever was drawn with them is not private.

    Examples
    --------
    >>> InsecureSeed(7).words(2).tolist() == InsecureSeed(7).words(2).tolist()
    True
    """

    secure = False

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(integer("seed", seed, 0))

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words of a PCG64 stream, which anyone with the seed can repeat."""
        return self._generator.integers(0, 2**64, size=count, dtype=np.uint64)


class NotPrivate(np.ndarray[Any, Any]):
    """An array that came out of an `InsecureSeed`, and whatever was computed from it: not private."""


def integers_below(
    source: RandomSource, bound: NDArray[np.int64] | np.int64, count: int | None = None
) -> NDArray[np.int64]:
    """Return integers uniform on 0 … bound − 1, exactly, by rejection (Lemire 2019).

    A 32-bit word r falls to the value ⌊r·bound / 2^32⌋. Some values would get one word more than the others; leaving
    out r whose low product is below 2^32 mod bound takes those away, and r is drawn again.

    Parameters
    ----------
    source : RandomSource
        Where words come from.
    bound : int64 array, or one number with `count`
        From 1 to 2^32; larger ones are drawn from two words.
    count : int, optional
        How many, if `bound` is one number.
    """
    bounds = np.broadcast_to(bound, len(bound) if count is None else count).astype(np.uint64)  # type: ignore[arg-type]
    if len(bounds) and int(bounds.max()) > 2**32:
        return _below_large(source, bounds)
    product = _half_words(source, len(bounds)) * bounds
    # Only a low product below the bound can be below 2^32 mod bound, so the remainder is taken of very few.
    again = np.flatnonzero(product.astype(np.uint32) < bounds)
    while len(again := again[product[again].astype(np.uint32) < np.uint64(2**32) % bounds[again]]):
        product[again] = _half_words(source, len(again)) * bounds[again]
    return (product >> np.uint64(32)).astype(np.int64)


def _half_words(source: RandomSource, count: int) -> NDArray[np.uint64]:
    return source.words((count + 1) // 2).view(np.uint32)[:count].astype(np.uint64)


def _below_large(source: RandomSource, bounds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Draw whole words and keep those below the largest multiple of the bound."""
    result = np.empty(len(bounds), dtype=np.int64)
    missing = np.arange(len(bounds))
    while len(missing):
        word, bound = source.words(len(missing)), bounds[missing]
        # 2^64 mod bound, without 2^64.
        surplus = (np.uint64(2**64 - 1) % bound + np.uint64(1)) % bound
        good = word <= np.uint64(2**64 - 1) - surplus
        result[missing[good]] = (word[good] % bound[good]).astype(np.int64)
        missing = missing[~good]
    return result
