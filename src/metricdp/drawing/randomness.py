"""Where random bits come from: the operating system through ChaCha20, or an explicit insecure seed."""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from metricdp._validation import integer

__all__ = ["InsecureSeed", "NotPrivate", "RandomSource", "SecureRandom", "coins_of_ratios", "integers_below"]

# A key is used once, so the nonce may be the same for all. Its first 32 bits are the counter, which must not overflow.
_KEY_BYTES, _NONCE = 32, bytes(16)

Words = NDArray[np.uint64]
_HALF, _LOWER_HALF = np.uint64(32), np.uint64(2**32 - 1)


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
        cipher = Cipher(algorithms.ChaCha20(os.urandom(_KEY_BYTES), _NONCE), mode=None)
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

    A word w gives the value ⌊w·bound / 2^64⌋. Some values would get one word more than the others, so words whose low
    product is below 2^64 mod bound are rejected and drawn again, which has a chance below bound/2^64.

    Parameters
    ----------
    source : RandomSource
        Where words come from.
    bound : int64 array, or one number with `count`
        At least 1.
    count : int, optional
        How many, if `bound` is one number.
    """
    bounds = np.broadcast_to(bound, len(bound) if count is None else count).astype(np.uint64)  # type: ignore[arg-type]
    value, low = _product(source.words(len(bounds)), bounds)
    # Only a low product below the bound can be below 2^64 mod bound, so the remainder is taken of very few.
    again = np.flatnonzero(low < bounds)
    while len(again := again[low[again] < -bounds[again] % bounds[again]]):
        value[again], low[again] = _product(source.words(len(again)), bounds[again])
    return value.astype(np.int64)


def coins_of_ratios(
    source: RandomSource, numerators: NDArray[np.int64], denominators: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return True with probability numerator/denominator for every pair; 0 ≤ numerator ≤ denominator.

    Guarantee
    ---------
    The probability is exact if the source's words are uniform and independent: they are the binary digits of a real
    number u, and the answer is u < numerator/denominator. The first word decides unless its digits are those of the
    ratio, which one word in 2^64 has. The time taken therefore does not tell the numbers.
    """
    limit, denominator = numerators.astype(np.uint64), denominators.astype(np.uint64)
    high, low = _product(source.words(len(limit)), denominator)
    heads = high < limit
    # With w the word, w·denominator < numerator·2^64 < (w + 1)·denominator: the digits that follow w decide.
    open_ = np.flatnonzero((high + np.uint64(1) == limit) & (low > -denominator))
    if len(open_):
        heads[open_] = coins_of_ratios(source, (-low[open_]).astype(np.int64), denominators[open_])
    return heads


def _product(words: Words, factors: Words) -> tuple[Words, Words]:
    """Return the upper and the lower 64 bits of words·factors."""
    lower, upper = words & _LOWER_HALF, words >> _HALF
    factors_lower, factors_upper = factors & _LOWER_HALF, factors >> _HALF
    carry = lower * factors_lower
    carry >>= _HALF
    carry += upper * factors_lower
    upper *= factors_upper
    lower *= factors_upper
    lower += carry & _LOWER_HALF
    lower >>= _HALF
    carry >>= _HALF
    upper += carry
    upper += lower
    return upper, words * factors
