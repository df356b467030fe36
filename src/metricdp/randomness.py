"""Where random bits come from: the operating system through ChaCha20, or an explicit insecure seed."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from metricdp._validation import FloatArray, integer

__all__ = ["InsecureSeed", "RandomSource", "SecureRandom", "uniform_floats"]

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


def uniform_floats(source: RandomSource, count: int) -> FloatArray:
    """Return multiples of 2^-53 in [0, 1), uniform over them."""
    return (source.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
